"""An answer while it is received, readable from the first chunk on.

A client reads from the buffer at its own pace: a slow client holds up nobody and costs no memory.
"""

import asyncio
import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import accumulate, islice

from tapeway.body_files import PIECE, TemporaryFile
from tapeway.core.model.control import Outcome
from tapeway.core.model.messages import (
    LARGE_BODY,
    NO_CHUNK_TIMES,
    BodyFile,
    ChunkTimes,
    Response,
    ResponseHead,
    Verdict,
)
from tapeway.core.streams.end_marks import EndDetector
from tapeway.core.streams.json_rpc import MessageScanner

_READ_TOGETHER = 64 * 1024
"""Bytes after which a client is given what is read."""
_SCANNED_AT_ONCE = 64 * 1024
"""A scan of more would hold up other clients."""


class ResponseBuffer:
    """Collects the chunks of one answer: in memory, and beyond 1 MiB in a temporary file.

    The file is made in the folder that `scratch` finds, None for the system's own.
    """

    def __init__(
        self, head: ResponseHead, scratch: Callable[[], str | None] = lambda: None
    ) -> None:
        self.head = head
        self.size = 0
        self._scratch = scratch
        self._pieces: list[bytes] = []
        self._joined = b""
        self._arrivals = ChunkTimes()
        self._starts = array("Q")
        """Where chunks begin, of as many as anybody has asked about."""
        self._file: TemporaryFile | None = None
        # How much lies in the file.
        self._chunks_written = self._written = 0

    def add(self, pieces: Sequence[bytes], at_ms: float) -> None:
        """Add the next chunks, which came together; empty ones are left out."""
        pieces = [*filter(None, pieces)]
        lengths = [*map(len, pieces)]
        self.size += sum(lengths)
        self._arrivals.extend(at_ms, lengths)
        self._pieces.extend(pieces)

    def received(self, start: int) -> bytes:
        """The body from this offset on, where nothing lies in the file."""
        if not start:
            return b"".join(self._pieces)
        number = bisect_left(self._chunk_starts(), start) - self._chunks_written
        return b"".join(islice(self._pieces, number, None))

    def in_memory(self) -> bytes:
        """What lies in no file: at the end of an answer, it is joined once."""
        if len(self._joined) != self.size - self._written:
            self._joined = b"".join(self._pieces)
        return self._joined

    @property
    def count(self) -> int:
        """How many chunks have come."""
        return len(self._arrivals)

    def times(self, after: int, most: int) -> list[tuple[float, int]]:
        """When the chunks after the first so many came, in milliseconds, and their lengths."""
        wanted, arrivals = slice(after, after + most), self._arrivals
        return [*zip(arrivals.times[wanted], arrivals.lengths[wanted], strict=True)]

    def part(self) -> Response | None:
        """The received part; None once part of the body lies in a file."""
        if self._file is not None:
            return None
        part = Response(self.head, b"".join(self._pieces), verdict="truncated")
        return part.with_arrivals(self._arrivals.copy())

    def reopen(self) -> None:
        """Let more come after the end; the answer that `finish` gave keeps its chunks."""
        self._arrivals = self._arrivals.copy()

    @property
    def should_spill(self) -> bool:
        """Whether enough is in memory to `spill`."""
        return self.size - self._written > LARGE_BODY

    async def spill(self) -> None:
        """Move what is in memory to the file. Raises StoreFull, StoreError."""
        count, data = len(self._pieces), b"".join(self._pieces)
        await asyncio.to_thread(self._write, data)
        self._forget(count, len(data))

    def read(self, start: int, end: int) -> bytes:
        """The body from `start` up to `end`, at most to the end of the chunk that `start` lies in."""
        starts = self._chunk_starts()
        number = bisect_right(starts, start) - 1
        offset = starts[number]
        written = self._chunks_written
        if number >= written or self._file is None:
            return self._pieces[number - written][start - offset : end - offset]
        end = min(end, offset + self._arrivals.lengths[number], start + PIECE)
        return os.pread(self._file.fd, end - start, start)

    def finish(self, latency_ms: float, verdict: Verdict = "") -> Response:
        """The whole answer. A body under `length` framing has no chunks, and becomes one piece."""
        body, file = self.in_memory(), None
        if self._file is not None:
            # Too little to be worth a thread.
            self._write(body)
            self._forget(len(self._pieces), len(body))
            body, file = b"", BodyFile("", self.size, "", handle=self._file)
        times, chunk_times = self._arrivals.times, NO_CHUNK_TIMES
        at_ms = times[-1] if times else 0.0
        if len(times) > 1 and self.head.framing != "length":
            at_ms, chunk_times = 0.0, self._arrivals
        return Response(self.head, body, at_ms, chunk_times, latency_ms, file, verdict)

    def _chunk_starts(self) -> "array[int]":
        starts, lengths = self._starts, self._arrivals.lengths
        if (known := len(starts)) < len(lengths):
            first = starts[-1] + lengths[known - 1] if known else 0
            starts.extend(islice(accumulate(lengths[known:], initial=first), len(lengths) - known))
        return starts

    def _write(self, data: bytes) -> None:
        if self._file is None:
            self._file = TemporaryFile(self._scratch())
        self._file.write(data)

    def _forget(self, count: int, size: int) -> None:
        del self._pieces[:count]
        self._joined = b""
        self._chunks_written += count
        self._written += size


class Arrival:
    """What is done with the chunks of an answer as they come: kept, scanned, released to its client.

    `ask_reader` gives the client that has to see a question in the answer (`messages`) before its
    end, None where there is none.
    """

    def __init__(
        self,
        buffer: ResponseBuffer,
        ending: EndDetector,
        messages: MessageScanner | None,
        reader: "ResponseReader | None",
        ask_reader: "Callable[[ResponseBuffer], ResponseReader | None]",
    ) -> None:
        self.buffer = self._buffer = buffer
        self._ending = ending
        self._messages = messages
        self._reader = reader
        self._ask_reader = ask_reader
        self._scanned = 0

    def add(self, pieces: Sequence[bytes], at_ms: float) -> bool:
        """Add the next chunks; returns whether it is time to `spill` the buffer."""
        buffer, before = self._buffer, self._buffer.size
        buffer.add(pieces, at_ms)
        should_spill = buffer.should_spill
        # Where no client reads along, nobody needs to know before the end whether this is the end.
        if self._reader is not None or self._messages is not None:
            is_next = self._scanned == before
            self._scan(b"".join(pieces) if is_next else buffer.received(self._scanned))
        elif should_spill or buffer.size - self._scanned > _SCANNED_AT_ONCE:
            self._scan(buffer.received(self._scanned))
        return should_spill

    def hand_out(self) -> None:
        """Give the client what has come, and from now on what comes."""
        if self._reader is None and (reader := self._ask_reader(self._buffer)) is not None:
            self._reader = reader
            self._scan(self._buffer.received(self._scanned))

    def stay_open(self) -> None:
        """Treat the answer as a stream that may go on after an error."""
        self._ending.stays_open = True

    def verdict(self) -> Verdict:
        """The verdict on an answer whose transport ended in good order."""
        scanned, buffer = self._scanned, self._buffer
        if self._ending.reads and scanned < buffer.size:
            self._scan(buffer.received(scanned) if scanned else buffer.in_memory())
        return self._ending.finish()

    def _scan(self, data: bytes) -> None:
        self._scanned = self._buffer.size
        self._ending.feed(data)
        if self._messages is not None:
            self._messages.feed(data)
            if self._reader is None and self._messages.asks_client:
                self._reader = self._ask_reader(self._buffer)
        if self._reader is not None:
            self._reader.release((self._messages or self._ending).releasable)


class ResponseReader:
    """What one client may have of an answer by now; the call and the client are separate tasks.

    One that is `held` gets the answer as a whole, unless the service asks the client something.
    """

    outcome: Outcome = "live"
    index: int | None = None

    def __init__(self, *, held: bool = False) -> None:
        self.held = held
        self._buffer: ResponseBuffer | None = None
        self._released = 0
        self._closed = False
        self._has_left = False
        self._on_leave: Callable[[], object] | None = None
        self._changed = asyncio.Event()

    @property
    def begun(self) -> bool:
        """Whether the client may have had the head."""
        return self._buffer is not None

    def begin(self, buffer: ResponseBuffer, outcome: Outcome, index: int | None) -> None:
        """Release the head; `index` is the index of the future recording."""
        self._buffer, self.outcome, self.index = buffer, outcome, index
        self._changed.set()

    def release(self, position: int) -> None:
        """Release the body up to this offset."""
        if position > self._released:
            self._released = position
            self._changed.set()

    def on_leave(self, called: "Callable[[], object]") -> None:
        """Have this be called once the client has left, at once if it has."""
        self._on_leave = called
        if self._has_left:
            called()

    def leave(self) -> None:
        """Note that the client has left; the call goes on, except for a stream that stays open."""
        self._has_left = True
        if self._on_leave is not None:
            self._on_leave()

    def close(self) -> None:
        """Release no more: the call has ended, and its result says how."""
        self._closed = True
        self._changed.set()

    async def head(self) -> ResponseHead | None:
        """The head, or None where the answer is handed out as a whole."""
        while self._buffer is None and not self._closed:
            await self._change()
        return self._buffer.head if self._buffer is not None else None

    async def pieces(self) -> AsyncIterator[Sequence[bytes]]:
        """The body in the upstream's chunks, those together that are released; ends when the call does."""
        position = 0
        while self._buffer is not None:
            while position < self._released:
                pieces: list[bytes] = []
                start = position
                while position < self._released and position - start < _READ_TOGETHER:
                    pieces.append(self._buffer.read(position, self._released))
                    position += len(pieces[-1])
                yield pieces
            if self._closed:
                return
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
