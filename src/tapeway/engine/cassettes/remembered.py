"""Recordings and cursors of a shared store that an instance remembers, to ask less for a hit.

A hit among remembered recordings needs no task: it is one step of a cursor. The store makes the
step only while the cursor is unchanged since the recordings were looked up, and while the same
look-up would find the same recordings. Where the store makes no step, the request is decided on
from the beginning.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.control import CursorMove, CursorState
from tapeway.core.model.interaction import Interaction
from tapeway.engine.cassettes.context import T
from tapeway.engine.cassettes.source import NO_TURNS, CassetteInfo, Search, View
from tapeway.errors import StoreAway, copy_of
from tapeway.ports import SharedStore

MOST_REMEMBERED = 64 * 1024 * 1024
"""Bytes of recordings to remember; beyond that, all are forgotten."""

MOST_OF_A_VIEW = 256 * 1024
_OVERHEAD = 2048
"""The memory for a recording without the bodies, roughly."""


class RememberedViews:
    """The recordings found in a take of each cassette.

    Remembered recordings may be out of date: the store compares version and cursor at each step.
    """

    def __init__(self, store: SharedStore, generation: Callable[[], int]) -> None:
        """`generation` gives that of what is in force, as far as this instance knows."""
        self._store = store
        self._generation = generation
        self._of: dict[tuple[str, int], Remembered] = {}
        self.size = 0
        """Bytes that are remembered, roughly."""

    def find(self, search: Search) -> View | None:
        """What was found under all keys of a search.

        None where that is not known any more, or a cursor of theirs is being moved.
        """
        known = self.of(search.info, search.take, search.name)
        if known is None or not known.knows_together(search.keys):
            return None
        turns = known.turns
        if any(isinstance(turns[key], CursorMove) for key in search.keys):
            return None
        asked = search.keys[0]

        async def move(key: bytes, index: int) -> bool:
            return await known.move(key, index, asked=asked)

        return View(known.cassette, search, NO_TURNS, known.versions[asked], move)

    def of(self, info: CassetteInfo | None, take: int, name: str) -> "Remembered | None":
        """All that was found in a take of a cassette, None where nothing is known."""
        known = self._of.get((name, take))
        return known if known is not None and known.info is info else None

    def add(self, view: View, key: bytes, turn: CursorState) -> None:
        """Remember what was found under the keys of a search; the cursor of `key` was moved."""
        search, size = view.search, _size_of(view)
        keys, info = search.keys, search.info
        if key not in keys or view.version is None or info is None:
            return
        if info.has_unrouted or size > MOST_OF_A_VIEW:
            return
        place = search.name, search.take
        if self.size + size > MOST_REMEMBERED:
            self.clear()
        known = self._of.get(place)
        if known is None or known.info is not info or known.contradicts(view):
            known = self._of[place] = Remembered(info, view, self._store, self._generation)
        for sought in keys:
            now = turn if sought == key else view.turns.get(sought)
            known.cassette.restore(sought, view.cassette, None if now is None else now.state)
            known.turns[sought], known.versions[sought] = now, view.version
        self.size += size

    def clear(self) -> None:
        """Forget all."""
        self._of.clear()
        self.size = 0


class Remembered:
    """The recordings found in a take of a cassette, and the cursors of the match keys.

    While a cursor is being moved, the step stands in its place, and the cassette has the state
    after the step.
    """

    def __init__(
        self, info: CassetteInfo, view: View, store: SharedStore, generation: Callable[[], int]
    ) -> None:
        held, nothing = view.cassette, StoredCassette(info.head)
        take = held.take.number
        cassette = CassetteIndex(
            *(held.name, nothing),
            take=take,
            other_routes=info.routes,
            calls_model=held.calls_model,
        )
        self.info = info
        self.cassette = cassette
        """The recordings, and the cursors as they are after all steps under way."""
        self.turns: dict[bytes, CursorState | CursorMove | None] = {}
        self.versions: dict[bytes, str] = {}
        """Of the look-up that found what is remembered under a key."""
        self._store = store
        self._generation = generation

    def knows(self, key: bytes) -> bool:
        """Whether all recordings with this match key are known, be there any or none."""
        return key in self.turns

    def knows_together(self, keys: Sequence[bytes]) -> bool:
        """Whether one look-up found what is known under all of these keys.

        A step compares one look-up, which has to cover everything that decided.
        """
        if any(key not in self.turns for key in keys):
            return False
        return len({self.versions[key] for key in keys}) == 1

    def contradicts(self, view: View) -> bool:
        """Whether recordings have been removed, moved or edited since they were remembered."""
        held, found = self.cassette, view.cassette
        if any(found.get(index) is None for key in view.search.keys for index in held.indexes(key)):
            return True
        for interaction in found:
            index = interaction.index
            known = held.get(index)
            if known is not None and (
                known != interaction
                or held.key_of(index) != found.key_of(index)
                or held.place_of(index) != found.place_of(index)
            ):
                return True
        return False

    def count(
        self,
        key: bytes,
        index: int,
        done: Callable[[bool | StoreAway], None],
        *,
        stays: bool,
    ) -> None:
        """Count a hit; `done` is told later whether the store did, on the event loop.

        `done` gets the error where nobody can know: a second try might count a hit twice. With
        `stays` the last recording of a key answers all further requests. Once the only recording
        has been used, the cursor is not moved, and nothing is written. Hits of one key are counted
        in the order of the calls, before earlier hits are done. If a hit fails to count, later hits
        fail too.
        """
        cassette, turns = self.cassette, self.turns
        take, version, turn = cassette.take, self.versions[key], turns[key]
        if (
            stays
            and index in take.touched
            and isinstance(turn, CursorState)
            and len(cassette.indexes(key)) == 1
        ):
            at = cassette.name, take.number, key
            same = CursorMove(*at, turn, None, None, version, generation=self._generation())
            self._store.advance(same, partial(self._compared, done))
            return
        touched = None if index in take.touched else index
        take.use(key, index)
        self._move(key, touched, done, version)

    async def move(self, key: bytes, index: int, *, asked: bytes) -> bool:
        """Move the cursor of a key whose recording was counted as used; False if it was refused.

        The look-up of the key that was `asked` for found the recording. Raises StoreAway where nobody
        can know.
        """
        if key not in self.turns or isinstance(self.turns[key], CursorMove):
            return False
        waiter: asyncio.Future[bool | StoreAway] = asyncio.get_running_loop().create_future()
        self._move(key, index, partial(_settle, waiter), self.versions[asked])
        if isinstance(made := await waiter, StoreAway):
            raise copy_of(made)
        return made

    def _move(
        self,
        key: bytes,
        touched: int | None,
        done: Callable[[bool | StoreAway], None],
        version: str,
    ) -> None:
        cassette, turns = self.cassette, self.turns
        number, state = cassette.take.number, cassette.cursor_state(key)
        before = turns[key]
        at, generation = (cassette.name, number, key), self._generation()
        move = CursorMove(*at, before, state, touched, version, generation=generation)
        turns[key] = move
        self._store.advance(move, partial(self._moved, done))

    def _compared(
        self,
        done: Callable[[bool | StoreAway], None],
        move: CursorMove,
        refused: BaseException | None,
    ) -> None:
        if move.after is None:
            self.turns.pop(move.key, None)
        done(refused if isinstance(refused, StoreAway) else move.after is not None)

    def _moved(
        self,
        done: Callable[[bool | StoreAway], None],
        move: CursorMove,
        refused: BaseException | None,
    ) -> None:
        turns, made = self.turns, move.after is not None
        # Nothing needs the earlier steps any more.
        move.before = None
        if turns.get(move.key) is move:
            if made:
                turns[move.key] = move.after
            else:
                # Somebody else moved it, or changed the cassette: it is looked up again.
                del turns[move.key]
        done(refused if isinstance(refused, StoreAway) else made)


async def advanced(store: SharedStore, move: CursorMove) -> CursorState | None:
    """Where a step of a cursor led; None where the cursor or the cassette has changed.

    Raises StoreError.
    """
    waiter: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    store.advance(move, lambda _, refused: _settle(waiter, refused))
    if (refused := await waiter) is not None:
        try:
            raise refused
        finally:
            # The error has this function, and would keep itself.
            del refused
    return move.after


def _settle(waiter: "asyncio.Future[T]", result: T) -> None:
    if not waiter.done():
        waiter.set_result(result)


def _size_of(view: View) -> int:
    size = _OVERHEAD
    for interaction in view.cassette:
        if (
            not isinstance(interaction, Interaction)
            or interaction.request.file
            or interaction.response.file
        ):
            return MOST_OF_A_VIEW + 1
        size += _OVERHEAD + len(interaction.request.body) + interaction.response.size
    return size
