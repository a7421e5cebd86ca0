"""Late messages of a service, after the end of the turn: stored with the turn, then passed on.

Messages before the first request are late messages of the opening. Each write stores the whole turn
again. Messages that come during a write share the next write.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.engine.recorder import Recorder
from tapeway.engine.single_flight import Pending
from tapeway.errors import RecordingEdited, TapewayError
from tapeway.ports import StoredCall
from tapeway.server.websocket.connection import settled

MOST_WRITTEN = 64 * 1024 * 1024
"""How many bytes a turn writes again until late messages no longer wait for a write."""
_READ_AHEAD = 1024 * 1024
"""How many bytes of messages may wait before reading stops."""


class AnsweredTurn(Protocol):
    """A turn whose answer has ended, or the opening of the connection."""

    @property
    def handed_out(self) -> asyncio.Event:
        """Set once nothing more of the answer goes to the client."""

    async def add_late(self, message: WebSocketMessage, at_ms: float) -> "StoredTurn | None":
        """Add a message to the recording; return the turn to store, or None without a recording.

        Raises TapewayError if the recording failed.
        """


@dataclass(frozen=True, slots=True)
class LateMessage:
    """A late message's turn (None if unknown) and time."""

    turn: AnsweredTurn | None
    at_ms: float = 0.0
    counts: bool = True
    """Whether a replay without the message would be incomplete."""


class StoredTurn:
    """A stored turn that may go on, at most until the take ends."""

    def __init__(
        self, call: StoredCall, recorder: Recorder, moved: Callable[[int], object]
    ) -> None:
        """Each recording that replaces an earlier recording calls `moved` with the new index."""
        self.cassette = call.live_call.cassette.name
        self.take = call.live_call.take.number
        self._call = call
        self._recorder = recorder
        self._moved = moved
        self._stored = call.size
        """The stored size in bytes."""
        self._written = 0
        self._storing: Pending | None = None
        self._is_open = True
        self._registered = ExitStack()
        self._registered.enter_context(recorder.streams.registered(self))

    def add(self, line: bytes, at_ms: float) -> bool:
        """Add the line of a message; return False if the recording is closed or full."""
        # After a message that does not fit none is added: a replay would have a gap.
        self._is_open = self._is_open and self._call.add((line,), at_ms)
        return self._is_open

    async def store(self) -> TapewayError | None:
        """Store the added messages now or later; return the error of a failed write."""
        # A service may go on for hours: the writes add up to a few times the turn's size.
        if self._written < MOST_WRITTEN or self._call.size >= 2 * self._stored:
            self._store()
        if self._storing is None:
            return None
        answer = await settled(self._storing)
        self._storing = None
        if isinstance(answer, TapewayError):
            self._is_open = False
            return answer
        if answer.index is not None:
            self._moved(answer.index)
        return None

    def close(self) -> None:
        """Refuse further messages, and store the added messages."""
        self._is_open = False
        self._store()

    def release(self) -> None:
        """Let go of the turn: a later turn, or the end of the connection, has come."""
        self.close()
        self._registered.close()

    def _store(self) -> None:
        if (size := self._call.size) > self._stored:
            self._stored = size
            self._written += size
            self._storing = self._recorder.store_more(self._call)


class LateMessages:
    """The late messages of one connection, in order of arrival."""

    def __init__(
        self,
        pass_on: Callable[..., Awaitable[None]],
        begin: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        failed: Callable[[TapewayError], object],
    ) -> None:
        """`pass_on` sends the client messages, `begin` runs a task of the connection.

        `failed` gets the error of the store; the client does not get the message in this case.
        """
        self.unrecorded = 0
        """The number of messages without a recording."""
        self._pass_on = pass_on
        self._begin = begin
        self._failed = failed
        self._waiting: list[tuple[LateMessage, WebSocketMessage]] = []
        self._size = 0
        self._work: asyncio.Task[None] | None = None

    async def add(self, late: "LateMessage", message: WebSocketMessage) -> None:
        """Take a message; wait while too many bytes wait to be passed on."""
        self._waiting.append((late, message))
        self._size += len(message.data)
        if self._work is None:
            self._work = self._begin(self._store_and_pass_on())
        if self._size > _READ_AHEAD:
            await self.passed_on()

    @property
    def under_way(self) -> bool:
        """Whether messages wait to be passed on."""
        return self._work is not None

    async def passed_on(self) -> None:
        """Wait until all messages are passed on, so that the next message comes last."""
        while self._work is not None:
            await asyncio.wait((self._work,))

    async def _store_and_pass_on(self) -> None:
        try:
            while self._waiting:
                together, self._waiting, self._size = self._waiting, [], 0
                if not await self._store(together):
                    return
                await self._pass_on(*[message for _, message in together])
        finally:
            self._work = None

    async def _store(self, together: Sequence[tuple["LateMessage", WebSocketMessage]]) -> bool:
        """Store messages with their turns; whether they may be passed on."""
        changed: dict[int, StoredTurn] = {}
        added = Counter[int]()
        for late, message in together:
            stored = None
            if late.turn is not None:
                # The end of the turn waits until the turn is stored.
                await late.turn.handed_out.wait()
                try:
                    stored = await late.turn.add_late(message, late.at_ms) if late.counts else None
                except TapewayError as exc:
                    self._failed(exc)
                    return False
            if stored is None:
                self.unrecorded += late.counts
            else:
                changed[id(stored)] = stored
                added[id(stored)] += 1
        for at, call in changed.items():
            error = await call.store()
            if isinstance(error, RecordingEdited):
                # Somebody wanted the recording otherwise: the client gets what the service says.
                self.unrecorded += added[at]
            elif error is not None:
                self._failed(error)
                return False
        return True
