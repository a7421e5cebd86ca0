"""Cassettes held in memory whole: those of a store that one process uses at a time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Answer, Ask, Incoming, Plan, Replay
from tapeway.core.http.routing import assign_routes
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.miss import Miss
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.control import MODE_POLICIES, Control, Mode, with_take
from tapeway.core.model.interaction import AnyInteraction
from tapeway.engine.cassette_context import (
    CassetteContext,
    CassetteCounts,
    CassetteRules,
    T,
    applied,
    not_in,
)
from tapeway.engine.report import CassetteReport, Tally, of_cassette
from tapeway.engine.response_buffer import ResponseReader
from tapeway.engine.single_flight import Live, settled
from tapeway.errors import StoreError, TapewayError
from tapeway.ports import CassetteStore
from tapeway.watching import EVERY_S, Watched

log = logging.getLogger(__name__)
Change = Callable[[CassetteIndex | None], Awaitable[tuple[T, CassetteIndex | None]]]


class LoadedCassettes:
    """The cassettes of one process, each loaded by its first request and let go when ejected."""

    def __init__(self, store: CassetteStore, control: Control, desk: CassetteContext) -> None:
        self.control = control
        self._store = store
        self._desk = desk
        self._rulebook = CassetteRules(store, desk.rules)
        self._loaded: dict[str, CassetteIndex] = {}
        self._doors: dict[str, asyncio.Lock] = {}
        self._unclaimed: set[str] = set()
        self._watched = Watched(store)

    async def open(self) -> None:
        await self._store.open()

    async def close(self) -> None:
        """Save what the store does not know of yet, and close it."""
        try:
            for cassette in self._loaded.values():
                await self._rulebook.close(cassette)
        finally:
            await self._store.close()

    async def keep_fresh(self) -> None:
        """Refresh again and again, until it is cancelled."""
        told: str | None = None
        while True:
            await asyncio.sleep(EVERY_S)
            trouble = await settled(self.refresh())
            said = trouble.message if isinstance(trouble, TapewayError) else None
            if said is not None and said != told:
                log.warning("whether cassettes were changed cannot be seen: %s", said)
            told = said

    async def refresh(self) -> None:
        """Let go of what somebody has changed since it was loaded for replay.

        Its next request loads it, in a new take. What is recorded on is left as it is: that it was
        changed is told when it is to be written. Raises StoreError.
        """
        for name in await self._watched.look():
            if name in self._unclaimed and not MODE_POLICIES[self.control.mode_of(name)].records:
                await self._let_go(name)

    def get(self, name: str) -> CassetteIndex | None:
        """A cassette that is in."""
        return self._loaded.get(name)

    async def prepare(self, name: str) -> None:
        """Have it in. Raises StoreError for one that cannot be read."""
        await self.load(name, self.control.mode_of(name))

    async def load(self, name: str, mode: Mode) -> CassetteIndex:
        """The cassette, loaded if need be, and claimed where the mode records."""
        async with self.door(name):
            if (cassette := self._loaded.get(name)) is None:
                if not MODE_POLICIES[mode].records:
                    await self._watched.note(name)
                stored = await self._rulebook.load(name, writable=MODE_POLICIES[mode].records)
                if not MODE_POLICIES[mode].records:
                    self._unclaimed.add(name)
                if stored is None:
                    stored = applied(name, StoredCassette(self._desk.new_head()), self._desk.rules)
                take = self.control.take_of(name)
                cassette = CassetteIndex(name, assign_routes(stored, self._desk.routes), take=take)
                self._loaded[name] = cassette
                self._desk.tallies.setdefault(name, Tally())
            return cassette

    async def decide(self, name: str, incoming: Incoming, mode: Mode) -> tuple[CassetteIndex, Plan]:
        """What is to be done, and the cassette it was decided on. Raises NoRoute, StoreError."""
        cassette = self._loaded.get(name)
        if cassette is None:
            cassette = await self.load(name, self.control.mode_of(name))
        if incoming.request.file is not None:
            incoming = await self._desk.planner.digested(cassette.head, incoming)
        plan = self._desk.planner.plan(cassette, incoming, mode)
        if isinstance(plan, Replay):
            return cassette, plan
        return await self.reconsider(cassette, incoming, mode, plan)

    async def reconsider(
        self, cassette: CassetteIndex, incoming: Incoming, mode: Mode, plan: Ask | Miss
    ) -> tuple[CassetteIndex, Plan]:
        """The plan, or the replay of a recording that differs in names of identifiers alone."""
        look, before = self._desk.second_look, cassette.generation
        seen = await look.look(cassette, incoming, plan)
        if self._loaded.get(cassette.name) is not cassette or cassette.generation != before:
            cassette = await self.load(cassette.name, self.control.mode_of(cassette.name))
            again = self._desk.planner.plan(cassette, incoming, mode)
            if isinstance(again, Replay):
                return cassette, again
            plan = again
        return cassette, look.settle(cassette, plan, seen)

    async def call(
        self, ask: Ask, feed: ResponseReader | None, live: Live
    ) -> Answer | TapewayError:
        """The live call; what could not be recorded is not asked for, and not paid for."""
        name = ask.cassette.name
        if ask.policy.records and name in self._unclaimed:
            await self._claim(name)
        return await live(ask, feed)

    async def steer(self, change: Callable[[Control], Control]) -> Sequence[str]:
        """Change what is in force, at once."""
        self.control = change(self.control)
        for name, cassette in self._loaded.items():
            if cassette.take.number != (number := self.control.take_of(name)):
                cassette.start_take(number)
        return ()

    async def eject(self, name: str, *, prune: bool) -> CassetteReport:
        """Wait for recordings in flight, write the final form, forget it, and report."""
        return await self._desk.carry(self._eject(name, prune=prune))

    async def add_rules(self, name: str, rules: Rules) -> Rules:
        """Put further rules in force for a cassette, and tell all that are."""
        await self.prepare(name)
        return await self._desk.carry(self._add_rules(name, rules))

    async def reports(self) -> list[CassetteReport]:
        """A report for every loaded cassette."""
        return [of_cassette(each, self._desk.tallies[each.name]) for each in self._loaded.values()]

    async def loaded(self) -> list[CassetteCounts]:
        return [
            CassetteCounts(each.name, len(each), each.unused_count())
            for each in self._loaded.values()
        ]

    async def read(self, name: str) -> StoredCassette | None:
        """What a cassette holds, without bringing it in."""
        if name not in self._loaded and await self._store.stat(name) is None:
            return None
        async with self.door(name):
            if (cassette := self._loaded.get(name)) is not None:
                return cassette.stored()
            stored = await self._store.load(name, writable=False)
            await self._store.release(name)
            return stored

    async def interaction(self, name: str, index: int) -> AnyInteraction | None:
        """One interaction, without bringing its cassette in."""
        if (cassette := self._loaded.get(name)) is not None:
            return cassette.get(index)
        stored = await self.read(name)
        held: Iterable[AnyInteraction] = () if stored is None else stored.interactions
        return next((each for each in held if each.index == index), None)

    async def alongside(self, name: str, work: Callable[[CassetteIndex], Awaitable[T]]) -> T:
        """Do something to a cassette that is claimed, and brought in if need be.

        It is served and recorded on meanwhile, but not let go.
        """
        return await self._desk.carry(self._alongside(name, work))

    async def change(self, name: str, work: Change[T]) -> T:
        """Do something to a cassette, in or not, that nobody uses meanwhile.

        It goes on as the one that comes back; None lets it go, and its next request loads it.
        """
        return await self._desk.carry(self._change(name, work))

    async def original(self, name: str) -> StoredCassette | None:
        """What the store holds of a cassette, in the order it keeps, without bringing it in."""
        if name not in self._loaded and await self._store.stat(name) is None:
            return None
        async with self.door(name):
            if name in self._unclaimed and (cassette := self._loaded.get(name)) is not None:
                return cassette.stored()
            stored = await self._store.load(name, writable=False)
            if name not in self._loaded:
                await self._store.release(name)
            return stored

    def door(self, name: str) -> asyncio.Lock:
        """Held while a cassette comes in or goes out."""
        return self._doors.setdefault(name, asyncio.Lock())

    async def _let_go(self, name: str) -> None:
        async with self.door(name):
            if self._loaded.pop(name, None) is None:
                return
            await self._desk.calls.ended(name)
            self._watched.forget(name)
            self.control = with_take(self.control, name)
            await self._store.release(name)
            log.info("cassette '%s' was changed: its next request loads it anew", name)

    async def _claim(self, name: str) -> None:
        await self._store.load(name, writable=True)
        self._watched.forget(name)
        self._unclaimed.discard(name)
        if (cassette := self._loaded.get(name)) is not None:
            await self._rulebook.claimed(cassette)

    async def _add_rules(self, name: str, rules: Rules) -> Rules:
        async with self.door(name):
            cassette = self._taken_out(name)
            try:
                await self._desk.calls.ended(name)
                await self._rulebook.add(cassette, rules)
            finally:
                self._loaded[name] = cassette
            if cassette.take.number != (number := self.control.take_of(name)):
                cassette.start_take(number)
            return cassette.rules

    async def _alongside(self, name: str, work: Callable[[CassetteIndex], Awaitable[T]]) -> T:
        while True:
            await self.load(name, "record")
            async with self.door(name):
                if (cassette := self._loaded.get(name)) is None:
                    continue
                if name in self._unclaimed:
                    await self._claim(name)
                return await work(cassette)

    async def _change(self, name: str, work: Change[T]) -> T:
        async with self.door(name):
            left = cassette = self._loaded.pop(name, None)
            try:
                await self._desk.calls.ended(name)
                result, left = await work(cassette)
            finally:
                if left is not None:
                    self._loaded[name] = left
                elif cassette is not None:
                    self._forget(name)
            if left is not None and left.take.number != (number := self.control.take_of(name)):
                left.start_take(number)
            return result

    def _taken_out(self, name: str) -> CassetteIndex:
        """The cassette, which is not in from now on: who asks for it waits at its door."""
        if (cassette := self._loaded.pop(name, None)) is None:
            raise not_in(name)
        return cassette

    async def _eject(self, name: str, *, prune: bool) -> CassetteReport:
        async with self.door(name):
            cassette = self._taken_out(name)
            await self._desk.calls.ended(name)
            report = of_cassette(cassette, self._desk.tallies[name])
            try:
                if prune and cassette.unused():
                    await self._store.save(name, cassette.stored(touched_only=True))
                else:
                    await self._rulebook.close(cassette)
            except StoreError:
                # Nothing was written or let go: it is in as before.
                self._loaded[name] = cassette
                raise
            self._forget(name)
            await self._store.release(name)
            return report

    def _forget(self, name: str) -> None:
        del self._desk.tallies[name]
        self._watched.forget(name)
        self._unclaimed.discard(name)
        self._rulebook.forget(name)
        self.control = with_take(self.control, name)
