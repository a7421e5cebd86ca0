"""Every option of `tapeway serve`: name, type, default and description.

The flags, the `TAPEWAY_…` variables, the keys of tapeway.toml and docs/configuration.md all derive
from the fields of Settings.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, SecretStr, model_validator

from tapeway.core.http.addresses import Network
from tapeway.core.http.location import origin, without_userinfo
from tapeway.core.http.routing import DEFAULT_ROUTE, Route, RouteTable, valid_cassette_name
from tapeway.core.matching import rules
from tapeway.core.matching.rules import Rules, RulesFault
from tapeway.core.model.control import Delivery, Mode, Repeats
from tapeway.core.redaction.credentials import Secret, environment_secrets, searchable
from tapeway.core.streams.pacing import Pace
from tapeway.providers.catalogue import PROVIDERS
from tapeway.settings import parsers
from tapeway.settings.parsers import HostPort, RouteChoice


@dataclass(frozen=True, slots=True)
class OptionSyntax:
    """How an option is written.

    A repeatable one is a list, a `flag` takes no value, and a `table` is set in the file only.
    """

    metavar: str = ""
    repeatable: bool = False
    flag: bool = False
    table: bool = False


_REPEATS = ("last", "miss", "cycle")


def _choice(*accepted: str) -> PlainValidator:
    return PlainValidator(partial(parsers.choice, accepted=accepted))


def _token(value: object) -> SecretStr:
    return value if isinstance(value, SecretStr) else SecretStr(parsers.token(value))


def _cassette_name(value: object) -> str:
    if not isinstance(value, str) or not valid_cassette_name(value):
        raise ValueError(
            "a cassette's name is up to 8 segments of letters, digits, '.', '_' and '-' joined by "
            "'/', each beginning with a letter or digit, without a dot at the end, and none that "
            "Windows cannot hold (con, nul …)"
        )
    return value


def _route(value: object) -> RouteChoice:
    choice = parsers.route(value)
    if choice.url is None and choice.name not in PROVIDERS and choice.name != "all":
        raise ValueError(
            f"'{choice.name}' is not a built-in route; give {choice.name}=URL, or one of "
            f"{', '.join(PROVIDERS)}"
        )
    return choice


def _rules(value: object) -> Rules:
    if isinstance(value, Rules):
        return value
    try:
        return rules.parse_rules(value)  # type: ignore[arg-type] # it checks every value itself
    except RulesFault as exc:
        raise ValueError(str(exc).removeprefix("rules.").removeprefix("rules: ")) from exc


Address = Annotated[HostPort, PlainValidator(parsers.host_port), OptionSyntax("HOST:PORT")]
AddressOrOff = Annotated[
    HostPort | None, PlainValidator(parsers.host_port_or_off), OptionSyntax("HOST:PORT|off")
]
Token = Annotated[SecretStr | None, PlainValidator(parsers.optional(_token)), OptionSyntax("TOKEN")]
Url = Annotated[str | None, PlainValidator(parsers.optional(parsers.url)), OptionSyntax("URL")]
Routes = Annotated[
    tuple[RouteChoice, ...],
    PlainValidator(parsers.list_of(_route)),
    OptionSyntax("NAME=URL|NAME|all|NAME=off", repeatable=True),
]
Networks = Annotated[
    tuple[Network, ...],
    PlainValidator(parsers.list_of(parsers.network)),
    OptionSyntax("CIDR", repeatable=True),
]
Store = Annotated[str, PlainValidator(parsers.text), OptionSyntax("URL")]
File = Annotated[str | None, PlainValidator(parsers.optional(parsers.text)), OptionSyntax("FILE")]
CassetteName = Annotated[str, PlainValidator(_cassette_name), OptionSyntax("NAME")]
Size = Annotated[int, PlainValidator(parsers.size), OptionSyntax("SIZE")]
Statuses = Annotated[frozenset[int], PlainValidator(parsers.statuses), OptionSyntax("RANGES")]
Age = Annotated[int | None, PlainValidator(parsers.optional(parsers.days)), OptionSyntax("AGE")]
Timeout = Annotated[float, PlainValidator(parsers.seconds), OptionSyntax("SECONDS")]
RulesTable = Annotated[Rules, PlainValidator(_rules), OptionSyntax("TABLE", table=True)]
Flag = Annotated[bool, PlainValidator(parsers.boolean), OptionSyntax(flag=True)]


def _option(default: str | None, description: str, *, hidden: bool = False) -> Any:
    # A default is written as users write it, and goes through the same parser.
    return Field(default, validate_default=True, description=description, repr=not hidden)


class Settings(BaseModel):
    """The options of `tapeway serve`. Their repr shows no value that may hold a secret."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    listen: Address = _option(
        "127.0.0.1:8080", "The address the app connects to. Port 0 takes a free port."
    )
    admin_listen: AddressOrOff = _option(
        "127.0.0.1:8081",
        "The address of the admin API. Beyond loopback it needs a token. `off` disables the API.",
    )
    admin_token: Token = _option(
        None,
        "The bearer token that admin calls must send. Prefer the variable: other users can see flags "
        "in the process list.",
        hidden=True,
    )
    upstream: Url = _option(
        None,
        "The service that all paths go to. This disables the built-in routes.",
        hidden=True,
    )
    route: Routes = _option(
        "",
        "Add a route or change the URL of a built-in one (NAME=URL), enable built-in routes beside "
        "--upstream (NAME, all), or disable one (NAME=off).",
        hidden=True,
    )
    mode: Annotated[
        Mode,
        _choice("replay", "record", "auto", "passthrough"),
        OptionSyntax("replay|record|auto|passthrough"),
    ] = _option(
        "auto",
        "`replay`: only recordings answer. `record`: call the upstream and record. `auto`: replay, "
        "and record what is missing. `passthrough`: call the upstream, record nothing.",
    )
    store: Store = _option(
        "./cassettes",
        "Where cassettes are stored: DIR, file:DIR, memory:, sqlite:FILE, postgresql://…, or another "
        "tapeway's admin API, http(s)://…. DIR?format=yaml writes new cassettes as YAML.",
        hidden=True,
    )
    store_token: Token = _option(
        None,
        "The bearer token for another tapeway as the store. Prefer the variable: other users can "
        "see flags in the process list.",
        hidden=True,
    )
    store_ca: File = _option(
        None,
        "A PEM file of extra certificate authorities to trust for another tapeway as the store.",
    )
    cassette: CassetteName = _option("default", "The cassette for requests that do not name one.")
    delivery: Annotated[Delivery, _choice("buffer", "stream"), OptionSyntax("buffer|stream")] = (
        _option(
            "buffer",
            "`buffer`: store a live response durably before sending its first byte. `stream`: send it "
            "as it arrives; only its end waits until it is stored.",
        )
    )
    pace: Annotated[Pace, PlainValidator(parsers.pace), OptionSyntax("none|recorded|FACTORx")] = (
        _option(
            "none",
            "`none`: send replayed responses as fast as the client reads. `recorded`: send chunks at "
            "their recorded times; `2x` is twice as fast, `0.5x` half as fast.",
        )
    )
    repeats: Annotated[
        Repeats | None,
        PlainValidator(parsers.optional(partial(parsers.choice, accepted=_REPEATS))),
        OptionSyntax("|".join(_REPEATS)),
    ] = _option(
        None,
        "What answers a request whose recordings are used up: the last recording again, a miss, or "
        "all recordings from the first again. By default the cassette's `meta.repeats`, or else "
        "`last`.",
    )
    presets: Flag = _option(
        "true",
        "Begin a cassette with the matching rules that tapeway has for the client, such as Claude "
        "Code: its session, folders, platform and date do not count.",
    )
    record_failures: Flag = _option(
        "false",
        "Also record truncated responses, connection resets and timeouts, and replay them as such.",
    )
    require_marks: Flag = _option(
        "false",
        "Do not record a stream that lacks its protocol's end mark, such as `data: [DONE]`, even if "
        "its framing is complete; it is passed on.",
    )
    record_statuses: Statuses = _option(
        "200-299", "The statuses that mode `auto` records, such as 200-299,404."
    )
    miss_status: Annotated[
        int, PlainValidator(partial(parsers.integer, least=400, most=599)), OptionSyntax("STATUS")
    ] = _option("424", "The status of a miss. SDKs retry calls that get 408, 409, 429 or 5xx.")
    max_body: Size = _option("64MiB", "The largest body of a request or response.")
    config: File = _option(
        None, "The file to read options from. By default ./tapeway.toml, if it exists."
    )
    workers: Annotated[
        int, PlainValidator(partial(parsers.integer, least=1, most=256)), OptionSyntax("N")
    ] = _option(
        "1",
        "How many processes serve the port. More than one need a shared store, `sqlite:FILE` or "
        "`postgresql://…`.",
    )
    drain_timeout: Annotated[
        float, PlainValidator(partial(parsers.seconds, least=0)), OptionSyntax("SECONDS")
    ] = _option("8", "How long to wait for calls in flight when stopping.")
    rewrite_location: Flag = _option(
        "true",
        "Rewrite a Location header that points to the upstream, so that it points to the proxy.",
    )
    log_format: Annotated[
        Literal["auto", "human", "json"],
        _choice("auto", "human", "json"),
        OptionSyntax("auto|human|json"),
    ] = _option("auto", "`auto`: text on a terminal, otherwise one JSON object per line.")
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        _choice("debug", "info", "warning", "error"),
        OptionSyntax("debug|info|warning|error"),
    ] = _option("info", "The least severe messages to log.")
    connect_timeout: Timeout = _option("10", "How long connecting to an upstream may take.")
    upstream_timeout: Timeout = _option("600", "How long an upstream may be silent.")
    body_timeout: Timeout = _option("30", "How long a client may pause within a request body.")
    send_timeout: Timeout = _option(
        "30", "How long a client may take nothing of its response before its connection is closed."
    )
    allow_address: Networks = _option(
        "",
        "Loopback, link-local or, for a built-in route, private ranges that an upstream's name may "
        "resolve to.",
    )
    journal_size: Annotated[
        int, PlainValidator(partial(parsers.integer, least=1, most=1_000_000)), OptionSyntax("N")
    ] = _option("1000", "How many requests the journal keeps.")
    max_age: Age = _option(
        None,
        "Report recordings older than this as stale: 30d, 8w. Their age counts from the cassette's "
        "`meta.checked_at`, or else from when they were recorded. They still answer.",
    )
    prices: File = _option(
        None,
        "A TOML file of prices by model, which come before the list prices that reports know.",
    )
    upstream_ca: File = _option(
        None, "A PEM file of extra certificate authorities to trust for upstreams."
    )
    insecure_upstream: Flag = _option(
        "false",
        "Accept any certificate from an upstream. Anyone on the network path can then read API keys.",
    )

    rules: RulesTable = Field(
        rules.NO_RULES,
        description="Which differences between requests to ignore, and which headers to compare.",
    )

    @model_validator(mode="after")
    def _admin_needs_token(self) -> Self:
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
    def _store_is_not_this_process(self) -> Self:
        for own in (self.listen, self.admin_listen):
            if own is not None and _is_own_store(self.store, own):
                raise ValueError(
                    f"the store is tapeway's own listener {own}: give the URL of another tapeway"
                )
        return self

    @model_validator(mode="after")
    def _upstreams_are_not_this_process(self) -> Self:
        for own in (self.listen, self.admin_listen):
            for url in _urls(self):
                if own is not None and _is_own_listener(url, own):
                    raise ValueError(
                        f"the upstream {without_userinfo(url)} is tapeway's own listener {own}: "
                        "requests would loop, so give another one"
                    )
        return self


def resolve_routes(settings: Settings) -> RouteTable:
    """The enabled routes.

    All built-in ones, or with --upstream those that are enabled by name. `NAME=URL` wins over
    `all`, in any order.
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
    """The secret values in the settings, which no log line may show."""
    tokens = (settings.admin_token, settings.store_token)
    found = [each.get_secret_value() for each in tokens if each is not None]
    for url in (*_urls(settings), settings.store):
        found += _userinfo(url)
    return tuple(found)


def process_secrets(settings: Settings, environ: Mapping[str, str]) -> tuple[Secret, ...]:
    """The secrets that no cassette may hold: the environment's credentials and those of the settings."""
    configured = [searchable("configured", each.encode()) for each in known_secrets(settings)]
    return (*environment_secrets(environ), *[each for found in configured for each in found])


def _default_route(upstream: str | None) -> Route | None:
    if upstream is None:
        return None
    for provider in PROVIDERS.values():
        if provider.url is not None and origin(upstream) == provider.url:
            return Route(provider.name, upstream)
    return Route(DEFAULT_ROUTE, upstream)


def _urls(settings: Settings) -> Iterator[str]:
    if settings.upstream is not None:
        yield settings.upstream
    yield from (choice.url for choice in settings.route if choice.url is not None)


def _is_own_store(url: str, own: HostPort) -> bool:
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in ("http", "https"):
        return False
    try:
        return _is_own_listener(f"{scheme.lower()}://{rest.rpartition('@')[2]}", own)
    except ValueError:
        # Opening the store reports a bad URL; this error's text could show a password.
        return False


def _is_own_listener(url: str, own: HostPort) -> bool:
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
