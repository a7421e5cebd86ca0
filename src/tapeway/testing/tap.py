"""The bytes of one connection, noted on their way to the HTTP parser."""

import asyncio
from collections.abc import Callable


class Tap(asyncio.Protocol):
    """Passes everything on to `inner` and keeps a copy of what came in."""

    def __init__(self, inner: asyncio.Protocol, opened: Callable[["Tap"], None]) -> None:
        self._inner = inner
        self._opened = opened
        self._received = bytearray()
        self.transport: asyncio.BaseTransport | None = None
        self.lost = asyncio.Event()

    def take(self) -> bytes:
        """What came in since the last call; pipelined requests come out together."""
        taken = bytes(self._received)
        self._received.clear()
        return taken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._opened(self)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
