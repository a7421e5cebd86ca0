"""An answer while it is taken in: its chunks as they come, readable from the first one on."""

from bisect import bisect_right

from tapeway.core.model import Response, ResponseChunk, ResponseHead, Verdict


class Tape:
    """Collects the chunks of one answer."""

    def __init__(self, head: ResponseHead) -> None:
        self.head = head
        self.size = 0
        self._chunks: list[ResponseChunk] = []
        self._starts: list[int] = []

    def add(self, chunk: ResponseChunk) -> None:
        """Take in the next chunk; an empty one is nothing."""
        if chunk.data:
            self._starts.append(self.size)
            self._chunks.append(chunk)
            self.size += len(chunk.data)

    def read(self, start: int, end: int) -> bytes:
        """What lies between two places of the body, at most up to the end of the first one's chunk."""
        number = bisect_right(self._starts, start) - 1
        offset = self._starts[number]
        return self._chunks[number].data[start - offset : end - offset]

    def finish(self, latency_ms: float, verdict: Verdict = "") -> Response:
        """All of it. Under `length` framing nobody cut the body, so it becomes one piece."""
        chunks = self._chunks
        if self.head.framing == "length" and len(chunks) > 1:
            chunks = [ResponseChunk(b"".join([each.data for each in chunks]), chunks[-1].at_ms)]
        return Response(self.head, tuple(chunks), latency_ms, verdict=verdict)
