"""An upstream that is only a socket: it logs the bytes it gets and sends the bytes it is told."""

import asyncio
import contextlib
import os
import socket
import ssl
import struct
from typing import Literal, Self

from tests.support.listening import Listening

Step = bytes | asyncio.Event | Literal["close", "cut", "reset", "stall"]
"""Send these bytes in a write of their own, wait for an event, or close, reset, say no more; `cut`
closes below TLS, which is not told."""

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Peer:
    """Serves between `async with` and its end; one script of steps answers every request.

    An `unasked` one reads nothing and follows its script as soon as it is connected to.
    """

    def __init__(
        self, *steps: Step, tls: ssl.SSLContext | None = None, unasked: bool = False
    ) -> None:
        self._steps: tuple[Step, ...] = steps or (OK,)
        self._queued: list[tuple[Step, ...]] = []
        self._scheme = "https" if tls else "http"
        self._listening = Listening(self._answer, tls=tls, unasked=unasked)
        self.left = self._listening.left
        self.asked = asyncio.Event()
        self.silent = asyncio.Event()
        self.requests: list[bytes] = []

    async def __aenter__(self) -> Self:
        self.port = await self._listening.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Listen no more and break every connection."""
        await self._listening.stop()

    @property
    def connections(self) -> int:
        return self._listening.connections

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    def then(self, *steps: Step) -> Self:
        """Answer one request so before the script takes over; calls line up."""
        self._queued.append(steps)
        return self

    async def _answer(
        self, request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if request:
            self.requests.append(request)
        self.asked.set()
        for step in self._queued.pop(0) if self._queued else self._steps:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
                # Whoever reads on this loop gets these bytes before the next ones are written.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            elif isinstance(step, asyncio.Event):
                await step.wait()
            else:
                if step == "stall":
                    self.silent.set()
                await _end(step, reader, writer)
                return False
        return True


async def _end(how: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    if how == "stall":
        with contextlib.suppress(ConnectionError):
            await reader.read()
    if how == "cut":
        below: socket.socket = writer.get_extra_info("socket")
        with socket.socket(fileno=os.dup(below.fileno())) as own:
            own.shutdown(socket.SHUT_WR)
        writer.transport.abort()
    if how == "reset":
        found: socket.socket = writer.get_extra_info("socket")
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    writer.close()
