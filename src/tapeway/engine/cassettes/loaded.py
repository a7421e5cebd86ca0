"""Views of cassettes held whole in memory, for stores used by one process at a time."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from tapeway.core.cassette.cursors import Take
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Ask, Incoming, Replay
from tapeway.core.cassette.rerecording import head_checked_like, pruned
from tapeway.core.correlation.unify import may_have_references
from tapeway.core.http.routing import assign_routes
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.miss import Miss
from tapeway.core.misses.nearest import path_of
from tapeway.core.misses.neighbours import sought
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.control import MODE_POLICIES, Control, Mode, with_take, without_takes
from tapeway.core.model.interaction import AnyInteraction, Interaction, exchange_of
from tapeway.core.model.messages import Request
from tapeway.engine.cassettes.context import (
    CassetteContext,
    CassetteCounts,
    CassetteRules,
    KeyedLocks,
    T,
    not_loaded,
    with_rules,
)
from tapeway.engine.cassettes.source import DecideAgain, Latest, Search, View, incoming_of
from tapeway.engine.correlation import CorrelationMatches
from tapeway.engine.journal import EmptyNames, Tally
from tapeway.engine.single_flight import settled
from tapeway.errors import AdminError, StoreError, TapewayError
from tapeway.long_work import free_later
from tapeway.ports import CassetteStore
from tapeway.watching import EVERY_S, Watched

if TYPE_CHECKING:
    from tapeway.engine.report.summary import CassetteReport

log = logging.getLogger(__name__)
_SAVED_PER_S = 5000
"""Recordings of a cassette that are rewritten in a second, at a guess."""

_SAVED_CONTAINER_S = 20e-6
"""How long each object and each list in their bodies takes besides, at a guess."""

_INDEXED_AT_ONCE = 100
"""Recordings that are indexed on the event loop; more in a thread."""
_COUNTED_AT_ONCE = 500
"""The number of cassettes counted before other tasks get a turn."""

Change = Callable[[CassetteIndex | None], Awaitable[tuple[T, CassetteIndex | None]]]


class Loaded:
    """The cassettes of one process: loaded by the first request, unloaded by eject."""

    shared = False

    def __init__(self, store: CassetteStore, control: Control, context: CassetteContext) -> None:
        self.control = control
        self._store = store
        self._context = context
        self._rules = CassetteRules(store, context.rules)
        self.loaded: dict[str, CassetteIndex] = {}
        """Changed by nobody else."""
        self._locks = KeyedLocks()
        self._replacing = KeyedLocks()
        self._empty = EmptyNames()
        self._read_only: set[str] = set()
        self._begun: set[str] = set()
        """Cassettes that were empty when loaded."""
        self._unreadable: dict[str, CassetteIndex] = {}
        """What stands for cassettes that cannot be read, until the mode changes."""
        self._watched = Watched(store)

    async def open(self) -> None:
        await self._store.open()

    async def close(self, within_s: float = math.inf) -> None:
        """Save what the store does not have yet, and close it.

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
            await self._store.close(within_s)

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
        """Unload cassettes that somebody changed after they were loaded for replay.

        Its next request loads it, in a new take. What is recorded on is left as it is: that it was
        changed is warned when it is to be written. Raises StoreError.
        """
        for name in await self._watched.look():
            await self.unload_edited(name)

    async def unload_edited(self, name: str) -> bool:
        """Unload a changed cassette; False if it is being recorded to, or not loaded."""
        if name not in self._read_only or MODE_POLICIES[self.control.mode_of(name)].records:
            return False
        await self._unload(name)
        return True

    def get(self, name: str) -> CassetteIndex | None:
        """A loaded cassette, None where it is not loaded."""
        return self.loaded.get(name)

    async def prepare(self, name: str) -> None:
        """Load the cassette if necessary. Raises StoreError if it cannot be read."""
        await self.load(name, self.control.mode_of(name))

    async def load(self, name: str, mode: Mode) -> CassetteIndex:
        """The cassette, loaded if need be, and claimed where the mode records."""
        cassette = await self._loaded(name, mode)
        if not len(cassette):
            for each in self._empty.add(name):
                await self._forget_empty(each)
        return cassette

    async def _loaded(self, name: str, mode: Mode) -> CassetteIndex:
        async with self.lock(name):
            if (cassette := self.loaded.get(name)) is None:
                cassette = await self._load_anew(name, mode)
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
        take = self.control.take_of(name)
        cassette = self.loaded[name] = await self._indexed(name, stored, take)
        # Another take may have begun meanwhile.
        self._begin_take(cassette)
        self._context.tallies.setdefault(name, Tally())
        return cassette

    async def _indexed(self, name: str, stored: StoredCassette, take: int) -> CassetteIndex:
        def index() -> CassetteIndex:
            return CassetteIndex(name, assign_routes(stored, self._context.routes), take=take)

        # A thread costs more than a small cassette.
        small = len(stored.interactions) <= _INDEXED_AT_ONCE
        return index() if small else await asyncio.to_thread(index)

    async def begin(self, name: str, incoming: Incoming, mode: Mode) -> Search:
        """A search for a request, whose large body is read for it. Raises StoreError."""
        if (cassette := self.loaded.get(name)) is None:
            cassette = await self._load_for(name, mode)
        planner = self._context.planner
        incoming = await planner.with_body_digest(cassette.head, cassette.rules, incoming)
        return Search(name, incoming, mode)

    def turn(self, search: Search) -> AbstractAsyncContextManager[object]:
        """Nothing: requests for the same do not compete for a cassette in memory."""
        return nullcontext()

    def at_hand(self, search: Search) -> None:
        """None: a look at the cassette costs nothing."""

    async def view(self, search: Search) -> View:
        """The cassette, loaded if need be. Raises StoreError."""
        if (cassette := self._held(search)) is None:
            cassette = await self._load_for(search.name, search.mode)
        return View(cassette, search, generation=cassette.generation)

    async def wider(self, view: View) -> View:
        """The same view: it is the whole cassette."""
        return view

    def holds(self, view: View) -> bool:
        """Whether a view still shows the cassette in use."""
        cassette = view.cassette
        return self._held(view.search) is cassette and cassette.generation == view.generation

    async def use(self, view: View, replay: Replay) -> bool:
        """True: the recording counted as used when it was chosen."""
        return True

    async def near(self, view: View, asked: Request) -> View:
        """The same view: it is the whole cassette."""
        return view

    async def alike(self, view: View, asked: Request, *, asks: bool) -> View:
        """The same view: it is the whole cassette."""
        return view

    async def neighbours(self, miss: Miss) -> Sequence[AnyInteraction]:
        """A few recordings that may be nearest; those of a large cassette are put in order first."""
        if (cassette := miss.searched) is None:
            return ()
        asked = sought(miss.request, path_of(miss.request, cassette.rules))
        return await asyncio.to_thread(cassette.neighbours().near, asked, cassette.get)

    async def under(self, view: View, keys: Sequence[bytes]) -> View:
        """The same view: it is the whole cassette."""
        return view

    async def matched(self, view: View, seen: CorrelationMatches) -> View:
        """The same view: it has all cursors."""
        return view

    def has_begun(self, name: str) -> bool:
        """Whether a cassette held nothing when it was loaded."""
        return name in self._begun

    async def begin_with(self, view: View, preset: Rules) -> None:
        """Give a cassette that begins the preset of its client."""
        cassette = view.cassette
        if cassette.name in self._context.calls:
            # Some calls never end, such as a stream that an agent listens to.
            self._rules.add_unsaved(cassette, preset)
        else:
            # One that is ejected meanwhile begins anew.
            with suppress(AdminError):
                await self.add_rules(cassette.name, preset)

    def _held(self, search: Search) -> CassetteIndex | None:
        """The cassette in use; an empty one where it cannot be read and the mode needs none."""
        cassette = self.loaded.get(search.name)
        if cassette is None and not MODE_POLICIES[search.mode].uses_recordings:
            return self._unreadable.get(search.name)
        return cassette

    async def _load_for(self, name: str, mode: Mode) -> CassetteIndex:
        """The cassette; an empty one where it cannot be read and the mode needs none."""
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

    async def note_write(self, ask: Ask) -> None:
        """Count a write that succeeded."""
        ask.cassette.count_write(ask.redacted, ask.take)

    async def let_go(self, ask: Ask) -> None:
        """Nothing is held that others wait for."""

    def asking(
        self, ask: Ask, again: DecideAgain
    ) -> AbstractAsyncContextManager[Ask | Replay] | None:
        """Claim the cassette where it was loaded for replay. Raises StoreError."""
        if ask.policy.records and ask.cassette.name in self._read_only:
            return self._claimed(ask)
        return None

    async def reserve(self, ask: Ask) -> int:
        """The next one."""
        return ask.cassette.reserve()

    @asynccontextmanager
    async def _claimed(self, ask: Ask) -> AsyncIterator[Ask | Replay]:
        await self._claim(ask.cassette.name)
        yield ask

    def replaces(self, ask: Ask, interaction: Interaction) -> bool:
        """Whether an earlier take has anything of a request, under these identifiers or others."""
        return bool(
            ask.take.bindings
            or may_have_references(interaction.request)
            or ask.cassette.earlier(interaction, ask.key, ask.take)
        )

    @asynccontextmanager
    async def replacing(self, ask: Ask, interaction: Interaction) -> AsyncIterator[Latest | None]:
        """Held from comparing a new answer with earlier ones until it is durable."""
        view = View(ask.cassette, Search(ask.cassette.name, incoming_of(ask), "record"))

        async def latest() -> View:
            return view

        async with self._replacing.of(ask.cassette.name, ask.key):
            yield latest

    async def reissued(self, view: View, asked: Request) -> None:
        """Nothing: the take has all bindings."""

    async def load_bindings(self, view: View, seen: CorrelationMatches) -> None:
        """Nothing: the take has all bindings."""

    async def bind(self, view: View, take: Take, key: bytes, id_map: Mapping[str, str]) -> None:
        """Have identifiers of a new answer stand for earlier ones."""
        take.bindings.bind(id_map)

    async def compared(self, view: View, key: bytes, *, more: bool = False) -> None:
        """Note that recordings were compared with new answers today."""
        self._rules.checked(view.cassette, self._context.today())

    async def steer(self, change: Callable[[Control], Control]) -> Sequence[str]:
        """Change what is in force, at once."""
        self._apply(self._without_unloaded(change(self.control)))
        return ()

    async def eject(self, name: str, *, prune: bool) -> "CassetteReport":
        """Wait for recordings in flight, write the final form, forget it, and report."""
        return await self._context.run_to_end(self._eject(name, prune=prune))

    async def add_rules(self, name: str, rules: Rules) -> Rules:
        """Add rules to a cassette; returns all that are in force."""
        await self.prepare(name)
        return await self._context.run_to_end(self._add_rules(name, rules))

    async def reports(self) -> "list[CassetteReport]":
        """A report for every loaded cassette."""
        loaded = list(self.loaded.values())
        return [await self._report_in_thread(each) for each in loaded]

    async def counts(self) -> list[CassetteCounts]:
        found: list[CassetteCounts] = []
        for each in list(self.loaded.values()):
            found.append(CassetteCounts(each.name, len(each), each.unused_count()))
            if len(found) % _COUNTED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return found

    async def read(self, name: str) -> StoredCassette | None:
        """What a cassette holds, without loading it."""
        if name not in self.loaded and await self._store.stat(name) is None:
            return None
        async with self.lock(name):
            if (cassette := self.loaded.get(name)) is not None:
                return cassette.stored()
            stored = await self._store.load(name, writable=False)
            await self._store.release(name)
            return stored

    async def interaction(self, name: str, index: int) -> AnyInteraction | None:
        """One interaction, without loading its cassette."""
        if (cassette := self.loaded.get(name)) is not None:
            return cassette.get(index)
        stored = await self.read(name)
        held: Iterable[AnyInteraction] = () if stored is None else stored.interactions
        return next((each for each in held if each.index == index), None)

    async def while_claimed(self, name: str, work: Callable[[CassetteIndex], Awaitable[T]]) -> T:
        """Do something to a cassette that is loaded and claimed for writing.

        It is served and recorded to meanwhile, but not unloaded.
        """
        return await self._context.run_to_end(self._while_claimed(name, work))

    async def change(self, name: str, work: Change[T]) -> T:
        """Change a cassette, loaded or not, while nobody uses it.

        The returned cassette takes its place; None unloads it, and the next request loads it.
        """
        return await self._context.run_to_end(self._change(name, work))

    async def as_stored(self, name: str) -> StoredCassette | None:
        """What the store holds of a cassette, in the store's order, without loading it."""
        if name not in self.loaded and await self._store.stat(name) is None:
            return None
        async with self.lock(name):
            if name in self._read_only and (cassette := self.loaded.get(name)) is not None:
                return cassette.stored()
            stored = await self._store.load(name, writable=False)
            if (cassette := self.loaded.get(name)) is None:
                await self._store.release(name)
            elif stored is not None:
                # The day of a check is written when the cassette is unloaded.
                stored = replace(stored, head=head_checked_like(stored.head, cassette.head))
            return stored

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
            await self._store.release(name)

    def _is_awaited(self, name: str) -> bool:
        return name == self.control.active or name in self._context.calls

    async def _unload(self, name: str) -> None:
        async with self.lock(name):
            if (cassette := self.loaded.pop(name, None)) is None:
                return
            await self._context.calls.ended(name)
            free_later(cassette.parts())
            self._watched.forget(name)
            self._end_take(name)
            await self._store.release(name)
            log.info("cassette '%s' was changed on disk: the next request loads it anew", name)

    async def _claim(self, name: str) -> None:
        await self._store.load(name, writable=True)
        self._watched.forget(name)
        self._read_only.discard(name)
        if (cassette := self.loaded.get(name)) is not None:
            await self._rules.claimed(cassette)

    async def _add_rules(self, name: str, rules: Rules) -> Rules:
        async with self.lock(name):
            cassette = self._take_out(name)
            try:
                await self._context.calls.ended(name)
                await self._rules.add(cassette, rules)
            finally:
                self.loaded[name] = cassette
            self._begin_take(cassette)
            return cassette.rules

    async def _while_claimed(self, name: str, work: Callable[[CassetteIndex], Awaitable[T]]) -> T:
        while True:
            await self.load(name, "record")
            async with self.lock(name):
                if (cassette := self.loaded.get(name)) is None:
                    continue
                if name in self._read_only:
                    await self._claim(name)
                return await work(cassette)

    async def _change(self, name: str, work: Change[T]) -> T:
        async with self.lock(name):
            left = cassette = self.loaded.pop(name, None)
            try:
                await self._context.calls.ended(name)
                result, left = await work(cassette)
            finally:
                if left is not None:
                    self.loaded[name] = left
                elif cassette is not None:
                    free_later(cassette.parts())
                    self._forget(name)
                    self._end_take(name)
            if left is not None:
                self._begin_take(left)
            return result

    def _apply(self, control: Control) -> None:
        """Have this be in force."""
        self.control = control
        self._unreadable.clear()
        running = {each.take for each in control.slots.values()}
        for cassette in self.loaded.values():
            self._begin_take(cassette)
            self._rules.end_takes(cassette, {cassette.take.number, *running})
            cassette.end_slot_takes(running)
        self._context.calls.streams.end_takes(control)

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

    def _take_out(self, name: str) -> CassetteIndex:
        """The cassette, unloaded from now on: requests for it wait for its lock."""
        if (cassette := self.loaded.pop(name, None)) is None:
            raise not_loaded(name)
        return cassette

    async def _out_of_use(self, name: str) -> None:
        """Wait until nobody uses a cassette that was taken out."""
        await self._context.calls.ended(name)

    async def _report_in_thread(self, cassette: CassetteIndex) -> "CassetteReport":
        """The report; without recordings where these cannot be read in their file any more."""
        try:
            return await asyncio.to_thread(self._report, cassette)
        except StoreError as exc:
            log.warning(
                "%s; the report of cassette '%s' names no recordings", exc.message, cassette.name
            )
            stored = StoredCassette(cassette.head)
            return self._report(CassetteIndex(cassette.name, stored, take=cassette.take.number))

    def _report(self, cassette: CassetteIndex) -> "CassetteReport":
        # Imported here: a server starts without what only its reports need.
        from tapeway.engine.report.summary import report_of_index

        context = self._context
        tally = context.tallies.get(cassette.name) or Tally()
        return report_of_index(cassette, tally, context.standards, context.today())

    async def _eject(self, name: str, *, prune: bool) -> "CassetteReport":
        async with self.lock(name):
            cassette = self._take_out(name)
            await self._out_of_use(name)
            self._rules.end_takes(cassette)
            report = await self._report_in_thread(cassette)
            try:
                if prune and cassette.unused():
                    await self._store.save(name, pruned(cassette))
                else:
                    await self._rules.close(cassette)
            except StoreError:
                # Nothing was written or unloaded: it stays loaded as before.
                self.loaded[name] = cassette
                raise
            self._forget(name)
            self._end_take(name)
            free_later(cassette.parts())
            await self._store.release(name)
            return report

    def _forget(self, name: str) -> None:
        del self._context.tallies[name]
        self._context.calls.streams.forget(name)
        self._watched.forget(name)
        self._read_only.discard(name)
        self._begun.discard(name)
        self._rules.forget(name)


def _is_saved_within(seconds: float, cassette: CassetteIndex) -> bool:
    """Whether there is time to write a cassette anew, at a guess."""
    left = seconds - len(cassette) / _SAVED_PER_S
    # Recordings that cannot be read in their file any more are not written either.
    with suppress(StoreError):
        for each in () if left == math.inf or left < 0 else cassette.snapshot():
            if (exchange := exchange_of(each)) is not None:
                for body in (exchange.request.body, exchange.response.body):
                    left -= (body.count(b"{") + body.count(b"[")) * _SAVED_CONTAINER_S
            if left < 0:
                break
    return left >= 0
