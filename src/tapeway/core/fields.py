"""What a request's header says, read in one pass and remembered.

A client sends the same fields with nearly every request, so the pass is usually a look-up.
"""

from dataclasses import dataclass
from functools import lru_cache

from tapeway.core.headers import find, stored_request_headers, unreadable
from tapeway.core.model import Headers


@dataclass(frozen=True, slots=True)
class RequestFields:
    """The fields the proxy looks at; None where the request has no such field."""

    host: bytes | None
    expect: bytes | None
    upgrade: bytes | None
    transfer_encoding: bytes | None
    cassette: bytes | None
    content_type: bytes
    content_encoding: bytes | None
    unreadable: str | None
    stored: Headers


@lru_cache(maxsize=512)
def read(headers: Headers) -> RequestFields:
    """The facts of a header."""
    return RequestFields(
        host=find(headers, b"host"),
        expect=find(headers, b"expect"),
        upgrade=find(headers, b"upgrade"),
        transfer_encoding=find(headers, b"transfer-encoding"),
        cassette=find(headers, b"tapeway-cassette"),
        content_type=find(headers, b"content-type") or b"",
        content_encoding=find(headers, b"content-encoding"),
        unreadable=unreadable(headers),
        stored=stored_request_headers(headers),
    )
