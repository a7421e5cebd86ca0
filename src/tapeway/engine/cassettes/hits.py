"""Hits of a shared store that need no task: what is remembered, and one step of a cursor for each.

The recordings are those that were looked up before. The store makes the step only while cassette and
cursor are what they were then; where it does not, the request is decided on from the beginning.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.model.control import CursorMove, CursorState
from tapeway.engine.cassettes.remembered import Remembered
from tapeway.errors import StoreAway
from tapeway.ports import SharedStore


async def advanced(store: SharedStore, move: CursorMove) -> CursorState | None:
    """Where a step of a cursor led; None where the cursor or the cassette has changed.

    Raises StoreError.
    """
    waiter: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    store.advance(move, partial(_settle, waiter))
    if (refused := await waiter) is not None:
        try:
            raise refused
        finally:
            # The error has this function, and would keep itself.
            del refused
    return move.after


def _settle(
    waiter: "asyncio.Future[BaseException | None]", _: CursorMove, refused: BaseException | None
) -> None:
    if not waiter.done():
        waiter.set_result(refused)


class RememberedHits:
    """Counts hits among the remembered recordings of one cassette."""

    def __init__(self, known: Remembered, store: SharedStore) -> None:
        self._known = known
        self._store = store

    @property
    def cassette(self) -> CassetteIndex:
        """The recordings, and the cursors as they are after all steps under way."""
        return self._known.cassette

    def knows(self, key: bytes) -> bool:
        """Whether all recordings with this match key are known, be there any or none."""
        return key in self._known.turns

    def count(
        self, key: bytes, index: int, done: Callable[[bool | StoreAway], None], *, stays: bool
    ) -> None:
        """Count a hit; `done` is told later whether the store did, on the event loop.

        `done` gets the error where nobody can know: a second try might count a hit twice.
        With `stays` the last recording of a key answers all further requests. Once the only recording
        has been used, the cursor is not moved, and nothing is written.
        Hits of one key are counted in the order of the calls, before earlier hits are done. If a hit
        fails to count, later hits fail too.
        """
        cassette, turns = self.cassette, self._known.turns
        take, mark, turn = cassette.take, self._known.mark, turns[key]
        if (
            stays
            and index in take.touched
            and isinstance(turn, CursorState)
            and len(cassette.indexes(key)) == 1
        ):
            same = CursorMove(cassette.name, take.number, key, turn, None, None, mark)
            self._store.advance(same, partial(self._compared, done))
            return
        touched = None if index in take.touched else index
        take.use(key, index)
        state = cassette.cursor_state(key)
        move = CursorMove(cassette.name, take.number, key, turn, state, touched, mark)
        turns[key] = move
        self._store.advance(move, partial(self._moved, done))

    def _compared(
        self,
        done: Callable[[bool | StoreAway], None],
        move: CursorMove,
        refused: BaseException | None,
    ) -> None:
        if move.after is None:
            self._known.turns.pop(move.key, None)
        done(refused if isinstance(refused, StoreAway) else move.after is not None)

    def _moved(
        self,
        done: Callable[[bool | StoreAway], None],
        move: CursorMove,
        refused: BaseException | None,
    ) -> None:
        turns, made = self._known.turns, move.after is not None
        # Nothing needs the earlier steps any more.
        move.before = None
        if turns.get(move.key) is move:
            if made:
                turns[move.key] = move.after
            else:
                # Somebody else moved it, or changed the cassette: it is looked up again.
                del turns[move.key]
        done(refused if isinstance(refused, StoreAway) else made)
