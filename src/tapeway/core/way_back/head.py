"""The addresses in the header fields of a response, and its cookies."""

import re
from dataclasses import replace

from tapeway.core.model.messages import ResponseHead
from tapeway.core.way_back.addresses import WayBack
from tapeway.core.way_back.cookies import needs_change

_REFERENCES = frozenset(
    {
        *(b"azure-asyncoperation", b"content-location", b"location", b"operation-location"),
        b"x-goog-upload-url",
    }
)
"""Fields with a URI reference as their value, which may be a path."""
_LINK = b"link"
_LINKED = re.compile(r"<([^<>]*)>")

# A URL inside the query of a URL is not rewritten: the service gets its value back.
_URL = re.compile(r"(?<![a-z0-9+.-])https?://[^\s\"'<>,;]*", re.IGNORECASE)

_KEPT = frozenset(
    {
        *(b"content-security-policy", b"content-security-policy-report-only", b"report-to"),
        *(b"reporting-endpoints", b"nel", b"expect-ct", b"permissions-policy"),
        b"timing-allow-origin",
    }
)
"""A policy says what a page may do and whom it reports to."""
_COOKIE = b"set-cookie"
_CORS = b"access-control-"


def names_addresses(head: ResponseHead) -> bool:
    """Whether any field may have an address that must be led back."""
    for name, value in head.headers:
        if len(name) == len(_COOKIE) and name.lower() == _COOKIE:
            if needs_change(value):
                return True
        elif value.find(b"/") >= 0 and (value.find(b"://") >= 0 or _is_path(name.lower(), value)):
            # `find`, since `in` makes an error message, and forgets it, before it searches.
            lower = name.lower()
            if lower not in _KEPT and not lower.startswith(_CORS):
                return True
    return False


def lead_head(head: ResponseHead, way_back: WayBack) -> ResponseHead:
    """The head with the addresses in its fields led back; itself where that changes nothing."""
    if not names_addresses(head):
        return head
    headers = tuple(
        [(name, _rewritten_field(name.lower(), value, way_back)) for name, value in head.headers]
    )
    return head if headers == head.headers else replace(head, headers=headers)


def _is_path(name: bytes, value: bytes) -> bool:
    return (name in _REFERENCES and value.startswith(b"/")) or (name == _LINK and b"</" in value)


def _rewritten_field(name: bytes, value: bytes, way_back: WayBack) -> bytes:
    if name == _COOKIE:
        return way_back.lead_cookie(value.decode("latin-1")).encode("latin-1")
    if b"/" not in value or name in _KEPT or name.startswith(_CORS):
        return value
    text = value.decode("latin-1")
    if name in _REFERENCES:
        led = way_back.lead_reference(text)
    elif name == _LINK:
        led = _LINKED.sub(lambda match: f"<{way_back.lead_reference(match[1])}>", text)
    else:
        led = _URL.sub(lambda match: way_back.lead(match[0]), text)
    return led.encode("latin-1")
