"""An answer while it is taken in: its chunks as they come, readable from the first one on.

What a client may have of a live answer while the rest is still coming.

It reads from the tape at its own pace: a slow one holds up nobody and costs no memory of its own.
"""

import asyncio
import os
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator

from tapeway.body_files import PIECE, Temporary
from tapeway.core.model.control import Outcome
from tapeway.core.model.messages import (
    LARGE_BODY,
    BodyFile,
    ChunkTimes,
    Response,
    ResponseChunk,
    ResponseHead,
    Verdict,
)


class ResponseBuffer:
    """Collects the chunks of one answer: in memory, and when it gets heavy in a temporary file.

    `scratch` is a folder with room for that, None for the system's own.
    """

    def __init__(self, head: ResponseHead, scratch: str | None = None) -> None:
        self.head = head
        self.size = 0
        self._scratch = scratch
        self._chunks: deque[ResponseChunk] = deque()
        self._starts = array("Q")
        self._chunk_times = ChunkTimes()
        self._file: Temporary | None = None
        self._written = 0

    def add(self, chunk: ResponseChunk) -> None:
        """Take in the next chunk; an empty one is nothing."""
        if chunk.data:
            self._starts.append(self.size)
            self._chunks.append(chunk)
            self.size += len(chunk.data)

    @property
    def heavy(self) -> bool:
        """Whether more is in memory than should be: time to `spill`."""
        return self.size - self._written > LARGE_BODY

    async def spill(self) -> None:
        """Move what is in memory to the file. Raises StoreFull, StoreError."""
        chunks = list(self._chunks)
        data = b"".join([chunk.data for chunk in chunks])
        await asyncio.to_thread(self._write, data)
        self._forget(len(chunks))

    def read(self, start: int, end: int) -> bytes:
        """What lies between two places of the body, at most up to the end of the first one's chunk."""
        number = bisect_right(self._starts, start) - 1
        offset = self._starts[number]
        spilled = len(self._chunk_times)
        if number >= spilled or self._file is None:
            return self._chunks[number - spilled].data[start - offset : end - offset]
        end = min(end, offset + self._chunk_times[number][1], start + PIECE)
        return os.pread(self._file.fd, end - start, start)

    def finish(self, latency_ms: float, verdict: Verdict = "") -> Response:
        """All of it. Under `length` framing nobody cut the body, so it becomes one piece."""
        if self._file is not None:
            return self._large(self._file, latency_ms, verdict)
        chunks = list(self._chunks)
        if self.head.framing == "length" and len(chunks) > 1:
            chunks = [ResponseChunk(b"".join([each.data for each in chunks]), chunks[-1].at_ms)]
        return Response(self.head, tuple(chunks), latency_ms, verdict=verdict)

    def _large(self, file: Temporary, latency_ms: float, verdict: Verdict) -> Response:
        # Less than is worth a thread.
        file.write(b"".join([chunk.data for chunk in self._chunks]))
        self._forget(len(self._chunks))
        chunk_times = self._chunk_times
        if self.head.framing == "length":
            chunk_times = ChunkTimes([(chunk_times[-1][0], self.size)])
        body = BodyFile("", self.size, "", hold=file)
        return Response(
            self.head, (), latency_ms, file=body, chunk_times=chunk_times, verdict=verdict
        )

    def _write(self, data: bytes) -> None:
        if self._file is None:
            self._file = Temporary(self._scratch)
        self._file.write(data)

    def _forget(self, count: int) -> None:
        for _ in range(count):
            chunk = self._chunks.popleft()
            self._chunk_times.add(chunk.at_ms, len(chunk.data))
            self._written += len(chunk.data)


class ResponseReader:
    """Between the call, which gives out more and more, and one client. Each on its own task."""

    outcome: Outcome = "live"
    index: int | None = None

    def __init__(self) -> None:
        self._tape: ResponseBuffer | None = None
        self._free = 0
        self._closed = False
        self._changed = asyncio.Event()

    @property
    def begun(self) -> bool:
        """Whether its client may have had the head."""
        return self._tape is not None

    def begin(self, tape: ResponseBuffer, outcome: Outcome, index: int | None) -> None:
        """Give out the head; `index` is the one its recording will have."""
        self._tape, self.outcome, self.index = tape, outcome, index
        self._changed.set()

    def release(self, place: int) -> None:
        """Give out the body up to this place."""
        if place > self._free:
            self._free = place
            self._changed.set()

    def close(self) -> None:
        """Give out no more: the call has ended, and its result says how."""
        self._closed = True
        self._changed.set()

    async def head(self) -> ResponseHead | None:
        """The head, or None where the answer is to be handed out as a whole."""
        while self._tape is None and not self._closed:
            await self._change()
        return self._tape.head if self._tape is not None else None

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body in the upstream's chunks, as far as it may go; ends when the call has."""
        place = 0
        while self._tape is not None:
            while place < self._free:
                piece = self._tape.read(place, self._free)
                place += len(piece)
                yield piece
            if self._closed:
                return
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
