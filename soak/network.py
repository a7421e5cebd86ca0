"""The two sides of tapeway in a run: the upstream that counts calls, and the way to the database."""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Literal, Self
from urllib.parse import urlsplit

from soak.history import Called
from tests.support.listening import Listening

ID = "x-asked"
"""The header field with the id of the request."""

Passing = Literal["pass", "delay", "drop"]


class Upstream:
    """Answers each call with an answer of its own, and repeats the credentials that it got.

    One call in eight takes a second, so that faults meet some.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.called: list[Called] = []
        self._now = now
        self._listening = Listening(self._answer)

    async def __aenter__(self) -> Self:
        self.url = f"http://127.0.0.1:{await self._listening.start()}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listening.stop()

    async def _answer(
        self, request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        began = self._now()
        head, _, asked = request.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        fields = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }
        question = first.split(" ")[1].removeprefix("/")
        answer = f"answer-{len(self.called)}"
        self.called.append(Called(fields[ID], question, answer, began))
        if hashlib.sha256(question.encode()).digest()[0] < 32:
            await asyncio.sleep(1)
        body = b'{"answer": "%b", "you sent": %b, "by": "%b"}' % (
            answer.encode(),
            asked,
            fields["authorization"].encode(),
        )
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        await writer.drain()
        return True


class Relay:
    """Passes on the bytes of one instance to the database, late, or not at all.

    While it drops, it takes new connections and what they send, and says nothing. What was dropped
    is gone: afterwards these connections break.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._place = parts.hostname, parts.port
        self._way: Passing = "pass"
        self._delay_s = 0.0
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter | None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self._break()
        await self._server.wait_closed()

    def set(self, way: Passing, delay_s: float = 0.0) -> None:
        """Treat all bytes so from now on."""
        was, self._way, self._delay_s = self._way, way, delay_s
        if was == "drop":
            self._break()

    def _break(self) -> None:
        for pair in self._pairs:
            for writer in pair:
                if writer is not None:
                    writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far: asyncio.StreamWriter | None = None
        pair = (writer, far)
        self._pairs.add(pair)
        try:
            if self._way == "drop":
                while await reader.read(2**16):
                    pass
                return
            far_reader, far = await asyncio.open_connection(*self._place)
            self._pairs.discard(pair)
            self._pairs.add(pair := (writer, far))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass_on(reader, far))
                tasks.create_task(self._pass_on(far_reader, writer))
        except (OSError, ExceptionGroup):
            # One side broke off: so does the other.
            return
        finally:
            self._pairs.discard(pair)
            for side in pair:
                if side is not None:
                    side.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(2**16):
            if self._way == "delay":
                await asyncio.sleep(self._delay_s)
            if self._way != "drop":
                writer.write(data)
                await writer.drain()
        if self._way == "drop":
            # Nothing gets through, the end of the connection neither.
            return
        raise ConnectionResetError
