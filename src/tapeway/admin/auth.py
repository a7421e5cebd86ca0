"""Who may call the admin listener: checks of Host, Origin and token before any handler runs.

A browser on this machine sends requests to loopback ports for any page. A call must therefore name
the listener in the Host, come from no foreign origin, and carry the token if there is a token.

The Host check stops DNS rebinding (`core/http/foreign.py`, which guards the proxy listener too). The
rules here are stricter: a page on loopback is foreign as well.

An address that sends wrong tokens gets a burst of 401, then 429 but for a few per second: a client
with a wrong token slows down. The right token is always let in: behind a shared address,
wrong tokens of somebody else would lock out the right token. The length of a token is the
protection.
"""

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable, Collection
from ipaddress import IPv6Address, IPv6Network, ip_address

from aiohttp.web_request import Request

from tapeway.core.http.addresses import is_loopback
from tapeway.core.http.foreign import OWN_SITES, PRIVATE_SUFFIXES, HostList
from tapeway.core.http.location import DEFAULT_PORTS, without_default_port
from tapeway.errors import AdminError, ConfigError

BURST = 500
PER_SECOND = 10
_MAX_ADDRESSES = 4096
_CLUSTER_SUFFIX = ".svc"
"""The end of a service's name in a cluster."""


class GuessLimiter:
    """Limits wrong tokens per address (a leaky bucket); the last few thousand are remembered."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._empty_at: OrderedDict[str, float] = OrderedDict()

    def exhausted(self, address: str | None) -> bool:
        """Whether an address has to wait before the next try."""
        remaining_s = self._empty_at.get(_bucket(address), 0.0) - self._clock()
        return remaining_s > (BURST - 1) / PER_SECOND

    def record_failure(self, address: str | None) -> None:
        """Count a wrong token."""
        bucket, now = _bucket(address), self._clock()
        self._empty_at[bucket] = max(self._empty_at.get(bucket, now), now) + 1 / PER_SECOND
        self._empty_at.move_to_end(bucket)
        if len(self._empty_at) > _MAX_ADDRESSES:
            self._empty_at.popitem(last=False)


def _bucket(address: str | None) -> str:
    # IPv6 by the /64, since a machine has all addresses of a /64.
    try:
        ip = ip_address((address or "").partition("%")[0])
    except ValueError:
        return ""
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is None:
        return str(IPv6Network((ip, 64), strict=False))
    return str(ip)


def hosts_of(host: str, more: Collection[str] = ()) -> HostList:
    """The names of a listener bound to `host`, and further names for it.

    On loopback only the names of loopback lead there: nothing else has to.
    """
    suffixes = (*PRIVATE_SUFFIXES, _CLUSTER_SUFFIX)
    return HostList.of(host, *more, private=not is_loopback(host), suffixes=suffixes)


class AdminGuard:
    """Refuses calls by raising AdminError."""

    def __init__(
        self,
        host: str,
        token: str | None,
        attempts: GuessLimiter,
        more_hosts: Collection[str] = (),
    ) -> None:
        """`host` is the address of the listener, `more_hosts` are further names for it."""
        if token == "":
            raise ConfigError("the admin token is empty: set one, or leave the option out")
        if token is None and not is_loopback(host):
            raise ConfigError(
                "other machines could reach the admin API: set --admin-token "
                "(TAPEWAY_ADMIN_TOKEN), or keep --admin-listen on 127.0.0.1"
            )
        self._hosts = hosts_of(host, more_hosts)
        self._digest = None if token is None else _digest(token.encode())
        self._attempts = attempts

    @property
    def locked(self) -> bool:
        """Whether a token is needed."""
        return self._digest is not None

    def check(self, request: Request, *, public: bool, page: bool = False) -> None:
        """Raises AdminError: 400, 403, 417, 505, and 401 or 429 unless the route is public.

        A link on another site may open the page in a tab: the page holds nothing until it calls the
        API.
        """
        self._check_message(request)
        self._check_host(request)
        if not (page and _opens_a_tab(request)):
            self._check_origin(request)
        if not public:
            self._check_token(request)

    def _check_message(self, request: Request) -> None:
        if request.version > (1, 1):
            raise AdminError(
                "only HTTP/1.0 and HTTP/1.1 are supported", status=505, code="http_version"
            )
        if not request.raw_path.startswith("/") and request.method != "CONNECT":
            # Its authority would count instead of the Host header (RFC 9112 section 3.2.2).
            raise AdminError("the request target must be a path that begins with '/'")
        expected = request.headers.get("Expect")
        if expected is not None and expected.lower() != "100-continue":
            raise AdminError(
                "only 'Expect: 100-continue' is supported", status=417, code="expectation_failed"
            )

    def _check_host(self, request: Request) -> None:
        # No Host at all is HTTP/1.0, which no browser sends.
        if not all(map(self._hosts.allows, request.headers.getall("Host", []))):
            raise AdminError(
                "the Host header does not name this listener: "
                "call it by localhost, its address or the host it listens on",
                status=403,
                code="host_not_allowed",
            )

    def _check_origin(self, request: Request) -> None:
        own = request.headers.get("Host", "").lower()
        origins = request.headers.getall("Origin", [])
        sites = request.headers.getall("Sec-Fetch-Site", [])
        # `same-site` is another port of this host: the proxy's, with recorded pages.
        if not all(_same_origin(origin, own) for origin in origins) or not OWN_SITES.issuperset(
            sites
        ):
            raise AdminError(
                "a page of another origin may not call the admin API",
                status=403,
                code="cross_origin",
            )

    def _check_token(self, request: Request) -> None:
        if self._digest is None:
            return
        values = [value for name, value in request.raw_headers if name.lower() == b"authorization"]
        if len(values) == 1 and hmac.compare_digest(_digest(_bearer(values[0])), self._digest):
            return
        if values and self._attempts.exhausted(request.remote):
            raise AdminError(
                "too many wrong tokens came from this address: wait and try again",
                status=429,
                code="too_many_attempts",
            )
        if values:
            self._attempts.record_failure(request.remote)
        raise unauthorized()


def unauthorized() -> AdminError:
    """The error for every call without the right token."""
    return AdminError(
        "the admin API needs its token: send 'Authorization: Bearer TOKEN'",
        status=401,
        code="unauthorized",
    )


def _digest(token: bytes) -> bytes:
    # Comparing digests of one length hides the token's length from a timing attack.
    return hashlib.sha256(token).digest()


def _bearer(value: bytes) -> bytes:
    scheme, _, token = value.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _opens_a_tab(request: Request) -> bool:
    values = [request.headers.getall(f"Sec-Fetch-{name}", []) for name in ("Mode", "Dest")]
    return values == [["navigate"], ["document"]] and "Origin" not in request.headers


def _same_origin(origin: str, host: str) -> bool:
    own = [without_default_port(f"{scheme}://{host}") for scheme in DEFAULT_PORTS]
    return without_default_port(origin.lower()) in own
