"""The response of an upstream as it arrives, and the checks that it can be passed on."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import EofStream

from tapeway.core.http.headers import OWN, end_to_end, find_header
from tapeway.core.model.messages import LARGE_BODY, Framing, Headers, ResponseChunk, ResponseHead
from tapeway.errors import UpstreamError, too_large
from tapeway.upstream.faults import not_http, translated_errors, truncated, unproven_end

Clock = Callable[[], float]
"""Seconds from an arbitrary start, never going back."""

INTERIM: ContextVar[Callable[[Headers], None]] = ContextVar("interim")
"""Is called with the header of each interim response to the request that the task sends."""

_LONGEST_BODY = 2**63
"""aiohttp's parser treats its largest number as no length."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class WatchedResponse(aiohttp.ClientResponse):
    """A response that knows how its connection ended.

    aiohttp ends a body without a length at a reset, and at a TLS connection that is cut, as it does
    at a close.
    """

    _lost: "asyncio.Future[None] | None" = None
    _tls: ssl.SSLObject | None = None

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        if connection.protocol is not None and (lost := connection.protocol.closed) is not None:
            self._lost = lost
            # One callback per connection, however many requests it carries.
            lost.remove_done_callback(_lost_by_error)
            lost.add_done_callback(_lost_by_error)
        if connection.transport is not None:
            self._tls = connection.transport.get_extra_info("ssl_object")
        if connection.protocol is not None:
            await _read_interim(connection.protocol)
        return await super().start(connection)

    @property
    def was_reset(self) -> bool:
        lost = self._lost
        return lost is not None and lost.done() and _lost_by_error(lost)

    @property
    def lacks_close_notify(self) -> bool:
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


async def _read_interim(protocol: ResponseHandler) -> None:
    """Read up to the final response, which stays to be read: aiohttp discards what is before it."""
    # An error stays too, and is raised when it is read again.
    with suppress(HttpProcessingError, EofStream, aiohttp.ClientError, OSError):
        while True:
            message, payload = await protocol.read()
            if not 100 <= message.code <= 199 or message.code == 101:
                protocol._buffer.appendleft(((message, payload), 0))
                return
            INTERIM.get()(tuple(message.raw_headers))


class UpstreamAnswer:
    """A response as aiohttp's client delivers it."""

    def __init__(self, response: WatchedResponse, clock: Clock, started: float) -> None:
        self._response = response
        self._clock = clock
        self._started = started
        self.head = _head(response)

    def elapsed_ms(self) -> float:
        return (self._clock() - self._started) * 1000

    async def pieces(self) -> AsyncIterator[bytes]:
        async for piece, _ in self._read(self._any):
            if piece:
                yield piece

    async def chunks(self, max_bytes: int) -> AsyncIterator[ResponseChunk]:
        chunked = self.head.framing == "chunked"
        size = pending = 0
        parts: list[bytes] = []
        try:
            async for piece, ended in self._read(
                self._response.content.readchunk if chunked else self._any
            ):
                size += len(piece)
                if size > max_bytes:
                    raise too_large(max_bytes)
                if piece:
                    parts.append(piece)
                    pending += len(piece)
                # A chunk that is too large for memory becomes several.
                if parts and (ended or not chunked or pending > LARGE_BODY):
                    yield ResponseChunk(b"".join(parts), self.elapsed_ms())
                    parts, pending = [], 0
        except UpstreamError:
            if parts:
                yield ResponseChunk(b"".join(parts), self.elapsed_ms())
            raise

    async def _any(self) -> tuple[bytes, bool]:
        return await self._response.content.readany(), False

    async def _read(
        self, read: Callable[[], Awaitable[tuple[bytes, bool]]]
    ) -> AsyncIterator[tuple[bytes, bool]]:
        """Pieces, and whether an HTTP chunk ends with each; before an error, everything that arrived."""
        content = self._response.content
        try:
            with translated_errors(self._response.url):
                # Reading an ended stream again would spin: after HEAD it returns at once.
                while not content.at_eof():
                    yield await read()
        except UpstreamError:
            # aiohttp raises the error before it returns what arrived earlier.
            content._exception = None
            while content._buffer:
                yield await read()
            raise
        if self.head.framing == "close":
            if self._response.was_reset:
                raise truncated(self._response.url)
            if self._response.lacks_close_notify:
                raise unproven_end(self._response.url)


def _lost_by_error(lost: "asyncio.Future[None]") -> bool:
    """Whether an error ended it; reading that keeps the event loop from logging it as unread."""
    return not lost.cancelled() and lost.exception() is not None


def _head(response: aiohttp.ClientResponse) -> ResponseHead:
    raw: Headers = tuple(response.raw_headers)
    _check(response, raw)
    bodiless = response.method.upper() == "HEAD" or response.status == 304
    # Their length is that of the body that is not sent (RFC 9110 section 8.6).
    drop = OWN if bodiless else OWN | {b"content-length"}
    version = response.version
    return ResponseHead(
        status=response.status,
        reason=response.reason or "",
        headers=end_to_end(raw, drop=drop),
        framing=_framing(response, raw, bodiless=bodiless),
        version=f"HTTP/{version.major}.{version.minor}" if version else "HTTP/1.1",
        length=None if bodiless else response.content_length,
    )


def _check(response: aiohttp.ClientResponse, raw: Headers) -> None:
    """Raise UpstreamError for a response that aiohttp accepts but that cannot be sent to a client."""
    if not 200 <= response.status <= 599:
        raise not_http(response.url, f"status {response.status}")
    if response.version is None or response.version.major != 1:
        raise not_http(response.url, "a version other than HTTP/1.1")
    if _CONTROL.search(response.reason or ""):
        raise not_http(response.url, "a control character after its status")
    if (response.content_length or 0) > _LONGEST_BODY:
        raise not_http(response.url, "an impossible Content-Length")
    codings = [value.lower() for name, value in raw if name.lower() == b"transfer-encoding"]
    if any(coding not in (b"chunked", b"identity") for coding in codings):
        raise not_http(response.url, "a transfer coding other than chunked")


def _framing(response: aiohttp.ClientResponse, raw: Headers, *, bodiless: bool) -> Framing:
    if bodiless or response.status in (204, 205):
        return "length"
    if (
        coding := find_header(raw, b"transfer-encoding")
    ) is not None and b"chunked" in coding.lower():
        return "chunked"
    return "length" if find_header(raw, b"content-length") is not None else "close"
