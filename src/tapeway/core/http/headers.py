"""Header fields: reading, forwarding and storing.

End-to-end fields are forwarded unchanged and in order. Fields that concern only one connection are
removed on both sides (RFC 9110 section 7.6.1).
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from functools import lru_cache

from tapeway.core.http.chunks import AWS_CHUNKED, AWS_PAYLOAD, AWS_PAYLOAD_HEADER
from tapeway.core.model.messages import Headers
from tapeway.core.model.values import value_class

_CONNECTION = b"connection"
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    }
)
"""Proxy-Authorization is not among them: behind a reverse proxy it is the upstream's business."""

CASSETTE_HEADER = b"tapeway-cassette"
"""Names the cassette of a request whose path does not."""

HOPS_HEADER = b"tapeway-hops"
"""The ids of the tapeways on a request's way, sent to upstreams that are tapeways."""

OWN = frozenset({b"tapeway-outcome", CASSETTE_HEADER, b"tapeway-interaction"})
"""Fields that tapeway adds; the fields of a tapeway upstream would contradict them."""

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

STORED_REQUEST_HEADERS = (
    MATCH_KEY_HEADERS
    | PREFLIGHT_HEADERS
    | frozenset(
        {
            b"accept",
            b"accept-encoding",
            b"accept-language",
            b"content-language",
            b"content-type",
            b"anthropic-beta",
            b"anthropic-version",
            b"openai-beta",
            b"if-match",
            b"if-modified-since",
            b"if-none-match",
            b"if-range",
            b"if-unmodified-since",
            b"last-event-id",
            b"mcp-protocol-version",
            b"origin",
        }
    )
)
"""The only request fields that are stored, beside deciding ones; none can carry a credential."""


def decides(name: bytes, value: bytes) -> bool:
    """Whether a request field belongs to the match key; `name` is in lower case."""
    return (
        name in MATCH_KEY_HEADERS
        or (name.startswith(_MICROSOFT) and _is_asked_of_microsoft(name))
        or (name == _UNLESS_THERE and value.strip(b" \t") == b"*")
    )


@lru_cache(maxsize=1024)
def _is_asked_of_microsoft(name: bytes) -> bool:
    return _NOT_ASKED_OF_MICROSOFT.fullmatch(name) is None


@lru_cache(maxsize=1024)
def is_stored(name: bytes) -> bool:
    """Whether a request field is stored, whatever its value; `name` is in lower case."""
    return name in STORED_REQUEST_HEADERS or decides(name, b"")


_MCP_HEADERS = frozenset({b"mcp-session-id", b"mcp-protocol-version"})
_CODING = b"content-encoding"


@value_class
class RequestFields:
    """A request's header, read once: fields by name, and facts that combine several fields."""

    first: dict[bytes, bytes] = field(repr=False)  # some hold credentials
    """The first value of each field as it is written, by the field's name in lower case."""
    content_encoding: bytes | None
    """The codings of the body, None without any. A field of AWS may announce `aws-chunked`."""
    selecting: Headers
    """The fields that belong to the match key."""
    preflight: Headers
    """The fields of a preflight, which belong to the key of an OPTIONS request."""
    content_type: bytes
    """b"" without such a field."""
    is_plain_json: bool
    """Whether the body is said to be JSON without a content coding."""

    def value(self, name: bytes) -> bytes | None:
        """The first value of a field, `name` in lower case; None without such a field."""
        value = self.first.get(name)
        # aiohttp before 3.14.4 leaves the blanks after a value.
        return None if value is None else value.strip(b" \t")

    @property
    def is_mcp(self) -> bool:
        """Whether a field is present that only clients of MCP send."""
        return not _MCP_HEADERS.isdisjoint(self.first)


_MOST_RECENT = 64
_recent: dict[int, tuple[Headers, RequestFields]] = {}


def request_fields(headers: Headers) -> RequestFields:
    """The fields of a request, read once for several uses."""
    known = _recent.get(id(headers))
    if known is not None and known[0] is headers:
        return known[1]
    fields = _request_fields(headers)
    if len(_recent) >= _MOST_RECENT:
        _recent.clear()
    _recent[id(headers)] = headers, fields
    return fields


def _request_fields(headers: Headers) -> RequestFields:
    first: dict[bytes, bytes] = {}
    for name, value in headers:
        first.setdefault(name.lower(), value)
    content_type = first.get(b"content-type", b"").strip(b" \t")
    may_decide = (
        not MATCH_KEY_HEADERS.isdisjoint(first)
        or _UNLESS_THERE in first
        or b" x-ms-" in b" ".join((b"", *first))
    )
    selecting = _chosen(headers, decides) if may_decide else ()
    coding = _content_encoding(first, selecting)
    return RequestFields(
        first,
        coding,
        selecting,
        _named(headers, PREFLIGHT_HEADERS) if _ASKED_METHOD in first else (),
        content_type,
        not coding and is_json(content_type),
    )


def _content_encoding(first: Mapping[bytes, bytes], selecting: Headers) -> bytes | None:
    codings = [value for name, value in selecting if name.lower() == _CODING]
    # Several fields are one list (RFC 9110 section 5.3).
    if first.get(AWS_PAYLOAD_HEADER, b"").strip(b" \t").startswith(AWS_PAYLOAD) and not any(
        AWS_CHUNKED in coding for coding in codings
    ):
        codings.append(AWS_CHUNKED)
    return b", ".join(codings) or None


def _named(headers: Headers, names: frozenset[bytes]) -> Headers:
    return tuple([pair for pair in headers if pair[0].lower() in names])


def _chosen(headers: Headers, is_chosen: Callable[[bytes, bytes], bool]) -> Headers:
    return tuple([pair for pair in headers if is_chosen(pair[0].lower(), pair[1])])


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


def find_header(headers: Headers, name: bytes) -> bytes | None:
    """The first value of a field, `name` in lower case."""
    length = len(name)
    for key, value in headers:
        if len(key) == length and key.lower() == name:
            return value
    return None


@lru_cache(maxsize=256)
def media_type(content_type: bytes) -> bytes:
    """The type in lower case, without parameters: `text/html` of `Text/HTML; charset=utf-8`."""
    return content_type.partition(b";")[0].strip().lower()


@lru_cache(maxsize=256)
def is_json(content_type: bytes) -> bool:
    """Whether a content type is one of JSON's."""
    media = media_type(content_type)
    return media == b"application/json" or media.endswith(b"+json")


def end_to_end(headers: Headers, *, drop: frozenset[bytes] = frozenset()) -> Headers:
    """The fields to forward: no hop-by-hop ones, none that Connection names."""
    dropped = _hop_by_hop_and(drop)
    kept = []
    for pair in headers:
        name = pair[0].lower()
        if name not in dropped:
            kept.append(pair)
        elif name == _CONNECTION and pair[1] != b"keep-alive":
            # Most `Connection` values name no further field.
            return _without_named(headers, dropped)
    return tuple(kept)


def _without_named(headers: Headers, dropped: frozenset[bytes]) -> Headers:
    options = [value for name, value in headers if name.lower() == _CONNECTION]
    named = [token.strip().lower() for value in options for token in value.split(b",")]
    dropped = dropped.union(named)
    return tuple([pair for pair in headers if pair[0].lower() not in dropped])


def stored_request_headers(headers: Headers) -> Headers:
    """The fields of a request that may be stored."""
    return tuple([pair for pair in headers if is_stored(pair[0].lower())])


@lru_cache(maxsize=64)
def _hop_by_hop_and(drop: frozenset[bytes]) -> frozenset[bytes]:
    return HOP_BY_HOP | drop
