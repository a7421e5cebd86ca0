"""The header fields of a request, read once, and which of them belong to the match key."""

import re
from collections.abc import Callable, Collection
from functools import lru_cache

Headers = tuple[tuple[bytes, bytes], ...]
"""Fields in wire order, names in wire case."""

EDITION = 2
"""The number of the list of deciding fields. A recording has the number that its recorder knew."""

_OF_FIRST_EDITION = frozenset(
    {
        b"content-encoding",
        b"content-range",
        b"depth",
        b"destination",
        b"range",
        b"soapaction",
        b"stripe-account",
        b"upload-offset",
        b"x-amz-copy-source",
        b"x-amz-target",
        b"x-goog-upload-command",
        b"x-goog-upload-offset",
        b"x-http-method",
        b"x-http-method-override",
        b"x-method-override",
        b"x-ms-continuation",
    }
)
MATCH_KEY_HEADERS = _OF_FIRST_EDITION | frozenset(
    {
        b"accept-profile",
        b"content-profile",
        b"dropbox-api-arg",
        b"dropbox-api-select-admin",
        b"dropbox-api-select-user",
        b"prefer",
        b"x-hasura-role",
        b"x-scope-orgid",
    }
)
"""Request fields that decide the answer: a part of a file (RFC 9110 section 14.2), the operation
of an AWS or SOAP service, an overriding method, the source of a copy, the tenant, schema or role.
They belong to the match key.
"""

_MICROSOFT = b"x-ms-"
_NOT_ASKED_OF_MICROSOFT = re.compile(
    rb"x-ms-(?:.*-)?"
    # Dates, versions, and who asks with which program.
    rb"(?:date|time|version|user-?agent|client"
    # Ids that clients draw for requests, and for leases.
    rb"|[a-z]*(?:activity|correlation|request|session|trace)-?id|proposed-lease-id"
    # What signs or encrypts.
    rb"|auth[a-z]*|content-sha256|credentials?|(?:access|api)?key|passwords?|secrets?|signatures?|tokens?)"
    rb"(?:-.*)?"
)
_UNLESS_THERE = b"if-none-match"
"""With `*` the request creates what is not there yet; with anything else it asks for what changed."""

_ASKED_METHOD = b"access-control-request-method"
PREFLIGHT_HEADERS = frozenset({_ASKED_METHOD, b"access-control-request-headers"})
"""The fields of a preflight (Fetch, section 3.2.2). In OPTIONS requests they belong to the key too."""

AWS_CHUNKED = b"aws-chunked"
"""The content coding of AWS's chunks. Always outermost, at any place in a client's list."""

AWS_PAYLOAD_HEADER = b"x-amz-content-sha256"
AWS_PAYLOAD = b"STREAMING-"
"""How the value of that header begins where the body is sent so, also without the content coding."""

_CODING = b"content-encoding"
_MCP_HEADERS = frozenset({b"mcp-session-id", b"mcp-protocol-version"})


class RequestFields:
    """A request's header, read once: fields by name, and facts that combine several fields."""

    __slots__ = (
        "content_encoding",
        "content_type",
        "first",
        "headers",
        "is_plain_json",
        "preflight",
        "selecting",
    )

    def __init__(self, headers: Headers) -> None:
        self.headers = headers
        """All fields as they were written."""
        self.first = first = _first_values(headers)
        """The first value of each field as it is written, by the field's name in lower case."""
        self.content_type = content_type = first.get(b"content-type", b"").strip(b" \t")
        """b"" without such a field."""
        self.selecting: Headers = _chosen(headers, decides) if _may_decide(first) else ()
        """The fields that belong to the match key."""
        self.preflight: Headers = ()
        """The fields of a preflight, which belong to the key of an OPTIONS request."""
        if _ASKED_METHOD in first:
            self.preflight = _chosen(headers, lambda name, _: name in PREFLIGHT_HEADERS)
        self.content_encoding = coding = _content_encoding(first, self.selecting)
        """The codings of the body, None without any. A field of AWS may announce `aws-chunked`."""
        self.is_plain_json = not coding and is_json(content_type)
        """Whether the body is said to be JSON without a content coding."""

    def __repr__(self) -> str:
        # Some hold credentials.
        return f"<the fields {b', '.join(self.first).decode('latin-1')}>"

    def value(self, name: bytes) -> bytes | None:
        """The first value of a field, `name` in lower case; None without such a field."""
        value = self.first.get(name)
        # aiohttp before 3.14.4 leaves the blanks after a value.
        return None if value is None else value.strip(b" \t")

    @property
    def is_mcp(self) -> bool:
        """Whether a field is present that only clients of MCP send."""
        return not _MCP_HEADERS.isdisjoint(self.first)


@lru_cache(maxsize=256)
def stored_fields(headers: Headers) -> RequestFields:
    """The fields of a stored request, which has no credential: one object for many recordings.

    A request with the `headers` of that object need not read them again.
    """
    return RequestFields(headers)


def decides(name: bytes, value: bytes) -> bool:
    """Whether a request field belongs to the match key; `name` is in lower case."""
    return (
        name in MATCH_KEY_HEADERS
        or (name.startswith(_MICROSOFT) and _is_asked_of_microsoft(name))
        or (name == _UNLESS_THERE and value.strip(b" \t") == b"*")
    )


def without_later_fields(headers: Headers, kept: Collection[str]) -> Headers:
    """The fields without those that decide since a later edition than the first, unless `kept`."""
    return tuple(
        [
            pair
            for pair in headers
            if (name := pair[0].lower()) in _OF_FIRST_EDITION
            or name.decode("latin-1") in kept
            or not decides(name, pair[1])
        ]
    )


@lru_cache(maxsize=256)
def media_type(content_type: bytes) -> bytes:
    """The type in lower case, without parameters: `text/html` of `Text/HTML; charset=utf-8`."""
    return content_type.partition(b";")[0].strip().lower()


@lru_cache(maxsize=256)
def is_json(content_type: bytes) -> bool:
    """Whether a content type is one of JSON's."""
    media = media_type(content_type)
    return media == b"application/json" or media.endswith(b"+json")


def _first_values(headers: Headers) -> dict[bytes, bytes]:
    first: dict[bytes, bytes] = {}
    for name, value in headers:
        first.setdefault(name.lower(), value)
    return first


def _may_decide(first: dict[bytes, bytes]) -> bool:
    return (
        not MATCH_KEY_HEADERS.isdisjoint(first)
        or _UNLESS_THERE in first
        or b" x-ms-" in b" ".join((b"", *first))
    )


def _chosen(headers: Headers, is_chosen: Callable[[bytes, bytes], bool]) -> Headers:
    return tuple([pair for pair in headers if is_chosen(pair[0].lower(), pair[1])])


@lru_cache(maxsize=1024)
def _is_asked_of_microsoft(name: bytes) -> bool:
    return _NOT_ASKED_OF_MICROSOFT.fullmatch(name) is None


def _content_encoding(first: dict[bytes, bytes], selecting: Headers) -> bytes | None:
    codings = [value for name, value in selecting if name.lower() == _CODING]
    # Several fields are one list (RFC 9110 section 5.3).
    if first.get(AWS_PAYLOAD_HEADER, b"").strip(b" \t").startswith(AWS_PAYLOAD) and not any(
        AWS_CHUNKED in coding for coding in codings
    ):
        codings.append(AWS_CHUNKED)
    return b", ".join(codings) or None
