"""The other end of the pipe that a worker's news comes through.

A worker's end of the pipe its news goes through.

What is told is in the pipe when `add` returns, so it outlives the worker, whatever ends that, and is
there before a client has its answer. Nobody is woken for it: that there is something to read is said
at most twenty times a second, and whoever needs to know earlier looks into the pipe.

What a worker and the process that looks after it tell each other, in order.
"""

import asyncio
import fcntl
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from tapeway.engine.journal import ServedRequest
from tapeway.workers.messages import Frames, Value, WorkerMessages, pack, read, written

_CAPACITY = 1024 * 1024
"""Linux gives so much to any user: some thousand requests, before the worker has to keep them."""
_READ_SIZE = 1024 * 1024
log = logging.getLogger(__name__)
_HINT_S = 0.05

_MOST_WAITING = 64 * 1024 * 1024
"""So much may wait for a reader who does not read; what comes then is not told."""
_STREAM_READ_SIZE = 64 * 1024


class PipeReader:
    """Reads what a worker told; after its end, what it told last."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._frames = Frames()
        os.set_blocking(pipe, False)
        # Not every system has it; a smaller one does.
        with suppress(OSError, AttributeError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _CAPACITY)

    def read(self) -> list[WorkerMessages]:
        """All that was told until now and not read yet."""
        found: list[WorkerMessages] = []
        while True:
            try:
                data = os.read(self._pipe, _READ_SIZE)
            except BlockingIOError:
                return found
            if not data:
                return found
            found += [read(each) for each in self._frames.feed(data)]

    def fileno(self) -> int:
        return self._pipe

    def close(self) -> None:
        """Let go of it."""
        os.close(self._pipe)


class PipeWriter:
    """Tells another process of the requests that were served here: that one counts and keeps them.

    `connections` says how many were opened to upstreams, `hint` that there is something to read.
    """

    def __init__(
        self,
        pipe: int,
        *,
        clock: Callable[[], float],
        connections: Callable[[], int],
        hint: Callable[[], None],
    ) -> None:
        self._pipe = pipe
        self._clock = clock
        self._connections = connections
        self._hint = hint
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()
        self._hinted = False
        self._watched = False
        self._dropped = False
        os.set_blocking(pipe, False)

    def add(self, served: ServedRequest) -> None:
        """Tell of a request."""
        self._tell(served)
        if not self._hinted:
            self._hinted = True
            self._loop.call_later(_HINT_S, self._say)
        self._write()

    def flush(self) -> None:
        """Put into the pipe what waits, as far as there is room."""
        self._write()

    def _write(self) -> None:
        waiting = self._waiting
        while waiting:
            try:
                count = os.write(self._pipe, waiting)
            except BlockingIOError:
                break
            except OSError:
                # Nobody will ever read it.
                waiting.clear()
                break
            del waiting[:count]
        self._watch(bool(waiting))

    def _tell(self, served: ServedRequest) -> None:
        if len(self._waiting) > _MOST_WAITING:
            self._drop()
            return
        self._waiting += pack(written(WorkerMessages(self._clock(), served, self._connections())))

    def _say(self) -> None:
        self._hinted = False
        self.flush()
        self._hint()

    def _drop(self) -> None:
        if not self._dropped:
            self._dropped = True
            log.error(
                "requests are missing in the journal: the process that keeps it does not read"
            )

    def _watch(self, wanted: bool) -> None:
        if wanted == self._watched:
            return
        self._watched = wanted
        if wanted:
            self._loop.add_writer(self._pipe, self._write)
        else:
            self._loop.remove_writer(self._pipe)


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
                data = await self._reader.read(_STREAM_READ_SIZE)
            except ConnectionError:
                data = b""
            if not data:
                raise EOFError
            self._waiting += self._frames.feed(data)
        return self._waiting.popleft()

    def close(self) -> None:
        """Let go of it."""
        self._writer.close()
