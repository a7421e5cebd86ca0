"""The origins of URLs."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

DEFAULT_PORTS: Mapping[str, int] = {"http": 80, "https": 443}
"""The port of each scheme; a URL may leave it out."""

_USERINFO = re.compile(r"((?:[a-z][a-z0-9+.-]*:)?//)?[^/?#]*@", re.IGNORECASE)


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
    return origin_at(parts.scheme, parts.hostname or "", parts.port)


def origin_at(scheme: str, host: str, port: int | None = None) -> str:
    """The origin of a scheme, a host and a port; an IPv6 address may come without its brackets."""
    named = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return without_default_port(f"{scheme}://{named}" + ("" if port is None else f":{port}"))


def without_default_port(origin: str) -> str:
    """An origin as it is written, but for the scheme's default port."""
    port = DEFAULT_PORTS.get(origin.partition(":")[0].lower())
    return origin if port is None else origin.removesuffix(f":{port}")


def without_userinfo(url: str) -> str:
    """The URL without user name and password, for display and storage."""
    match = _USERINFO.match(url)
    return url if match is None else (match[1] or "") + url[match.end() :]
