"""Decodes content codings within bounds (RFC 9110 section 8.4), at once or piece by piece.

A cassette stores bodies decoded: people can read them, and any client can take them. An exception
are bodies whose client wants the coded bytes (`keeps_coding`). A small body may decode to a huge one.
Each coding of a stack is therefore bounded twice: by the size of the output, and by the ratio to the
input.
"""

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Literal, Protocol

import brotli  # type: ignore[import-untyped]

from tapeway.core.http.chunks import AwsChunks, MalformedChunks
from tapeway.core.http.headers import find_header
from tapeway.core.model.messages import ChunkTimes, Headers, Request, Response, ResponseHead
from tapeway.core.model.request_fields import AWS_CHUNKED

try:
    from backports import zstd
except ImportError:  # from 3.14 on it is in the standard library
    from compression import zstd  # type: ignore[import-not-found, no-redef]

CONTENT_ENCODING = b"content-encoding"
ACCEPT_ENCODING = b"accept-encoding"
_REFUSED = re.compile(rb"q\s*=\s*0(?:\.0*)?")
_SAME_AS = {b"x-gzip": b"gzip", b"gzip": b"x-gzip"}
MIB = 1024 * 1024

MAX_DECODED = 32 * MIB
"""Larger bodies are not decoded: a small bomb must not become a large body in memory."""

FREE = MIB
"""How much a body of any size may decode to."""

MAX_RATIO = 200
"""Output beyond FREE may be this many times the input. Deflate alone reaches a thousand, but on
nothing that is worth reading.
"""

MOST_SEARCHED = 128 * MIB
"""The bytes of a body beyond the bounds that are searched for secrets."""

BodyEnd = Literal["complete", "cut", "bad", "large"]
"""How a coded body ended: complete; truncated; invalid; too large."""

# Each member hands back what follows it: in steps, that is never the whole rest of a large body.
_STEP = 16 * 1024
_SEARCHED_STEP = 1024

_MAX_STACKED = 4
_GZIP, _ZLIB, _RAW = 31, 15, -15

# RFC 9659: a client need not support a larger window under this coding.
_ZSTD_WINDOW: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 23}
_BROKEN = (zlib.error, brotli.error, zstd.ZstdError, MalformedChunks)

_CHECKSUMS = frozenset(
    {
        *(b"content-digest", b"content-md5", b"digest", b"repr-digest", b"x-goog-hash"),
        *(b"x-ms-blob-content-md5", b"x-ms-content-crc64"),
    }
)
_AMAZON_CHECKSUM = b"x-amz-checksum-"
_PARTIAL, _NOT_MODIFIED = 206, 304


class Decoder:
    """Decodes a body that arrives piece by piece."""

    def __init__(self, steps: list["_Step"], limit: int, ratio: int) -> None:
        self._steps = [_Bounded(step, limit, ratio) for step in steps]
        self._fault: Literal["bad", "large"] | None = None

    def feed(self, data: bytes) -> bytes:
        """Decode the next piece; returns nothing once the body proved invalid or too large."""
        if self._fault is not None:
            return b""
        try:
            for step in self._steps:
                data = step.feed(data)
        except _BROKEN:
            self._fault = "bad"
            return b""
        except _TooLarge:
            self._fault = "large"
            return b""
        return data

    def finish(self) -> BodyEnd:
        """How the body ended, if nothing more follows."""
        if self._fault is not None:
            return self._fault
        return "complete" if all(step.ended for step in self._steps) else "cut"


def decoder(coding: bytes, *, limit: int = MAX_DECODED, ratio: int = MAX_RATIO) -> Decoder | None:
    """A decoder for a Content-Encoding such as `gzip` or `gzip, br`, None for an unknown coding."""
    made = [_CODINGS.get(name) for name in _to_take_off(coding)]
    steps = [make() for make in made if make is not None]
    return Decoder(steps, limit, ratio) if len(steps) == len(made) <= _MAX_STACKED else None


def decode(coding: bytes, body: bytes) -> bytes | None:
    """The decoded body, or None for an unknown coding, or a body that is invalid, truncated or too
    large.
    """
    if not coding:
        return body
    made = decoder(coding)
    if made is None:
        return None
    plain = made.feed(body)
    return plain if made.finish() == "complete" else None


def decode_leniently(coding: bytes, body: bytes) -> bytes:
    """The part of a body before it breaks off or exceeds the bounds; empty for an unknown coding.

    Clients read bodies that end too early, have a wrong checksum or none, or go on behind their end.
    """
    for name in _to_take_off(coding):
        makers = _LENIENT.get(name, ())
        body = max([_before_fault(make, body) for make in makers], key=len, default=b"")
    return body


def pieces_beyond_bounds(coding: bytes, body: bytes) -> Iterator[bytes]:
    """The decoded text of a body beyond the bounds, in pieces, up to `MOST_SEARCHED` bytes.

    Nothing for a body within the bounds.
    """
    bounded, made = decoder(coding), decoder(coding, limit=MOST_SEARCHED, ratio=MOST_SEARCHED)
    if bounded is None or made is None:
        return
    bounded.feed(body)
    if bounded.finish() == "large":
        # A small step of a bomb becomes a large piece.
        for start in range(0, len(body), _SEARCHED_STEP):
            yield made.feed(body[start : start + _SEARCHED_STEP])


def _to_take_off(coding: bytes) -> list[bytes]:
    """The names in a Content-Encoding value in the order in which they are to be taken off."""
    names = [name.strip().lower() for name in coding.split(b",")]
    # Listed in the order they were applied.
    codings = [name for name in reversed(names) if name not in (b"", b"identity")]
    return sorted(codings, key=lambda name: name != AWS_CHUNKED)


def content_coding(headers: Headers) -> bytes:
    """The value of Content-Encoding, of several fields together; empty for none."""
    if find_header(headers, CONTENT_ENCODING) is None:
        return b""
    return b", ".join([value for name, value in headers if name.lower() == CONTENT_ENCODING])


def coding_of(head: ResponseHead) -> bytes:
    """What `content_coding` gives for the fields of a response."""
    return b"" if head.value(CONTENT_ENCODING) is None else content_coding(head.headers)


def keeps_coding(request: Headers, head: ResponseHead) -> bool:
    """Whether the client of a coded response wants the coded bytes.

    Either the request did not offer the coding, and the coding belongs to the object itself. Or
    the response has a checksum of the coded form.
    """
    coding = coding_of(head)
    checked = any(is_checksum(name.lower()) for name in head.names)
    return bool(coding) and (checked or not _offers(request, coding))


def _offers(request: Headers, coding: bytes) -> bool:
    """Whether a request takes each coding of a stack (RFC 9110 section 12.5.3)."""
    takes: dict[bytes, bool] = {}
    for name, value in request:
        if name.lower() == ACCEPT_ENCODING:
            for element in value.lower().split(b","):
                offered, *parameters = [part.strip() for part in element.split(b";")]
                takes[offered] = not any(map(_REFUSED.fullmatch, parameters))
    any_other = takes.get(b"*", False)
    names = [part.strip().lower() for part in coding.split(b",")]
    return all(
        takes.get(applied, takes.get(_SAME_AS.get(applied, applied), any_other))
        for applied in names
        if applied not in (b"", b"identity")
    )


def decoded_request(request: Request) -> Request:
    """The request with the fields that go with its body once that is decoded."""
    coding = request.fields.content_encoding or b""
    return replace(request, headers=without_coding_fields(request.headers), coding=coding)


def readable_request(request: Request) -> Request:
    """The request with a decoded body, or unchanged if the body cannot be decoded."""
    coding = request.fields.content_encoding
    if not coding or not request.body or (plain := decode(coding, request.body)) is None:
        return request
    return replace(request, headers=without_coding_fields(request.headers), body=plain)


def readable_response(response: Response, method: str, *, cut: bool = False) -> Response:
    """The response with a decoded body, or unchanged if the body cannot be decoded.

    Chunks end where they ended on the wire. A chunk that decodes to nothing yet is joined to the
    next. A partial body (206) is not decoded, nor is a body of an unknown coding, nor an
    invalid or too large body. With `cut`, the response is known to be truncated, and the received part is
    decoded.
    """
    if not response.body or not has_content_coding(response, method):
        return response
    if (made := decoder(content_coding(response.headers))) is None:
        return response
    plain = [made.feed(piece) for piece in response.pieces()]
    if (ending := made.finish()) != "complete" and not (cut and ending == "cut"):
        return response
    arrivals = ChunkTimes(zip(response.arrivals().times, map(len, plain), strict=True))
    head = replace(response.head, headers=without_coding_fields(response.headers))
    return replace(response.with_arrivals(arrivals), head=head, body=b"".join(plain))


def leniently_readable(response: Response) -> Response:
    """The response with the body decoded as far as possible, in one chunk, or unchanged.

    Unlike `readable_response`, this accepts broken bodies. A partial body (206) stays unchanged.
    """
    coding = coding_of(response.head)
    if not coding or response.status == _PARTIAL:
        return response
    if not (plain := decode_leniently(coding, response.body)):
        return response
    head = replace(response.head, headers=without_coding_fields(response.headers))
    times = [at_ms for at_ms, _ in response.arrivals()]
    arrivals = ChunkTimes([(times[-1], len(plain))])
    return replace(response.with_arrivals(arrivals), head=head, body=plain)


def has_content_coding(response: Response, method: str) -> bool:
    """Whether there is a content coding and the body is a whole one."""
    head = response.head
    if method.upper() == "HEAD" or head.status in (_PARTIAL, _NOT_MODIFIED):
        return False
    return bool(coding_of(head))


def is_checksum(name: bytes) -> bool:
    """Whether a field, its name in lower case, has a checksum of the body as it was sent."""
    return name in _CHECKSUMS or name.startswith(_AMAZON_CHECKSUM)


def without_coding_fields(headers: Headers) -> Headers:
    """The header fields of the decoded body, without coding and checksums."""
    return tuple(
        [
            pair
            for pair in headers
            if (name := pair[0].lower()) != CONTENT_ENCODING and not is_checksum(name)
        ]
    )


class _TooLarge(Exception):
    """The output exceeds its bounds."""


class _Step(Protocol):
    """One coding of a stack; returns at most `room` bytes or raises _TooLarge."""

    @property
    def ended(self) -> bool: ...

    def feed(self, data: bytes, room: int) -> bytes: ...


class _Member(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Bounded:
    """A coding with bounds on the output."""

    def __init__(self, step: _Step, limit: int = MAX_DECODED, ratio: int = MAX_RATIO) -> None:
        self._step = step
        self._limit = limit
        self._ratio = ratio
        self._taken = self._given = 0

    @property
    def ended(self) -> bool:
        # An empty body is whole under any coding.
        return not self._taken or self._step.ended

    def feed(self, data: bytes) -> bytes:
        if not data:
            return b""
        self._taken += len(data)
        bound = min(self._limit, max(FREE, self._ratio * self._taken))
        plain = self._step.feed(data, bound - self._given)
        self._given += len(plain)
        return plain


class _Members:
    """Concatenated bodies decoded as one: gzip's members (RFC 1952 section 2.2), Zstandard's
    frames.
    """

    def __init__(self, fresh: Callable[[], _Member]) -> None:
        self._fresh = fresh
        self._member = fresh()

    @property
    def ended(self) -> bool:
        return self._member.eof

    def feed(self, data: bytes, room: int) -> bytes:
        plain: list[bytes] = []
        at = 0
        while at < len(data):
            if self._member.eof:
                self._member = self._fresh()
            step = data[at : at + _STEP]
            piece = self._member.decompress(step, room + 1)
            room -= len(piece)
            if room < 0:
                raise _TooLarge
            plain.append(piece)
            at += len(step) - len(self._member.unused_data)
        return b"".join(plain)


class _Deflate:
    """Servers send both: the zlib format the RFC means and the bare one Microsoft once did."""

    def __init__(self) -> None:
        self._start = b""
        self._body: _Member | None = None

    @property
    def ended(self) -> bool:
        return self._body is not None and self._body.eof

    def feed(self, data: bytes, room: int) -> bytes:
        if self._body is None:
            data = self._start + data
            if len(data) < 2:
                self._start = data
                return b""
            self._body = zlib.decompressobj(_ZLIB if _is_zlib(data) else _RAW)
        if self._body.eof:
            raise zlib.error("there is more behind the end")
        plain = self._body.decompress(data, room + 1)
        if len(plain) > room:
            raise _TooLarge
        if self._body.unused_data:
            raise zlib.error("there is more behind the end")
        return plain


class _BrotliDecoder:
    def __init__(self) -> None:
        self._body = brotli.Decompressor()

    @property
    def ended(self) -> bool:
        return bool(self._body.is_finished())

    def feed(self, data: bytes, room: int) -> bytes:
        plain: list[bytes] = []
        while True:
            piece: bytes = self._body.process(data, output_buffer_limit=room + 1)
            room -= len(piece)
            if room < 0:
                raise _TooLarge
            plain.append(piece)
            if self._body.can_accept_more_data():
                return b"".join(plain)
            data = b""


def _is_zlib(start: bytes) -> bool:
    # RFC 1950 section 2.2. A bare body begins like this only with odd padding, which is never written.
    return start[0] & 0x0F == 8 and start[0] >> 4 <= 7 and int.from_bytes(start[:2]) % 31 == 0


def _gzip() -> _Step:
    return _Members(lambda: zlib.decompressobj(_GZIP))


def _zstd() -> _Step:
    return _Members(lambda: zstd.ZstdDecompressor(options=_ZSTD_WINDOW))


_CODINGS: dict[bytes, Callable[[], _Step]] = {
    b"gzip": _gzip,
    b"x-gzip": _gzip,
    b"deflate": _Deflate,
    b"br": _BrotliDecoder,
    b"zstd": _zstd,
    AWS_CHUNKED: AwsChunks,
}


class _Inflated:
    """A deflate body from an octet on, regardless of header and checksum."""

    def __init__(self, header: int) -> None:
        self._header = header
        self._body = zlib.decompressobj(_RAW)

    @property
    def ended(self) -> bool:
        return self._body.eof

    def feed(self, data: bytes, room: int) -> bytes:
        skipped = min(self._header, len(data))
        self._header -= skipped
        plain = self._body.decompress(data[skipped:], room + 1)
        if len(plain) > room:
            raise _TooLarge
        return plain


def _wide_zstd() -> _Step:
    window: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 27}
    return _Members(lambda: zstd.ZstdDecompressor(options=window))


_INFLATED = (partial(_Inflated, 0), partial(_Inflated, 2), partial(_Inflated, 10))
"""Of deflate alone, behind the header of zlib, and behind that of gzip."""
_LENIENT: dict[bytes, Sequence[Callable[[], _Step]]] = {
    b"gzip": (_gzip, _Deflate, *_INFLATED),
    b"x-gzip": (_gzip, _Deflate, *_INFLATED),
    b"deflate": (_Deflate, _gzip, *_INFLATED),
    b"br": (_BrotliDecoder,),
    b"zstd": (_wide_zstd,),
    AWS_CHUNKED: (AwsChunks,),
}
"""The ways to read a body of each coding with a wrong header, checksum or end."""


def _before_fault(make: Callable[[], _Step], body: bytes) -> bytes:
    """What a body says before its fault."""
    plain: list[bytes] = []
    step = _Bounded(make())
    for start in range(0, len(body), _STEP):
        try:
            plain.append(step.feed(body[start : start + _STEP]))
        except (*_BROKEN, _TooLarge):
            # The faulty step's output is lost. The step is repeated, octet by octet.
            return b"".join([*plain, *_octets_before_fault(make, body[: start + _STEP], start)])
    return b"".join(plain)


def _octets_before_fault(make: Callable[[], _Step], body: bytes, first: int) -> Iterator[bytes]:
    step = _Bounded(make())
    with suppress(*_BROKEN, _TooLarge):
        for start in range(0, first, _STEP):
            step.feed(body[start : start + _STEP])
        for at in range(first, len(body)):
            yield step.feed(body[at : at + 1])
