"""Where a request meets the cassettes: what is done with it is decided here, and steered.

A request is decided on in the mode in force when it came. What no recording answers, the recorder
asks the live service.
"""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Incoming, Plan, Replay
from tapeway.core.http.routing import RouteTable
from tapeway.core.matching.key import RequestRedaction
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.control import Control, Mode, with_active, with_mode, with_take
from tapeway.core.model.interaction import AnyInteraction
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.known_values import KnownValues
from tapeway.engine.cassette_context import CassetteContext, CassetteCounts, NewHead
from tapeway.engine.correlation import Correlation
from tapeway.engine.decision import Planner
from tapeway.engine.editing.editor import Editor
from tapeway.engine.editing.shared_editor import SharedEditor
from tapeway.engine.journal import RequestJournal
from tapeway.engine.memory_cassettes import MemoryCassettes
from tapeway.engine.recorder import Policy, Recorder, scratch_of
from tapeway.engine.report import CassetteReport
from tapeway.engine.shared_cassettes import SharedCassettes
from tapeway.engine.single_flight import LiveCalls
from tapeway.ports import CassetteStore, LiveResponder


class Broker:
    """Routes each request to a recording or to the live service. Use it as a context manager.

    `recorder` performs what `decide` leaves to be asked; `editor` changes cassettes meanwhile.
    """

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
        journal: RequestJournal | None = None,
    ) -> None:
        """`known` are secrets of the process; without a `journal`, requests are only counted."""
        self.store = store
        self.routes = routes
        self.journal = RequestJournal(0) if journal is None else journal
        self.scratch: str | None = None
        self.redaction = RequestRedaction(known)
        self._planner = Planner(self.redaction, routes, policy.repeats)
        self._tasks = asyncio.TaskGroup()
        self._calls = LiveCalls(self._tasks)
        self._fresh: asyncio.Task[None] | None = None
        context = CassetteContext(
            routes,
            self._planner,
            Correlation(policy.repeats),
            self._calls,
            self._tasks,
            self.journal.tallies,
            new_head,
            rules,
        )
        control = Control(mode, cassette, takes=1, since=1)
        values = KnownValues(known)
        self.cassettes: MemoryCassettes | SharedCassettes
        self.editor: Editor | SharedEditor
        self._memory: MemoryCassettes | None = None
        if (shared := store.capabilities.shared) is not None:
            cassettes = SharedCassettes(shared, control, context)
            self.cassettes = cassettes
            self.editor = SharedEditor(shared, values, new_head, cassettes.announce)
        else:
            self.cassettes = self._memory = MemoryCassettes(store, control, context)
            self.editor = Editor(self._memory, store, values, routes)
        self.recorder = Recorder(
            self.cassettes, self._calls, responder, store, policy, self.redaction
        )

    async def __aenter__(self) -> Self:
        await self.cassettes.open()
        self.scratch = scratch_of(self.store)
        await self._tasks.__aenter__()
        if self._memory is not None:
            self._fresh = self._tasks.create_task(self._memory.keep_fresh())
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

    # Deciding.

    def in_force(self, cassette: str | None) -> tuple[str, Mode]:
        """The cassette of a request that names this one, or none, and the mode it is served in."""
        control = self.cassettes.control
        name = cassette or control.active
        return name, control.modes.get(name, control.mode)

    async def decide(self, name: str, incoming: Incoming) -> Plan:
        """What is to be done with a request.

        Raises NoRoute where no recording answers and nobody could be asked, StoreError for a
        cassette that cannot be read.
        """
        mode = incoming.mode or self.mode_of(name)
        memory = self._memory
        cassette = None if memory is None else memory.loaded.get(name)
        if memory is None or cassette is None or incoming.request.file is not None:
            return await self.cassettes.decide(name, incoming, mode)
        # What most requests are: one for a cassette in memory is decided on without waiting.
        plan = self._planner.plan(cassette, incoming, mode)
        if isinstance(plan, Replay):
            return plan
        return await memory.reconsider(cassette, incoming, mode, plan)

    # Steering: those instances that have not applied it in time are named.

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
        if self._memory is not None:
            # In the mode to come, so that what is to be recorded on is claimed now or not inserted.
            await self._memory.load(name, mode or self.mode_of(name))
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
        return await self.cassettes.counts()

    def is_in(self, name: str) -> bool:
        """Whether a cassette is in: asked for something, or inserted, and not ejected since."""
        return name in self.journal.tallies

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
