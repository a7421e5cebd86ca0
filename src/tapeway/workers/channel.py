"""What a worker and the process that looks after it tell each other, in order."""

import asyncio
import socket
from collections import deque
from typing import Self

from tapeway.workers.frames import Frames, Value, pack

_PIECE = 64 * 1024


class Channel:
    """One end. When the other process is gone, whatever ended it, there is nothing more to receive."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = Frames()
        self._waiting: deque[Value] = deque()

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """The end that this socket is."""
        end.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=end))

    def send(self, value: Value) -> None:
        """Say it; who is gone does not hear it."""
        if not self._writer.is_closing():
            self._writer.write(pack(value))

    async def sent(self) -> None:
        """Wait until all that was said is on its way."""
        try:
            await self._writer.drain()
        except ConnectionError:
            return

    async def receive(self) -> Value:
        """What is said next. Raises EOFError once the other process is gone."""
        while not self._waiting:
            try:
                data = await self._reader.read(_PIECE)
            except ConnectionError:
                data = b""
            if not data:
                raise EOFError
            self._waiting += self._frames.feed(data)
        return self._waiting.popleft()

    def close(self) -> None:
        """Let go of it."""
        self._writer.close()
