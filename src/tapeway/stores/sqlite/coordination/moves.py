"""The steps of cursors: those that wait share one transaction, and one wake-up of the event loop.

A hit of one client waits for its own transaction alone. While that one runs, those of all others
gather for the next.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import apsw

from tapeway.core.model.control import CursorMove, CursorState
from tapeway.errors import StoreFull, copy_of
from tapeway.stores.sqlite.coordination import cursors
from tapeway.stores.sqlite.worker_thread import WorkerThread

Done = Callable[[CursorMove, BaseException | None], None]
"""Gets the step, and why it could not be tried if it could not."""


class CursorMoves:
    """Made in the thread of the shared file, in the order they were added on the event loop."""

    def __init__(
        self, thread: WorkerThread, attach_recordings: Callable[[apsw.Connection], None]
    ) -> None:
        self._thread = thread
        self._attach_recordings = attach_recordings
        self._waiting: deque[tuple[CursorMove, Done]] = deque()
        self._submitted = False

    def add(self, move: CursorMove, done: Done) -> None:
        """Make a step soon; `done` is called on the event loop, once it is made or refused."""
        self._waiting.append((move, done))
        if not self._submitted:
            self._submitted = True
            loop = asyncio.get_running_loop()
            self._thread.submit_unconnected(partial(self._make_waiting, loop))

    async def make(self, move: CursorMove) -> CursorState | None:
        """Make a step; None where the cursor or the cassette is another one. Raises StoreError."""
        waiter = asyncio.get_running_loop().create_future()

        def done(_: CursorMove, exc: BaseException | None) -> None:
            if waiter.done():
                return
            if exc is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(exc)

        self.add(move, done)
        await waiter
        return move.after

    def _make_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        # Before looking: what is added from now on is submitted again.
        self._submitted = False
        taken: list[tuple[CursorMove, Done]] = []
        while self._waiting:
            taken.append(self._waiting.popleft())
        if not taken:
            return
        moves = [move for move, _ in taken]
        refused = self._make(moves)
        if isinstance(refused, StoreFull) and len(taken) > 1:
            # There may be room for some of them.
            outcomes = [self._make([move]) for move in moves]
        else:
            outcomes = [refused and copy_of(refused) for _ in moves]
        if not loop.is_closed():
            loop.call_soon_threadsafe(_tell, loop, taken, outcomes)

    def _make(self, moves: Sequence[CursorMove]) -> BaseException | None:
        try:
            self._thread.run_here(partial(self._in_sight, moves))
        except BaseException as exc:
            for each in moves:
                each.after = None
            return exc
        return None

    def _in_sight(self, moves: Sequence[CursorMove], connection: apsw.Connection) -> None:
        self._attach_recordings(connection)
        cursors.make(moves, connection)


def _tell(
    loop: asyncio.AbstractEventLoop,
    taken: Sequence[tuple[CursorMove, Done]],
    outcomes: Sequence[BaseException | None],
) -> None:
    for (move, done), refused in zip(taken, outcomes, strict=True):
        # Each by itself: an error in one must not keep the others waiting.
        loop.call_soon(done, move, refused)
