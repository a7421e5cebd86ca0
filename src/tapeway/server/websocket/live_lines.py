"""Messages on the way into a recording: the recorder reads lines like the body of an answer."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

from tapeway.cooperative import loop_turns
from tapeway.core.json_text import Json
from tapeway.core.model.messages import ResponseHead, Verdict
from tapeway.core.streams.end_marks import EndDetector
from tapeway.errors import UpstreamError, too_large
from tapeway.ports import OnChunks

_READ_AHEAD = 1024 * 1024
"""How many bytes may wait for the recorder before the connection stops reading."""
_ANY_SIZE = 2**63


class KnownEnd(EndDetector):
    """The end of an answer, as told by the connection."""

    def __init__(self) -> None:
        super().__init__(expected=True)
        self.verdict: Verdict = "truncated"
        self.released = 0

    @property
    def releasable(self) -> int:
        """All bytes but those of the last message."""
        return self.released

    def feed(self, data: bytes) -> None:
        """Nothing to look at."""

    def finish(self) -> Verdict:
        return self.verdict


class LiveLines:
    """An answer of lines while it comes."""

    __slots__ = (
        *("_began", "_dropped", "_earlier", "_ended", "_error", "_held", "_last", "_loop"),
        *("_reading", "_room", "_size", "_turns", "_waiting", "ending", "head"),
    )

    def __init__(self, head: ResponseHead, began: float | None = None) -> None:
        """Times count from `began` on the clock of the event loop, by default from now on."""
        self.head = head
        self.ending = KnownEnd()
        self._earlier: Iterator[tuple[bytes, float]] = iter(())
        self._waiting: list[bytes] = []
        self._held = self._size = self._last = 0
        self._ended = self._dropped = False
        self._error: UpstreamError | None = None
        # An event takes 0.8 KB, and thousands of sessions may be open: only while somebody waits.
        self._reading: asyncio.Future[None] | None = None
        self._room: asyncio.Event | None = None
        self._loop = asyncio.get_running_loop()
        self._turns = loop_turns()
        self._began = self._loop.time() if began is None else began

    def begin(self) -> None:
        """Count time from now on."""
        self._began = self._loop.time()

    def elapsed_ms(self) -> float:
        return (self._loop.time() - self._began) * 1000

    # Called by the connection.

    def precede(self, lines: Iterator[tuple[bytes, float]]) -> None:
        """Take the lines from before the recording, each with its time."""
        self._earlier = lines

    def put(self, line: bytes, last: Verdict = "") -> bool:
        """Add a line; `last` is the verdict of the last line.

        Return whether too many bytes wait for the recorder: wait for `room` before the next line.
        """
        if self._dropped or self._ended:
            return False
        if not self._waiting:
            self._wake()
        self._waiting.append(line)
        self._held += len(line)
        if last:
            self._last = len(line)
            self.end(last)
        return self._held > _READ_AHEAD

    async def room(self) -> None:
        """Wait until more may be taken."""
        while self._held > _READ_AHEAD:
            self._room = self._room or asyncio.Event()
            await self._room.wait()

    def end(self, verdict: Verdict) -> None:
        """End the answer with this verdict."""
        if not self._ended:
            self._ended, self.ending.verdict = True, verdict
            self._wake()

    def fail(self, error: UpstreamError) -> None:
        """The connection was lost before the answer had ended."""
        if not self._ended:
            self._error = error
            self.end("truncated")

    def drop(self) -> None:
        """Keep nothing any more: the recording call has ended."""
        self._dropped = True
        self._earlier = iter(())
        self._waiting.clear()
        self._make_room()

    # Called by the recorder.

    async def receive(self, max_bytes: int, on_chunks: OnChunks) -> bool:
        while True:
            for line, at_ms in self._earlier:
                if self._add([line], at_ms, max_bytes, on_chunks):
                    return True
                await self._turns.pause_if_over()
            if self._waiting and self._take(max_bytes, on_chunks):
                return True
            if self._ended:
                break
            self._reading = self._loop.create_future()
            await self._reading
        if self._error is not None:
            raise self._error
        return False

    async def pieces(self) -> AsyncIterator[bytes]:
        taken: list[bytes] = []

        def keep(pieces: Sequence[bytes], at_ms: float) -> bool:
            taken.extend(pieces)
            return True

        goes_on = True
        while goes_on:
            goes_on = await self.receive(_ANY_SIZE, keep)
            for piece in taken:
                yield piece
            taken.clear()

    def _take(self, max_bytes: int, on_chunks: OnChunks) -> bool:
        # All at once: a service may send hundreds in one segment.
        lines, self._waiting = self._waiting, []
        self._make_room()
        return self._add(lines, self.elapsed_ms(), max_bytes, on_chunks, self._last)

    def _add(
        self,
        lines: Sequence[bytes],
        at_ms: float,
        max_bytes: int,
        on_chunks: OnChunks,
        last: int = 0,
    ) -> bool:
        self._size += sum(map(len, lines))
        self.ending.released = self._size - last
        if self._size > max_bytes:
            raise too_large(max_bytes)
        return bool(on_chunks(lines, at_ms))

    def _wake(self) -> None:
        if self._reading is not None and not self._reading.done():
            self._reading.set_result(None)

    def _make_room(self) -> None:
        self._held = 0
        if self._room is not None:
            self._room.set()
            self._room = None


def session_metadata(name: str, subprotocol: str | None) -> Mapping[str, Json]:
    """The facts about the connection in the recording of a session; `name` names the protocol."""
    about: dict[str, Json] = {"session": name}
    if subprotocol:
        about["subprotocol"] = subprotocol
    return {"websocket": about}
