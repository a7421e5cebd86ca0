"""Parsers of option values: `127.0.0.1:8080`, `64MiB`, `200-299`, `openai=https://host`.

A parser takes a value of a flag, a variable or a TOML file, and returns a parsed value unchanged. A
parser raises ValueError with a sentence on the accepted values.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import TypeVar
from urllib.parse import SplitResult, urlsplit

from tapeway.core.http.addresses import Network, is_loopback
from tapeway.core.http.foreign import ANY_ORIGIN, NO_ORIGIN, as_origin
from tapeway.core.http.sigv4 import Signing
from tapeway.core.streams.pacing import AS_RECORDED, AT_ONCE, Pace

T = TypeVar("T")

_UNITS: Mapping[str, int] = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"(\d{1,15}) ?([A-Za-z]*)", re.ASCII)
_DAYS = re.compile(r"(\d{1,6}) ?([dw]?)", re.ASCII)
_STATUSES = re.compile(r"(\d{3})(?:-(\d{3}))?", re.ASCII)
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]+)\]")
_LEAST_PATTERN = 4
_PATTERN_FORM = (
    f"write {_LEAST_PATTERN} characters or more beside `*` in quotes, such as "
    '"build_secret" or "bld-*"'
)
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252})")
_SIGNING = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})=aws(?::([a-z0-9-]+)(?::([a-z0-9-]+))?)?")
_ROUTE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NO_WEBSOCKET = "?websocket=off"
"""The only query in the URL of a route."""
_THIS_MACHINE = "127.0.0.1"
_LOOPBACK_OF = {"0.0.0.0": _THIS_MACHINE, "::": "::1"}  # noqa: S104 - compared, not bound
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]")
_NOT_IN_URL = re.compile(r"[^\x21-\x7e]|[?#\\]")
_PACES: Mapping[str, Pace] = {"none": AT_ONCE, "recorded": AS_RECORDED}
_FACTOR = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,4})?)x", re.ASCII)
_SLOWEST, _FASTEST = 0.001, 1000
_BOOLEANS: Mapping[str, bool] = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


@dataclass(frozen=True, slots=True)
class HostPort:
    """An address to listen on; port 0 takes a free port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)

    @property
    def from_here(self) -> "HostPort":
        """The address for clients on this machine: they reach a listener on all addresses on loopback."""
        return HostPort(_LOOPBACK_OF.get(self.host, self.host), self.port)


@dataclass(frozen=True, slots=True)
class SigningChoice:
    """A route whose requests are signed for AWS."""

    name: str
    signing: Signing


@dataclass(frozen=True, slots=True)
class CertificateChoice:
    """A client certificate for upstreams, for one route or, without a `name`, for all."""

    name: str
    cert: str
    key: str | None = None
    """The file of the private key; None if the key is in the certificate's file."""


@dataclass(frozen=True, slots=True)
class RouteChoice:
    """A route that is added (`url`), disabled (`off`) or enabled (neither)."""

    name: str
    url: str | None = field(default=None, repr=False)  # it may hold a password
    off: bool = False
    websocket: bool = True
    """Whether the route takes WebSocket connections."""


def host_port(value: object) -> HostPort:
    """`127.0.0.1:8080`, `localhost:0`, `[::1]:8080`; `:8080` is a port of this machine alone."""
    if isinstance(value, HostPort):
        return value
    host, colon, port = str(value).rpartition(":")
    if colon and not host:
        host = _THIS_MACHINE
    if (match := _BRACKETED.fullmatch(host)) is not None:
        host = match[1]
    elif not _HOST.fullmatch(host):
        host = ""
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError(
            f"{_quoted(value)} is not an address to listen on; "
            "give HOST:PORT or :PORT with a port from 0 to 65535, such as 127.0.0.1:8080"
        )
    return HostPort(host, int(port))


def host_port_or_off(value: object) -> HostPort | None:
    """`HOST:PORT`, or `off` for None."""
    if value is None or value == "off":
        return None
    try:
        return host_port(value)
    except ValueError as exc:
        raise ValueError(f"{exc}, or off") from None


def size(value: object) -> int:
    """Bytes: `64MiB`, `2GiB`, `1048576`."""
    match = _SIZE.fullmatch(str(value).strip())
    unit = None if match is None else _UNITS.get(match[2])
    if match is None or unit is None or int(match[1]) == 0:
        raise ValueError(
            f"{_quoted(value)} is not a size; "
            "give a number of bytes, or one with KiB, MiB or GiB, such as 64MiB"
        )
    return int(match[1]) * unit


def days(value: object) -> int:
    """A number of days: `30d`, `8w`, `30`."""
    match = _DAYS.fullmatch(str(value).strip())
    if match is None or isinstance(value, bool):
        raise ValueError(f"{_quoted(value)} is not an age; give days or weeks, such as 30d or 8w")
    return int(match[1]) * (7 if match[2] == "w" else 1)


def seconds(value: object, *, least: float = 0.001) -> float:
    """A duration in seconds, of at least `least`."""
    try:
        number = math.nan if isinstance(value, bool) else float(str(value))
    except ValueError:
        number = math.nan
    if not least <= number < math.inf:
        bound = "from 0" if least == 0 else "above 0"
        raise ValueError(f"{_quoted(value)} is not a duration; give seconds {bound}, such as 10")
    return number


def integer(value: object, *, least: int, most: int) -> int:
    """A whole number from `least` to `most`."""
    text = "" if isinstance(value, bool) else str(value).strip()
    if not re.fullmatch(r"[0-9]{1,12}", text) or not least <= int(text) <= most:
        raise ValueError(f"{_quoted(value)} is not accepted; give a number from {least} to {most}")
    return int(text)


def boolean(value: object) -> bool:
    """`true`, `yes`, `on`, `1` or `false`, `no`, `off`, `0`."""
    truth = _BOOLEANS.get(str(value).strip().lower())
    if truth is None:
        raise ValueError(f"{_quoted(value)} is not accepted; give true or false")
    return truth


def pace(value: object) -> Pace:
    """`none`, `recorded`, or a speed such as `2x`."""
    if isinstance(value, Pace):
        return value
    text = str(value).strip()
    if text in _PACES:
        return _PACES[text]
    match = _FACTOR.fullmatch(text)
    factor = float(match[1]) if match else 0.0
    if not _SLOWEST <= factor <= _FASTEST:
        raise ValueError(
            f"{_quoted(value)} is not a pace; give none, recorded, or a speed, such as 2x or 0.5x"
        )
    return Pace(1 / factor)


def choice(value: object, accepted: tuple[str, ...]) -> str:
    """One of the accepted words."""
    words = ", ".join(accepted)
    if not isinstance(value, str) or value not in accepted:
        raise ValueError(f"{_quoted(value)} is not accepted; use {words}")
    return value


def url(value: object) -> str:
    """An http(s) URL with a host, no query, and no slash at its end."""
    text = str(value).rstrip("/")
    before, mark, query = text.partition("?")
    if mark:
        # A value may be a key.
        names = "&".join(f"{part.partition('=')[0]}=…" for part in query.split("&"))
        raise ValueError(
            f"{_quoted(before)} with '?{names}' is not an upstream URL, which has no query: clients "
            "send the query with each request, so leave it out"
        )
    parts = _parts_of_url(text)
    if parts is None or parts.netloc.endswith(":"):
        raise ValueError(
            f"{_quoted(re.split(r'[?#]', text)[0])} is not an upstream URL; give http:// or https://, "
            "a host and at most a path, such as https://api.example.com"
        )
    return text


_GIVE = (
    "give http:// or https:// with a host and a port, such as http://proxy.example.com:3128, or off"
)


def proxy_or_off(value: object) -> str:
    """The URL of an HTTP proxy, `http://USER:PASSWORD@HOST:PORT`, or `off`."""
    text = str(value).rstrip("/")
    if text == "off":
        return text
    parts = _parts_of_url(text)
    if text.lower().startswith("socks"):
        raise ValueError(
            f"{_quoted(text)} is a SOCKS proxy, which tapeway does not speak with; {_GIVE}"
        )
    if parts is None or parts.path:
        raise ValueError(f"{_quoted(str(value))} is not the URL of a proxy; {_GIVE}")
    return text


def route(value: object) -> RouteChoice:
    """`NAME=URL`, `NAME=URL?websocket=off`, `NAME=off`, `NAME` or `all`."""
    if isinstance(value, RouteChoice):
        return value
    name, equals, target = str(value).partition("=")
    if not _ROUTE_NAME.fullmatch(name) or (name == "all" and equals):
        raise ValueError(
            f"{_quoted(name)} is not a route; give NAME=URL, NAME=off, NAME or all, where a name is "
            "made of letters, digits, '.', '_' and '-'"
        )
    if name == "default":
        raise ValueError("the default route is set by --upstream URL")
    if not equals:
        return RouteChoice(name)
    if target == "off":
        return RouteChoice(name, off=True)
    plain = target.removesuffix(_NO_WEBSOCKET)
    if "?websocket=" in plain:
        raise ValueError(f"'?websocket=' of the route {name} can only be '{_NO_WEBSOCKET}'")
    return RouteChoice(name, url(plain), websocket=plain == target)


def signing(value: object) -> SigningChoice:
    """`NAME=aws`, `NAME=aws:SERVICE` or `NAME=aws:SERVICE:REGION`."""
    if isinstance(value, SigningChoice):
        return value
    match = _SIGNING.fullmatch(str(value))
    if match is None:
        raise ValueError(
            f"{_quoted(value)} does not name a route to sign for; give NAME=aws, NAME=aws:SERVICE or "
            "NAME=aws:SERVICE:REGION, where NAME is a route"
        )
    return SigningChoice(match[1], Signing(match[2] or "", match[3] or ""))


def certificate(value: object) -> CertificateChoice:
    """`FILE`, `FILE:KEY`, `NAME=FILE` or `NAME=FILE:KEY`."""
    if isinstance(value, CertificateChoice):
        return value
    name, equals, files = str(value).partition("=")
    if not equals or not _ROUTE_NAME.fullmatch(name):
        name, files = "", str(value)
    cert, colon, key = files.partition(":")
    if not cert or (colon and not key) or "\0" in files:
        raise ValueError(
            f"{_quoted(value)} names no certificate; give FILE or FILE:KEY, with NAME= before it for one "
            "route"
        )
    return CertificateChoice(name, cert, key or None)


def statuses(value: object) -> frozenset[int]:
    """`200-299`, `200,201,404`, or a list of such."""
    if isinstance(value, frozenset):
        return value
    expanded: set[int] = set()
    for item in list_items(value):
        match = _STATUSES.fullmatch(str(item).strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 200 <= first <= last <= 599:
            raise ValueError(
                f"{_quoted(item)} is not a status or range of statuses; "
                "give statuses from 200 to 599, such as 200-299,404"
            )
        expanded.update(range(first, last + 1))
    return frozenset(expanded)


def network(value: object) -> Network:
    """`10.0.0.0/8`, `192.0.2.7`, `fd00::/8`."""
    try:
        return ip_network(str(value).strip())
    except ValueError:
        raise ValueError(
            f"{_quoted(value)} is not a range of addresses; give one such as 10.0.0.0/8"
        ) from None


def page_origin(value: object) -> str:
    """`https://app.example.com`, `null`, or `*`."""
    text = str(value).strip()
    origin = text if text in (ANY_ORIGIN, NO_ORIGIN) else as_origin(text)
    if origin is None:
        raise ValueError(
            f"{_quoted(value)} is not the origin of a page; give scheme, host and port, such as "
            "https://app.example.com or http://app.example.com:3000, or null, or *"
        )
    return origin


def host_name(value: object) -> str:
    """`tapeway.example.com`, without a scheme and a port."""
    text = str(value).strip()
    if not _HOST.fullmatch(text):
        raise ValueError(
            f"{_quoted(value)} is not the name of a host; give it without scheme and port, such as "
            "tapeway.example.com"
        )
    return text.lower()


def secret_pattern(value: object) -> str:
    """A pattern of what is no secret: four characters beside `*` at least."""
    text = value.strip() if isinstance(value, str) else ""
    if len(text.replace("*", "")) < _LEAST_PATTERN:
        fault = "would allow too much" if isinstance(value, str) else "is no text"
        raise ValueError(f"{_quoted(value)} {fault}; {_PATTERN_FORM}")
    return text


def token(value: object) -> str:
    """A bearer token; never repeated in an error."""
    if not isinstance(value, str) or not value or _UNPRINTABLE.search(value):
        raise ValueError("the token must be made of visible ASCII characters, without spaces")
    return value


def text(value: object) -> str:
    """Any text that is not empty."""
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError("it must not be empty")
    return value


def page_url(value: object) -> str:
    """The address of a page: an http(s) URL, or that of a file."""
    address = text(value)
    if not address.startswith(("http://", "https://", "file://")):
        raise ValueError(
            f"{_quoted(address)} is no address of a page, such as https://host/tapeway/"
        )
    return address


def list_items(value: object) -> list[object]:
    """The items of a list, or of a text separated by commas."""
    if isinstance(value, str):
        return [piece.strip() for piece in value.split(",") if piece.strip()]
    return list(value) if isinstance(value, list | tuple) else [value]


def list_of(parse: Callable[[object], T]) -> Callable[[object], tuple[T, ...]]:
    """A parser of lists, made from a parser of items."""
    return lambda value: tuple([parse(item) for item in list_items(value)])


def optional(parse: Callable[[object], T]) -> Callable[[object], T | None]:
    """A parser that returns None for None."""
    return lambda value: None if value is None else parse(value)


def _parts_of_url(text: str) -> SplitResult | None:
    """The parts of an http(s) URL with a host and no query; None for any other text."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    is_host = host is not None and (":" in host or _HOST.fullmatch(host) is not None)
    usable = parts.scheme in ("http", "https") and is_host and port != 0
    return parts if usable and not _NOT_IN_URL.search(text) else None


def _quoted(value: object) -> str:
    text = ascii(str(value)) if not isinstance(value, str) or not value.isprintable() else value
    # It may be a URL in the wrong place: anything that may be a password is left out.
    before, at, rest = text.strip("'").rpartition("@")
    return f"'{'…' if before else ''}{at}{rest[:200]}'"
