"""Header fields: reading, forwarding and storing.

End-to-end fields are forwarded unchanged and in order. Fields that concern only one connection are
removed on both sides (RFC 9110 section 7.6.1).
"""

from functools import lru_cache

from tapeway.core.model.request_fields import MATCH_KEY_HEADERS, PREFLIGHT_HEADERS, Headers, decides

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

FAULT_HEADER = b"tapeway-fault"
"""Names the fault that a request asks for; on an answer, the fault that it got."""

OWN = frozenset(
    {b"tapeway-outcome", CASSETTE_HEADER, b"tapeway-base", b"tapeway-interaction", FAULT_HEADER}
)
"""Fields that tapeway adds; the fields of a tapeway upstream would contradict them."""

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


@lru_cache(maxsize=1024)
def is_stored(name: bytes) -> bool:
    """Whether a request field is stored, whatever its value; `name` is in lower case."""
    return name in STORED_REQUEST_HEADERS or decides(name, b"")


def find_header(headers: Headers, name: bytes) -> bytes | None:
    """The first value of a field, `name` in lower case."""
    length = len(name)
    for key, value in headers:
        if len(key) == length and key.lower() == name:
            return value
    return None


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
