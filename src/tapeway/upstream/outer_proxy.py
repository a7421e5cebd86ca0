"""The way out through another proxy, such as a company's.

`HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` name the proxy as for curl, or `--upstream-proxy` does. An
upstream on loopback is always reached directly. Through a proxy the proxy resolves the name of an
upstream: tapeway's own check of addresses then covers the proxy's name alone.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from urllib.parse import unquote_to_bytes, urlsplit

from yarl import URL

from tapeway.core.http.addresses import is_loopback
from tapeway.core.http.location import DEFAULT_PORTS
from tapeway.errors import UpstreamError

OPTION = "--upstream-proxy"
_SCHEMES = ("http", "https")


@dataclass(frozen=True, slots=True)
class OuterProxy:
    """A proxy that connects to upstreams for tapeway. `source` is the option or variable behind it."""

    url: URL
    """Without its login."""
    source: str
    authorization: bytes | None = field(default=None, repr=False)
    """The value of its Proxy-Authorization."""

    def __str__(self) -> str:
        return f"the proxy {self.url.scheme}://{self.url.host_port_subcomponent} ({self.source})"

    @property
    def is_tls(self) -> bool:
        """Whether it is spoken with over TLS."""
        return self.url.scheme == "https"

    @property
    def headers(self) -> dict[str, str]:
        """The fields of each request that is for the proxy."""
        return {"Proxy-Authorization": self.authorization.decode()} if self.authorization else {}


@dataclass(frozen=True, slots=True)
class _Unusable:
    """A variable with an unusable value."""

    source: str
    is_socks: bool = False


@dataclass(frozen=True, slots=True)
class ProxyChoice:
    """Which proxy leads to which upstream."""

    of_scheme: Mapping[str, OuterProxy | _Unusable]
    exempt: tuple[str, ...] = ()
    """The entries of NO_PROXY."""

    def proxy_for(self, url: URL) -> OuterProxy | None:
        """The proxy on the way to an upstream, None if it is reached directly. Raises UpstreamError."""
        proxy = self.of_scheme.get(url.scheme)
        if proxy is None or self._is_direct(url):
            return None
        if isinstance(proxy, _Unusable):
            named = (
                "a SOCKS proxy, which tapeway cannot"
                if proxy.is_socks
                else "no proxy that tapeway can"
            )
            raise UpstreamError(
                f"{proxy.source} names {named} use: give it http:// or https:// with "
                f"a host and a port, or give {OPTION} URL, or {OPTION} off to go without",
                code="upstream_proxy",
            )
        return proxy

    def _is_direct(self, url: URL) -> bool:
        host, port = (url.host or "").rstrip(".").lower(), url.port or 0
        if is_loopback(host) or host.endswith(".localhost"):
            return True
        return any(_covers(rule, host, port) for rule in self.exempt)


DIRECT = ProxyChoice({})


def proxy_choice(option: str | None, environ: Mapping[str, str]) -> ProxyChoice:
    """What `--upstream-proxy` says: a URL, `off`, or None for what the environment says."""
    if option == "off":
        return DIRECT
    if option is not None:
        return ProxyChoice(dict.fromkeys(_SCHEMES, _proxy(option, OPTION)))
    proxies = {}
    for scheme in _SCHEMES:
        source, value = _variable(environ, f"{scheme}_proxy")
        # A CGI server puts a request's header `Proxy` into this variable.
        is_forged = source == "HTTP_PROXY" and "REQUEST_METHOD" in environ
        if value and not is_forged:
            proxies[scheme] = _proxy(value, source)
    exempt = _variable(environ, "no_proxy")[1].replace(",", " ").lower().split()
    return ProxyChoice(proxies, tuple(exempt))


def _variable(environ: Mapping[str, str], lower: str) -> tuple[str, str]:
    """Name and value of a variable; the lower-case spelling wins, as in curl."""
    for name in (lower, lower.upper()):
        if value := environ.get(name, "").strip():
            return name, value
    return lower.upper(), ""


def _proxy(text: str, source: str) -> OuterProxy | _Unusable:
    written = text if "://" in text else f"http://{text}"
    if written.lower().startswith("socks"):
        return _Unusable(source, is_socks=True)
    try:
        parts = urlsplit(written)
        url = URL.build(
            scheme=parts.scheme,
            host=parts.hostname or "",
            port=parts.port or DEFAULT_PORTS.get(parts.scheme),
        )
    except ValueError:
        return _Unusable(source)
    if parts.scheme not in _SCHEMES or not parts.hostname:
        return _Unusable(source)
    userinfo = parts.netloc.rpartition("@")[0]
    if userinfo and ":" not in userinfo:
        userinfo += ":"
    login = base64.b64encode(unquote_to_bytes(userinfo)) if userinfo else None
    return OuterProxy(url, source, login and b"Basic " + login)


def _covers(entry: str, host: str, port: int) -> bool:
    """Whether an entry of NO_PROXY covers a host: a name or its end, an address, a range, or `*`."""
    if entry == "*":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        address = None
    if address is not None:
        try:
            return address in ip_network(entry.strip("[]"), strict=False)
        except ValueError:
            pass
    name, colon, wanted = entry.rpartition(":")
    if colon and wanted.isdigit() and ("]" in entry or entry.count(":") == 1):
        return port == int(wanted) and _covers(name, host, port)
    suffix = entry.removeprefix("*").strip(".")
    return bool(suffix) and address is None and (host == suffix or host.endswith(f".{suffix}"))
