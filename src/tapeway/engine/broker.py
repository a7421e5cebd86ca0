"""Where a request meets the cassette and the live service.

A decision (`decide`) is taken in the mode in force when the request came; the act (`perform`)
waits: ask the upstream, take in its whole answer, make it durable, and only then hand it out. The
act belongs to the broker and not to the client, so it is carried to its end when the client has
left.

The editor for the cassettes there are.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Answer, Ask, Incoming, Plan
from tapeway.core.http.routing import RouteTable
from tapeway.core.http.sdk_conventions import Attempt
from tapeway.core.matching.key import RequestRedaction
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.misses.miss import Miss
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.control import Control, Mode, Outcome, with_active, with_mode, with_take
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.known_values import KnownValues
from tapeway.engine.cassette_context import CassetteContext, CassetteCounts, NewHead
from tapeway.engine.correlation import Correlation
from tapeway.engine.decision import Planner
from tapeway.engine.editing.editor import Editor
from tapeway.engine.editing.shared_editor import SharedEditor
from tapeway.engine.memory_cassettes import LoadedCassettes
from tapeway.engine.recorder import LiveCall, Policy
from tapeway.engine.report import CassetteReport, Noted, Tally
from tapeway.engine.response_buffer import ResponseReader
from tapeway.engine.shared_cassettes import SharedCassettes
from tapeway.engine.single_flight import LiveCalls, Pending, settled
from tapeway.errors import TapewayError
from tapeway.ports import CassetteStore, LiveAnswer, LiveResponder

AnyEditor = Editor | SharedEditor


def editor_of(
    cassettes: LoadedCassettes | SharedCassettes,
    store: CassetteStore,
    known: KnownValues,
    routes: RouteTable,
    new_head: NewHead,
) -> AnyEditor:
    """The one for cassettes that are in memory, or for those of a shared store."""
    shared = store.capabilities.shared
    if isinstance(cassettes, SharedCassettes) and shared is not None:
        return SharedEditor(shared, known, new_head, lambda: cassettes.steer(lambda now: now))
    if isinstance(cassettes, LoadedCassettes):
        return Editor(cassettes, store, known, routes)
    raise TypeError("a store and what is made of it are of two kinds")


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
        rules: Rules = NO_RULES,
        witness: Callable[[Noted], None] | None = None,
    ) -> None:
        """`witness` is told how each request ended, where counts are kept elsewhere."""
        self.store = store
        self.responder = responder
        self.routes = routes
        self.policy = policy
        self.counts: Counter[Outcome] = Counter()
        self.scratch: str | None = None
        self.redaction = RequestRedaction(known)
        self._witness = witness
        self._tallies: dict[str, Tally] = {}
        self._tasks = asyncio.TaskGroup()
        self._fresh: asyncio.Task[None] | None = None
        self._calls = LiveCalls(self._tasks, self._call)
        desk = CassetteContext(
            routes,
            Planner(self.redaction, routes, policy.repeats),
            Correlation(policy.repeats),
            self._calls,
            self._tasks,
            self._tallies,
            new_head,
            rules,
        )
        control = Control(mode, cassette, takes=1, since=1)
        self.cassettes: LoadedCassettes | SharedCassettes
        if (shared := store.capabilities.shared) is not None:
            self.cassettes = SharedCassettes(shared, control, desk)
        else:
            self.cassettes = LoadedCassettes(store, control, desk)
        self.editor = editor_of(self.cassettes, store, KnownValues(known), routes, new_head)

    async def __aenter__(self) -> Self:
        await self.cassettes.open()
        bodies = self.store.capabilities.bodies
        self.scratch = None if bodies is None else bodies.scratch
        await self._tasks.__aenter__()
        if isinstance(self.cassettes, LoadedCassettes):
            self._fresh = self._tasks.create_task(self.cassettes.keep_fresh())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._fresh is not None:
                self._fresh.cancel()
            if exc is not None:
                self.cancel()
            # The group only waits here: told of `exc`, it would wrap it in a group of exceptions.
            await self._tasks.__aexit__(None, None, None)
        finally:
            await self.cassettes.close()

    # The hot path.

    def decide(self, name: str, incoming: Incoming) -> Awaitable[tuple[CassetteIndex, Plan]]:
        """What is to be done with a request, and the cassette, or part of one, that was decided on.

        Raises NoRoute where no recording answers and nobody could be asked, StoreError for a
        cassette that cannot be read.
        """
        mode = incoming.mode or self.mode_of(name)
        return self.cassettes.decide(name, incoming, mode)

    async def perform(self, ask: Ask) -> Answer:
        """Ask the live service and record what it says, once for all who ask the same now.

        Raises UpstreamError or StoreError; an answer that could not be made durable is not given.
        """
        return await self._calls.join(ask).answer()

    def follow(self, ask: Ask, feed: ResponseReader) -> Pending:
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
        if self._witness is not None:
            self._witness(Noted.of(outcome, cassette, interaction, miss, attempt))
            return
        self.counts[outcome] += 1
        if (tally := self._tallies.get(cassette)) is not None:
            tally.note(outcome, interaction, miss, attempt)

    def count(self, noted: Noted) -> None:
        """Count what another process of ours served; its cassette is in from then on."""
        self.counts[noted.outcome] += 1
        self._tallies.setdefault(noted.cassette, Tally()).count(noted)

    # Steering. What others have not applied in time is named; on its own, a process applies at once.

    @property
    def mode(self) -> Mode:
        """The mode in force for cassettes without one of their own."""
        return self.cassettes.control.mode

    @property
    def active(self) -> str:
        """The cassette of requests that name none."""
        return self.cassettes.control.active

    @property
    def takes(self) -> int:
        """Takes ever started."""
        return self.cassettes.control.takes

    def mode_of(self, name: str) -> Mode:
        """The mode a request to this cassette is served in."""
        return self.cassettes.control.mode_of(name)

    async def set_mode(self, mode: Mode, cassette: str | None = None) -> Sequence[str]:
        """Put a mode in force for all cassettes without one of their own, or for one alone.

        Requests that came earlier are served to their end in the mode they came in.
        """
        return await self.cassettes.steer(lambda now: with_mode(now, mode, cassette))

    async def insert(self, name: str, mode: Mode | None = None) -> Sequence[str]:
        """Make a cassette the active one, in a new take. Raises StoreError if it cannot be read."""
        if isinstance(self.cassettes, LoadedCassettes):
            # In the mode to come, so that what is to be recorded on is claimed now or not inserted.
            await self.cassettes.load(name, mode or self.mode_of(name))
        else:
            await self.cassettes.prepare(name)
        return await self.cassettes.steer(lambda now: with_active(now, name, mode))

    async def rewind(self, cassette: str | None = None) -> Sequence[str]:
        """Start a new take for one cassette, or for all."""
        return await self.cassettes.steer(lambda now: with_take(now, cassette))

    async def eject(self, name: str | None = None, *, prune: bool = False) -> CassetteReport:
        """Wait for its recordings in flight, write its final form, forget it, and report.

        Requests that come meanwhile wait and load it anew. Raises AdminError (409) when it is not
        in, StoreError when it cannot be written; what was recorded is then still in the journal.
        """
        return await self.cassettes.eject(name or self.active, prune=prune)

    async def add_rules(self, name: str, rules: Rules) -> Rules:
        """Put further rules in force for a cassette, at once and for good, and tell all that are.

        Requests that come meanwhile wait. Raises StoreError; then nothing has changed.
        """
        return await self.cassettes.add_rules(name, rules)

    async def prepare(self, name: str | None = None) -> None:
        """Have the named or else the active cassette in. Raises StoreError."""
        await self.cassettes.prepare(name or self.active)

    async def reports(self) -> list[CassetteReport]:
        """A report for every cassette that is in."""
        return await self.cassettes.reports()

    async def loaded(self) -> list[CassetteCounts]:
        """The cassettes that are in."""
        return await self.cassettes.loaded()

    def is_in(self, name: str) -> bool:
        """Whether a cassette is in: asked for something, or inserted, and not ejected since."""
        return name in self._tallies

    def cassette(self, name: str | None = None) -> CassetteIndex | None:
        """The named or else the active cassette, if it is in memory."""
        return self.cassettes.get(name or self.active)

    async def read(self, name: str) -> StoredCassette | None:
        """What a cassette holds, without bringing it in. Raises StoreError."""
        return await self.cassettes.read(name)

    async def interaction(self, name: str, index: int) -> AnyInteraction | None:
        """One interaction of a cassette, without bringing that in. Raises StoreError."""
        return await self.cassettes.interaction(name, index)

    # Stopping.

    @property
    def in_flight(self) -> int:
        """Live calls under way that will be recorded."""
        return len(self._calls)

    async def quiet(self, name: str) -> None:
        """Return when no live call under way records on this cassette."""
        await self._calls.ended(name)

    @property
    def draining(self) -> bool:
        return self._calls.draining

    def drain(self) -> None:
        """Start no more live calls; those under way go on."""
        self._calls.drain()

    def cancel(self) -> None:
        """Break off the live calls under way; those who wait for them get Draining."""
        self._calls.cancel()

    async def _call(self, ask: Ask, feed: ResponseReader | None) -> Answer | TapewayError:
        return await settled(self.cassettes.call(ask, feed, self._live))

    async def _live(self, ask: Ask, feed: ResponseReader | None) -> Answer | TapewayError:
        call = LiveCall(
            *(ask, self.responder, self.store, self.policy, self.redaction),
            feed,
            self.scratch,
        )
        return await call.run()
