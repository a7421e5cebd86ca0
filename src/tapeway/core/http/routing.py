"""Routing: from an app's path to the cassette, the route and the target below the route.

    /@smoke/openai/v1/models?limit=2        /@~worker-1/openai/v1/models
     └cassette  └route  └──target────┘         └slot

The target is cut out of the raw request line and never re-encoded: signatures cover it. Recordings
of foreign tools get a route by their origin.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal
from urllib.parse import unquote, urlsplit

from tapeway.core.http.headers import CASSETTE_HEADER
from tapeway.core.http.location import origin, same_origin
from tapeway.core.http.sigv4 import Signing
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.core.model.messages import Headers, Request
from tapeway.core.model.request_fields import RequestFields
from tapeway.errors import NoRoute, RequestError

DEFAULT_ROUTE = "default"
"""The name of the route for all remaining paths."""

ProviderLookup = Callable[[str, Headers], str | None]
"""Returns the provider that a target without a route belongs to, or None."""
BaseUrlFaultKind = Literal["doubled", "missing", "upstream"]
# Windows takes these for devices, whatever stands behind the first dot, and drops a dot at the end
# (Microsoft, "Naming Files, Paths, and Namespaces").
_DEVICE = "([Cc][Oo][Nn]|[Pp][Rr][Nn]|[Aa][Uu][Xx]|[Nn][Uu][Ll]|([Cc][Oo][Mm]|[Ll][Pp][Tt])[0-9])"
NAME_SEGMENT = re.compile(
    rf"(?!{_DEVICE}(\.|/|$))[A-Za-z0-9]([A-Za-z0-9._-]{{0,126}}[A-Za-z0-9_-])?"
)
"""One segment of a cassette's name, in a syntax that JSON Schema shares."""
_MAX_SEGMENTS = 8


@dataclass(frozen=True, slots=True)
class Route:
    """A name in the match key and the URL behind it; None where the URL must still be given."""

    name: str
    url: str | None = field(repr=False)  # it may hold a user name and password
    websocket: bool = True
    """Whether it takes WebSocket connections."""
    signing: Signing | None = None
    """The AWS service and region to sign requests for, or None."""


@dataclass(frozen=True, slots=True)
class RouteTable:
    """The routes by first path segment, and the route for every other path."""

    routes: Mapping[str, Route] = field(default_factory=dict)
    default: Route | None = None

    def __iter__(self) -> Iterator[Route]:
        yield from self.routes.values()
        if self.default is not None:
            yield self.default


@dataclass(frozen=True, slots=True)
class BaseUrlFault:
    """A base URL with a doubled or missing version, or with a version that the upstream's URL has too.

    `prefix` is the beginning of a right target, or the end of the upstream's URL.
    """

    kind: BaseUrlFaultKind
    prefix: str

    def message(self, route: str, root: str) -> str:
        """What is wrong and what to do; `root` is the URL of the route on the proxy."""
        if self.kind == "upstream":
            return (
                f"the URL of route '{route}' ends in {self.prefix}, which the client adds too: give "
                f"the route's URL without it, or set the client's base URL to {root}"
            )
        how = "has its version twice" if self.kind == "doubled" else "lacks its version"
        return (
            f"the client's base URL {how}: set it to {root}{self.prefix}, or to {root} if the "
            f"client adds {self.prefix} itself"
        )


@dataclass(frozen=True, slots=True)
class RequestAddress:
    """Where a request goes.

    `prefix` is the client's text before the target, for addresses in the
    client's terms. `guessed` means that the route was derived from the path instead of written there:
    recordings of the `default` route may answer too.
    """

    cassette: str | None
    route: Route
    target: str
    prefix: str
    guessed: bool = False
    base_url_fault: BaseUrlFault | None = None
    slot: str | None = None
    """The slot that names the cassette, where no cassette is named."""


def valid_cassette_name(name: str) -> bool:
    """Whether a name is up to 8 `/`-separated segments of `[A-Za-z0-9][A-Za-z0-9._-]{0,127}`.

    No segment may be a name that Windows cannot hold: a cassette is a file that people share.
    """
    segments = name.split("/")
    return len(segments) <= _MAX_SEGMENTS and all(map(NAME_SEGMENT.fullmatch, segments))


def check_cassette_name(name: str) -> str:
    """The name itself. Raises RequestError for one the contract does not allow."""
    if not valid_cassette_name(name):
        raise RequestError(
            "the cassette name must be up to 8 segments of letters, digits, '.', '_' and '-' "
            "joined by '/', each beginning with a letter or digit, without a dot at the end, and "
            "none that Windows cannot hold (con, nul …)",
            code="bad_cassette_name",
        )
    return name


def check_slot_name(name: str) -> str:
    """The name itself. Raises RequestError for one the contract does not allow."""
    if not NAME_SEGMENT.fullmatch(name):
        raise RequestError(
            "the name of a slot must be letters, digits, '.', '_' and '-', beginning with a letter "
            "or digit, without a dot at the end, and none that Windows cannot hold (con, nul …)",
            code="bad_slot_name",
        )
    return name


def resolve(
    table: RouteTable, provider_of: ProviderLookup, target: str, fields: RequestFields
) -> RequestAddress:
    """The address behind a raw request target.

    Raises RequestError for an invalid name of a cassette or slot. A header names the
    cassette or slot of its request alone, so it counts before the slot of the path.
    """
    cassette, slot, prefix, rest = _cut_cassette(target)
    if cassette is None and fields.value(CASSETTE_HEADER) is not None:
        cassette, slot = named_cassette(fields)
    address = _below(table, provider_of, cassette, prefix, rest, fields.headers)
    return address if slot is None else replace(address, slot=slot)


def named_cassette(fields: RequestFields) -> tuple[str | None, str | None]:
    """The cassette or the slot of the header. Raises RequestError for an invalid name."""
    named = fields.value(CASSETTE_HEADER)
    return (None, None) if named is None else _cassette_or_slot(named.decode("latin-1"))


def _below(
    table: RouteTable,
    provider_of: ProviderLookup,
    cassette: str | None,
    prefix: str,
    rest: str,
    headers: Headers,
) -> RequestAddress:
    """The address of what follows the cassette."""
    first, below = _cut_segment(rest)
    if (route := table.routes.get(first)) is not None:
        return RequestAddress(cassette, route, below, f"{prefix}/{first}")
    if table.default is not None:
        return RequestAddress(cassette, table.default, rest, prefix)
    if (name := provider_of(rest, headers)) is not None and name in table.routes:
        return RequestAddress(cassette, table.routes[name], rest, prefix, guessed=True)
    return RequestAddress(cassette, Route(DEFAULT_ROUTE, None), rest, prefix, guessed=True)


def no_route_error(table: RouteTable, route: str, target: str) -> NoRoute:
    """The error for a request that has no upstream; it names the routes."""
    if route in table.routes:
        return NoRoute(f"route '{route}' has no URL yet: give one with --route {route}=https://…")
    names = ", ".join(sorted(table.routes)) or "none"
    path = target.partition("?")[0]
    return NoRoute(
        f"no route takes {path}: start the path with a route name ({names}) "
        "or give an --upstream for every path"
    )


def assign_routes(stored: StoredCassette, table: RouteTable) -> StoredCassette:
    """The cassette, with routes by origin for recordings without a route."""
    routed = [assign_route(interaction, table) for interaction in stored.interactions]
    return replace(stored, interactions=tuple(routed))


def assign_route(item: AnyInteraction, table: RouteTable) -> AnyInteraction:
    """The interaction with a route by its origin.

    A call recorded at an SDK has no origin, and is replayed on any route.
    """
    if isinstance(item, ForeignInteraction):
        exchange = item.exchange
        if exchange is None or exchange.request.route or not exchange.request.base:
            return item
        routed_exchange = replace(exchange, request=with_route(exchange.request, table))
        return replace(item, exchange=routed_exchange)
    if isinstance(item, LazyInteraction) or item.request.route:
        return item
    return replace(item, request=with_route(item.request, table))


def with_route(request: Request, table: RouteTable) -> Request:
    """A recorded request without a route, with the route of its origin added."""
    for prefix, name in _routes_to(request.base, table):
        if request.target.startswith(prefix + "/"):
            target = request.target[len(prefix) :]
            return replace(request, route=name, base=request.base + prefix, target=target)
    return replace(request, route=DEFAULT_ROUTE)


def path_prefixes(base: str, table: RouteTable) -> Sequence[str]:
    """The paths of the routes to an origin, each without a slash at its end, the longest first."""
    return [prefix for prefix, _ in _routes_to(base, table)]


def base_paths(table: RouteTable) -> Sequence[str]:
    """The paths of all routes' base URLs, each without a slash at the end."""
    paths = [urlsplit(route.url).path.rstrip("/") for route in table if route.url is not None]
    return list(dict.fromkeys(paths))


def _routes_to(base: str, table: RouteTable) -> list[tuple[str, str]]:
    bases = [
        (urlsplit(route.url).path.rstrip("/"), route.name)
        for route in table
        if route.url is not None and same_origin(base, route.url)
    ]
    # The longest base path is the most specific.
    return sorted(bases, key=lambda pair: -len(pair[0]))


def on_other_routes(request: Request, table: RouteTable) -> Iterator[Request]:
    """A client's request, on each further route to the origin.

    An app or a foreign recording may use any of several routes to one service, which makes no
    difference between requests.
    """
    own, prefix = _origin_and_path(request.base)
    whole = prefix + request.target
    for route in table:
        if route.url is None or route.name == request.route:
            continue
        other, base = _origin_and_path(route.url)
        if other == own and whole.startswith(base + "/"):
            yield replace(request, route=route.name, target=whole[len(base) :], base=route.url)


@lru_cache(maxsize=256)
def _origin_and_path(url: str) -> tuple[str, str]:
    """The origin of a route's URL, and its path without a slash at the end."""
    # Remembered, since each request that no recording answers is compared with all routes.
    return origin(url), urlsplit(url).path.rstrip("/")


def _cut_cassette(target: str) -> tuple[str | None, str | None, str, str]:
    """Cassette, slot, both as they are written, and the rest."""
    if not target.startswith("/@"):
        return None, None, "", target
    segment, rest = _cut_segment(target)
    return *_cassette_or_slot(unquote(segment[1:])), f"/{segment}", rest


def _cassette_or_slot(name: str) -> tuple[str | None, str | None]:
    """What `NAME` or `~SLOT` names: the cassette, or the slot."""
    if name.startswith("~"):
        return None, check_slot_name(name[1:])
    return check_cassette_name(name), None


def _cut_segment(target: str) -> tuple[str, str]:
    """`/a/b?c` -> (`a`, `/b?c`); what remains always begins with a slash."""
    path, question, query = target.partition("?")
    segment, _, rest = path[1:].partition("/")
    return segment, f"/{rest}{question}{query}"
