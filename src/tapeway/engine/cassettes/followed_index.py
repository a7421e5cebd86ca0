"""A cassette of a shared store in memory: an index that follows the log, and the known cursors.

The index has the match keys; a document is read when a recording is looked at. A replay is a step of a
cursor, which the store makes only while the cursor and the recordings are as the index has them.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.http.routing import RouteTable, assign_route
from tapeway.core.model.cassette import CONDITIONS, CREDENTIALS, LogPage, LogRow, TakenRecording
from tapeway.core.model.control import CursorMove, CursorState, SeenCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.errors import CassetteEdited, StoreAway, copy_of, document_away
from tapeway.ports import SharedStore

MOST_BYTES = 64 * 1024 * 1024
"""Documents of a cassette in memory; beyond that, those go that were read first."""

READ_AHEAD = 16
_OVERHEAD = 2048
"""The memory for a recording without the bodies, roughly."""


class CassetteDocuments:
    """The documents of one cassette: those in memory, and the rest in the store.

    The event loop gets `DocumentAway` for one that is not in memory; other threads wait for it.
    """

    def __init__(self, store: SharedStore, name: str) -> None:
        self._store = store
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._held: dict[int, Interaction] = {}
        self._pinned: Counter[int] = Counter()
        self.size = 0
        """Bytes in memory, roughly."""
        self._lazy: set[int] = set()
        self._with_credentials: set[int] = set()
        self._with_conditions: set[int] = set()

    def add(self, index: int, marks: int) -> LazyInteraction:
        """A recording of the cassette, to be read when it is looked at."""
        self._lazy.add(index)
        if marks & CREDENTIALS:
            self._with_credentials.add(index)
        if marks & CONDITIONS:
            self._with_conditions.add(index)
        return LazyInteraction.at(index, self)

    def discard(self, index: int) -> None:
        """Forget a recording that was changed or removed."""
        for known in (self._lazy, self._with_credentials, self._with_conditions):
            known.discard(index)
        if (held := self._held.pop(index, None)) is not None:
            self.size -= _size_of(held)

    @property
    def hold_credentials(self) -> bool:
        """Whether any recording may hold credentials."""
        return bool(self._with_credentials)

    def may_hold_credentials(self, index: int) -> bool:
        return index in self._with_credentials

    def has_conditions(self, index: int) -> bool:
        return index in self._with_conditions

    def read(self, item: LazyInteraction, name: str) -> object:
        return getattr(self.load(item.index), name)

    def load(self, index: int) -> Interaction:
        """The whole recording. Raises DocumentAway, and CassetteEdited where it is gone."""
        if (held := self._held.get(index)) is not None:
            return held
        if threading.get_ident() == self._thread:
            raise document_away(index)
        ahead = [at for at in range(index, index + READ_AHEAD) if at in self._lazy]
        wanted = self.bring([index, *ahead])
        return self._there(index, asyncio.run_coroutine_threadsafe(wanted, self._loop).result())

    async def bring(self, numbers: Iterable[int]) -> Mapping[int, Interaction]:
        """Read recordings that are not in memory. Raises StoreError."""
        wanted = sorted({*numbers})
        missing = [number for number in wanted if number not in self._held]
        brought = {number: self._held[number] for number in wanted if number in self._held}
        if missing:
            read = await self._store.documents(self._name, missing)
            brought.update(self.hold([recording.item for recording in read]))
        return brought

    def _there(self, index: int, brought: Mapping[int, Interaction]) -> Interaction:
        if (found := brought.get(index)) is None:
            raise CassetteEdited(
                f"cassette '{self._name}', interaction {index}: it was changed or removed meanwhile"
            )
        return found

    def hold(self, items: Iterable[AnyInteraction]) -> dict[int, Interaction]:
        """Have recordings in memory, as far as there is room for earlier ones beside them."""
        new = {item.index: item for item in items if isinstance(item, Interaction)}
        for index, item in new.items():
            if (before := self._held.pop(index, None)) is not None:
                self.size -= _size_of(before)
            self._held[index] = item
            self.size += _size_of(item)
        for index in list(self._held):
            if self.size <= MOST_BYTES or index in new:
                break
            if index not in self._pinned:
                self.size -= _size_of(self._held.pop(index))
        return new

    def pin(self, index: int) -> None:
        """Have a recording stay in memory until as many calls of `unpin`."""
        self._pinned[index] += 1

    def unpin(self, indexes: Iterable[int]) -> None:
        """Let recordings go when there is no more room."""
        self._pinned -= Counter(indexes)


class FollowedIndex:
    """The index of a cassette, as of a revision of its log, and its cursors as far as known.

    A cursor that is not known is taken for unmoved: the store refuses a step from there otherwise.
    While a step is under way, the index has the state after the step.
    """

    def __init__(
        self,
        cassette: CassetteIndex,
        store: SharedStore,
        routes: RouteTable,
        token: str,
        generation: Callable[[], int],
        on_news: Callable[[], None],
    ) -> None:
        """`generation` gives that of what is in force; `on_news` hears of a later revision."""
        self.cassette = cassette
        self.documents = CassetteDocuments(store, cassette.name)
        self.token = token
        """Of the cassette; empty where there is none in the store."""
        self.revision = 0
        self.behind = False
        """Whether the log is read before the next decision."""
        self.has_unrouted = False
        self.turns: dict[tuple[int, bytes], CursorState | CursorMove] = {}
        """By take and key, cursors, and the last steps under way."""
        self.stale: set[tuple[int, bytes]] = set()
        """Cursors that are read before the next decision."""
        self.own: set[int] = set()
        """Indexes of recordings of this process that the log is still to tell of."""
        self._store = store
        self._routes = routes
        self._generation = generation
        self._on_news = on_news

    # Following.

    async def apply(self, page: LogPage) -> None:
        """Take over the rows of a page. Raises StoreError."""
        rows = [row for row in page.rows if not self._is_own(row)]
        for row in rows:
            self.documents.discard(row.number)
        held = await self._read_before(rows)
        for row in rows:
            if not row.live:
                self.cassette.drop(row.number)
                continue
            if row.key is not None:
                item: AnyInteraction | None = self.documents.add(row.number, row.marks)
            else:
                item = held.get(row.number)
            if item is not None:
                self.cassette.put(item, row.key, place=row.place, take=row.take)
        self.revision = page.seen

    def _is_own(self, row: LogRow) -> bool:
        """Whether it is the first row of a recording of this process, which the index has."""
        if row.number not in self.own:
            return False
        self.own.discard(row.number)
        return True

    async def _read_before(self, rows: Sequence[LogRow]) -> Mapping[int, AnyInteraction]:
        """Read what an index reads at once: recordings without a key, and those that it compares."""
        unkeyed, compared = set[int](), set[int]()
        for row in rows:
            if row.key is None and row.live:
                unkeyed.add(row.number)
            elif row.live and row.marks & CREDENTIALS and self.cassette.has_credential_index:
                compared.add(row.number)
        read = await self._store.documents(self.cassette.name, sorted(unkeyed)) if unkeyed else ()
        if compared:
            await self.documents.bring(compared)
        return {recording.item.index: self._routed(recording) for recording in read}

    def _routed(self, recording: TakenRecording) -> AnyInteraction:
        item = recording.item
        self.has_unrouted |= isinstance(item, Interaction) and not item.request.route
        return assign_route(item, self._routes)

    def appended(self, index: int, take: int, key: bytes) -> None:
        """Note a durable recording of this process; the store has moved its cursor."""
        if self.cassette.get(index) is None:
            self.own.add(index)
        self.stale.add((take, key))

    # Cursors.

    def begin_take(self, number: int, running: Collection[int]) -> None:
        """Go on in this take; `running` are those of slots."""
        if self.cassette.take.number != number:
            # The takes of slots begin anew in the index too.
            self.cassette.start_take(number)
            self.turns.clear()
            self.stale.clear()
        self.cassette.end_slot_takes(running)
        takes = {number, *running}
        self.turns = {at: turn for at, turn in self.turns.items() if at[0] in takes}
        self.stale = {at for at in self.stale if at[0] in takes}

    def restore(self, take: int, keys: Iterable[bytes], found: Mapping[bytes, CursorState]) -> None:
        """Take over the cursors of some keys as the store has them."""
        cassette = self.cassette
        with cassette.in_take(take):
            for key in keys:
                self.stale.discard((take, key))
                self.turns.pop((take, key), None)
                cassette.take.forget_key(key, cassette.indexes(key))
                if (turn := found.get(key)) is not None:
                    self.turns[take, key] = turn
                    cassette.take.restore_key(key, turn.state)

    def knows(self, key: bytes) -> bool:
        """Whether nothing has to be read before a decision on this key in the take in force."""
        return bool(self.token) and (self.cassette.take.number, key) not in self.stale

    def step(
        self,
        take: int,
        key: bytes,
        touched: int | None,
        asked: Sequence[bytes],
        generation: int | None = None,
    ) -> CursorMove:
        """The step of a use that the index has counted; give it to the store.

        `touched` is the recording that was used for the first time, if one was.
        It depends on the keys that were `asked`, without any on all recordings.
        """
        with self.cassette.in_take(take):
            state = self.cassette.cursor_state(key)
        seen = SeenCassette(self.token, self.revision, tuple(asked))
        move = CursorMove(
            self.cassette.name,
            *(take, key, self.turns.get((take, key)), state, touched, seen),
            generation=generation,
        )
        self.turns[take, key] = move
        return move

    def forget(self, move: CursorMove) -> None:
        """Forget a step that the index has counted, and that the store is not given."""
        at = move.take, move.key
        if self.turns.get(at) is move:
            del self.turns[at]
        self.stale.add(at)

    async def make(self, move: CursorMove) -> bool:
        """Have the store make a step; False where it was refused. Raises StoreError."""
        waiter: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self._store.advance(move, partial(self._settle, waiter))
        if (refused := await waiter) is not None:
            raise copy_of(refused)
        return move.after is not None

    def _settle(
        self,
        waiter: "asyncio.Future[BaseException | None]",
        move: CursorMove,
        refused: BaseException | None,
    ) -> None:
        self._moved(move)
        if not waiter.done():
            waiter.set_result(refused)

    def count(
        self,
        key: bytes,
        index: int,
        asked: Sequence[bytes],
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
        cassette, generation = self.cassette, self._generation()
        take = cassette.take
        turn = self.turns.get((take.number, key))
        if (
            stays
            and index in take.touched
            and isinstance(turn, CursorState)
            and len(cassette.indexes(key)) == 1
        ):
            seen = SeenCassette(self.token, self.revision, tuple(asked))
            at = cassette.name, take.number, key
            move = CursorMove(*at, turn, None, None, seen, generation=generation)
        else:
            touched = None if index in take.touched else index
            take.use(key, index)
            move = self.step(take.number, key, touched, asked, generation)
        self._store.advance(move, partial(self._counted, done))

    def _counted(
        self,
        done: Callable[[bool | StoreAway], None],
        move: CursorMove,
        refused: BaseException | None,
    ) -> None:
        self._moved(move)
        done(refused if isinstance(refused, StoreAway) else move.after is not None)

    def _moved(self, move: CursorMove) -> None:
        at, made = (move.take, move.key), move.after is not None
        # Nothing needs the earlier steps any more.
        move.before = None
        if self.turns.get(at) is move and move.after is not None:
            self.turns[at] = move.after
        elif not made and (move.state is None or self.turns.get(at) is move):
            # Somebody else moved it, or changed the cassette.
            self.turns.pop(at, None)
            self.stale.add(at)
        if not made:
            self.behind = True
        elif (
            move.revision > self.revision
            and move.seen is not None
            and move.seen.token == self.token
        ):
            self._on_news()


def _size_of(item: Interaction) -> int:
    return _OVERHEAD + len(item.request.body) + item.response.size
