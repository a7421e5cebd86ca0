"""Every option of `tapeway serve`: name, type, default and description.

The flags, the `TAPEWAY_…` variables, the keys of tapeway.toml and docs/configuration.md all derive
from the fields of Settings.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from tapeway.core.http.addresses import Network, is_loopback
from tapeway.core.http.location import DEFAULT_PORTS, origin, without_userinfo
from tapeway.core.http.routing import DEFAULT_ROUTE, Route, RouteTable, valid_cassette_name
from tapeway.core.http.sigv4 import Signing
from tapeway.core.matching import rules
from tapeway.core.matching.rules import Rules, RulesFault
from tapeway.core.model.control import Delivery, Mode, Repeats
from tapeway.core.model.faults import Fault, FaultRefused, parse_faults
from tapeway.core.redaction.credentials import Secret, environment_secrets, searchable
from tapeway.core.redaction.known_values import Allowed, KnownValues
from tapeway.core.streams.pacing import Pace
from tapeway.logs import Level, LogFormat
from tapeway.providers.catalogue import PROVIDERS
from tapeway.settings import parsers
from tapeway.settings.parsers import CertificateChoice, HostPort, RouteChoice, SigningChoice


@dataclass(frozen=True, slots=True)
class Option:
    """How an option is written and described.

    `parse` raises ValueError for a value that cannot be used. `default` is as users write it. A
    `repeatable` one is a list, a `flag` takes no value, and a `table` is set in the file only.
    """

    parse: Callable[[object], Any]
    metavar: str
    default: str | None
    description: str
    _: KW_ONLY
    repeatable: bool = False
    flag: bool = False
    table: bool = False


class OptionFault(ValueError):
    """A value that cannot be used; the message says what can be."""

    def __init__(self, reason: str, option: str = "") -> None:
        """`option` is empty if options contradict each other."""
        super().__init__(reason)
        self.option = option


RecordedHeaders = Literal["all", "minimal"]
_DATABASE = ("postgres:", "postgresql:")
_REPEATS = ("last", "miss", "cycle")


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


def _faults(value: object) -> tuple[Fault, ...]:
    try:
        return parse_faults(value, "fault")
    except FaultRefused as exc:
        raise ValueError(str(exc).removeprefix("fault: ").removeprefix("fault")) from None


def _option(
    parse: Callable[[object], Any],
    metavar: str,
    default: str | None,
    description: str,
    *,
    hidden: bool = False,
    **kinds: bool,
) -> Any:
    """A field; a field for a secret is `hidden` from the repr of all."""
    option = Option(parse, metavar, default, description, **kinds)
    # A default goes through the parser for users' values.
    return field(
        default_factory=lambda: parse(default), repr=not hidden, metadata={"option": option}
    )


def _choice(accepted: object, default: str, description: str) -> Any:
    """A field with one of the words of a Literal."""
    words = get_args(accepted)
    return _option(partial(parsers.choice, accepted=words), "|".join(words), default, description)


def _flag(default: str, description: str) -> Any:
    return _option(parsers.boolean, "", default, description, flag=True)


_FILE = parsers.optional(parsers.text)
_TOKEN = parsers.optional(parsers.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of `tapeway serve`. The repr shows no value that may hold a secret."""

    listen: HostPort = _option(
        parsers.host_port,
        "HOST:PORT",
        "127.0.0.1:8080",
        "The address the app connects to. Port 0 takes a free port.",
    )
    admin_listen: HostPort | None = _option(
        parsers.host_port_or_off,
        "HOST:PORT|off",
        "127.0.0.1:8081",
        "The address of the admin API. Beyond loopback it needs a token. `off` disables the API.",
    )
    page_url: str | None = _option(
        parsers.optional(parsers.page_url),
        "URL",
        None,
        "Where people open the page, such as https://host/tapeway/: errors and the log name misses there. "
        "By default the admin API's own address.",
    )
    record_command: str | None = _option(
        parsers.optional(parsers.text),
        "COMMAND",
        None,
        "The command that records what was missed, such as `make record`: log, page and reports name it. "
        "By default a call of the admin API that switches the mode.",
    )
    admin_token: str | None = _option(
        _TOKEN,
        "TOKEN",
        None,
        "The bearer token that admin calls must send. Prefer the variable: other users can see flags "
        "in the process list.",
        hidden=True,
    )
    tls_cert: str | None = _option(
        _FILE,
        "FILE",
        None,
        "A PEM file with the certificate of this machine, and those of its issuers: the proxy is then "
        "served over TLS (https:, wss:).",
    )
    tls_key: str | None = _option(
        _FILE,
        "FILE",
        None,
        "The PEM file of the certificate's private key, without a passphrase. By default the key is in "
        "--tls-cert.",
    )
    admin_tls: bool = _flag(
        "false",
        "Serve the admin API with the certificate of --tls-cert too.",
    )
    upstream: str | None = _option(
        parsers.optional(parsers.url),
        "URL",
        None,
        "The service that all paths go to. This disables the built-in routes.",
        hidden=True,
    )
    route: tuple[RouteChoice, ...] = _option(
        parsers.list_of(_route),
        "NAME=URL|NAME|all|NAME=off",
        "",
        "Add a route or change the URL of a built-in one (NAME=URL), enable built-in routes beside "
        "--upstream (NAME, all), or disable one (NAME=off). NAME=URL?websocket=off refuses WebSocket "
        "connections on the route.",
        hidden=True,
        repeatable=True,
    )
    sign: tuple[SigningChoice, ...] = _option(
        parsers.list_of(parsers.signing),
        "NAME=aws[:SERVICE[:REGION]]",
        "",
        "Sign the requests of a route for AWS anew, with the credentials of this process, where their "
        "client signed them. The route `bedrock` does so by itself. Repeatable.",
        repeatable=True,
    )
    mode: Mode = _choice(
        Mode,
        "auto",
        "`replay`: only recordings answer. `record`: call the upstream and record. `auto`: replay, "
        "and record what is missing. `passthrough`: call the upstream, record nothing.",
    )
    store: str = _option(
        parsers.text,
        "URL",
        "./cassettes",
        "Where cassettes are stored: DIR, file:DIR, memory:, sqlite:FILE, postgresql://…, or another "
        "tapeway's admin API, http(s)://…. DIR?format=yaml writes new cassettes as YAML.",
        hidden=True,
    )
    store_token: str | None = _option(
        _TOKEN,
        "TOKEN",
        None,
        "The bearer token for another tapeway as the store. Prefer the variable: other users can "
        "see flags in the process list.",
        hidden=True,
    )
    store_ca: str | None = _option(
        _FILE,
        "FILE",
        None,
        "A PEM file of extra certificate authorities to trust for another tapeway as the store.",
    )
    cassette: str = _option(
        _cassette_name,
        "NAME",
        "default",
        "The cassette for requests that do not name one.",
    )
    delivery: Delivery = _choice(
        Delivery,
        "buffer",
        "`buffer`: store a live response durably before sending its first byte. `stream`: send it "
        "as it arrives; only its end waits until it is stored.",
    )
    pace: Pace = _option(
        parsers.pace,
        "none|recorded|FACTORx",
        "none",
        "`none`: send replayed responses as fast as the client reads. `recorded`: send chunks at "
        "their recorded times; `2x` is twice as fast, `0.5x` half as fast.",
    )
    repeats: Repeats | None = _option(
        parsers.optional(partial(parsers.choice, accepted=_REPEATS)),
        "|".join(_REPEATS),
        None,
        "What answers a request whose recordings are used up: the last recording again, a miss, or "
        "all recordings from the first again. By default the cassette's `meta.repeats`, or else "
        "`last`.",
    )
    presets: bool = _flag(
        "true",
        "Begin a cassette with the matching rules that tapeway has for the client, such as Claude "
        "Code: its session, folders, platform and date do not count.",
    )
    record_failures: bool = _flag(
        "false",
        "Also record truncated responses, connection resets and timeouts, and replay them as such.",
    )
    require_marks: bool = _flag(
        "false",
        "Do not record a stream that lacks its protocol's end mark, such as `data: [DONE]`, even if "
        "its framing is complete; it is passed on.",
    )
    record_headers: RecordedHeaders = _choice(
        RecordedHeaders,
        "all",
        "Which response headers are recorded: `minimal` leaves out those that differ each time, such "
        "as dates, ids, rate limits and cookies.",
    )
    record_statuses: frozenset[int] | None = _option(
        parsers.optional(parsers.statuses),
        "RANGES",
        None,
        "The statuses that mode `auto` records, such as 200-299,404. By default 2xx and 3xx, and "
        "of what is no call to a model most 4xx.",
    )
    miss_status: int = _option(
        partial(parsers.integer, least=400, most=599),
        "STATUS",
        "400",
        "The status of a miss. Clients retry calls that get 408, 409, 429 or 5xx, some also 424.",
    )
    hooks: str | None = _option(
        parsers.optional(str),
        "MODULE:OBJECT",
        None,
        "Functions of yours that see recordings, replays and misses, as tests.hooks:Hooks.",
    )
    max_body: int = _option(
        parsers.size,
        "SIZE",
        "80MiB",
        "The largest body of a request or response.",
    )
    config: str | None = _option(
        _FILE,
        "FILE",
        None,
        "The file to read options from. By default ./tapeway.toml, if it exists.",
    )
    drain_timeout: float = _option(
        partial(parsers.seconds, least=0),
        "SECONDS",
        "8",
        "How long to wait for calls in flight when stopping.",
    )
    rewrite: bool = _flag(
        "true",
        "Rewrite what leads the client to an upstream, so that it leads to the proxy: addresses in headers "
        "and in known members of JSON bodies, the endpoint of an MCP server, and cookies.",
    )
    websocket: bool = _flag(
        "true",
        "Relay, record and replay WebSocket connections. Without it, a request to become one gets 426, "
        "and some clients then use HTTP.",
    )
    log_format: LogFormat = _choice(
        LogFormat,
        "auto",
        "`auto`: text on a terminal, otherwise one JSON object per line.",
    )
    log_level: Level = _choice(
        Level,
        "info",
        "The least severe messages to log.",
    )
    access_log: bool = _flag(
        "false",
        "Log a line for each request: client, method, target without secrets, cassette, outcome, "
        "status, bytes, duration, and the ids of the request and its trace.",
    )
    connect_timeout: float = _option(
        parsers.seconds,
        "SECONDS",
        "10",
        "How long connecting to an upstream may take.",
    )
    upstream_timeout: float = _option(
        parsers.seconds,
        "SECONDS",
        "600",
        "How long an upstream may be silent.",
    )
    body_timeout: float = _option(
        parsers.seconds,
        "SECONDS",
        "30",
        "How long a client may pause within a request body.",
    )
    send_timeout: float = _option(
        parsers.seconds,
        "SECONDS",
        "30",
        "How long a client may take nothing of its response before its connection is closed.",
    )
    allow_address: tuple[Network, ...] = _option(
        parsers.list_of(parsers.network),
        "CIDR",
        "",
        "Loopback, link-local or, for a built-in route, private ranges that an upstream's name may "
        "resolve to.",
        repeatable=True,
    )
    allow_origin: tuple[str, ...] = _option(
        parsers.list_of(parsers.page_origin),
        "ORIGIN|*",
        "",
        "An origin whose pages may call the proxy, such as https://app.example.com, `null` for files, or * "
        "for any. Pages of this machine, and of names that public DNS does not hold, may do so anyway.",
        repeatable=True,
    )
    allow_host: tuple[str, ...] = _option(
        parsers.list_of(parsers.host_name),
        "HOST",
        "",
        "A name under which clients may call a proxy that listens on loopback, such as the name of a tunnel. "
        "IP addresses, and names that public DNS does not hold, are served anyway.",
        repeatable=True,
    )
    not_secret: tuple[str, ...] = _option(
        parsers.list_of(parsers.secret_pattern),
        "PATTERN",
        "",
        "A value, or the label of a placeholder, that is no secret: it is stored as it is in bodies and "
        "URLs. `*` stands for anything: build_secret, bld-*. Credentials in headers are always replaced.",
        repeatable=True,
    )
    journal_size: int = _option(
        partial(parsers.integer, least=1, most=1_000_000),
        "N",
        "1000",
        "How many requests the journal keeps.",
    )
    max_age: int | None = _option(
        parsers.optional(parsers.days),
        "AGE",
        None,
        "Report recordings older than this as stale: 30d, 8w. Their age counts from the cassette's "
        "`meta.checked_at`, or else from when they were recorded. They still answer.",
    )
    prices: str | None = _option(
        _FILE,
        "FILE",
        None,
        "A TOML file of prices by model, which come before the list prices that reports know.",
    )
    upstream_ca: str | None = _option(
        _FILE,
        "FILE",
        None,
        "A PEM file of extra certificate authorities to trust for upstreams.",
    )
    upstream_proxy: str | None = _option(
        parsers.optional(parsers.proxy_or_off),
        "URL|off",
        None,
        "The proxy through which upstreams are reached that are not on loopback, or none. By default what "
        "HTTPS_PROXY, HTTP_PROXY and NO_PROXY say. Prefer the variable: other users can see flags in the "
        "process list.",
        hidden=True,
    )
    upstream_cert: tuple[CertificateChoice, ...] = _option(
        parsers.list_of(parsers.certificate),
        "[NAME=]FILE[:KEY]",
        "",
        "A PEM file with a client certificate for upstreams that want one, and the file of its private key "
        "where that is another; with NAME= for one route. Repeatable.",
        repeatable=True,
    )
    insecure_upstream: bool = _flag(
        "false",
        "Accept any certificate from an upstream. Anyone on the network path can then read API keys.",
    )
    rules: Rules = field(
        default=rules.NO_RULES,
        metadata={
            "option": Option(
                _rules,
                "TABLE",
                None,
                "Which differences between requests to ignore, and which headers to compare.",
                table=True,
            )
        },
    )

    fault: tuple[Fault, ...] = field(
        default=(),
        metadata={
            "option": Option(
                _faults,
                "TABLES",
                None,
                "What is to go wrong with which replayed answers; a table for each.",
                table=True,
            )
        },
    )

    given: frozenset[str] = field(default=frozenset(), compare=False)
    """The names of the options that were set."""

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> "Settings":
        """The settings of values as users write them. Raises OptionFault for the first wrong one."""
        if unknown := values.keys() - OPTION_OF.keys():
            raise OptionFault(f"there is no option '{min(unknown)}'")
        parsed: dict[str, Any] = {}
        for name, option in OPTION_OF.items():
            if name in values:
                try:
                    parsed[name] = option.parse(values[name])
                except ValueError as exc:
                    raise OptionFault(str(exc), name) from None
        return cls(**parsed, given=frozenset(values))

    def __post_init__(self) -> None:
        """Raises OptionFault for contradictory options."""
        self._check_admin_token()
        self._check_listeners()
        self._check_tls()
        self._check_store()
        self._check_upstreams()
        self._check_route_names()

    def _check_admin_token(self) -> None:
        admin = self.admin_listen
        if admin is not None and not admin.loopback and self.admin_token is None:
            raise OptionFault(
                f"other machines could reach the admin API at {admin}: set --admin-token "
                "(TAPEWAY_ADMIN_TOKEN), or keep --admin-listen on 127.0.0.1"
            )

    def _check_listeners(self) -> None:
        if self.admin_listen == self.listen and self.listen.port != 0:
            raise OptionFault(
                f"--listen and --admin-listen are both {self.listen}: give one another port"
            )

    def _check_tls(self) -> None:
        if self.tls_cert is None and (self.tls_key is not None or self.admin_tls):
            option = "tls_key" if self.tls_key is not None else "admin_tls"
            raise OptionFault("there is no certificate for it: give --tls-cert FILE too", option)

    def _check_store(self) -> None:
        for own in (self.listen, self.admin_listen):
            if own is not None and _is_own_store(self.store, own):
                raise OptionFault(
                    f"the store is tapeway's own listener {own}: give the URL of another tapeway"
                )

    def _check_route_names(self) -> None:
        routes = {"", *PROVIDERS, DEFAULT_ROUTE, *[choice.name for choice in self.route]}
        named = [("sign", choice.name) for choice in self.sign]
        named += [("upstream_cert", choice.name) for choice in self.upstream_cert]
        for option, name in named:
            if name not in routes:
                raise OptionFault(
                    f"there is no route '{name}': give --route {name}=URL too", option
                )

    def _check_upstreams(self) -> None:
        for own in (self.listen, self.admin_listen):
            for url in _urls(self):
                if own is not None and _is_own_listener(url, own):
                    raise OptionFault(
                        f"the upstream {without_userinfo(url)} is tapeway's own listener {own}: "
                        "requests would loop, so give another one"
                    )
        proxy = self.upstream_proxy or "off"
        for own in (self.listen, self.admin_listen):
            if own is not None and proxy != "off" and _is_own_listener(proxy, own):
                raise OptionFault(
                    f"the proxy {without_userinfo(proxy)} is tapeway's own listener {own}: give "
                    "another one, or off",
                    "upstream_proxy",
                )


OPTION_OF: Mapping[str, Option] = {
    setting.name: setting.metadata["option"]
    for setting in fields(Settings)
    if "option" in setting.metadata
}
"""Every option by its name."""


def resolve_routes(settings: Settings, environ: Mapping[str, str]) -> RouteTable:
    """The enabled routes; the URL of a route may depend on the region in the environment.

    All built-in routes, or with --upstream the routes that are enabled by name. `NAME=URL` wins
    over `all`, in any order.
    """
    names = {choice.name for choice in settings.route}
    routes: dict[str, Route] = {}
    if settings.upstream is None or "all" in names:
        routes = {
            name: Route(name, provider.url_in(environ)) for name, provider in PROVIDERS.items()
        }
    for choice in settings.route:
        if choice.off:
            routes.pop(choice.name, None)
        elif choice.name != "all":
            built_in = PROVIDERS.get(choice.name)
            url = choice.url or (built_in.url_in(environ) if built_in is not None else None)
            routes[choice.name] = Route(choice.name, url, choice.websocket)
    signing = resolve_signing(settings)

    def signed(route: Route) -> Route:
        return replace(route, signing=signing.get(route.name))

    default = _default_route(settings.upstream)
    return RouteTable(
        {name: signed(route) for name, route in routes.items()}, default and signed(default)
    )


def resolve_signing(settings: Settings) -> Mapping[str, Signing]:
    """The routes whose requests are signed for AWS, by name."""
    named = {choice.name: choice.signing for choice in settings.sign}
    return {name: Signing() for name in PROVIDERS if PROVIDERS[name].signed} | named


def known_secrets(settings: Settings) -> tuple[str, ...]:
    """The secret values in the settings, which no log line may show."""
    tokens = (settings.admin_token, settings.store_token)
    secrets = [token for token in tokens if token is not None]
    for url in (*_urls(settings), settings.store, settings.upstream_proxy or ""):
        secrets += _userinfo(url)
    if settings.store.lower().startswith(_DATABASE):
        query = parse_qsl(settings.store.partition("?")[2])
        secrets += [value for name, value in query if name in ("password", "sslpassword")]
    return tuple(secrets)


def process_secrets(settings: Settings, environ: Mapping[str, str]) -> tuple[Secret, ...]:
    """The secrets that no cassette may hold: the environment's credentials and those of the settings."""
    configured = [searchable("configured", text.encode()) for text in known_secrets(settings)]
    return (*environment_secrets(environ), *[value for values in configured for value in values])


def known_values(settings: Settings, environ: Mapping[str, str]) -> KnownValues:
    """The secrets that no cassette may hold, and what the settings allow there."""
    return KnownValues(process_secrets(settings, environ), Allowed(settings.not_secret))


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
    port = parts.port or DEFAULT_PORTS[parts.scheme]
    if port != own.port:
        return False
    return host == own.host or (is_loopback(host) and own.from_here.loopback)


def _userinfo(url: str) -> Iterator[str]:
    authority = url.partition("://")[2].partition("/")[0]
    userinfo, at, _ = authority.rpartition("@")
    if not at:
        return
    _, colon, password = userinfo.partition(":")
    # A service may take a token in the place of a user, a database takes none.
    whole = userinfo if colon or not url.lower().startswith(_DATABASE) else ""
    yield from {whole, unquote(whole), password, unquote(password)} - {""}
