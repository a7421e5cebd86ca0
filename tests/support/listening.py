"""A listener on loopback that answers requests one after the other, for upstreams of the tests."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable

LIMIT = 2**27

Answerer = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]]
"""Answers one request; tells whether another one may follow."""


class Listening:
    """Between `start` and `stop` every connection's requests go to `answer`, in order.

    An `unasked` one reads nothing and calls `answer` as soon as it is connected to.
    """

    def __init__(
        self, answer: Answerer, *, tls: ssl.SSLContext | None = None, unasked: bool = False
    ) -> None:
        self._answer = answer
        self._tls = tls
        self._unasked = unasked
        self._open: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.left = asyncio.Event()

    async def start(self, port: int = 0) -> int:
        """Listen; the port."""
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", port, ssl=self._tls, limit=LIMIT
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Listen no more and break every connection."""
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def open_connections(self) -> int:
        return len(self._open)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.connections += 1
        try:
            while await self._answered(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._open.discard(task)
            self.left.set()

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if self._unasked:
            writer.transport.pause_reading()  # type: ignore[attr-defined] # a socket's can
            return await self._answer(b"", reader, writer)
        if request := await read_request(reader):
            return await self._answer(request, reader, writer)
        writer.close()
        return False


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """The very bytes of the next request, or of what came of it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        fields = head.lower().split(b"\r\n")[1:]
        if b"transfer-encoding: chunked" in fields:
            return head + await _chunked(reader)
        lengths = [
            int(line.partition(b":")[2]) for line in fields if line[:15] == b"content-length:"
        ]
        return head + await reader.readexactly(lengths[0] if lengths else 0)
    except asyncio.IncompleteReadError as short:
        return short.partial


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int((line := await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        body += line + await reader.readexactly(size + 2)
    body += line
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        body += line
    return bytes(body + line)
