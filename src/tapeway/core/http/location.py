"""The origins of URLs."""

import re
from urllib.parse import urlsplit

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
