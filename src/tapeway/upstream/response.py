"""The response of an upstream as it arrives, and the checks that it can be passed on."""

import asyncio
import re
import ssl
from collections import deque
from collections.abc import AsyncIterator
from functools import partial
from itertools import accumulate
from typing import cast

from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader
from yarl import URL

from tapeway.core.http.headers import OWN, end_to_end
from tapeway.core.model.messages import LARGE_BODY, Framing, Headers, ResponseHead
from tapeway.errors import too_large
from tapeway.ports import OnChunks
from tapeway.upstream.connection import (
    Clock,
    ResponseMessage,
    UpstreamConnection,
    give_back,
    lost_by_error,
)
from tapeway.upstream.faults import not_http, translated, truncated, unproven_end

_LONGEST_BODY = 2**63
"""aiohttp's parser treats its largest number as no length."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_DROPPED = OWN | {b"content-length"}
_QUICK_MS = 0.5
"""Chunks that come at shorter intervals are quick."""
_QUICK_SEGMENTS = 4
"""So many of quick chunks in succession are read as soon as they come."""
_MOST_QUICK = 64 * 1024
"""A segment of more is no event that could wait for others, and is read at once."""


class UpstreamAnswer:
    """A response while it arrives; `upload` is the task that still sends the body of its request."""

    head: ResponseHead

    def __init__(
        self,
        connection: Connection,
        upload: "asyncio.Task[None] | None",
        url: URL,
        method: str,
        message: ResponseMessage,
        content: StreamReader,
        clock: Clock,
        started: float,
    ) -> None:
        self._connection = connection
        self.close = partial(give_back, connection, upload)
        self._url = url
        self._method = method
        self._message = message
        self._content = content
        protocol = cast(UpstreamConnection, connection.protocol)
        protocol.receiver, self._plain = self, protocol.chunks
        self._clock = clock
        self._started = started
        if isinstance(message, ResponseHead):
            self.status, self.raw_headers = message.status, message.headers
        else:
            self.status, self.raw_headers = message.code, tuple(message.raw_headers)
        self._lost: asyncio.Future[None] | None = None
        self._tls: ssl.SSLObject | None = None
        # What is received: of a chunk that is not whole, the parts and their size.
        self._on_chunks: OnChunks = _nowhere
        self._max_bytes = self._size = self._pending = 0
        self._parts: list[bytes] = []
        self._paused = False
        # How many segments of quick chunks have come in succession, and when the last one came.
        self._quick, self._came_ms = 0, 0.0

    def open(self) -> None:
        """Read the head. Raises UpstreamError for one that cannot be passed on."""
        message = self._message
        if isinstance(message, ResponseHead):
            self.head = message
        else:
            self.head = _head(message, self.raw_headers, self._method, self._url)
        if self.head.framing == "close":
            protocol, transport = self._connection.protocol, self._connection.transport
            self._lost = None if protocol is None else protocol.closed
            self._tls = None if transport is None else transport.get_extra_info("ssl_object")
        # Others may have the connection while a slow client reads the rest. The content must not
        # know of this object: of a response that is left before its end, each would keep the other.
        self._content.on_eof(self.close)

    def elapsed_ms(self) -> float:
        return (self._clock() - self._started) * 1000

    def framed(self) -> bytes | None:
        return None if self._plain is None else self._plain.framed()

    async def pieces(self) -> AsyncIterator[bytes]:
        content = self._content
        try:
            # Reading an ended stream again would spin: after HEAD it returns at once.
            while not content.at_eof():
                if piece := await content.readany():
                    yield piece
        except Exception as exc:
            # aiohttp raises the error before it returns what arrived earlier.
            if content._buffer:
                yield b"".join(content._buffer)
            raise translated(exc, self._url) from None
        self._check_end()

    async def receive(self, max_bytes: int, on_chunks: OnChunks) -> bool:
        content = self._content
        if content.is_eof() and self.head.framing == "length" and content.total_bytes <= max_bytes:
            # Nearly every answer without chunks: it came in one segment with its head.
            if not content.total_bytes or not content._buffer:
                return False
            data = b"".join(content._buffer)
            content._buffer.clear()
            return bool(on_chunks([data], self.elapsed_ms()))
        self._on_chunks, self._max_bytes, self._paused = on_chunks, max_bytes, False
        try:
            self._hand_over()
            while not (self._paused or content.at_eof()):
                await self._more()
                self._hand_over()
        except Exception as exc:
            # aiohttp reports the error before what arrived earlier was read.
            self._hand_over(last=True)
            raise translated(exc, self._url) from None
        if self._paused:
            return True
        self._check_end()
        return False

    def arrived(self) -> None:
        """Hand over what a segment brought; called by the connection."""
        try:
            self._hand_over()
        except Exception as exc:
            self._wake(exc)
        else:
            if self._paused:
                self._wake(None)

    def take(self, chunks: list[bytes], lengths: list[int], size: int) -> bool:
        """Hand whole chunks over at once, unless others come before them or they are too many."""
        content = self._content
        waiting = content._buffer or content._http_chunk_splits or self._parts or self._paused
        if waiting or size > self._max_bytes:
            return False
        at_ms, is_small = self.elapsed_ms(), size - self._size < _MOST_QUICK
        self._size = size
        try:
            if chunks and self._on_chunks(chunks, at_ms, lengths):
                self._paused = True
                self._wake(None)
        except Exception as exc:
            self._wake(exc)
        self._read_together(at_ms, len(chunks) if is_small else 0)
        return True

    def _read_together(self, at_ms: float, count: int) -> None:
        """Have quick chunks read together, each up to a millisecond later.

        A service that sends faster than a model writes would else wake the process for nearly each
        of its events, which takes longer than to read them.
        """
        is_quick = at_ms - self._came_ms < _QUICK_MS * count
        self._quick = self._quick + 1 if is_quick else 0
        self._came_ms = at_ms
        if self._quick > _QUICK_SEGMENTS:
            cast(UpstreamConnection, self._connection.protocol).read_later()

    async def _more(self) -> None:
        """Have what arrives handed over at once, until the body ends, fails, or is too much for now.

        The task is not woken for each segment: a stream may have thousands.
        """
        content = self._content
        if (failure := content.exception()) is not None:
            raise failure
        if self._connection.protocol is None:
            raise RuntimeError("the connection was given back before its response ended")
        connection = cast(UpstreamConnection, self._connection.protocol)
        content._eof_waiter = waiter = asyncio.get_running_loop().create_future()
        connection.follows = True
        try:
            await waiter
        finally:
            content._eof_waiter = None
            if connection.receiver is self:
                connection.follows = False

    def _wake(self, failure: Exception | None) -> None:
        waiter = self._content._eof_waiter
        if waiter is None or waiter.done():
            return
        if failure is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(failure)

    def _hand_over(self, *, last: bool = False) -> None:
        """Hand over all chunks that have arrived whole; with `last`, the part of one too."""
        if self._paused and not last:
            return
        found, too_much = self._chunks()
        if self._parts and (last or too_much):
            found.append(self._joined_parts())
        if found and self._on_chunks(found, self.elapsed_ms()):
            self._paused = True
        if too_much and not last:
            raise too_large(self._max_bytes)
        protocol = self._connection.protocol
        if not self._paused and protocol is not None and protocol._reading_paused:
            # The parser then goes on with what it has, which may be an end without more data.
            protocol.resume_reading()
            self._hand_over()

    def _chunks(self) -> tuple[list[bytes], bool]:
        """The chunks in the buffer of aiohttp, and whether the next one is beyond the limit.

        Read from its buffer, which has each HTTP chunk in pieces of its own: its methods are made
        for one reader that waits for each.
        """
        content, parts = self._content, self._parts
        buffer = content._buffer
        ends: deque[int] = content._http_chunk_splits or deque()
        found: list[bytes] = []
        chunked, size, most = self.head.framing == "chunked", self._size, self._max_bytes
        # Nearly every segment of a stream: each piece in the buffer is a chunk, and whole.
        if buffer and not parts and len(buffer) == len(ends):
            _, *piece_ends = accumulate(map(len, buffer), initial=size)
            if piece_ends[-1] <= most and piece_ends == [*ends]:
                found, size = [*buffer], piece_ends[-1]
                buffer.clear()
                ends.clear()
        while True:
            # The end of a chunk may arrive after its last byte.
            if ends and ends[0] == size:
                ends.popleft()
                if parts:
                    found.append(self._joined_parts())
            if not buffer or size + len(buffer[0]) > most:
                break
            piece = buffer.popleft()
            size += len(piece)
            if ends and ends[0] == size and not parts:
                ends.popleft()
                found.append(piece)
                continue
            parts.append(piece)
            self._pending += len(piece)
            # A chunk that is too large for memory becomes several.
            if self._pending > LARGE_BODY:
                found.append(self._joined_parts())
        if parts and not chunked:
            found.append(self._joined_parts())
        content._size -= size - self._size
        content._cursor = self._size = size
        return found, bool(buffer)

    def _joined_parts(self) -> bytes:
        parts = self._parts
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._pending = 0
        return data

    def _check_end(self) -> None:
        """Raise UpstreamError where the end of the connection does not show that the body is whole.

        aiohttp ends a body without a length at a reset, and at a TLS connection that is cut, as it
        does at a close.
        """
        if self.head.framing == "close":
            if self._lost is not None and self._lost.done() and lost_by_error(self._lost):
                raise truncated(self._url)
            if self._lacks_close_notify():
                raise unproven_end(self._url)

    def _lacks_close_notify(self) -> bool:
        """Whether TLS has not said that no more data follows (RFC 8446 section 6.1)."""
        if self._tls is None:
            return False
        try:
            # Once close_notify has arrived, there is an end to be read, otherwise more is wanted.
            return self._tls.read(1) != b""
        except ssl.SSLZeroReturnError:
            return False
        except ssl.SSLError:
            return True


def _nowhere(_pieces: object, _at_ms: float, _lengths: object = None) -> None:
    """Stands for who takes the chunks, before anybody does."""


def _head(message: RawResponseMessage, raw: Headers, method: str, url: URL) -> ResponseHead:
    """The head. Raises UpstreamError for what aiohttp accepts but cannot be sent to a client."""
    status, version, reason = message.code, message.version, message.reason or ""
    if not 200 <= status <= 599:
        raise not_http(url, f"status {status}")
    if version.major != 1:
        raise not_http(url, "a version other than HTTP/1.1")
    if _CONTROL.search(reason):
        raise not_http(url, "a control character after its status")
    length, codings = _length_and_codings(raw)
    if (length or 0) > _LONGEST_BODY:
        raise not_http(url, "an impossible Content-Length")
    if any(coding not in (b"chunked", b"identity") for coding in codings):
        raise not_http(url, "a transfer coding other than chunked")
    bodiless = method == "HEAD" or status == 304
    framing: Framing = "close" if length is None else "length"
    if bodiless or status in (204, 205):
        framing = "length"
    elif b"chunked" in codings:
        framing = "chunked"
    return ResponseHead(
        status=status,
        reason=reason,
        # Their length is that of the body that is not sent (RFC 9110 section 8.6).
        headers=end_to_end(raw, drop=OWN if bodiless else _DROPPED),
        framing=framing,
        version=f"HTTP/{version.major}.{version.minor}",
        length=None if bodiless else length,
    )


def _length_and_codings(raw: Headers) -> tuple[int | None, list[bytes]]:
    length: int | None = None
    codings: list[bytes] = []
    for name, value in raw:
        lower = name.lower()
        if lower == b"content-length" and length is None:
            length = int(value)
        elif lower == b"transfer-encoding":
            codings.append(value.lower())
    return length, codings
