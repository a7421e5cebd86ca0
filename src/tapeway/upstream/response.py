"""The response of an upstream as it arrives, checked before it is passed on."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable

from yarl import URL

from tapeway.core.http.headers import OWN, end_to_end
from tapeway.core.model.messages import LARGE_BODY, Framing, Headers, ResponseHead
from tapeway.errors import too_large
from tapeway.ports import OnChunks
from tapeway.upstream.connection import RawHead, UpstreamExchange
from tapeway.upstream.faults import not_http, translated, truncated, unproven_end

Clock = Callable[[], float]
"""Seconds from an arbitrary start, never going back."""

_LONGEST_BODY = 2**63
"""aiohttp's parser treats the largest number as no length."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_DROPPED = OWN | {b"content-length"}
_MOST_AT_ONCE = 1024
"""How many chunks are handed over in one turn of the event loop."""
_MOST_CHUNKS = 1_000_000
"""Beyond this number, chunks that arrive together become one. Their bounds carry no meaning, and each
chunk takes memory.
"""


class UpstreamAnswer:
    """A response while it arrives."""

    head: ResponseHead

    def __init__(
        self,
        exchange: UpstreamExchange,
        raw: RawHead,
        url: URL,
        method: str,
        clock: Clock,
        started: float,
    ) -> None:
        self.status = raw.status
        self.raw_headers = raw.headers
        self._exchange = exchange
        self._raw = raw
        self._url = url
        self._method = method
        self._clock = clock
        self._started = started
        self._tls: ssl.SSLObject | None = None
        # The parts of an incomplete chunk, and their size.
        self._on_chunks: OnChunks = _discard
        self._max_bytes = self._size = self._count = self._pending = 0
        self._parts: list[bytes] = []
        self._is_full = False

    def open(self) -> None:
        """Read the head. Raises UpstreamError for a head that cannot be passed on."""
        self.head = _head(self._raw, self._method, self._url)
        if self.head.framing == "close":
            self._tls = self._exchange.ssl_object

    def close(self) -> None:
        """Read no more, and give the connection back."""
        self._exchange.close()

    def elapsed_ms(self) -> float:
        return (self._clock() - self._started) * 1000

    async def pieces(self) -> AsyncIterator[bytes]:
        exchange = self._exchange
        while not exchange.ended:
            await exchange.follow(self._has_come)
            if (piece := exchange.all_as_one()) is not None:
                yield piece[0]
            if exchange.has_come:
                # Thousands of chunks came at once: let others have their turn.
                await asyncio.sleep(0)
        self._check_end()

    async def receive(self, max_bytes: int, on_chunks: OnChunks) -> bool:
        self._on_chunks, self._max_bytes, self._is_full = on_chunks, max_bytes, False
        await self._exchange.follow(self._hand_over)
        if self._is_full:
            return True
        self._check_end()
        return False

    def _has_come(self) -> bool:
        return self._exchange.has_come

    def _hand_over(self) -> bool:
        """Hand over complete chunks. Returns whether no more are wanted."""
        exchange = self._exchange
        chunks, is_too_much = self._chunks()
        ended = exchange.ended
        if self._parts and (ended or is_too_much):
            chunks.append(self._joined_parts())
        self._count += len(chunks)
        if chunks and self._on_chunks(chunks, self.elapsed_ms()):
            self._is_full = True
        if is_too_much:
            raise too_large(self._max_bytes)
        return ended or self._is_full

    def _chunks(self) -> tuple[list[bytes], bool]:
        """The next whole chunks, and whether one is beyond the limit."""
        exchange, is_chunked = self._exchange, self.head.framing == "chunked"
        if not is_chunked or self._count >= _MOST_CHUNKS:
            rest = exchange.all_as_one()
            pieces = [] if rest is None else [rest]
        else:
            pieces = exchange.next_pieces(_MOST_AT_ONCE)
        chunks: list[bytes] = []
        for data, is_whole in pieces:
            if self._size + len(data) > self._max_bytes:
                return chunks, True
            self._size += len(data)
            if is_whole and data and not self._parts:
                chunks.append(data)
                continue
            self._parts.append(data)
            self._pending += len(data)
            # A chunk that is too large for memory becomes several.
            if self._pending and (is_whole or not is_chunked or self._pending > LARGE_BODY):
                chunks.append(self._joined_parts())
        return chunks, False

    def _joined_parts(self) -> bytes:
        parts = self._parts
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._pending = 0
        return data

    def _check_end(self) -> None:
        """Raise UpstreamError if the response broke off, or if nothing shows a complete response.

        aiohttp ends a body without a length at a reset, and at a TLS connection that is cut, as it
        does at a close.
        """
        if (failure := self._exchange.failure) is not None:
            raise translated(failure, self._url) from None
        if self.head.framing == "close":
            if self._exchange.was_reset:
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


def _discard(_pieces: object, _at_ms: float) -> None:
    """Takes chunks before a reader does."""


def _head(raw: RawHead, method: str, url: URL) -> ResponseHead:
    """The head. Raises UpstreamError for what aiohttp accepts but cannot be sent to a client."""
    status, (major, minor), reason = raw.status, raw.version, raw.reason
    if not 200 <= status <= 599:
        raise not_http(url, f"status {status}")
    if major != 1:
        raise not_http(url, "a version other than HTTP/1.1")
    if _CONTROL.search(reason):
        raise not_http(url, "a control character after its status")
    length, codings = _length_and_codings(raw.headers)
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
        # The length counts the body that a GET would get (RFC 9110 section 8.6).
        headers=end_to_end(raw.headers, drop=OWN if bodiless else _DROPPED),
        framing=framing,
        version=f"HTTP/{major}.{minor}",
        length=None if bodiless else length,
    )


def _length_and_codings(headers: Headers) -> tuple[int | None, list[bytes]]:
    length: int | None = None
    codings: list[bytes] = []
    for name, value in headers:
        lower = name.lower()
        if lower == b"content-length" and length is None:
            length = int(value)
        elif lower == b"transfer-encoding":
            codings.append(value.lower())
    return length, codings
