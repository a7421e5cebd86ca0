"""The broker: decides what is done with each request, and steers modes, takes and cassettes.

A request is decided on in the mode in force when it arrived. Where no recording answers, the recorder
asks the live service.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Incoming, LiveCall, Plan, Replay
from tapeway.core.http.routing import RouteTable, on_other_routes
from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.core.matching.rules import NO_RULES, RuleChange, Rules, adding
from tapeway.core.misses.miss import Miss
from tapeway.core.misses.near_names import question
from tapeway.core.model.control import (
    MODE_POLICIES,
    Control,
    Mode,
    Slot,
    with_active,
    with_faults,
    with_mode,
    with_slot,
    with_take,
    without_modes,
    without_slot,
)
from tapeway.core.model.faults import Fault
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.known_values import NOTHING_ALLOWED, Allowed, KnownValues
from tapeway.engine.cassettes.cassettes import Cassettes
from tapeway.engine.cassettes.context import CassetteContext, NewHead, utc_day
from tapeway.engine.cassettes.loaded import Loaded
from tapeway.engine.correlation import Correlation
from tapeway.engine.decision import Planner
from tapeway.engine.hooks import NO_HOOKS, Hooks
from tapeway.engine.journal import RequestJournal, Tally
from tapeway.engine.open_streams import RouteRequests
from tapeway.engine.recorder import Recorder
from tapeway.engine.recording.call import scratch_of
from tapeway.engine.recording.selection import Policy
from tapeway.engine.renamed_calls import for_this_client
from tapeway.engine.report.standards import NO_LIMITS, Standards
from tapeway.engine.single_flight import SingleFlight
from tapeway.engine.store_check import StoreCheck
from tapeway.errors import CassetteEdited, NoRoute, NoSlot, StoreAway, StoreError
from tapeway.ports import CassetteStore, LiveResponder, SharedStore

if TYPE_CHECKING:
    from tapeway.engine.cassettes.followed import Followed
    from tapeway.engine.cassettes.followed_index import FollowedIndex
    from tapeway.engine.editing.editor import Editor
    from tapeway.engine.report.summary import CassetteReport

log = logging.getLogger(__name__)


class Broker:
    """Routes each request to a recording or to the live service. Use it as a context manager.

    `recorder` performs each `LiveCall` that `decide` returns; `editor` changes cassettes while they
    are served; `journal` takes note of each request. `on_eject` gets the report of each cassette
    that is ejected.
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
        allowed: Allowed = NOTHING_ALLOWED,
        rules: Rules = NO_RULES,
        presets: bool = False,
        standards: Standards = NO_LIMITS,
        journal: RequestJournal | None = None,
        today: Callable[[], str] = utc_day,
        faults: tuple[Fault, ...] = (),
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        """`known` are the process's own secrets, and `allowed` says what is none.

        Without a `journal`, requests are only counted. With `presets`, a cassette begins with the
        preset of the client that is recorded. Reports measure by `standards`. `faults` are laid over
        replays. `hooks` are functions of the user.
        """
        self.store = store
        self.hooks = hooks
        self.routes = routes
        self.journal = RequestJournal(0) if journal is None else journal
        self.scratch: str | None = None
        self.on_eject: Callable[[CassetteReport], None] = lambda report: None
        self.redaction = RequestRedaction(known, allowed)
        self.prices = standards.prices
        self.rules = rules
        self._planner = Planner(self.redaction, routes, policy.repeats)
        self._tasks = asyncio.TaskGroup()
        self._calls = SingleFlight(self._tasks)
        self._read_check = StoreCheck(store.url, store.check_reads, self._tasks)
        self._write_check = StoreCheck(store.url, store.check_writes, self._tasks)
        self._fresh: asyncio.Task[None] | None = None
        self._close_within_s = math.inf
        context = CassetteContext(
            routes,
            self._planner,
            Correlation(policy.repeats),
            self._calls,
            self._tasks,
            self.journal,
            new_head,
            rules,
            presets,
            today,
            standards,
        )
        control = Control(mode, cassette, takes=1, since=1, faults=faults)
        self._new_head = new_head
        self._known = KnownValues(known, allowed)
        self.repeats = policy.repeats
        self._context = context
        shared = store.shared
        self.source: Loaded | Followed = (
            Loaded(store, control, context)
            if shared is None
            else _followed(shared, control, context)
        )
        self.in_memory: Mapping[str, CassetteIndex] = self.source.loaded
        """Cassettes that are decided on without waiting, by name."""
        self.cassettes = Cassettes(self.source, context)
        self.recorder = Recorder(
            self.cassettes, self._calls, responder, store, policy, self.redaction, hooks
        )

    @cached_property
    def editor(self) -> "Editor":
        """What changes cassettes while they are served."""
        # Imported here: only the admin API edits, and most servers are never steered.
        if isinstance(source := self.source, Loaded):
            from tapeway.engine.editing.loaded_editor import LoadedEditor

            return LoadedEditor(source, self.store, self._known, self.routes)
        from tapeway.engine.editing.shared_editor import SharedEditor

        return SharedEditor(source, self._known, self._new_head)

    async def __aenter__(self) -> Self:
        await self.source.open()
        self.scratch = scratch_of(self.store)
        await self._tasks.__aenter__()
        self._fresh = self._tasks.create_task(self.source.keep_fresh())
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
            self._read_check.cancel()
            self._write_check.cancel()
            if exc is not None:
                self.cancel()
            # The group only waits here, and would wrap `exc` in a group of exceptions.
            await self._tasks.__aexit__(None, None, None)
        finally:
            await self.source.close(self._close_within_s)

    # Deciding.

    async def confirm(self) -> None:
        """Before a request is decided on: apply what other instances have put in force.

        Raises StoreAway where nobody can know.
        """
        if self.source.shared:
            await self.source.confirm()

    def in_force(
        self, cassette: str | None, slot: str | None = None
    ) -> tuple[str, Mode, int | None]:
        """The cassette and the mode for a request that names a cassette, a slot, or none.

        For a slot also the slot's take. Raises NoSlot.
        """
        control = self.source.control
        if slot is not None:
            target = self.slot(slot)
            return target.cassette, target.mode or control.mode_of(target.cassette), target.take
        name = cassette or control.active
        return name, control.modes.get(name, control.mode), None

    def requests(self, name: str, route: str, take: int | None = None) -> RouteRequests:
        """The requests of a route in a take, by default the cassette's."""
        number = self.source.control.take_of(name) if take is None else take
        return self.recorder.streams.requests(name, number, route)

    def arrival_take(self, name: str, mode: Mode, slot_take: int | None) -> int | None:
        """The take of a request that arrives now: the slot's, or in mode `record` the cassette's.

        Its recording supersedes recordings of earlier takes. None stands for the take in force when
        the request is decided on: loading a cassette begins a take.
        """
        if slot_take is not None or not MODE_POLICIES[mode].replaces:
            return slot_take
        loaded = self.source.shared or name in self.in_memory
        return self.source.control.take_of(name) if loaded else None

    def followed_hits(self, name: str) -> "FollowedIndex | None":
        """The index of a shared store's cassette; None where the store is to be asked first."""
        return None if isinstance(self.source, Loaded) else self.source.hits(name)

    async def decide(self, name: str, incoming: Incoming) -> Plan:
        """What is to be done with a request.

        It is counted as having come. Raises NoRoute where no recording answers and nobody could be
        asked, StoreError for a cassette that cannot be read.
        """
        request = incoming.request
        requests = self.requests(name, request.route, incoming.take)
        try:
            plan = await self._decide_on_newest(name, incoming)
            if isinstance(plan, Replay):
                plan, names = await for_this_client(plan, request)
                requests.names.update(names)
            return plan
        finally:
            # Whoever waits for it knows its names then.
            requests.add(request.method, request.body)

    async def would_replay(self, name: str, incoming: Incoming) -> Replay | None:
        """The recording that would answer a request; nothing counts as having come or as used.

        Raises StoreError.
        """
        try:
            plan = await self._decide_on_newest(name, incoming._replace(only_looks=True))
        except NoRoute:
            return None
        if not isinstance(plan, Replay):
            return None
        return (await for_this_client(plan, incoming.request))[0]

    async def _decide_on_newest(self, name: str, incoming: Incoming) -> Plan:
        try:
            return await self._decide(name, incoming)
        except CassetteEdited:
            if not await self.source.unload_edited(name):
                raise
            return await self._decide(name, incoming)

    async def _decide(self, name: str, incoming: Incoming) -> Plan:
        mode = incoming.mode or self.mode_of(name)
        if incoming.take is None and MODE_POLICIES[mode].replaces:
            incoming = incoming._replace(take=self.arrival_take(name, mode, None))
        plan = await self.cassettes.decide(name, incoming, mode)
        if isinstance(plan, Replay):
            # Read now: a file that was changed in place is noticed here.
            _ = plan.interaction.response
        if isinstance(plan, Replay) or not MODE_POLICIES[mode].replays:
            return plan
        return await self._decide_on_other_routes(name, incoming, mode, plan)

    async def _decide_on_other_routes(
        self, name: str, incoming: Incoming, mode: Mode, plan: LiveCall | Miss
    ) -> Plan:
        """The plan, or the replay of a recording on another route to the same origin."""
        for request in on_other_routes(incoming.request, self.routes):
            elsewhere = Incoming(request, mode=mode, take=incoming.take)
            other = await self.cassettes.decide(name, elsewhere, mode)
            if isinstance(other, Replay):
                return other
            if isinstance(plan, Miss) and not _has_own_route(plan):
                # Only recordings that could have answered count as nearest.
                plan = other
        return plan

    # Steering. What is changed is in force for all requests that arrive after the return.

    @property
    def mode(self) -> Mode:
        """The mode in force for cassettes without a mode."""
        return self.source.control.mode

    @property
    def active(self) -> str:
        """The cassette of requests that name none."""
        return self.source.control.active

    @property
    def takes(self) -> int:
        """How many takes were ever started."""
        return self.source.control.takes

    def mode_of(self, name: str) -> Mode:
        """The mode a request to this cassette is served in."""
        return self.source.control.mode_of(name)

    async def set_mode(
        self, mode: Mode, cassette: str | None = None, *, everywhere: bool = False
    ) -> None:
        """Set the mode of one cassette, or the mode of cassettes without one.

        `everywhere` ends the modes of single cassettes. Earlier requests are served to the end in the
        old mode.
        """

        def changed(now: Control) -> Control:
            after = with_mode(now, mode, cassette)
            return without_modes(after, after.modes) if everywhere else after

        await self.source.steer(changed)

    async def end_own_mode(self, cassette: str) -> None:
        """Have a cassette follow the mode for all again."""
        await self.source.steer(lambda now: without_modes(now, [cassette]))

    async def insert(self, name: str, mode: Mode | None = None) -> None:
        """Make a cassette the active one, in a new take. Raises StoreError if it cannot be read."""
        # In the new mode: a cassette that will be recorded to is claimed now, or not inserted.
        await self.source.prepare(name, mode)
        await self.source.steer(lambda now: with_active(now, name, mode))

    async def only_misses(self, name: str) -> str | None:
        """A warning where a cassette is to be replayed and does not exist. Raises StoreError."""
        if self.mode_of(name) != "replay" or await self.store.stat(name) is not None:
            return None
        meant = await asyncio.to_thread(question, name, await self.store.names())
        return f"there is no cassette '{name}' in {self.store.url}: its requests miss{meant}"

    def slot(self, name: str) -> Slot:
        """Where a slot points. Raises NoSlot."""
        if (target := self.source.control.slots.get(name)) is None:
            raise NoSlot(
                f"slot '{name}' points at no cassette: PUT /api/v1/slots/{name} of the admin API "
                'with {"cassette": NAME} sets it'
            )
        return target

    async def set_slot(
        self,
        name: str,
        cassette: str,
        mode: Mode | None = None,
        rules: Rules = NO_RULES,
        record_command: str | None = None,
        faults: tuple[Fault, ...] = (),
    ) -> None:
        """Point a slot at a cassette, in a new take, and add rules to the cassette.

        `faults` are laid over what is replayed through the slot.

        Without a mode the cassette's own is in force. The first request loads the cassette, and so
        do rules. Raises StoreError, if the rules cannot be added.
        """
        if rules != NO_RULES:
            await self.add_rules(cassette, rules)
        await self.source.steer(
            lambda now: with_slot(
                now, name, cassette, mode, record_command=record_command, faults=faults
            )
        )

    async def remove_slot(self, name: str) -> None:
        """Remove a slot; its cassette stays loaded. Raises NoSlot."""
        self.slot(name)
        await self.source.steer(lambda now: without_slot(now, name))

    async def set_faults(self, faults: tuple[Fault, ...]) -> None:
        """Lay these faults over all replays in place of those before, counted from the beginning."""
        await self.source.steer(lambda now: with_faults(now, faults))

    async def rewind(self, cassette: str | None = None) -> None:
        """Start a new take for one cassette, or for all."""
        await self.source.steer(lambda now: with_take(now, cassette))

    async def eject(self, name: str | None = None, *, prune: bool = False) -> "CassetteReport":
        """Wait for recordings in flight, write the final form, unload the cassette, and report.

        New requests wait meanwhile, and load the cassette anew. Raises AdminError (409) for a cassette
        that is not loaded. Raises StoreError for a cassette that cannot be written; its journal then
        still has the recordings.
        """
        await self.confirm()
        work = self._eject(name or self.active, prune=prune)
        report = await self._context.run_to_end(work)
        self.on_eject(report)
        return report

    async def _eject(self, name: str, *, prune: bool) -> "CassetteReport":
        async with self.source.out_of_use(name) as out:
            report = await self._report(name, out.cassette)
            await self.source.settle(out, prune=prune)
        await self.source.end_take(name)
        return report

    async def add_rules(self, name: str, rules: Rules) -> Rules:
        """Add rules to a cassette; otherwise as `change_rules`."""
        return await self.change_rules(name, adding(rules))

    async def change_rules(self, name: str, change: RuleChange) -> Rules:
        """Change the rules of a cassette, at once and permanently; returns all that are in force.

        Requests that arrive meanwhile wait. Raises StoreError; then nothing has changed.
        """
        return await self._context.run_to_end(self.source.change_rules(name, change))

    async def prepare(self, name: str | None = None) -> None:
        """Load a cassette, by default the active one. Raises StoreError.

        An unreadable cassette causes only a warning where the mode needs no recordings.
        """
        name = name or self.active
        try:
            await self.source.prepare(name)
        except StoreAway:
            raise
        except StoreError as exc:
            if MODE_POLICIES[self.mode_of(name)].uses_recordings:
                raise
            log.warning("%s; its requests pass through all the same", exc.message)

    async def write_error(self, *, record: bool = False) -> StoreError | None:
        """What keeps recordings from being stored; None if nothing does, or nothing is recorded.

        `record` asks for a client that records here in any mode.
        """
        if not (record or self.source.control.records):
            return None
        return await self._write_check.error(self.journal.store_errors)

    async def read_error(self) -> StoreError | None:
        """What makes requests fail in the store, whatever the mode; None if nothing does.

        The store is looked at only after it has failed a request, until a look finds nothing.
        """
        if (trouble := self.store.trouble) is not None:
            return trouble
        failures = self.journal.store_errors
        if self._read_check.passed == failures:
            return None
        return await self._read_check.error(failures)

    async def reports(self) -> "list[CassetteReport]":
        """A report for every loaded cassette, by name."""
        # For a shared store, each cassette named by a request to this instance.
        names = self.journal.tallies if self.source.shared else self.in_memory
        return [await self._report(name, self.in_memory.get(name)) for name in sorted(names)]

    async def _report(self, name: str, cassette: CassetteIndex | None) -> "CassetteReport":
        """The report; without recordings where their file cannot be read any more."""
        # Imported here: a server that makes no report starts without.
        from tapeway.engine.report.summary import report_of

        tally = self.journal.tallies.get(name) or Tally()
        measured = tally, self._context.standards, self._context.today()
        try:
            return await report_of(await self.source.recordings(name, cassette), *measured)
        except StoreError as exc:
            if self.source.shared:
                raise
            log.warning("%s; the report of cassette '%s' names no recordings", exc.message, name)
            return await report_of(await self.source.recordings(name, None), *measured)

    def is_loaded(self, name: str) -> bool:
        """Whether a cassette is loaded: requested or inserted, and not ejected since."""
        return name in self.journal.tallies

    def cassette(self, name: str | None = None) -> CassetteIndex | None:
        """A cassette in memory, by default the active one; None where it is not in memory."""
        return self.in_memory.get(name or self.active)

    # Stopping.

    @property
    def in_flight(self) -> int:
        """How many live calls under way will be recorded."""
        return len(self._calls)

    def recordings_in_flight(self, name: str) -> int:
        """How many live calls of this instance record to a cassette now."""
        return self._calls.count(name)

    async def instances(self) -> Sequence[str]:
        """The instances that share the store; none on a store of one process. Raises StoreError."""
        return () if (shared := self.store.shared) is None else await shared.instances()

    @property
    def draining(self) -> bool:
        return self._calls.draining

    def drain(self) -> None:
        """Start no more live calls; those under way continue."""
        self._calls.drain()

    def close_within(self, seconds: float) -> None:
        """Allow the end of this context so many seconds for final forms; recordings are durable."""
        self._close_within_s = seconds

    def cancel(self) -> None:
        """Cancel the live calls under way; whoever waits for one gets Draining."""
        self._calls.cancel()


def _followed(store: SharedStore, control: Control, context: CassetteContext) -> "Followed":
    # Imported here: most servers have a folder, and start without.
    from tapeway.engine.cassettes.followed import Followed

    return Followed(store, control, context)


def _has_own_route(miss: Miss) -> bool:
    return miss.searched is not None and miss.searched.has_route(miss.request.route)
