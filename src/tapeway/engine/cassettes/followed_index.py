"""A cassette of a shared store in memory: the index, which follows the log, and the known cursors.

The index holds match keys. The document of a recording is read when the recording is looked at. A
replay moves a cursor, and the store moves a cursor only while cursor and recordings are as the index
knows them.
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
"""Documents in memory, of all cassettes together. The documents read first are forgotten first."""

READ_AHEAD = 16
MOST_ROWS = 100
"""Later rows of a log that the store searches for each hit. With more rows the index reads on first."""
_OVERHEAD = 2048
"""The memory for a recording without the bodies, roughly."""


class DocumentMemory:
    """The recordings in memory, of all cassettes. Changed on the event loop alone."""

    def __init__(self) -> None:
        self._held: dict[tuple[CassetteDocuments, int], Interaction] = {}
        self._pinned: Counter[tuple[CassetteDocuments, int]] = Counter()
        self.size = 0
        """Bytes, roughly."""

    def get(self, of: "CassetteDocuments", index: int) -> Interaction | None:
        """A recording, for any thread; None where it is not in memory."""
        return self._held.get((of, index))

    def hold(self, of: "CassetteDocuments", items: Iterable[Interaction]) -> None:
        """Keep recordings; earlier recordings give way where there is no room."""
        new = [(of, item.index) for item in items]
        for at, item in zip(new, items, strict=True):
            self._drop(at)
            self._held[at] = item
            self.size += _size_of(item)
        if self.size > MOST_BYTES:
            self._make_room({*new})

    def _make_room(self, new: Collection[tuple["CassetteDocuments", int]]) -> None:
        for at in list(self._held):
            if self.size <= MOST_BYTES or at in new:
                break
            if at not in self._pinned:
                self._drop(at)

    def discard(self, of: "CassetteDocuments", index: int) -> None:
        """Forget a recording that was changed or removed."""
        self._drop((of, index))

    def _drop(self, at: tuple["CassetteDocuments", int]) -> None:
        if (held := self._held.pop(at, None)) is not None:
            self.size -= _size_of(held)

    def forget(self, of: "CassetteDocuments") -> None:
        """Forget the recordings of a cassette that is not in use any more."""
        for at in [at for at in self._held if at[0] is of]:
            self._drop(at)

    def pin(self, of: "CassetteDocuments", index: int) -> Callable[[], None]:
        """Keep a recording, whatever else needs room, until the returned function is called."""
        at = of, index
        self._pinned[at] += 1

        def unpin() -> None:
            self._pinned[at] -= 1
            if not self._pinned[at]:
                del self._pinned[at]

        return unpin


class CassetteDocuments:
    """The documents of one cassette: those in memory, and the rest in the store.

    For a document that is not in memory, the event loop gets `DocumentAway`; other threads wait.
    """

    def __init__(self, store: SharedStore, name: str, memory: DocumentMemory) -> None:
        self._store = store
        self._name = name
        self.memory = memory
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._under_way: list[set[int]] = []
        """The indexes of each read under way, without the recordings that changed meanwhile."""
        self._with_credentials: set[int] = set()
        self._with_conditions: set[int] = set()

    def add(self, index: int, marks: int) -> LazyInteraction:
        """A recording of the cassette; the document is read when somebody looks."""
        if marks & CREDENTIALS:
            self._with_credentials.add(index)
        if marks & CONDITIONS:
            self._with_conditions.add(index)
        return LazyInteraction.at(index, self)

    def discard(self, index: int) -> None:
        """Forget a changed or removed recording, and drop the result of a read under way."""
        for known in (self._with_credentials, self._with_conditions, *self._under_way):
            known.discard(index)
        self.memory.discard(self, index)

    def may_hold_credentials(self, index: int) -> bool:
        return index in self._with_credentials

    def has_conditions(self, index: int) -> bool:
        return index in self._with_conditions

    def read(self, item: LazyInteraction, name: str) -> object:
        return getattr(self.load(item.index), name)

    def load(self, index: int) -> Interaction:
        """The whole recording. Raises DocumentAway, and CassetteEdited where it has changed."""
        if (held := self.memory.get(self, index)) is not None:
            return held
        if threading.get_ident() == self._thread:
            raise document_away(index)
        wanted = self.bring(range(index, index + READ_AHEAD))
        brought = asyncio.run_coroutine_threadsafe(wanted, self._loop).result()
        if (found := brought.get(index)) is None:
            raise CassetteEdited(
                f"cassette '{self._name}', interaction {index}: it was changed or removed meanwhile"
            )
        return found

    async def bring(self, indexes: Iterable[int]) -> Mapping[int, Interaction]:
        """Recordings by index, from memory or the store. A recording changed meanwhile is left out.

        Raises StoreError.
        """
        held = {index: self.memory.get(self, index) for index in indexes}
        brought = {index: item for index, item in held.items() if item is not None}
        if missing := held.keys() - brought.keys():
            self._under_way.append(missing)
            try:
                read = await self._store.documents(self._name, sorted(missing))
            finally:
                self._under_way = [other for other in self._under_way if other is not missing]
            items = [taken.item for taken in read if taken.item.index in missing]
            new = [item for item in items if isinstance(item, Interaction)]
            self.memory.hold(self, new)
            brought.update({item.index: item for item in new})
        return brought

    def pin(self, index: int) -> Callable[[], None]:
        """Keep a recording in memory until the returned function is called."""
        return self.memory.pin(self, index)


async def advanced(
    store: SharedStore, move: CursorMove, moved: Callable[[CursorMove], None] | None = None
) -> bool:
    """Whether the store made a step; `moved` is called in any case. Raises StoreError."""
    waiter: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def done(move: CursorMove, refused: BaseException | None) -> None:
        if moved is not None:
            moved(move)
        if not waiter.done():
            waiter.set_result(refused)

    store.advance(move, done)
    if (refused := await waiter) is not None:
        raise copy_of(refused)
    return move.after is not None


class FollowedIndex:
    """The index of a cassette at a revision of the log, and the known cursors.

    An unknown cursor counts as unmoved: if another process has moved the cursor, the store refuses the
    step. While a step is under way, the index has the state after the step.
    """

    def __init__(
        self,
        cassette: CassetteIndex,
        store: SharedStore,
        memory: DocumentMemory,
        routes: RouteTable,
        token: str,
        generation: Callable[[], int],
    ) -> None:
        """`generation` gives the generation of the control in force."""
        self.cassette = cassette
        self.documents = CassetteDocuments(store, cassette.name, memory)
        self.token = token
        """Names the log; empty where the store has no such cassette."""
        self.revision = 0
        self.behind = False
        """Whether the next decision reads the log first."""
        self.has_unrouted = False
        self.turns: dict[tuple[int, bytes], CursorState | CursorMove] = {}
        """By take and key: the cursor, or the last step under way."""
        self.stale: set[tuple[int, bytes]] = set()
        """Takes and keys whose cursors the next decision reads first."""
        self._in_force: tuple[int, frozenset[int]] | None = None
        self.own: set[int] = set()
        """Indexes of recordings made here whose rows of the log were not read yet."""
        self._store = store
        self._routes = routes
        self._generation = generation

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
        """Whether a row tells of a recording made here, which the index has already."""
        if row.number not in self.own:
            return False
        self.own.discard(row.number)
        return True

    async def _read_before(self, rows: Sequence[LogRow]) -> Mapping[int, AnyInteraction]:
        """Read the documents that the index needs at once: without a key, or with credentials."""
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
        """Go on in this take; `running` are those of slots.

        A request of a slot that has just ended goes on in the slot's take, until the next change.
        """
        if (in_force := (number, frozenset(running))) == self._in_force:
            return
        self._in_force = in_force
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
        running = cassette.running(take)
        for key in keys:
            self.stale.discard((take, key))
            self.turns.pop((take, key), None)
            running.forget_key(key, cassette.indexes(key))
            if (turn := found.get(key)) is not None:
                self.turns[take, key] = turn
                running.restore_key(key, turn.state)

    def knows(self, key: bytes) -> bool:
        """Whether the cursor of a key in the take in force need not be read first."""
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

        `touched` is the recording that was used for the first time, if one was. The step depends on
        the keys that were `asked`; without any it depends on all recordings.
        """
        state = self.cassette.cursor_state(key, self.cassette.running(take))
        seen = SeenCassette(self.token, self.revision, tuple(asked))
        move = CursorMove(
            self.cassette.name,
            *(take, key, self.turns.get((take, key)), state, touched, seen),
            generation=generation,
        )
        self.turns[take, key] = move
        return move

    def forget(self, move: CursorMove) -> None:
        """Forget a counted step that the store never gets."""
        at = move.take, move.key
        if self.turns.get(at) is move:
            del self.turns[at]
        self.stale.add(at)

    async def make(self, move: CursorMove) -> bool:
        """Have the store make a step; False where it was refused. Raises StoreError."""
        return await advanced(self._store, move, self._moved)

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
        if not made or move.revision > self.revision + MOST_ROWS:
            self.behind = True


def _size_of(item: Interaction) -> int:
    return _OVERHEAD + len(item.request.body) + item.response.size
