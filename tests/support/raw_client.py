"""A client that is only a socket: it sends the bytes it is told and returns the bytes it got."""

import asyncio
import contextlib
import socket
import ssl
import struct
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

Fields = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it stood on the wire; `chunks` are its HTTP chunks, or its body whole."""

    head: bytes
    chunks: list[bytes]
    complete: bool

    @property
    def status(self) -> int:
        return int(self.head.split(b" ", 2)[1])

    @property
    def reason(self) -> bytes:
        return self.head.split(b"\r\n", 1)[0].split(b" ", 2)[2]

    @property
    def fields(self) -> Fields:
        lines = self.head.removesuffix(b"\r\n\r\n").split(b"\r\n")[1:]
        return [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]

    @property
    def passed_on(self) -> Fields:
        """The fields but framing and the proxy's own marks."""
        own = (b"content-length", b"transfer-encoding", b"connection")
        return [
            (name, value)
            for name, value in self.fields
            if name.lower() not in own and not name.lower().startswith(b"tapeway-")
        ]

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    def values(self, name: bytes) -> list[bytes]:
        """Every value of that field, in order."""
        return [value for key, value in self.fields if key.lower() == name.lower()]

    def value(self, name: bytes) -> bytes:
        """The only value of that field; empty where there is none."""
        found = self.values(name)
        assert len(found) <= 1, found
        return found[0] if found else b""

    @property
    def searches_for_loops(self) -> bool:
        return self.status == 100 and bool(self.values(b"Tapeway-Hops"))

    @property
    def outcome(self) -> bytes:
        return self.value(b"Tapeway-Outcome")


class RawClient:
    """One connection."""

    def __init__(self, url: str, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self._tls = tls

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(
            self._host, self._port, limit=2**27, ssl=self._tls
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Break the connection off."""
        self.writer.transport.abort()

    def reset(self) -> None:
        """Break the connection off so that the other side is told."""
        found: socket.socket = self.writer.get_extra_info("socket")
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.leave()

    def pause(self) -> None:
        """Read nothing from now on."""
        self.writer.transport.pause_reading()  # type: ignore[attr-defined] # a socket's can

    def resume(self) -> None:
        """Read again."""
        self.writer.transport.resume_reading()  # type: ignore[attr-defined]

    def finish(self) -> None:
        """Say that nothing more will be sent."""
        self.writer.write_eof()

    async def send(self, *segments: bytes) -> None:
        """Each in a write of its own, read before the next where one event loop serves both."""
        for segment in segments:
            if self.writer.is_closing():
                raise ConnectionResetError
            self.writer.write(segment)
            await self.writer.drain()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def ask(self, *segments: bytes, method: bytes | None = None) -> Answer:
        """Send one request and read its answer."""
        await self.send(*segments)
        return await self.answer(method or segments[0].split(b" ", 1)[0])

    async def converse(self, *segments: bytes, answers: int) -> list[Answer]:
        """Send and read at the same time, since who is refused early is no longer listened to."""
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._answers(answers))
            with contextlib.suppress(ConnectionError):
                await self.send(*segments)
        return reading.result()

    async def answer(self, method: bytes = b"GET") -> Answer:
        """The next answer, to a request of that method.

        The interim ones by which tapeway searches for loops are left out: on a busy machine they come
        before any answer, since a request that is not passed on within a second is searched for.
        """
        while (answer := await self.any_answer(method)).searches_for_loops:
            pass
        return answer

    async def any_answer(self, method: bytes = b"GET") -> Answer:
        """The next answer, also one that searches for loops."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        chunks: list[bytes] = []
        answer = Answer(head, chunks, True)
        if method == b"HEAD" or answer.status < 200 or answer.status in (204, 304):
            return answer
        try:
            if answer.values(b"transfer-encoding"):
                await self._chunks(chunks)
            elif length := answer.value(b"content-length"):
                chunks.append(await self.reader.readexactly(int(length)))
            else:
                chunks.append(await self.reader.read())
        except asyncio.IncompleteReadError as short:
            return Answer(head, [*chunks, short.partial], False)
        except ConnectionError:
            return Answer(head, chunks, False)
        return answer

    async def until(self, end: bytes) -> bytes:
        """What comes up to and with these bytes."""
        return await self.reader.readuntil(end)

    async def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    async def _answers(self, number: int) -> list[Answer]:
        return [await self.answer() for _ in range(number)]

    async def _chunks(self, chunks: list[bytes]) -> None:
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            chunks.append(await self.reader.readexactly(size))
            assert await self.reader.readexactly(2) == b"\r\n"
        assert await self.reader.readexactly(2) == b"\r\n"
