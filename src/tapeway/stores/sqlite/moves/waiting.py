"""The steps of cursors: waiting steps share one transaction, and one wake-up of the event loop.

The event loop itself makes the steps of simultaneous requests, unless it would have to wait.
Otherwise the steps go to the thread of the shared file, and gather until the thread is free.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial

import apsw

from tapeway.core.model.control import CursorMove
from tapeway.errors import StoreFull, copy_of
from tapeway.ports import MoveDone
from tapeway.stores.sqlite.moves import steps
from tapeway.stores.sqlite.moves.loop_connection import LoopConnection
from tapeway.stores.sqlite.moves.sight import RecordingsInSight
from tapeway.stores.sqlite.worker_thread import WorkerThread
from tapeway.stores.support.serial_executor import result_of


class CursorMoves:
    """Made in the order they were added, on the event loop."""

    def __init__(
        self, thread: WorkerThread, in_sight: RecordingsInSight, here: LoopConnection
    ) -> None:
        self._thread = thread
        self._in_sight = in_sight
        self._here = here
        self._waiting: deque[tuple[CursorMove, MoveDone]] = deque()
        self._queued: deque[tuple[CursorMove, MoveDone]] = deque()
        self._begun = False
        self._in_thread = 0
        """Steps that the thread has not told about: later ones do not overtake them."""
        self._submitted = False

    def add(self, move: CursorMove, done: MoveDone) -> None:
        """Make a step soon; `done` is called on the event loop, once it is made or refused."""
        self._waiting.append((move, done))
        if not self._begun:
            self._begun = True
            loop = asyncio.get_running_loop()
            loop.call_soon(self._begin, loop)

    async def close(self) -> None:
        """Close the event loop's own connection."""
        await result_of(self._thread.submit_unconnected(self._here.close))

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._begun = False
        if not self._in_thread and self._here.usable:
            taken = list(self._waiting)
            if self._here.make([move for move, _ in taken]):
                self._waiting.clear()
                _tell(loop, taken, [None] * len(taken))
                return
        self._in_thread += len(self._waiting)
        self._queued.extend(self._waiting)
        self._waiting.clear()
        if not self._submitted:
            self._submitted = True
            self._thread.submit_unconnected(partial(self._make_queued, loop))

    def _make_queued(self, loop: asyncio.AbstractEventLoop) -> None:
        # Before looking: what is queued from now on is submitted again.
        self._submitted = False
        taken: list[tuple[CursorMove, MoveDone]] = []
        while self._queued:
            taken.append(self._queued.popleft())
        if not taken:
            return
        moves = [move for move, _ in taken]
        refused = self._make(moves)
        if isinstance(refused, StoreFull) and len(taken) > 1:
            # There may be room for some of them.
            outcomes = [self._make([move]) for move in moves]
        else:
            outcomes = [refused and copy_of(refused) for _ in moves]
        if not refused:
            self._here.open()
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._made, loop, taken, outcomes)

    def _made(
        self,
        loop: asyncio.AbstractEventLoop,
        taken: Sequence[tuple[CursorMove, MoveDone]],
        outcomes: Sequence[BaseException | None],
    ) -> None:
        self._in_thread -= len(taken)
        _tell(loop, taken, outcomes)

    def _make(self, moves: Sequence[CursorMove]) -> BaseException | None:
        try:
            self._thread.run_here(partial(self._make_in_sight, moves))
        except BaseException as exc:
            return exc
        return None

    def _make_in_sight(self, moves: Sequence[CursorMove], connection: apsw.Connection) -> None:
        self._in_sight.attach(connection)
        steps.make(moves, connection)


def _tell(
    loop: asyncio.AbstractEventLoop,
    taken: Sequence[tuple[CursorMove, MoveDone]],
    outcomes: Sequence[BaseException | None],
) -> None:
    (move, last), refused = taken[-1], outcomes[-1]
    for (each, done), outcome in zip(taken[:-1], outcomes[:-1], strict=True):
        # Each separately: an error in one result must not keep the other callers waiting.
        loop.call_soon(done, each, outcome)
    last(move, refused)
