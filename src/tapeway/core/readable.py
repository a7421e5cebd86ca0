"""Coded bodies as a cassette holds them: plain, so that people can read them and any client take them."""

from dataclasses import replace

from tapeway.core.encoding import CONTENT_ENCODING, coding_of, decode, decoder
from tapeway.core.model import Headers, Request, Response

# Digests of the coded form: those of the plain one would be others.
_OF_THE_CODING = frozenset(
    {CONTENT_ENCODING, b"content-digest", b"content-md5", b"digest", b"repr-digest"}
)
_PARTIAL, _NOT_MODIFIED = 206, 304


def readable_request(request: Request) -> Request:
    """The request with its content coding taken off, or as it came where that cannot be done."""
    coding = coding_of(request.headers)
    if not coding or not request.body or (plain := decode(coding, request.body)) is None:
        return request
    return replace(request, headers=uncoded(request.headers), body=plain)


def readable_response(response: Response, method: str, *, cut: bool = False) -> Response:
    """The answer with its content coding taken off, or as it came where that cannot be done.

    Chunks end where they ended on the wire; one that holds nothing readable yet joins the next.
    Nothing is done to a part of a body (206), nor under a coding that is unknown, broken, or grows
    out of bounds. `cut` says that the answer is known to have broken off: what came is read.
    """
    coding = coding_of(response.headers)
    if not response.chunks or not may_be_read(response, method):
        return response
    if (made := decoder(coding)) is None:
        return response
    fed = [(chunk, made.feed(chunk.data)) for chunk in response.chunks]
    if (ending := made.finish()) != "complete" and not (cut and ending == "cut"):
        return response
    chunks = tuple([replace(chunk, data=plain) for chunk, plain in fed if plain])
    head = replace(response.head, headers=uncoded(response.headers))
    return replace(response, head=head, chunks=chunks)


def may_be_read(response: Response, method: str) -> bool:
    """Whether there is a content coding, on a whole body."""
    if method.upper() == "HEAD" or response.status in (_PARTIAL, _NOT_MODIFIED):
        return False
    return bool(coding_of(response.headers))


def uncoded(headers: Headers) -> Headers:
    """The fields of a body whose coding was taken off."""
    return tuple([pair for pair in headers if pair[0].lower() not in _OF_THE_CODING])
