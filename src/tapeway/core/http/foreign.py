"""Which pages may call a listener, and under which names.

A browser on this machine sends requests to loopback for any page. It names the page's origin in each
request whose answer the page could read, in each WebSocket handshake, and in each request that is no
GET or HEAD (Fetch, section 3.2). Of a page's images, scripts, frames and links it says whether they come
from another site (Fetch Metadata), and mostly names the page as the Referer.

DNS rebinding goes around this: an attacker lets a name resolve to this machine, and a page then calls the
listener under the name of the page's own server. An attacker cannot take over an IP address like this,
nor a name that public DNS does not hold.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from tapeway.core.http.addresses import address_of, is_loopback
from tapeway.core.http.location import DEFAULT_PORTS, without_default_port
from tapeway.core.http.request_line import check_host
from tapeway.core.model.messages import Headers
from tapeway.core.model.request_fields import RequestFields
from tapeway.errors import Foreign

ANY_ORIGIN = "*"
NO_ORIGIN = "null"
"""The origin of files, of sandboxed frames, and of requests that another origin redirected."""

PRIVATE_SUFFIXES = (".localhost", ".local", ".internal", ".test")
"""Ends of names that public DNS does not hold: RFC 6761 (localhost, test), RFC 6762 (local), and
ICANN's resolution 2024.07.29.06 (internal).
"""
OWN_SITES = frozenset({"same-origin", "none"})
"""Values of `Sec-Fetch-Site`: for requests to a page's own origin, and for addresses typed by a person."""

_SAME_SITE = "same-site"
_HOST = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]{1,253}))(?::[0-9]{0,5})?"
)
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,63}://(?:(?![/?#@\\])[!-~]){0,260}")
_MOST_REMEMBERED = 1024

_ABOUT_ORIGIN = (
    "a page of another origin may not call tapeway: if the page is yours, start tapeway with "
    "--allow-origin and the page's origin"
)
_ABOUT_HOST = (
    "the Host header does not name this listener: call it by localhost or an IP address, or start "
    "tapeway with --allow-host and the name"
)
_ABOUT_ROUTES = "the Host header does not name the host of a route: call the services of routes by their own names"


def host_of(authority: str) -> str | None:
    """The host of a Host header, in lower case; None for what is no host. Any port will do, as ports can
    be mapped.
    """
    match = _HOST.fullmatch(authority)
    if match is None or (match["v6"] and address_of(match["v6"]) is None):
        return None
    return (match["v6"] or match["name"]).lower()


def as_origin(text: str) -> str | None:
    """An origin as people write it, with or without a slash behind; None for what is none."""
    slash = text.endswith("/") and not text.endswith("://")
    origin = text[:-1] if slash else text
    scheme, _, place = origin.partition("://")
    is_named = scheme.lower() not in DEFAULT_PORTS or host_of(place) is not None
    return _plainly(origin) if _ORIGIN.fullmatch(origin) and is_named else None


def _origin_of(url: str) -> str | None:
    """The origin of a URL; None for what has none."""
    match = _ORIGIN.match(url)
    if match is None or url[match.end() : match.end() + 1] not in ("", "/", "?", "#"):
        return None
    return match[0]


def _plainly(origin: str) -> str:
    return without_default_port(origin.lower())


@dataclass(frozen=True, slots=True)
class HostList:
    """Names and addresses by which clients may call a listener."""

    named: frozenset[str]
    private: bool
    """Whether all IP addresses lead there too, and all names that public DNS does not hold."""
    suffixes: tuple[str, ...] = PRIVATE_SUFFIXES
    """The ends of such names."""

    @classmethod
    def of(
        cls,
        *named: str,
        private: bool,
        suffixes: tuple[str, ...] = PRIVATE_SUFFIXES,
    ) -> Self:
        """The names of a listener, in any case."""
        return cls(frozenset(map(_without_dot, named)), private, suffixes)

    def allows(self, authority: str) -> bool:
        """Whether a Host header names the listener."""
        host = host_of(authority)
        if host is None:
            return False
        if _without_dot(host) in self.named or _is_this_machine(host):
            return True
        return self.private and (
            address_of(host) is not None or _is_private_name(host, self.suffixes)
        )


def _without_dot(host: str) -> str:
    return host.lower().removesuffix(".")


def _is_this_machine(host: str) -> bool:
    name = _without_dot(host)
    return is_loopback(name) or name.endswith(".localhost")


def _is_private_name(host: str, suffixes: tuple[str, ...] = PRIVATE_SUFFIXES) -> bool:
    # With a dot behind it, a single label is a top-level domain.
    return "." not in host or _without_dot(host).endswith(suffixes)


class ForeignGuard:
    """Decides for a listener which pages may call it, and under which names.

    Answers are remembered by value, so that a request costs a look-up.
    """

    def __init__(
        self,
        own: Collection[str],
        origins: Collection[str],
        serves_host: Callable[[str], bool],
        *,
        about_host: str = _ABOUT_HOST,
        host_option: str = "--allow-host ",
        opens_tabs: bool = False,
    ) -> None:
        """`own` are the names of the listener, `origins` the further origins that are served.

        `host_option` is the beginning of the option that makes a name one of the listener's. With
        `opens_tabs` a link on any page may open an address in a tab.
        """
        self._own = frozenset(map(_without_dot, own))
        self._origins = frozenset(origins)
        self._is_name = serves_host
        self._serves_host = lru_cache(_MOST_REMEMBERED)(self._is_called_by)
        self._serves_origin = lru_cache(_MOST_REMEMBERED)(self._may_call)
        self._about_host = about_host
        self._host_option = host_option
        self._opens_tabs = opens_tabs

    @classmethod
    def of_listener(
        cls, bound: str, named: Collection[str] = (), origins: Collection[str] = ()
    ) -> Self:
        """The guard of a listener that is bound to an address and has further names.

        Beyond loopback any Host is served: other machines reach the listener anyway.
        """
        own = (bound, *named)
        if is_loopback(bound):
            return cls(own, origins, HostList.of(*own, private=True).allows)
        return cls(own, origins, lambda _: True)

    def at_route(self, host: str, is_routed: Callable[[str], bool]) -> "ForeignGuard":
        """The guard of what is called by the names of services: `host` is the one that is called."""

        def serves(authority: str) -> bool:
            named = host_of(authority)
            return named is not None and is_routed(named)

        return ForeignGuard(
            (host,),
            self._origins,
            serves,
            about_host=_ABOUT_ROUTES,
            host_option="--route NAME=https://",
            opens_tabs=True,
        )

    def serves(self, host: bytes | None, origin: bytes | None, site: bytes | None) -> bool:
        """Whether a request is served by its Host, Origin and Sec-Fetch-Site alone; False where more
        decides, too.
        """
        if host is not None and not self._serves_host(host):
            return False
        if origin is not None:
            return self._serves_origin(origin, host or b"")
        return site is None or site.decode("latin-1") in OWN_SITES

    def check(self, target: str, fields: RequestFields) -> None:
        """Raises Foreign for what is not served, RequestError for a malformed Host."""
        host = fields.value(b"host")
        # In the absolute form the target's authority counts, which must be the listener's own.
        if host is not None and not self._serves_host(host) and not _is_absolute(target):
            check_host(host)
            raise self._foreign_host(host.decode())
        if b"origin" in fields.first:
            for origin in _values(fields.headers, b"origin"):
                if not self._serves_origin(origin, host or b""):
                    raise _foreign_origin(origin.decode("latin-1"))
        elif b"sec-fetch-site" in fields.first:
            self._check_site(fields.headers, host or b"")

    def _foreign_host(self, authority: str) -> Foreign:
        name = host_of(authority)
        shown = "a name that is none" if name is None else f"the name {name}"
        return Foreign(
            self._about_host,
            f"a request under {shown}",
            None if name is None else self._host_option + name,
            status=421,
            code="foreign_host",
        )

    def _check_site(self, headers: Headers, host: bytes) -> None:
        """Check a request of a page whose answer the page cannot read."""
        sites = {site.decode("latin-1") for site in _values(headers, b"sec-fetch-site")}
        if sites <= OWN_SITES or ANY_ORIGIN in self._origins:
            return
        if self._opens_tabs and _opens_a_tab(headers):
            return
        referers = _values(headers, b"referer")
        page = _origin_of(referers[0].decode("latin-1")) if len(referers) == 1 else None
        if page is not None and self._serves_origin(page.encode(), host):
            return
        # What has a site in common with a private name is private too.
        if page is None and sites <= {*OWN_SITES, _SAME_SITE} and _is_private_host(host):
            return
        raise _foreign_origin(page)

    def _is_called_by(self, host: bytes) -> bool:
        return self._is_name(host.decode("latin-1"))

    def _may_call(self, page: bytes, called: bytes) -> bool:
        origin = page.decode("latin-1")
        if ANY_ORIGIN in self._origins or _plainly(origin) in self._origins:
            return True
        if _ORIGIN.fullmatch(origin) is None:
            return False
        scheme, _, place = origin.partition("://")
        host = host_of(place)
        if host is None:
            return False
        if _is_this_machine(host):
            return True
        # Elsewhere than in URLs of the web, a host is no name of DNS: it may be an extension's id.
        if scheme.lower() not in DEFAULT_PORTS:
            return False
        if _is_private_name(host) and address_of(host) is None:
            return True
        return _without_dot(host) in self._own or _is_address_in(host, called)


def _is_address_in(host: str, called: bytes) -> bool:
    """Whether a page comes from the address by which it calls: nobody can take over an address."""
    return address_of(host) is not None and host == host_of(called.decode("latin-1"))


def _is_private_host(called: bytes) -> bool:
    host = host_of(called.decode("latin-1"))
    return host is not None and (address_of(host) is not None or _is_private_name(host))


def _is_absolute(target: str) -> bool:
    return "://" in target and not target.startswith("/")


def _opens_a_tab(headers: Headers) -> bool:
    values = [_values(headers, name) for name in (b"sec-fetch-mode", b"sec-fetch-dest")]
    return values == [[b"navigate"], [b"document"]]


def _values(headers: Headers, name: bytes) -> list[bytes]:
    return [value.strip(b" \t") for key, value in headers if key.lower() == name]


def _foreign_origin(origin: str | None) -> Foreign:
    # Only what is an origin is shown: anything else may be a key in the wrong place.
    if origin is None:
        shown, option = "a page of another site that does not say which", ANY_ORIGIN
    elif origin == NO_ORIGIN:
        shown, option = "a page without an origin", NO_ORIGIN
    elif _ORIGIN.fullmatch(origin) is None:
        shown, option = "a page whose Origin is none", ANY_ORIGIN
    else:
        option = _plainly(origin)
        shown = f"a page of {option}"
    written = f"'{option}'" if option == ANY_ORIGIN else option
    return Foreign(_ABOUT_ORIGIN, f"a request of {shown}", f"--allow-origin {written}")
