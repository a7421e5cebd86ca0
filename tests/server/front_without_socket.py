"""A front without a socket: what reaches its handler of the bytes that a client sends."""

import asyncio
import gc
from collections.abc import Iterable

from tapeway.errors import RequestError
from tapeway.server.error_responses import last_response
from tapeway.server.front import Front, FrontServer
from tapeway.server.messages import ClientRequest, WireResponse, read_body

_TURNS = 12
"""Of the event loop, in which a request that came is handled and answered."""


class _Transport(asyncio.Transport):
    """Takes what is written, and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self._is_reading, self._is_closing = True, False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True


class SocketlessFront:
    """A front whose handler reads every body and answers every request."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.seen: list[tuple[str, str, bytes]] = []
        """Method, target and body of each request."""
        self._transport = _Transport()
        self._front = self._loop.run_until_complete(self._made())

    async def _made(self) -> Front:
        front = FrontServer(self._handle)()
        assert isinstance(front, Front)
        front.connection_made(self._transport)
        return front

    async def _handle(self, raw: ClientRequest) -> WireResponse:
        try:
            body = await read_body(raw, max_body=2**20, idle_s=10, scratch=None)
        except RequestError as error:
            return WireResponse(last_response(error, "tw-1"), keep_alive=False)
        assert isinstance(body, bytes)
        self.seen.append((raw.method, raw.target, body))
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        return WireResponse((answer,), keep_alive=raw.keep_alive)

    def receive(self, segments: Iterable[bytes], *, at_once: bool = False) -> None:
        """Give it these segments, each after what came before was handled, or all at once."""
        for segment in segments:
            if not self._transport.is_closing():
                self._loop.run_until_complete(self._receive(segment, 0 if at_once else _TURNS))
        self._loop.run_until_complete(self._settle())

    @property
    def refused(self) -> bool:
        """Whether input was refused."""
        return any(
            b"HTTP/1.1 %d " % number in self._transport.written for number in (400, 431, 505)
        )

    def lose(self, data: bytes, turns: int) -> list[str]:
        """Lose the connection so many turns of the loop after these bytes; returns what was raised."""
        found: list[str] = []
        self._loop.set_exception_handler(lambda _, context: found.append(repr(context)))
        self._loop.run_until_complete(self._receive_and_lose(data, turns))
        self._loop.run_until_complete(self._settle())
        gc.collect()
        return found

    def close(self) -> None:
        """End it."""
        self._front.connection_lost(None)
        self._loop.run_until_complete(self._settle())
        self._loop.close()

    async def _receive_and_lose(self, data: bytes, turns: int) -> None:
        self._front.data_received(data)
        for _ in range(turns):
            await asyncio.sleep(0)
        self._front.connection_lost(ConnectionResetError())

    async def _receive(self, segment: bytes, turns: int) -> None:
        self._front.data_received(segment)
        for _ in range(turns):
            await asyncio.sleep(0)

    async def _settle(self) -> None:
        before = -1
        while before != len(self._transport.written):
            before = len(self._transport.written)
            for _ in range(_TURNS):
                await asyncio.sleep(0)


def read(*segments: bytes, at_once: bool = False) -> tuple[list[tuple[str, str, bytes]], bool]:
    """The requests in these segments, and whether anything was refused."""
    front = SocketlessFront()
    try:
        front.receive(segments, at_once=at_once)
        return front.seen, front.refused
    finally:
        front.close()
