"""Where a request meets the cassette and the live service.

A decision (`plan`) is taken at once, in the mode in force when the request came, and without
waiting for anything; the act (`perform`) waits: ask the upstream, take in its whole answer, make
it durable, and only then hand it out. The act belongs to the broker and not to the client, so it
is carried to its end when the client has left.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeVar

from tapeway.core.attempts import Attempt
from tapeway.core.cassette import Cassette
from tapeway.core.credentials import Secret
from tapeway.core.matching import on_route
from tapeway.core.miss import Miss
from tapeway.core.model import CassetteHead, Interaction, StoredCassette
from tapeway.core.modes import RULES, Mode, Outcome
from tapeway.core.plan import Answer, Ask, Incoming, Replay
from tapeway.core.recognition import Recognised, Recogniser
from tapeway.core.routing import DEFAULT, RouteTable, adopt, refuse
from tapeway.core.rules import NONE, Rules
from tapeway.errors import AdminError, StoreError, TapewayError
from tapeway.feed import Feed
from tapeway.keeping import digest_of
from tapeway.live import LiveCall, Policy
from tapeway.ports import BodyKeeper, CassetteStore, LiveAnswer, LiveResponder
from tapeway.report import CassetteReport, Tally, of_cassette
from tapeway.rulebook import Rulebook
from tapeway.second_look import SecondLook
from tapeway.sharing import LiveCalls, Pending, settled

T = TypeVar("T")

NewHead = Callable[[], CassetteHead]
"""Makes the head of a new cassette: its time and its run id."""


class Broker:
    """Routes each request to a recording or to the live service. Use it as a context manager."""

    def __init__(
        self,
        store: CassetteStore,
        responder: LiveResponder,
        *,
        mode: Mode,
        cassette: str,
        routes: RouteTable,
        policy: Policy,
        new_head: NewHead,
        known: Sequence[Secret] = (),
        rules: Rules = NONE,
    ) -> None:
        self.store = store
        self.responder = responder
        self.mode: Mode = mode
        self.active = cassette
        self.routes = routes
        self.policy = policy
        self.takes = 1
        self.counts: Counter[Outcome] = Counter()
        self.scratch: str | None = None
        self._new_head = new_head
        self.recogniser = Recogniser(known)
        self._rulebook = Rulebook(store, rules)
        self._second_look = SecondLook(policy.repeats)
        self._modes: dict[str, Mode] = {}
        self._loaded: dict[str, Cassette] = {}
        self._tallies: dict[str, Tally] = {}
        self._doors: dict[str, asyncio.Lock] = {}
        self._unclaimed: set[str] = set()
        self._tasks = asyncio.TaskGroup()
        self._calls = LiveCalls(self._tasks, self._call)

    async def __aenter__(self) -> Self:
        await self.store.open()
        self.scratch = self.store.scratch if isinstance(self.store, BodyKeeper) else None
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if exc is not None:
                self.cancel()
            # The group only waits here: told of `exc`, it would wrap it in a group of exceptions.
            await self._tasks.__aexit__(None, None, None)
            for cassette in self._loaded.values():
                await self._rulebook.close(cassette)
        finally:
            await self.store.close()

    # The hot path.

    def cassette(self, name: str | None) -> Cassette | None:
        """The named or else the active cassette, if it is loaded."""
        return self._loaded.get(name or self.active)

    async def load(self, name: str | None) -> Cassette:
        """The same, loading it if need be. Raises StoreError for one that cannot be read."""
        name = name or self.active
        return await self._load(name, self.mode_of(name))

    async def digest(self, cassette: Cassette, incoming: Incoming) -> Incoming:
        """What came with what its large body is known by: that is read through in a thread."""
        redactor = self.recogniser.redactor(cassette.head.run_id, incoming.request)
        return incoming._replace(digest=await digest_of(incoming.request, redactor))

    def plan(self, cassette: Cassette, incoming: Incoming) -> Replay | Ask | Miss:
        """Decide. Raises NoRoute where no recording answers and nobody could be asked."""
        request = incoming.request
        rules = RULES[incoming.mode or self.mode_of(cassette.name)]
        known = request if incoming.digest is None else replace(request, file=incoming.digest)
        seen = self.recogniser.recognise(cassette.head.run_id, known, cassette.rules)
        redacted, key, mark = seen.redacted, seen.key, seen.mark
        if rules.replays:
            held = self._held_key(cassette, key, incoming)
            found = cassette.next(
                held, self.policy.repeats, mark, could_ask=rules.asks, asked=redacted
            )
            if found is not None:
                return Replay(cassette, found, redacted.target, held)
            if not rules.asks:
                return self._miss(cassette, seen, held, incoming)
        if not request.base:
            raise refuse(self.routes, redacted.route, redacted.target)
        return Ask(cassette, cassette.take, rules, request, redacted, key, mark)

    async def reconsider(
        self, cassette: Cassette, incoming: Incoming, plan: Ask | Miss
    ) -> Replay | Ask | Miss:
        """The plan, or the replay of a recording that differs in names of identifiers alone.

        Raises NoRoute as `plan` does: that is asked again where the cassette changed meanwhile.
        """
        before = cassette.generation
        seen = await self._second_look.look(cassette, incoming, plan)
        if self._loaded.get(cassette.name) is not cassette or cassette.generation != before:
            cassette = await self.load(cassette.name)
            again = self.plan(cassette, incoming)
            if isinstance(again, Replay):
                return again
            plan = again
        return self._second_look.settle(cassette, plan, seen)

    async def perform(self, ask: Ask) -> Answer:
        """Ask the live service and record what it says, once for all who ask the same now.

        Raises UpstreamError or StoreError; an answer that could not be made durable is not given.
        """
        return await self._calls.join(ask).answer()

    def follow(self, ask: Ask, feed: Feed) -> Pending:
        """The same for who is to have the answer as it comes, unless another one asked first.

        Raises Draining.
        """
        return self._calls.join(ask, feed)

    def relay(self, ask: Ask) -> AbstractAsyncContextManager[LiveAnswer]:
        """The live answer as it comes, nothing recorded."""
        self._calls.refuse_when_draining()
        return self.responder.ask(ask.request)

    def note(
        self,
        outcome: Outcome,
        cassette: str,
        *,
        interaction: Interaction | None = None,
        miss: Miss | None = None,
        attempt: Attempt | None = None,
    ) -> None:
        """Count how a request ended."""
        self.counts[outcome] += 1
        if (tally := self._tallies.get(cassette)) is not None:
            tally.note(outcome, interaction, miss, attempt)

    # Steering.

    def mode_of(self, name: str) -> Mode:
        """The mode a request to this cassette is served in."""
        return self._modes.get(name, self.mode)

    def set_mode(self, mode: Mode, cassette: str | None = None) -> None:
        """Put a mode in force for all cassettes without one of their own, or for one alone.

        Requests that came earlier are served to their end in the mode they came in.
        """
        before = self.mode if cassette is None else self.mode_of(cassette)
        changed = self._switch(mode, cassette)
        if mode != before:
            self._start_take(changed)

    async def insert(self, name: str, mode: Mode | None = None) -> None:
        """Make a cassette the active one, in a new take. Raises StoreError if it cannot be read."""
        # In the mode to come, so that what is to be recorded on is claimed now or not inserted.
        await self._load(name, mode or self.mode_of(name))
        self.active = name
        changed: set[str] = set()
        if mode is not None:
            self._modes.pop(name, None)
            changed = self._switch(mode, None)
        self._start_take({name, *changed})

    def rewind(self, cassette: str | None = None) -> None:
        """Start a new take for one cassette, or for all."""
        self._start_take(self._loaded if cassette is None else [cassette])

    async def eject(self, name: str | None = None, *, prune: bool = False) -> CassetteReport:
        """Wait for its recordings in flight, write its final form, forget it, and report.

        Requests that come meanwhile wait and load it anew. Raises AdminError (409) when it is not
        in, StoreError when it cannot be written; what was recorded is then still in the journal.
        """
        return await self._carry(self._eject(name or self.active, prune=prune))

    async def add_rules(self, name: str, rules: Rules) -> None:
        """Put further rules in force for a cassette, at once and for good.

        Requests that come meanwhile wait. Raises StoreError; then nothing has changed.
        """
        await self.load(name)
        await self._carry(self._add_rules(name, rules))

    def reports(self) -> list[CassetteReport]:
        """A report for every loaded cassette."""
        return [of_cassette(each, self._tallies[each.name]) for each in self._loaded.values()]

    def loaded(self) -> list[Cassette]:
        return list(self._loaded.values())

    async def read(self, name: str) -> StoredCassette | None:
        """What a cassette holds, without bringing it in. Raises StoreError."""
        if name not in self._loaded and await self.store.stat(name) is None:
            return None
        async with self._door(name):
            if (cassette := self._loaded.get(name)) is not None:
                return cassette.stored()
            stored = await self.store.load(name, writable=False)
            await self.store.release(name)
            return stored

    # Stopping.

    @property
    def in_flight(self) -> int:
        """Live calls under way that will be recorded."""
        return len(self._calls)

    @property
    def draining(self) -> bool:
        return self._calls.draining

    def drain(self) -> None:
        """Start no more live calls; those under way go on."""
        self._calls.drain()

    def cancel(self) -> None:
        """Break off the live calls under way; those who wait for them get Draining."""
        self._calls.cancel()

    # How it does it.

    async def _load(self, name: str, mode: Mode) -> Cassette:
        async with self._door(name):
            if (cassette := self._loaded.get(name)) is None:
                stored = await self._rulebook.load(name, writable=RULES[mode].records)
                if not RULES[mode].records:
                    self._unclaimed.add(name)
                if stored is None:
                    stored = self._rulebook.applied(name, StoredCassette(self._new_head()))
                cassette = Cassette(name, adopt(stored, self.routes), take=self.takes)
                self._loaded[name] = cassette
                self._tallies[name] = Tally()
            return cassette

    async def _carry(self, work: Coroutine[None, None, T]) -> T:
        """Done to its end when the caller has left: half ejected, it would be recorded on twice."""
        result = await asyncio.shield(self._tasks.create_task(settled(work)))
        if isinstance(result, TapewayError):
            raise result
        return result

    def _door(self, name: str) -> asyncio.Lock:
        return self._doors.setdefault(name, asyncio.Lock())

    async def _add_rules(self, name: str, rules: Rules) -> None:
        async with self._door(name):
            cassette, takes = self._taken_out(name), self.takes
            try:
                await self._calls.ended(cassette)
                await self._rulebook.add(cassette, rules)
            finally:
                self._loaded[name] = cassette
            if self.takes != takes:
                cassette.start_take(self.takes)

    def _taken_out(self, name: str) -> Cassette:
        """The cassette, which is not in from now on: who asks for it waits at its door."""
        if (cassette := self._loaded.pop(name, None)) is None:
            raise AdminError(
                f"cassette '{name}' is not in: it is loaded by its first request or by insert",
                status=409,
                code="not_inserted",
            )
        return cassette

    async def _eject(self, name: str, *, prune: bool) -> CassetteReport:
        async with self._door(name):
            cassette = self._taken_out(name)
            await self._calls.ended(cassette)
            report = of_cassette(cassette, self._tallies[name])
            try:
                if prune and cassette.unused():
                    await self.store.save(name, cassette.stored(touched_only=True))
                else:
                    await self._rulebook.close(cassette)
            except StoreError:
                # Nothing was written or let go: it is in as before.
                self._loaded[name] = cassette
                raise
            del self._tallies[name]
            self._unclaimed.discard(name)
            self._rulebook.forget(name)
            self.takes += 1
            await self.store.release(name)
            return report

    def _switch(self, mode: Mode, cassette: str | None) -> set[str]:
        """Put a mode in force, and name the loaded cassettes for which that is another one."""
        before = {name: self.mode_of(name) for name in self._loaded}
        if cassette is None:
            self.mode = mode
        else:
            self._modes[cassette] = mode
        return {name for name, was in before.items() if was != self.mode_of(name)}

    def _start_take(self, names: Collection[str]) -> None:
        self.takes += 1
        for name in names:
            if (cassette := self._loaded.get(name)) is not None:
                cassette.start_take(self.takes)

    def _held_key(self, cassette: Cassette, key: bytes, incoming: Incoming) -> bytes:
        """The key to look under: a recording of the default route answers where no other does."""
        if not incoming.guessed or key in cassette:
            return key
        if (default := on_route(key, DEFAULT)) in cassette:
            return default
        if incoming.written is not None:
            request = replace(incoming.request, route=DEFAULT, target=incoming.written)
            default = self.recogniser.recognise(cassette.head.run_id, request, cassette.rules).key
        return default if default in cassette else key

    def _miss(self, cassette: Cassette, seen: Recognised, key: bytes, incoming: Incoming) -> Miss:
        redacted = seen.redacted
        if incoming.guessed and not cassette.has_route(redacted.route):
            if cassette.has_route(DEFAULT):
                # That would answer: which route was guessed is no difference.
                redacted = replace(redacted, route=DEFAULT)
            elif redacted.route == DEFAULT:
                raise refuse(self.routes, redacted.route, redacted.target)
        return Miss(cassette.name, redacted, key, seen.mark, cassette.indexes(key, seen.mark))

    async def _call(self, ask: Ask, feed: Feed | None) -> Answer | TapewayError:
        if ask.rules.records and ask.cassette.name in self._unclaimed:
            # What could not be recorded is not asked for, and not paid for.
            unclaimed = await settled(self._claim(ask.cassette.name))
            if unclaimed is not None:
                return unclaimed
        call = LiveCall(
            *(ask, self.responder, self.store, self.policy, self.recogniser),
            feed,
            self.scratch,
        )
        return await call.run()

    async def _claim(self, name: str) -> None:
        await self.store.load(name, writable=True)
        self._unclaimed.discard(name)
        if (cassette := self._loaded.get(name)) is not None:
            await self._rulebook.claimed(cassette)
