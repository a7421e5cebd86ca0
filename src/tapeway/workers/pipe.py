"""How workers and the supervisor communicate: a pipe for reports of served requests, and a channel.

A worker's report is in the pipe when `PipeWriter.add` returns: the report survives every end of the
worker, and precedes the client's response. The reader is not woken for each report: at most twenty
times a second the worker sends a hint that reports wait. A caller in a hurry reads without a hint.

The channel carries everything else in both directions.
"""

import asyncio
import fcntl
import itertools
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Self

from tapeway.engine.journal import ServedRequest, ServedRequests
from tapeway.workers.messages import (
    FrameDecoder,
    Value,
    WorkerReport,
    decode_report,
    encode_frame,
    encode_report,
)

log = logging.getLogger(__name__)

_CAPACITY = 1024 * 1024
"""Linux allows any user a pipe of this size: thousands of requests before a worker must buffer."""
_READ_SIZE = 1024 * 1024
_HINT_S = 0.05
MAX_BUFFERED = 64 * 1024 * 1024
"""The limit in bytes of a worker's buffer if the supervisor does not read; more is dropped."""
_CHANNEL_READ_SIZE = 64 * 1024


class PipeReader:
    """The supervisor's end of a worker's pipe; it can still be read after the worker's end."""

    def __init__(self, fd: int) -> None:
        self.connections = 0
        """To upstreams, that the worker has opened."""
        self._fd = fd
        self._frames = FrameDecoder()
        os.set_blocking(fd, False)
        # Where the system cannot enlarge the pipe, its default size works too.
        with suppress(OSError, AttributeError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _CAPACITY)

    def read(self) -> list[tuple[float, ServedRequest]]:
        """The worker's reports since the last call: monotonic time and request."""
        requests: list[tuple[float, ServedRequest]] = []
        for report in self._reports():
            self.connections = report.connections
            requests.append((report.at, report.served))
        return requests

    def _reports(self) -> Iterator[WorkerReport]:
        while True:
            try:
                data = os.read(self._fd, _READ_SIZE)
            except BlockingIOError:
                return
            if not data:
                return
            yield from map(decode_report, self._frames.feed(data))

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)


class PipeWriter(ServedRequests):
    """A worker's end of the pipe, in place of a journal: the supervisor keeps journal and counters.

    `connections` returns the number of upstream connections opened so far; `hint` tells the
    supervisor that reports wait.
    """

    def __init__(
        self,
        fd: int,
        *,
        clock: Callable[[], float],
        connections: Callable[[], int],
        hint: Callable[[], None],
    ) -> None:
        self._fd = fd
        self._clock = clock
        self._connections = connections
        self._hint = hint
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._hint_scheduled = False
        self._waits_for_room = False
        self._dropped = False
        os.set_blocking(fd, False)

    def add(self, served: ServedRequest) -> None:
        """Report a request that was served."""
        report = WorkerReport(self._clock(), served, self._connections())
        self._encode(encode_report(report))
        if not self._hint_scheduled:
            self._schedule_hint()
        self.flush()

    def flush(self) -> None:
        """Write what is buffered, as far as the pipe has room."""
        buffer = self._buffer
        while buffer:
            try:
                count = os.write(self._fd, buffer)
            except BlockingIOError:
                break
            except OSError:
                # The reader has closed the pipe.
                buffer.clear()
                break
            del buffer[:count]
        self._wait_for_room(bool(buffer))

    def _encode(self, value: Value) -> None:
        if len(self._buffer) > MAX_BUFFERED:
            self._log_dropped()
        else:
            self._buffer += encode_frame(value)

    def _schedule_hint(self) -> None:
        self._hint_scheduled = True
        self._loop.call_later(_HINT_S, self._send_hint)

    def _send_hint(self) -> None:
        self._hint_scheduled = False
        self.flush()
        self._hint()

    def _log_dropped(self) -> None:
        if not self._dropped:
            self._dropped = True
            log.error("the supervisor does not read: requests are missing in the journal")

    def _wait_for_room(self, wanted: bool) -> None:
        if wanted == self._waits_for_room:
            return
        self._waits_for_room = wanted
        if wanted:
            self._loop.add_writer(self._fd, self.flush)
        else:
            self._loop.remove_writer(self._fd)


class Channel:
    """One end of the two-way connection between the supervisor and a worker, in order."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameDecoder()
        self._received: deque[Value] = deque()
        self._questions = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Value]] = {}
        self._gone = False

    @classmethod
    async def over(cls, end: socket.socket) -> Self:
        """The channel over one end of a socket pair."""
        end.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=end))

    def send(self, value: Value) -> None:
        """Send a value; nothing happens if the other process is gone."""
        if not self._writer.is_closing():
            self._writer.write(encode_frame(value))

    async def ask(self, question: str, *arguments: Value) -> Value:
        """Ask the far process, and return the answer; None if the process has ended."""
        return await self.asked(question, *arguments)

    def asked(self, question: str, *arguments: Value) -> asyncio.Future[Value]:
        """Ask the far process at once; the answer comes later, and None if the process has ended.

        A task of this process must call `receive` meanwhile. The far process gets the question, a
        number and the arguments, and sends `answer`, the number and the answer.
        """
        answer: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        if self._gone:
            answer.set_result(None)
            return answer
        number = next(self._questions)
        self._pending[number] = answer
        answer.add_done_callback(lambda _: self._pending.pop(number))
        self.send((question, number, *arguments))
        return answer

    async def sent(self) -> None:
        """Wait until everything sent is with the kernel."""
        try:
            await self._writer.drain()
        except ConnectionError:
            return

    async def receive(self) -> Value:
        """The next value that answers no question. Raises EOFError once the other process is gone."""
        while True:
            match await self._next():
                case ("answer", int(number), value):
                    self._answer(number, value)
                case received:
                    return received

    async def _next(self) -> Value:
        while not self._received:
            try:
                data = await self._reader.read(_CHANNEL_READ_SIZE)
            except ConnectionError:
                data = b""
            if not data:
                self._gone = True
                for number in self._pending:
                    self._answer(number, None)
                raise EOFError
            self._received += self._frames.feed(data)
        return self._received.popleft()

    def _answer(self, number: int, value: Value) -> None:
        answer = self._pending.get(number)
        if answer is not None and not answer.done():
            answer.set_result(value)

    def close(self) -> None:
        self._writer.close()
