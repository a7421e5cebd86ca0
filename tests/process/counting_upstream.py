"""An upstream whose answers are never alike, so that asking it twice shows."""

import asyncio
import random
from collections import Counter
from typing import Self

from tests.process.serving import DEADLINE_S
from tests.support.listening import Listening


class Upstream:
    """Serves between `async with` and its end; each answer is kept under the target it was for.

    While `gate` is closed it takes requests and says nothing; while `rest` is, it says half.
    """

    def __init__(self, *, chunked: bool = False, size: int = 32, port: int = 0) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.rest = asyncio.Event()
        self.rest.set()
        self._asked = asyncio.Event()
        self.answers: dict[str, list[bytes]] = {}
        self.asks: Counter[str] = Counter()
        self._chunked = chunked
        self._size = size
        self._port = port
        self._listening = Listening(self._answer)

    async def __aenter__(self) -> Self:
        self._port = await self._listening.start(self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Listen no more and break every connection."""
        await self._listening.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def open_connections(self) -> int:
        return self._listening.open_connections

    @property
    def connections(self) -> int:
        return self._listening.connections

    async def was_asked(self, target: str, times: int = 1) -> None:
        """Return when so many requests for that target have come."""
        async with asyncio.timeout(DEADLINE_S):
            while self.asks[target] < times:
                self._asked.clear()
                await self._asked.wait()

    def only_answer(self, target: str) -> bytes:
        """What it answered to that target, for which it was asked once."""
        (answer,) = self.answers[target]
        assert self.asks[target] == 1
        return answer

    async def _answer(
        self, request: bytes, _: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        target = request.split(b" ", 2)[1].decode()
        self.asks[target] += 1
        self._asked.set()
        await self.gate.wait()
        body = f"{target} ".encode() + random.randbytes(self._size).hex().encode()
        self.answers.setdefault(target, []).append(body)
        half = len(body) // 2
        if self._chunked:
            head = b"Transfer-Encoding: chunked"
            framed = [b"%x\r\n%b\r\n" % (len(x), x) for x in (body[:half], body[half:], b"")]
        else:
            head, framed = b"Content-Length: %d" % len(body), [body[:half], body[half:]]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n%b\r\n\r\n" % head)
        writer.write(framed[0])
        await writer.drain()
        await self.rest.wait()
        writer.writelines(framed[1:])
        await writer.drain()
        return True
