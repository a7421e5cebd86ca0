"""Every option of `tapeway serve`, once: name, type, default and what it is for.

The flags, the `TAPEWAY_…` variables, the keys of tapeway.toml and docs/configuration.md are all
derived from the fields of Settings.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, SecretStr, model_validator

from tapeway.core.http.addresses import Network
from tapeway.core.http.routing import (
    DEFAULT,
    Route,
    RouteTable,
    origin,
    valid_cassette_name,
    without_userinfo,
)
from tapeway.core.matching import rules
from tapeway.core.matching.rules import Rules, RulesFault
from tapeway.core.model.control import Delivery, Mode, Repeats
from tapeway.core.redaction.credentials import MIN_VALUE, Secret, environment_credentials
from tapeway.core.streams.pacing import Pace
from tapeway.providers.catalogue import PROVIDERS
from tapeway.settings import parsers
from tapeway.settings.parsers import HostPort, RouteChoice


@dataclass(frozen=True, slots=True)
class Written:
    """How a value is written. Repeatable ones are lists; a flag takes no value.

    A table stands in the file alone.
    """

    metavar: str = ""
    repeatable: bool = False
    flag: bool = False
    table: bool = False


_REPEATS = ("last", "miss", "cycle")


def _one_of(*accepted: str) -> PlainValidator:
    return PlainValidator(partial(parsers.one_of, accepted=accepted))


def _token(value: object) -> SecretStr:
    return value if isinstance(value, SecretStr) else SecretStr(parsers.token(value))


def _cassette_name(value: object) -> str:
    if not isinstance(value, str) or not valid_cassette_name(value):
        raise ValueError(
            "a cassette's name is up to 8 segments of letters, digits, '.', '_' and '-' joined by "
            "'/', each beginning with a letter or digit"
        )
    return value


def _route(value: object) -> RouteChoice:
    choice = parsers.route(value)
    if choice.url is None and choice.name not in PROVIDERS and choice.name != "all":
        raise ValueError(
            f"'{choice.name}' is no built-in route; give {choice.name}=URL, or one of "
            f"{', '.join(PROVIDERS)}"
        )
    return choice


def _rules(value: object) -> Rules:
    if isinstance(value, Rules):
        return value
    try:
        return rules.parse_rules(value)  # type: ignore[arg-type] # it looks at every value itself
    except RulesFault as exc:
        raise ValueError(str(exc).removeprefix("rules.").removeprefix("rules: ")) from exc


Address = Annotated[HostPort, PlainValidator(parsers.host_port), Written("HOST:PORT")]
AddressOrOff = Annotated[
    HostPort | None, PlainValidator(parsers.host_port_or_off), Written("HOST:PORT|off")
]
Token = Annotated[SecretStr | None, PlainValidator(parsers.optional(_token)), Written("TOKEN")]
Url = Annotated[str | None, PlainValidator(parsers.optional(parsers.url)), Written("URL")]
Routes = Annotated[
    tuple[RouteChoice, ...],
    PlainValidator(parsers.several(_route)),
    Written("NAME=URL|NAME|all|NAME=off", repeatable=True),
]
Networks = Annotated[
    tuple[Network, ...],
    PlainValidator(parsers.several(parsers.network)),
    Written("CIDR", repeatable=True),
]
Store = Annotated[str, PlainValidator(parsers.word), Written("URL")]
File = Annotated[str | None, PlainValidator(parsers.optional(parsers.word)), Written("FILE")]
CassetteName = Annotated[str, PlainValidator(_cassette_name), Written("NAME")]
Size = Annotated[int, PlainValidator(parsers.size), Written("SIZE")]
Statuses = Annotated[frozenset[int], PlainValidator(parsers.statuses), Written("RANGES")]
Timeout = Annotated[float, PlainValidator(parsers.seconds), Written("SECONDS")]
RulesTable = Annotated[Rules, PlainValidator(_rules), Written("TABLE", table=True)]
Flag = Annotated[bool, PlainValidator(parsers.truth), Written(flag=True)]


def _option(default: str | None, description: str, *, hidden: bool = False) -> Any:
    # A default is written as people write it, and read by the same reader.
    return Field(default, validate_default=True, description=description, repr=not hidden)


class Settings(BaseModel):
    """What `tapeway serve` runs with. Its text form shows no value that may hold a secret."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    listen: Address = _option("127.0.0.1:8080", "Where the app connects. Port 0 takes a free one.")
    admin_listen: AddressOrOff = _option(
        "127.0.0.1:8081",
        "Where the admin API listens. Beyond loopback it needs a token. `off` turns it off.",
    )
    admin_token: Token = _option(None, "The bearer token every admin call must carry.", hidden=True)
    upstream: Url = _option(
        None,
        "The service that owns every path. It switches the built-in routes off.",
        hidden=True,
    )
    route: Routes = _option(
        "",
        "Add a route or give a built-in one another URL (NAME=URL), bring built-in ones back "
        "beside an upstream (NAME, all), or take one away (NAME=off).",
        hidden=True,
    )
    mode: Annotated[
        Mode,
        _one_of("replay", "record", "auto", "passthrough"),
        Written("replay|record|auto|passthrough"),
    ] = _option(
        "auto",
        "What is answered from the cassette, and what is asked and recorded.",
    )
    store: Store = _option(
        "./cassettes",
        "Where cassettes are kept: DIR, file:DIR, memory:, sqlite:FILE, postgresql://…, or another "
        "tapeway's admin API, http(s)://…. DIR?format=yaml writes new ones in YAML.",
        hidden=True,
    )
    store_token: Token = _option(
        None,
        "The bearer token of another tapeway that is the store. The environment shows it to fewer "
        "than a flag.",
        hidden=True,
    )
    store_ca: File = _option(
        None, "A PEM bundle of further authorities that may vouch for another tapeway as the store."
    )
    cassette: CassetteName = _option(
        "default", "The cassette of requests that name none themselves."
    )
    delivery: Annotated[Delivery, _one_of("buffer", "stream"), Written("buffer|stream")] = _option(
        "buffer",
        "`buffer`: a live answer is durable in the store before its first byte is sent. `stream`: "
        "it is passed on as it comes, and only its end waits for that.",
    )
    pace: Annotated[Pace, PlainValidator(parsers.pace), Written("none|recorded|FACTORx")] = _option(
        "none",
        "`none`: a replayed answer is sent as fast as it is read. `recorded`: its pieces come when "
        "they came; `2x` is twice as fast, `0.5x` half as fast.",
    )
    repeats: Annotated[
        Repeats | None,
        PlainValidator(parsers.optional(partial(parsers.one_of, accepted=_REPEATS))),
        Written("|".join(_REPEATS)),
    ] = _option(
        None,
        "What answers an equal request when its recordings are used up: the last one again, a miss, "
        "or the first one again. Not given, it is what the cassette's `meta.repeats` says, or else "
        "`last`.",
    )
    record_failures: Flag = _option(
        "false",
        "Record answers that were cut, connections that were reset and timeouts, and replay them "
        "as what they were.",
    )
    record_statuses: Statuses = _option(
        "200-299", "The statuses that mode auto records, such as 200-299,404."
    )
    miss_status: Annotated[
        int, PlainValidator(partial(parsers.whole, least=400, most=599)), Written("STATUS")
    ] = _option("424", "The status of a miss. SDKs repeat a call that gets 408, 409, 429 or 5xx.")
    max_body: Size = _option("64MiB", "The largest body of a request or answer.")
    config: File = _option(None, "The file to read options from. ./tapeway.toml if that exists.")
    workers: Annotated[
        int, PlainValidator(partial(parsers.whole, least=1, most=256)), Written("N")
    ] = _option(
        "1",
        "How many processes serve the port. More than one need a store they can share, "
        "`sqlite:FILE` or `postgresql://…`.",
    )
    drain_timeout: Annotated[
        float, PlainValidator(partial(parsers.seconds, least=0)), Written("SECONDS")
    ] = _option("8", "How long a stop waits for calls in flight.")
    rewrite_location: Flag = _option(
        "true", "Make a Location that points to the upstream point to the proxy."
    )
    log_format: Annotated[
        Literal["auto", "human", "json"],
        _one_of("auto", "human", "json"),
        Written("auto|human|json"),
    ] = _option("auto", "`auto`: text on a terminal, otherwise one JSON object a line.")
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        _one_of("debug", "info", "warning", "error"),
        Written("debug|info|warning|error"),
    ] = _option("info", "The least severe messages to log.")
    connect_timeout: Timeout = _option("10", "How long connecting to an upstream may take.")
    upstream_timeout: Timeout = _option("600", "How long an upstream may send nothing.")
    body_timeout: Timeout = _option("30", "How long a client may pause inside a request's body.")
    allow_address: Networks = _option(
        "",
        "Addresses that the name of an upstream may stand for although they are loopback, "
        "link-local or, for a built-in route, private.",
    )
    journal_size: Annotated[
        int, PlainValidator(partial(parsers.whole, least=1, most=1_000_000)), Written("N")
    ] = _option("1000", "How many of the last requests the journal holds.")
    upstream_ca: File = _option(
        None, "A PEM bundle of further authorities that may vouch for an upstream."
    )
    insecure_upstream: Flag = _option(
        "false", "Accept any certificate of an upstream. Whoever is in between can read keys."
    )

    rules: RulesTable = Field(
        rules.NO_RULES,
        description="What requests may differ in and still be equal, and which headers count.",
    )

    @model_validator(mode="after")
    def _admin_is_guarded(self) -> Self:
        admin = self.admin_listen
        if admin is not None and not admin.loopback and self.admin_token is None:
            raise ValueError(
                f"other machines could reach the admin API at {admin}: set --admin-token "
                "(TAPEWAY_ADMIN_TOKEN), or keep --admin-listen on 127.0.0.1"
            )
        return self

    @model_validator(mode="after")
    def _listeners_differ(self) -> Self:
        if self.admin_listen == self.listen and self.listen.port != 0:
            raise ValueError(
                f"--listen and --admin-listen are both {self.listen}: give one another port"
            )
        return self

    @model_validator(mode="after")
    def _store_is_another(self) -> Self:
        for own in (self.listen, self.admin_listen):
            if own is not None and _store_leads_to(self.store, own):
                raise ValueError(
                    f"the store leads to tapeway's own listener {own}: give another tapeway's"
                )
        return self

    @model_validator(mode="after")
    def _upstreams_are_others(self) -> Self:
        for own in (self.listen, self.admin_listen):
            for url in _urls(self):
                if own is not None and _leads_to(url, own):
                    raise ValueError(
                        f"the upstream {without_userinfo(url)} is tapeway's own listener {own}: "
                        "requests would go round in circles, so give another one"
                    )
        return self


def resolve_routes(settings: Settings) -> RouteTable:
    """The routes there are.

    All built-in ones unless an upstream owns every path; then those brought back. `NAME=URL` wins
    over `all`, wherever they stand.
    """
    names = {choice.name for choice in settings.route}
    routes: dict[str, Route] = {}
    if settings.upstream is None or "all" in names:
        routes = {name: Route(name, provider.url) for name, provider in PROVIDERS.items()}
    for choice in settings.route:
        if choice.off:
            routes.pop(choice.name, None)
        elif choice.name != "all":
            built_in = PROVIDERS.get(choice.name)
            url = choice.url or (built_in.url if built_in is not None else None)
            routes[choice.name] = Route(choice.name, url)
    return RouteTable(routes, _default_route(settings.upstream))


def known_secrets(settings: Settings) -> tuple[str, ...]:
    """The values in the settings that no log line may show."""
    tokens = (settings.admin_token, settings.store_token)
    found = [each.get_secret_value() for each in tokens if each is not None]
    for url in (*_urls(settings), settings.store):
        found += _userinfo(url)
    return tuple(found)


def process_secrets(settings: Settings, environ: Mapping[str, str]) -> tuple[Secret, ...]:
    """What no cassette may hold whatever a request shows: the environment's credentials, and ours."""
    given = [value for value in known_secrets(settings) if len(value) >= MIN_VALUE]
    return (
        *[
            Secret(name.lower().replace("_", "-"), value.encode())
            for name, value in environment_credentials(environ)
        ],
        *[Secret("configured", value.encode()) for value in given],
    )


def _default_route(upstream: str | None) -> Route | None:
    if upstream is None:
        return None
    for provider in PROVIDERS.values():
        if provider.url is not None and origin(upstream) == provider.url:
            return Route(provider.name, upstream)
    return Route(DEFAULT, upstream)


def _urls(settings: Settings) -> Iterator[str]:
    if settings.upstream is not None:
        yield settings.upstream
    yield from (choice.url for choice in settings.route if choice.url is not None)


def _store_leads_to(url: str, own: HostPort) -> bool:
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in ("http", "https"):
        return False
    try:
        return _leads_to(f"{scheme.lower()}://{rest.rpartition('@')[2]}", own)
    except ValueError:
        # Its text would show what it stumbled over; whoever opens the store says so without.
        return False


def _leads_to(url: str, own: HostPort) -> bool:
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    if port != own.port:
        return False
    everywhere = own.host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
    return host == own.host or (parsers.is_loopback(host) and (own.loopback or everywhere))


def _userinfo(url: str) -> Iterator[str]:
    authority = url.partition("://")[2].partition("/")[0]
    userinfo, at, _ = authority.rpartition("@")
    if not at:
        return
    password = userinfo.partition(":")[2]
    yield from {userinfo, unquote(userinfo), password, unquote(password)} - {""}
