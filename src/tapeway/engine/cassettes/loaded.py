"""Views of cassettes held whole in memory, for stores used by one process at a time."""

import asyncio
import logging
import math
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tapeway.cooperative import BRIEF_S, Yielding, free_later
from tapeway.core.cassette.branches import Layer, with_routes
from tapeway.core.cassette.cursors import Take
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Incoming, LiveCall, Replay
from tapeway.core.cassette.rerecording import head_checked, head_checked_like, pruned
from tapeway.core.correlation.unify import may_have_references
from tapeway.core.http.routing import assign_routes
from tapeway.core.matching.rules import NO_RULES, RuleChange, Rules, adding
from tapeway.core.misses.miss import SearchedCassette
from tapeway.core.misses.neighbours import SoughtRequest
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.control import MODE_POLICIES, Control, Mode, with_take, without_takes
from tapeway.core.model.interaction import AnyInteraction, Interaction, exchange_of
from tapeway.engine.cassettes.context import (
    CassetteContext,
    CassetteCounts,
    KeyedLocks,
    T,
    head_under_rules,
    not_loaded,
    with_rules,
)
from tapeway.engine.cassettes.source import (
    DecideAgain,
    Latest,
    OutOfUse,
    Search,
    Source,
    View,
    incoming_of,
)
from tapeway.engine.journal import Tally
from tapeway.engine.single_flight import settled
from tapeway.errors import AdminError, StoreError, TapewayError, recording_edited
from tapeway.ports import CassetteStore
from tapeway.providers.api_call import calls_model
from tapeway.watching import EVERY_S, Watched

if TYPE_CHECKING:
    from tapeway.engine.report.summary import ReportedRecordings

log = logging.getLogger(__name__)
_SAVED_PER_S = 5000
"""Recordings of a cassette that are rewritten in a second, at a guess."""

_SAVED_CONTAINER_S = 20e-6
"""How long each object and each list in their bodies takes besides, at a guess."""

_INDEXED_AT_ONCE = 100
"""Recordings that are indexed on the event loop; more in a thread."""
COUNTED_AT_ONCE = 500
"""The number of cassettes counted before other tasks get a turn."""


class CassetteRules:
    """Adds the rules of the settings to cassettes in memory, and saves the rules there."""

    def __init__(self, store: CassetteStore, rules: Rules = NO_RULES) -> None:
        self._store = store
        self._rules = rules
        self._without_rules: set[str] = set()
        self._unsaved: set[str] = set()
        self._checked: set[str] = set()

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        """The stored cassette with all rules in force in its `meta`; a writable one is saved.

        Raises StoreError, also for rules that cannot be read.
        """
        stored = await self._store.load(name, writable=writable)
        if stored is None or (merged := with_rules(name, stored, self._rules)) is stored:
            return stored
        if not writable:
            self._without_rules.add(name)
            return merged
        await self._store.save(name, merged)
        # Saving numbers the recordings by position.
        return await self._store.load(name, writable=True)

    async def change(self, cassette: CassetteIndex, change: RuleChange) -> None:
        """Change the rules of a loaded cassette to which no call records, and save them.

        Raises StoreError; then nothing has changed.
        """
        rules = change(cassette.rules)
        if rules == cassette.rules and cassette.name not in self._unsaved:
            return
        # An empty cassette is written with the first recording.
        if len(cassette):
            head = head_under_rules(cassette.head, rules)
            await self._store.save(cassette.name, replace(cassette.stored(), head=head))
            self._unsaved.discard(cassette.name)
        # Nobody uses the cassette meanwhile.
        await indexed(len(cassette), partial(cassette.change_rules, rules, saved=True))

    def add_unsaved(self, cassette: CassetteIndex, more: Rules) -> None:
        """Add rules to a cassette to which calls record; they are saved when it is unloaded."""
        cassette.apply_rules(more)
        self._unsaved.add(cassette.name)

    async def claimed(self, cassette: CassetteIndex) -> None:
        """Note that a cassette loaded for replay is recorded to from now on. Raises StoreError."""
        if cassette.name in self._without_rules:
            self._without_rules.discard(cassette.name)
            self._unsaved.add(cassette.name)
        if cassette.is_numbered_by_position:
            await self.close(cassette)

    def checked(self, cassette: CassetteIndex, day: str) -> None:
        """Note the day on which recordings of a cassette were compared with new answers."""
        if (head := head_checked(cassette.head, day)) is not cassette.head:
            cassette.head = head
            self._checked.add(cassette.name)

    def end_takes(self, cassette: CassetteIndex, going_on: Collection[int] = ()) -> None:
        """Drop recordings left over from takes before a re-recording; saved at the close."""
        if cassette.drop_left_behind(going_on):
            self._unsaved.add(cassette.name)

    def is_unsaved(self, cassette: CassetteIndex) -> bool:
        """Whether the store does not have all of it yet."""
        return cassette.name in self._checked or cassette.name in self._unsaved

    async def close(self, cassette: CassetteIndex) -> None:
        """Save what the store does not have yet. Raises StoreError."""
        if cassette.name in self._checked and cassette.name not in self._unsaved:
            await self._renew_head(cassette)
        self._checked.discard(cassette.name)
        if cassette.name in self._unsaved:
            # An empty cassette is written with the first recording.
            if len(cassette):
                await self._store.save(cassette.name, cassette.stored())
            self._unsaved.discard(cassette.name)

    async def _renew_head(self, cassette: CassetteIndex) -> None:
        try:
            if self._store.facts.paged:
                await self._store.replace_head(cassette.name, cassette.head)
            else:
                await self._store.save(cassette.name, cassette.stored())
        except StoreError as exc:
            # No recording depends on it.
            log.warning(
                "cassette '%s' does not show when it was last checked: %s",
                *(cassette.name, exc.message),
            )

    def forget(self, name: str) -> None:
        """Note that a cassette was unloaded."""
        self._checked.discard(name)
        self._without_rules.discard(name)
        self._unsaved.discard(name)


@dataclass(slots=True)
class EditedRecording:
    """A recording that is being edited; the index changes where a write stores more of it."""

    name: str
    index: int
    closed: bool = False
    """Whether no more of it is to be stored."""


class Loaded(Source):
    """The cassettes of one process: loaded by the first request, unloaded by eject."""

    def __init__(self, store: CassetteStore, control: Control, context: CassetteContext) -> None:
        super().__init__(store, control, context)
        self._rules = CassetteRules(store, context.rules)
        self._locks = KeyedLocks()
        self._edits: list[EditedRecording] = []
        self._read_only: set[str] = set()
        self._unreadable: dict[str, CassetteIndex] = {}
        """Empty cassettes in place of unreadable ones, until the mode changes."""
        self._watched = Watched(store)

    async def open(self) -> None:
        await self.store.open()

    async def close(self, within_s: float = math.inf) -> None:
        """Save everything that is not stored yet, and close the store.

        Cassettes are rewritten for so many seconds. No recording depends on that.
        """
        now = asyncio.get_running_loop().time
        until = now() + within_s
        try:
            for cassette in self.loaded.values():
                self._rules.end_takes(cassette)
                if self._rules.is_unsaved(cassette) and _is_saved_within(until - now(), cassette):
                    await self._rules.close(cassette)
        finally:
            await self.store.close(within_s)

    async def keep_fresh(self) -> None:
        """Refresh every two seconds, until cancelled."""
        warned: str | None = None
        while True:
            await asyncio.sleep(EVERY_S)
            trouble = await settled(self.refresh())
            message = trouble.message if isinstance(trouble, TapewayError) else None
            if message is not None and message != warned:
                log.warning("cannot check whether cassettes were changed: %s", message)
            warned = message

    async def refresh(self) -> None:
        """Unload cassettes that somebody changed after the load for replay.

        The next request loads the cassette, in a new take. A cassette in recording stays loaded: a
        warning follows when it is to be written. Raises StoreError.
        """
        for name in await self._watched.look():
            await self.unload_edited(name)

    async def unload_edited(self, name: str) -> bool:
        """Unload a changed cassette; False if it is being recorded to, or not loaded."""
        if name not in self._read_only or MODE_POLICIES[self.control.mode_of(name)].records:
            return False
        await self._unload(name)
        return True

    async def prepare(self, name: str, mode: Mode | None = None) -> None:
        await self.load(name, mode or self.control.mode_of(name))

    async def load(self, name: str, mode: Mode) -> CassetteIndex:
        """The cassette, loaded if need be, and claimed where the mode records."""
        async with self.lock(name):
            if (cassette := self.loaded.get(name)) is None:
                cassette = await self._load_anew(name, mode)
        if not len(cassette):
            await self._note_empty(name)
        return cassette

    async def _load_anew(self, name: str, mode: Mode) -> CassetteIndex:
        if not MODE_POLICIES[mode].records:
            await self._watched.note(name)
        stored = await self._rules.load(name, writable=MODE_POLICIES[mode].records)
        if not MODE_POLICIES[mode].records:
            self._read_only.add(name)
        if stored is None:
            self._begun.add(name)
            stored = with_rules(name, StoredCassette(self._context.new_head()), self._context.rules)
        layers = await self.layers(name, stored.head)
        take = self.control.take_of(name)
        cassette = self.loaded[name] = await self._indexed(name, stored, take, layers)
        # Another take may have begun meanwhile.
        self._begin_take(cassette)
        self._context.tallies.setdefault(name, Tally())
        return cassette

    async def _indexed(
        self, name: str, stored: StoredCassette, take: int, layers: Sequence[Layer]
    ) -> CassetteIndex:
        def index() -> CassetteIndex:
            cassette = CassetteIndex(
                name,
                assign_routes(stored, self._context.routes),
                take=take,
                calls_model=calls_model,
                layers=[with_routes(layer, self._context.routes) for layer in layers],
            )
            cassette.index_credentials()
            return cassette

        count = len(stored.interactions) + sum(len(layer.items) for layer in layers)
        return await indexed(count, index)

    async def begin(self, name: str, incoming: Incoming, mode: Mode) -> Search:
        if (cassette := self.loaded.get(name)) is None:
            cassette = await self._load_for(name, mode)
        planner = self._context.planner
        incoming = await planner.with_body_digest(cassette.head, cassette.rules, incoming)
        return Search(name, incoming, mode)

    async def view(self, search: Search) -> View:
        if (cassette := self._held(search)) is None:
            cassette = await self._load_for(search.name, search.mode)
        return View(cassette, search, generation=cassette.generation)

    def holds(self, view: View) -> bool:
        cassette = view.cassette
        return self._held(view.search) is cassette and cassette.generation == view.generation

    async def count_fault(self, name: str, take: int | None, key: bytes, times: int) -> bool:
        if (cassette := self.loaded.get(name)) is None:
            return False
        counts = cassette.running(take).faults
        if counts[key] >= times:
            return False
        counts[key] += 1
        return True

    async def neighbours(
        self, name: str, searched: SearchedCassette, asked: SoughtRequest
    ) -> Sequence[AnyInteraction]:
        """A few recordings that may be nearest; those of a large cassette are put in order first."""
        near, step = searched.neighbours().near, Yielding(BRIEF_S).step
        return await asyncio.to_thread(near, asked, searched.get, step)

    async def begin_with(self, view: View, preset: Rules) -> None:
        cassette = view.cassette
        if cassette.name in self._context.calls:
            # Some calls never end: an agent may listen to a stream.
            self._rules.add_unsaved(cassette, preset)
        else:
            # One that is ejected meanwhile begins anew.
            with suppress(AdminError):
                await self._context.run_to_end(self.change_rules(cassette.name, adding(preset)))

    def _held(self, search: Search) -> CassetteIndex | None:
        """The cassette in use, or the empty stand-in of an unreadable cassette."""
        cassette = self.loaded.get(search.name)
        if cassette is None and not MODE_POLICIES[search.mode].uses_recordings:
            return self._unreadable.get(search.name)
        return cassette

    async def _load_for(self, name: str, mode: Mode) -> CassetteIndex:
        """The cassette, or an empty stand-in where the mode needs no recordings."""
        uses_recordings = MODE_POLICIES[mode].uses_recordings
        if not uses_recordings and (stand_in := self._unreadable.get(name)) is not None:
            return stand_in
        try:
            return await self.load(name, self.control.mode_of(name))
        except StoreError as exc:
            if uses_recordings:
                raise
            log.warning("%s; its requests pass through all the same", exc.message)
            stored = StoredCassette(self._context.new_head())
            stand_in = CassetteIndex(name, stored, take=self.control.take_of(name))
            self._unreadable[name] = stand_in
            return stand_in

    async def note_write(self, live_call: LiveCall) -> None:
        live_call.cassette.count_write(live_call.redacted.route, live_call.take)

    def asking(
        self, live_call: LiveCall, again: DecideAgain
    ) -> AbstractAsyncContextManager[LiveCall | Replay] | None:
        """Claim the cassette where it was loaded for replay. Raises StoreError."""
        if live_call.policy.records and live_call.cassette.name in self._read_only:
            return self._claimed(live_call)
        return None

    async def reserve(self, live_call: LiveCall) -> int:
        return live_call.cassette.reserve()

    @asynccontextmanager
    async def _claimed(self, live_call: LiveCall) -> AsyncIterator[LiveCall | Replay]:
        await self._claim(live_call.cassette.name)
        yield live_call

    def replaces(self, live_call: LiveCall, interaction: Interaction) -> bool:
        """Whether an earlier take may have a recording of the request, under any identifiers."""
        return bool(
            live_call.take.bindings
            or live_call.shows_secrets
            or may_have_references(interaction.request)
            or live_call.cassette.earlier(interaction, live_call.key, live_call.take)
        )

    @asynccontextmanager
    async def going_on(self, live_call: LiveCall, index: int) -> AsyncIterator[None]:
        name, cassette = live_call.cassette.name, live_call.cassette
        async with self._replacing.of(name, live_call.key):
            edits = self._edits_of(name, index)
            if any(edit.closed for edit in edits) or not cassette.may_go_on(index, live_call.take):
                raise recording_edited(name, index)
            place = cassette.place_of(index)
            yield
            # Somebody who has read the part before may have begun to edit it meanwhile.
            for edit in self._edits_of(name, index):
                items = cassette.snapshot()
                edit.index = next(
                    item.index for item in items if cassette.place_of(item.index) == place
                )

    def _edits_of(self, name: str, index: int) -> Sequence[EditedRecording]:
        return [edit for edit in self._edits if (edit.name, edit.index) == (name, index)]

    @contextmanager
    def edited(self, name: str, index: int) -> Iterator[EditedRecording]:
        """Follow a recording inside the block, where it is edited."""
        self._edits.append(edited := EditedRecording(name, index))
        try:
            yield edited
        finally:
            self._edits = [edit for edit in self._edits if edit is not edited]

    @asynccontextmanager
    async def replacing(
        self, live_call: LiveCall, interaction: Interaction
    ) -> AsyncIterator[Latest | None]:
        view = View(
            live_call.cassette, Search(live_call.cassette.name, incoming_of(live_call), "record")
        )

        async def latest() -> View:
            return view

        async with self._replacing.of(live_call.cassette.name, live_call.key):
            yield latest

    async def bind(self, view: View, take: Take, key: bytes, id_map: Mapping[str, str]) -> None:
        take.bindings.bind(id_map)

    async def compared(self, view: View, key: bytes, *, more: bool = False) -> None:
        self._rules.checked(view.cassette, self._context.today())

    async def steer(self, change: Callable[[Control], Control]) -> None:
        self._apply(self._without_unloaded(change(self.control)))

    async def change_rules(self, name: str, change: RuleChange) -> Rules:
        await self.prepare(name)
        async with self._taken_out(name) as (cassette, _):
            await self._rules.change(cassette, change)
            return cassette.rules

    @asynccontextmanager
    async def out_of_use(self, name: str) -> AsyncIterator[OutOfUse]:
        async with self._taken_out(name) as (cassette, out):
            self._rules.end_takes(cassette)
            yield out

    async def settle(self, out: OutOfUse, *, prune: bool) -> None:
        if (cassette := out.cassette) is None:
            return
        if prune and cassette.unused():
            await self.store.save(out.name, pruned(cassette))
        else:
            await self._rules.close(cassette)
        out.cassette = None

    async def recordings(self, name: str, cassette: CassetteIndex | None) -> "ReportedRecordings":
        # Imported here: a server that makes no report starts without.
        from tapeway.engine.report.summary import RecordingsInMemory

        if cassette is None:
            empty = StoredCassette(self._context.new_head())
            cassette = CassetteIndex(name, empty, take=self.control.take_of(name))
        return RecordingsInMemory(cassette)

    async def counts(self) -> list[CassetteCounts]:
        counts: list[CassetteCounts] = []
        for cassette in list(self.loaded.values()):
            counts.append(CassetteCounts(cassette.name, len(cassette), cassette.unused_count()))
            if len(counts) % COUNTED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return counts

    async def read(self, name: str, *, as_stored: bool = False) -> StoredCassette | None:
        if name not in self.loaded and await self.store.stat(name) is None:
            return None
        async with self.lock(name):
            cassette = self.loaded.get(name)
            if cassette is not None and (not as_stored or name in self._read_only):
                return cassette.stored()
            stored = await self.store.load(name, writable=False)
            if cassette is None:
                await self.store.release(name)
            elif stored is not None:
                # The day of a check is written when the cassette is unloaded.
                stored = replace(stored, head=head_checked_like(stored.head, cassette.head))
            return stored

    async def interaction(self, name: str, index: int) -> AnyInteraction | None:
        if (cassette := self.loaded.get(name)) is not None:
            return cassette.get(index)
        stored = await self.read(name)
        items: Iterable[AnyInteraction] = () if stored is None else stored.interactions
        return next((item for item in items if item.index == index), None)

    async def while_claimed(self, name: str, work: Callable[[CassetteIndex], Awaitable[T]]) -> T:
        """Do something to a cassette that is loaded and claimed for writing.

        It is served and recorded to meanwhile, but not unloaded.
        """
        return await self._context.run_to_end(self._while_claimed(name, work))

    async def change(self, name: str, work: Callable[[OutOfUse], Awaitable[T]]) -> T:
        """Change a cassette, loaded or not, while nobody uses it.

        `work` says by `OutOfUse.cassette` which index is loaded afterwards.
        """

        async def changed() -> T:
            async with self.lock(name), self._not_in_use(name) as out:
                return await work(out)

        return await self._context.run_to_end(changed())

    def lock(self, name: str) -> asyncio.Lock:
        """Held while a cassette is loaded or unloaded."""
        return self._locks.of(name, b"")

    async def _forget_empty(self, name: str) -> None:
        """Unload what was asked for long ago and holds nothing."""
        async with self.lock(name):
            cassette = self.loaded.get(name)
            if cassette is None or len(cassette) or self._is_awaited(name):
                return
            del self.loaded[name]
            self._forget(name)
            await self.store.release(name)

    async def _unload(self, name: str) -> None:
        async with self.lock(name):
            if (cassette := self.loaded.pop(name, None)) is None:
                return
            await self._context.calls.ended(name)
            free_later(cassette.parts())
            self._watched.forget(name)
            self._end_take(name)
            await self.store.release(name)
            log.info("cassette '%s' was changed on disk: the next request loads it anew", name)

    async def _claim(self, name: str) -> None:
        await self.store.load(name, writable=True)
        self._watched.forget(name)
        self._read_only.discard(name)
        if (cassette := self.loaded.get(name)) is not None:
            await self._rules.claimed(cassette)

    async def _while_claimed(self, name: str, work: Callable[[CassetteIndex], Awaitable[T]]) -> T:
        while True:
            await self.load(name, "record")
            async with self.lock(name):
                if (cassette := self.loaded.get(name)) is None:
                    continue
                if name in self._read_only:
                    await self._claim(name)
                return await work(cassette)

    @asynccontextmanager
    async def _taken_out(self, name: str) -> AsyncIterator[tuple[CassetteIndex, OutOfUse]]:
        """Take a loaded cassette out of use. Raises AdminError (409) where it is not loaded."""
        async with self.lock(name):
            if (cassette := self.loaded.get(name)) is None:
                raise not_loaded(name)
            async with self._not_in_use(name) as out:
                yield cassette, out

    @asynccontextmanager
    async def _not_in_use(self, name: str) -> AsyncIterator[OutOfUse]:
        """Take a cassette out of use: requests wait for the lock, which the caller holds."""
        cassette = self.loaded.pop(name, None)
        out = OutOfUse(name, cassette)
        try:
            await self._context.calls.ended(name)
            yield out
        finally:
            if out.cassette is not None:
                self.loaded[name] = out.cassette
                self._begin_take(out.cassette)
            else:
                if cassette is not None:
                    self._forget(name)
                    self._end_take(name)
                    free_later(cassette.parts())
                await self.store.release(name)

    def _apply(self, control: Control) -> None:
        super()._apply(control)
        self._unreadable.clear()
        running = {slot.take for slot in control.slots.values()}
        for cassette in self.loaded.values():
            self._begin_take(cassette)
            self._rules.end_takes(cassette, {cassette.take.number, *running})
            cassette.end_slot_takes(running)

    def _begin_take(self, cassette: CassetteIndex) -> None:
        """Have it go on in the take in force."""
        if cassette.take.number != (number := self.control.take_of(cassette.name)):
            self._rules.end_takes(cassette)
            cassette.start_take(number)

    def _end_take(self, name: str) -> None:
        """Note that a cassette was unloaded: what is loaded next is in a new take."""
        self.control = self._without_unloaded(with_take(self.control, name))

    def _without_unloaded(self, control: Control) -> Control:
        return without_takes(control, control.names - self.loaded.keys())

    def _forget(self, name: str) -> None:
        super()._forget(name)
        self._watched.forget(name)
        self._read_only.discard(name)
        self._rules.forget(name)


async def indexed(count: int, work: Callable[[], T]) -> T:
    """The result of work on an index of so many recordings, done in a thread if they are many."""
    # A thread costs more than a small cassette.
    return work() if count <= _INDEXED_AT_ONCE else await asyncio.to_thread(work)


def _is_saved_within(seconds: float, cassette: CassetteIndex) -> bool:
    """Whether there is time to write a cassette anew, at a guess."""
    left = seconds - len(cassette) / _SAVED_PER_S
    # Unreadable recordings are not written either.
    with suppress(StoreError):
        for interaction in () if left == math.inf or left < 0 else cassette.snapshot():
            if (exchange := exchange_of(interaction)) is not None:
                for body in (exchange.request.body, exchange.response.body):
                    left -= (body.count(b"{") + body.count(b"[")) * _SAVED_CONTAINER_S
            if left < 0:
                break
    return left >= 0
