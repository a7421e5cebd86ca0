"""Compares the origins of URLs, and rewrites a Location of the upstream to the proxy."""

import re
from dataclasses import replace
from urllib.parse import urlsplit

from tapeway.core.http.headers import find_header
from tapeway.core.model.messages import Headers, ResponseHead

_LOCATION = b"location"
_AUTHORITY = re.compile(r"(?:https?:)?//[^/?#]*", re.IGNORECASE)
_USERINFO = re.compile(r"((?:[a-z][a-z0-9+.-]*:)?//)?[^/?#]*@", re.IGNORECASE)


def with_proxy_location(
    head: ResponseHead, request: Headers, base: str, prefix: str
) -> ResponseHead:
    """The head with a Location on the upstream's own origin rewritten to the proxy.

    `request` are the client's fields, whose Host is the proxy's name for the client; `prefix` is
    the part of the path before the target below the upstream's `base`.
    """
    if not base or head.value(_LOCATION) is None or not (host := find_header(request, b"host")):
        return head
    proxy = f"http://{host.decode('latin-1')}{prefix}"
    headers = [
        (name, rewrite_location(value.decode("latin-1"), base, proxy).encode("latin-1"))
        if name.lower() == _LOCATION
        else (name, value)
        for name, value in head.headers
    ]
    return replace(head, headers=tuple(headers))


def rewrite_location(location: str, upstream: str, proxy: str) -> str:
    """A `location` below the upstream's URL, as the client must request it from the proxy.

    A path stays a path. Anything else (relative to the request, another origin, outside the route's
    base path) is returned unchanged.
    """
    authority = _AUTHORITY.match(location)
    if authority is not None and same_origin(authority[0], upstream):
        path, ahead = location[authority.end() :], proxy
    elif authority is None and location.startswith("/"):
        path, ahead = location, _AUTHORITY.sub("", proxy, count=1)
    else:
        return location
    base = _AUTHORITY.sub("", upstream, count=1).rstrip("/")
    rest = path.removeprefix(base)
    if not path.startswith(base) or rest[:1] not in ("", "/", "?", "#"):
        return location
    return ahead + (rest if rest.startswith("/") else f"/{rest}")


def same_origin(url: str, upstream: str) -> bool:
    """Whether both have the same scheme, host and port; False for what is not a URL."""
    try:
        if url.startswith("//"):
            url = f"{urlsplit(upstream).scheme}:{url}"
        return origin(url) == origin(upstream)
    except ValueError:
        # The upstream may send any text.
        return False


def origin(url: str) -> str:
    """`scheme://host[:port]` of a URL in lower case, default ports and userinfo left out."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    default = {"http": 80, "https": 443}.get(parts.scheme)
    port = "" if parts.port in (None, default) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"


def without_userinfo(url: str) -> str:
    """The URL without user name and password, for display and storage."""
    found = _USERINFO.match(url)
    return url if found is None else (found[1] or "") + url[found.end() :]
