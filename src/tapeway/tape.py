"""An answer while it is taken in: its chunks as they come, readable from the first one on."""

import asyncio
import os
from array import array
from bisect import bisect_right
from collections import deque

from tapeway.body_files import PIECE, Temporary
from tapeway.core.model.messages import (
    LARGE_BODY,
    BodyFile,
    Cuts,
    Response,
    ResponseChunk,
    ResponseHead,
    Verdict,
)


class Tape:
    """Collects the chunks of one answer: in memory, and when it gets heavy in a temporary file.

    `scratch` is a folder with room for that, None for the system's own.
    """

    def __init__(self, head: ResponseHead, scratch: str | None = None) -> None:
        self.head = head
        self.size = 0
        self._scratch = scratch
        self._chunks: deque[ResponseChunk] = deque()
        self._starts = array("Q")
        self._cuts = Cuts()
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
        spilled = len(self._cuts)
        if number >= spilled or self._file is None:
            return self._chunks[number - spilled].data[start - offset : end - offset]
        end = min(end, offset + self._cuts[number][1], start + PIECE)
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
        cuts = self._cuts
        if self.head.framing == "length":
            cuts = Cuts([(cuts[-1][0], self.size)])
        body = BodyFile("", self.size, "", hold=file)
        return Response(self.head, (), latency_ms, file=body, cuts=cuts, verdict=verdict)

    def _write(self, data: bytes) -> None:
        if self._file is None:
            self._file = Temporary(self._scratch)
        self._file.write(data)

    def _forget(self, count: int) -> None:
        for _ in range(count):
            chunk = self._chunks.popleft()
            self._cuts.add(chunk.at_ms, len(chunk.data))
            self._written += len(chunk.data)
