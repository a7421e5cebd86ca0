"""An upstream's answer as it comes, and what makes one unfit to be passed on."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
from aiohttp.connector import Connection

from tapeway.core.http.headers import OWN, end_to_end, find_header
from tapeway.core.model.messages import LARGE_BODY, Framing, Headers, ResponseChunk, ResponseHead
from tapeway.errors import UpstreamError, too_large
from tapeway.upstream.faults import broken_off, not_http, translated

Clock = Callable[[], float]
"""Seconds from an arbitrary start, never going back."""

_LONGEST_BODY = 2**63
"""The parser takes its own largest number for no length at all."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class WatchedResponse(aiohttp.ClientResponse):
    """A response that can tell whether its connection was reset.

    To the library a reset ends a body without a length as a close does.
    """

    _lost: "asyncio.Future[None] | None" = None

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        if connection.protocol is not None and (lost := connection.protocol.closed) is not None:
            self._lost = lost
            # One callback a connection, however often it is used.
            lost.remove_done_callback(_noticed)
            lost.add_done_callback(_noticed)
        return await super().start(connection)

    @property
    def was_reset(self) -> bool:
        lost = self._lost
        return lost is not None and lost.done() and _noticed(lost)


class UpstreamAnswer:
    """An answer as aiohttp's client delivers it."""

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
        size = waiting = 0
        gathered: list[bytes] = []
        try:
            async for piece, ended in self._read(self._chunk if chunked else self._any):
                size += len(piece)
                if size > max_bytes:
                    raise too_large(max_bytes)
                if piece:
                    gathered.append(piece)
                    waiting += len(piece)
                # A chunk that is itself too large for memory is taken for several.
                if gathered and (ended or not chunked or waiting > LARGE_BODY):
                    yield ResponseChunk(b"".join(gathered), self.elapsed_ms())
                    gathered, waiting = [], 0
        except UpstreamError:
            if gathered:
                yield ResponseChunk(b"".join(gathered), self.elapsed_ms())
            raise

    async def _any(self) -> tuple[bytes, bool]:
        return await self._response.content.readany(), False

    async def _chunk(self) -> tuple[bytes, bool]:
        return await self._response.content.readchunk()

    async def _read(
        self, read: Callable[[], Awaitable[tuple[bytes, bool]]]
    ) -> AsyncIterator[tuple[bytes, bool]]:
        """Pieces, and whether an HTTP chunk ended with each; all that came, also when it breaks off."""
        content = self._response.content
        try:
            with translated(self._response.url):
                # Asking an ended stream again would spin: after HEAD it never says more.
                while not content.at_eof():
                    yield await read()
        except UpstreamError:
            # The library would rather tell of the error than give what came before it.
            content._exception = None
            while content._buffer:
                yield await read()
            raise
        if self.head.framing == "close" and self._response.was_reset:
            raise broken_off(self._response.url)


def _noticed(lost: "asyncio.Future[None]") -> bool:
    """Whether it was lost by an error; asking keeps the loop from reporting that nobody did."""
    return not lost.cancelled() and lost.exception() is not None


def _head(response: aiohttp.ClientResponse) -> ResponseHead:
    raw: Headers = tuple(response.raw_headers)
    _check(response, raw)
    bodiless = response.method.upper() == "HEAD" or response.status == 304
    # There a length tells of the body that is not sent: nothing is framed by it.
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
    """Raises UpstreamError for what the library lets through and nobody could be given."""
    if not 200 <= response.status <= 599:
        raise not_http(response.url, f"status {response.status}")
    if response.version is None or response.version.major != 1:
        raise not_http(response.url, "another version than HTTP/1.1")
    if _CONTROL.search(response.reason or ""):
        raise not_http(response.url, "a control character behind its status")
    if (response.content_length or 0) > _LONGEST_BODY:
        raise not_http(response.url, "a length that no body has")
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
