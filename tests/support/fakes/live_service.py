"""A live service in memory that answers, waits and fails where a test says so."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import copy

from tapeway.core.model.messages import Framing, Headers, Request, ResponseHead
from tapeway.errors import TapewayError
from tapeway.ports import NONE_OPEN, OnChunks, OpenConnections

Reply = Callable[[int], "FakeAnswer"]


class FakeAnswer:
    """An answer of given chunks; an error among them ends it there."""

    def __init__(
        self,
        *pieces: bytes | Exception,
        status: int = 200,
        headers: Headers = (),
        framing: Framing = "length",
    ) -> None:
        self.head = ResponseHead(status, "OK", headers, framing)
        self._pieces = pieces
        self._left = enumerate(pieces)

    def elapsed_ms(self) -> float:
        return float(len(self._pieces))

    async def receive(self, max_bytes: int, on_chunks: OnChunks) -> bool:
        for at, piece in self._left:
            if isinstance(piece, Exception):
                # One that is kept here would keep everything that it came through.
                raise copy(piece)
            if on_chunks([piece], float(at)):
                return True
        self._left = enumerate(self._pieces)
        return False

    async def pieces(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece


def numbered(number: int) -> FakeAnswer:
    """Another answer to each call: `answer 1`, `answer 2`, …"""
    return FakeAnswer(b"answer %d" % number)


class FakeResponder:
    """Keeps what it was asked; while `gate` is clear, nobody is answered."""

    def __init__(self, reply: Reply = numbered) -> None:
        self.reply = reply
        self.asked: list[Request] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self._came = asyncio.Event()

    @property
    def connections(self) -> int:
        return len(self.asked)

    @property
    def open_connections(self) -> OpenConnections:
        return NONE_OPEN

    @asynccontextmanager
    async def ask(self, request: Request) -> AsyncIterator[FakeAnswer]:
        self.asked.append(request)
        self._came.set()
        number = len(self.asked)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        yield self.reply(number)

    async def reached(self, count: int) -> None:
        """Wait until so many calls have come."""
        async with asyncio.timeout(60):
            while len(self.asked) < count:
                self._came.clear()
                await self._came.wait()

    def refuse(self, error: TapewayError) -> None:
        """Answer every call with an error from now on."""
        self.error = error
