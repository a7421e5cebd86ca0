"""The response of an upstream as it arrives, and the checks that it can be passed on."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader
from yarl import URL

from tapeway.core.http.headers import OWN, end_to_end
from tapeway.core.model.messages import (
    LARGE_BODY,
    Framing,
    Headers,
    Request,
    ResponseChunk,
    ResponseHead,
)
from tapeway.errors import UpstreamError, too_large
from tapeway.loop_guard import LoopGuard
from tapeway.upstream.faults import not_http, translated_errors, truncated, unproven_end

Clock = Callable[[], float]
"""Seconds from an arbitrary start, never going back."""

_LONGEST_BODY = 2**63
"""aiohttp's parser treats its largest number as no length."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_DROPPED = OWN | {b"content-length"}


def watch(protocol: ResponseHandler) -> None:
    """Have a new connection remember how it ended."""
    if (lost := protocol.closed) is not None:
        # An error that is not read would be logged by the event loop.
        lost.add_done_callback(_lost_by_error)


async def read_head(
    protocol: ResponseHandler, request: Request, loops: LoopGuard
) -> tuple[RawResponseMessage, StreamReader]:
    """The final response; those before it are shown to the guard against loops."""
    while True:
        message, payload = await protocol.read()
        if not 100 <= message.code <= 199 or message.code == 101:
            return message, payload
        loops.interim(request, tuple(message.raw_headers))


class UpstreamAnswer:
    """A response while it arrives; `upload` is the task that still sends the body of its request."""

    head: ResponseHead

    def __init__(
        self,
        connection: Connection,
        upload: "asyncio.Task[None] | None",
        url: URL,
        method: str,
        message: RawResponseMessage,
        content: StreamReader,
        clock: Clock,
        started: float,
    ) -> None:
        self._connection = connection
        self._upload = upload
        self._url = url
        self._method = method
        self._message = message
        self._content = content
        self._clock = clock
        self._started = started
        self.raw_headers: Headers = tuple(message.raw_headers)
        self._lost: asyncio.Future[None] | None = None
        self._tls: ssl.SSLObject | None = None

    @property
    def status(self) -> int:
        return self._message.code

    def open(self) -> None:
        """Read the head. Raises UpstreamError for one that cannot be passed on."""
        self.head = _head(self._message, self.raw_headers, self._method, self._url)
        if self.head.framing == "close":
            protocol, transport = self._connection.protocol, self._connection.transport
            self._lost = None if protocol is None else protocol.closed
            self._tls = None if transport is None else transport.get_extra_info("ssl_object")
        # Others may have the connection while a slow client reads the rest.
        self._content.on_eof(self.close)

    def close(self) -> None:
        """Give the connection back, or close it where the response or its request is not at its end."""
        if self._upload is not None and not self._upload.done():
            self._upload.cancel()
            self._connection.close()
        else:
            self._connection.release()

    def elapsed_ms(self) -> float:
        return (self._clock() - self._started) * 1000

    async def pieces(self) -> AsyncIterator[bytes]:
        async for piece, _ in self._read(self._any):
            if piece:
                yield piece

    async def chunks(self, max_bytes: int) -> AsyncIterator[ResponseChunk]:
        content, framing = self._content, self.head.framing
        if framing == "length" and content.is_eof() and content.total_bytes <= max_bytes:
            # Nearly every answer without chunks: it came in one segment with its head.
            if data := content.read_nowait():
                yield ResponseChunk(data, self.elapsed_ms())
            return
        chunked = framing == "chunked"
        size = pending = 0
        parts: list[bytes] = []
        try:
            async for piece, ended in self._read(content.readchunk if chunked else self._any):
                size += len(piece)
                if size > max_bytes:
                    raise too_large(max_bytes)
                if piece:
                    parts.append(piece)
                    pending += len(piece)
                # A chunk that is too large for memory becomes several.
                if parts and (ended or not chunked or pending > LARGE_BODY):
                    data = parts[0] if len(parts) == 1 else b"".join(parts)
                    yield ResponseChunk(data, self.elapsed_ms())
                    parts, pending = [], 0
        except UpstreamError:
            if parts:
                yield ResponseChunk(b"".join(parts), self.elapsed_ms())
            raise

    async def _any(self) -> tuple[bytes, bool]:
        return await self._content.readany(), False

    async def _read(
        self, read: Callable[[], Awaitable[tuple[bytes, bool]]]
    ) -> AsyncIterator[tuple[bytes, bool]]:
        """Pieces, and whether an HTTP chunk ends with each; before an error, everything that arrived."""
        content = self._content
        try:
            with translated_errors(self._url):
                # Reading an ended stream again would spin: after HEAD it returns at once.
                while not content.at_eof():
                    yield await read()
        except UpstreamError:
            # aiohttp raises the error before it returns what arrived earlier.
            content._exception = None
            while content._buffer:
                yield await read()
            raise
        # aiohttp ends a body without a length at a reset, and at a TLS connection that is cut, as
        # it does at a close.
        if self.head.framing == "close":
            if self._lost is not None and self._lost.done() and _lost_by_error(self._lost):
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


def _lost_by_error(lost: "asyncio.Future[None]") -> bool:
    """Whether an error ended it; reading that keeps the event loop from logging it as unread."""
    return not lost.cancelled() and lost.exception() is not None


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
