"""What a client may have of a live answer while the rest is still coming.

It reads from the tape at its own pace: a slow one holds up nobody and costs no memory of its own.
"""

import asyncio
from collections.abc import AsyncIterator

from tapeway.core.model.control import Outcome
from tapeway.core.model.messages import ResponseHead
from tapeway.tape import Tape


class Feed:
    """Between the call, which gives out more and more, and one client. Each on its own task."""

    outcome: Outcome = "live"
    index: int | None = None

    def __init__(self) -> None:
        self._tape: Tape | None = None
        self._free = 0
        self._closed = False
        self._changed = asyncio.Event()

    @property
    def begun(self) -> bool:
        """Whether its client may have had the head."""
        return self._tape is not None

    def begin(self, tape: Tape, outcome: Outcome, index: int | None) -> None:
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
