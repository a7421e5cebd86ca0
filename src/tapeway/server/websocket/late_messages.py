"""A stored turn with what the service says after its end.

The messages are passed on at once. The turn is stored with them when the next turn of its lane
begins, or the connection or the take ends. Messages before the first request are those of the opening.
"""

from collections.abc import Callable
from contextlib import ExitStack

from tapeway.core.cassette.plan import Answer
from tapeway.engine.recorder import Recorder
from tapeway.engine.single_flight import Pending
from tapeway.errors import TapewayError
from tapeway.ports import StoredCall
from tapeway.server.websocket.connection import settled

NotStored = Callable[[int, TapewayError], object]
"""Gets the number of messages that were passed on and could not be stored, and the reason."""


class StoredTurn:
    """A stored turn that may go on, at most until the take ends."""

    def __init__(
        self,
        call: StoredCall,
        recorder: Recorder,
        moved: Callable[[int], object],
        not_stored: NotStored,
    ) -> None:
        """A recording that replaces the stored one calls `moved` with the new index."""
        self.cassette = call.live_call.cassette.name
        self.take = call.live_call.take.number
        self._call = call
        self._recorder = recorder
        self._moved = moved
        self._not_stored = not_stored
        self._added = 0
        """How many messages came after the end."""
        self._is_open = True
        self._storing: Pending | None = None
        self._registered = ExitStack()
        self._registered.enter_context(recorder.streams.registered(self))

    async def add(self, line: bytes, at_ms: float) -> bool:
        """Add the line of a message; return False if the recording is closed or full."""
        # After a message that does not fit none is added: a replay would have a gap.
        self._is_open = self._is_open and await self._call.add((line,), at_ms)
        self._added += self._is_open
        return self._is_open

    def close(self) -> None:
        """Refuse further messages, and store the added messages."""
        self._is_open = False
        if self._added and self._storing is None:
            self._storing = self._recorder.store_more(self._call, self._stored)

    async def release(self) -> None:
        """Let go of the turn, once stored: a later turn, or the end of the connection, has come."""
        self.close()
        self._registered.close()
        if self._storing is not None:
            await settled(self._storing)

    def _stored(self, answer: Answer | TapewayError) -> None:
        if isinstance(answer, TapewayError):
            self._not_stored(self._added, answer)
        elif answer.index is not None:
            self._moved(answer.index)
