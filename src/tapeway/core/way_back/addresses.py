"""An address that a service hands out, as its client must ask for it at the proxy.

https://api.openai.com/v1/files/1   ->   http://127.0.0.1:8080/@smoke/openai/v1/files/1
└origin of a route                       └proxy─────────────┘└the client's prefix
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from tapeway.core.http.location import origin
from tapeway.core.http.routing import (
    DEFAULT_ROUTE,
    ProviderLookup,
    RequestAddress,
    Route,
    RouteTable,
)
from tapeway.core.way_back.cookies import lead_cookie

_AUTHORITY = re.compile(r"https?://[^/?#]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Place:
    """An origin, a path below it, and the prefix under which the proxy serves both.

    `reserved` are the first segments that lead elsewhere without a prefix: the names of routes.
    `guessed` is the route that the proxy reads off the path where the prefix does not name it.
    """

    origin: str
    path: str
    prefix: str
    reserved: frozenset[str] = frozenset()
    guessed: str | None = None


def places_of(
    table: RouteTable, route: Route, prefix: str, base: str, *, guessed: bool
) -> tuple[Place, ...]:
    """Where the proxy serves what the response on a route may hand out, the likeliest first.

    `prefix` is what the client wrote before the target, without the route where that is `guessed`.
    `base` is the URL at which the response was made.
    """
    first = prefix.split("/", 2)[1] if prefix else ""
    cassette = f"/{first}" if first.startswith("@") else ""
    routes = frozenset(table.routes)
    name = route.name if guessed and route.name != DEFAULT_ROUTE else None
    reserved = frozenset[str]() if route.name in routes else routes
    own = [_place(url, prefix, name, reserved=reserved) for url in (base, route.url or base)]
    others = [
        _place(other.url, f"{cassette}/{other.name}")
        for other in table.routes.values()
        if other.url is not None
    ]
    if table.default is not None and table.default.url is not None:
        others.append(_place(table.default.url, cassette, reserved=routes))
    # The longest path is the most specific.
    others.sort(key=lambda place: -len(place.path))
    return tuple(dict.fromkeys((*own, *others)))


def _place(
    url: str, prefix: str, guessed: str | None = None, *, reserved: frozenset[str] = frozenset()
) -> Place:
    try:
        return Place(origin(url), urlsplit(url).path.rstrip("/"), prefix, reserved, guessed)
    except ValueError:
        # A recording that was written by hand may have any text as its origin.
        return Place("", "", prefix, reserved, guessed)


@dataclass(frozen=True, slots=True)
class WayBack:
    """Leads the addresses in one response back to the proxy.

    `proxy` is the origin by which the client called the proxy, and the first of `places` is where the
    response was made. `elsewhere` collects the origins of
    addresses that no route leads to.
    """

    proxy: str
    places: Sequence[Place]
    provider_of: ProviderLookup
    elsewhere: dict[str, None]

    def lead(self, url: str) -> str:
        """An absolute URL as the client must ask for it; unchanged where no route leads to it."""
        authority = _AUTHORITY.match(url)
        if authority is None:
            return url
        try:
            wanted = origin(authority[0])
        except ValueError:
            # The service may send any text.
            return url
        rest = url[authority.end() :]
        for place in self.places:
            if place.origin == wanted and (led := self._below(place, rest)) is not None:
                return self.proxy + led
        if wanted != self.proxy and not wanted.endswith("//"):
            self.elsewhere[wanted] = None
        return url

    def lead_reference(self, reference: str) -> str:
        """A URI reference as the client must ask for it: an absolute URL, or a path at the origin."""
        if reference.startswith("//"):
            scheme = self.places[0].origin.partition("//")[0]
            led = self.lead(scheme + reference)
            return reference if led == scheme + reference else led
        if not reference.startswith("/"):
            return self.lead(reference)
        return self._below(self.places[0], reference) or reference

    def lead_cookie(self, cookie: str) -> str:
        """A Set-Cookie value for the proxy."""
        own = self.places[0]
        tls = self.proxy.startswith("https:")
        return lead_cookie(cookie, own.path, own.prefix, tls=tls)

    def _below(self, place: Place, rest: str) -> str | None:
        """What follows the origin, below the path of a place, with the prefix of the proxy."""
        below = rest.removeprefix(place.path)
        if not rest.startswith(place.path) or below[:1] not in ("", "/", "?", "#"):
            return None
        if not below.startswith("/"):
            below = f"/{below}"
        first = re.split(r"[/?#]", below[1:], maxsplit=1)[0]
        if first in place.reserved or (place.reserved and first.startswith("@")):
            return None
        prefix = place.prefix
        if place.guessed is not None and self.provider_of(below, ()) != place.guessed:
            prefix = f"{prefix}/{place.guessed}"
        return prefix + below


class WaysBack:
    """The way back of each request to the routes of a proxy."""

    def __init__(self, table: RouteTable, provider_of: ProviderLookup) -> None:
        self._provider_of = provider_of

        @lru_cache(maxsize=256)
        def places(route: Route, prefix: str, base: str, guessed: bool) -> tuple[Place, ...]:
            return places_of(table, route, prefix, base, guessed=guessed)

        self._places = places

    def of(
        self, address: RequestAddress, base: str, proxy: str, elsewhere: dict[str, None]
    ) -> WayBack:
        """The way back of a response that was made at the URL `base`."""
        places = self._places(address.route, address.prefix, base, address.guessed)
        return WayBack(proxy, places, self._provider_of, elsewhere)
