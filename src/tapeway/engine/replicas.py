"""Cassettes of a folder that several processes replay, each from memory: one primary, and replicas.

A request that has one recording gets it whatever was asked before: a replica answers it by itself,
and tells the primary that the recording is used. All else depends on the order of the requests, or
on what others were given: repeats, identifiers under other names, AgentTape's keys, misses. That the
primary decides, as it would in a process of its own, and the replica answers.

Nothing is recorded: two processes cannot write to one folder.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

from tapeway.core.cassette.cursors import NotedTake
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Incoming, Plan, Replay
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.miss import Miss
from tapeway.core.model.control import MODE_POLICIES, Control, Mode
from tapeway.core.model.interaction import Interaction, exchange_of
from tapeway.engine.cassette_context import CassetteContext, T
from tapeway.engine.decision import is_large
from tapeway.engine.memory_cassettes import Change, MemoryCassettes
from tapeway.errors import AdminError, StoreAway
from tapeway.long_work import free_later
from tapeway.ports import CassetteStore

if TYPE_CHECKING:
    from tapeway.engine.report.summary import CassetteReport

_TRIES = 100
_RETRY_S = 0.1
"""A file that changes is loaded anew by all once it has been the same for a second or two."""


class Copy(NamedTuple):
    """What the primary has loaded: a number of its own, and the mark of what was read."""

    number: int
    mark: str | None


class Decision(NamedTuple):
    """What is to be done with a request, as the primary sends it.

    `recording` is the index of the one that answers, in the copy of this number. `interaction` is
    set where the answer was made for this request.
    """

    number: int
    key: bytes = b""
    target: str = ""
    recording: int = -1
    interaction: Interaction | None = None
    note: str | None = None
    miss: Miss | None = None


class Primary(Protocol):
    """The primary, as a replica sees it. What awaits an answer raises StoreAway once it is gone."""

    async def join(
        self, apply: Callable[[Control], None], forget: Callable[[str], None]
    ) -> Control:
        """Returns what is in force; `apply` gets every later change, `forget` what was unloaded."""

    async def load(self, name: str) -> Copy:
        """Load a cassette. Raises StoreError."""

    async def decide(self, name: str, incoming: Incoming, mode: Mode) -> Decision:
        """Decide on a request. Raises what `MemoryCassettes.decide` does."""

    def note_use(self, copy: int, own: int, take: int, index: int) -> None:
        """Tell of a recording's first use in a take; `own` is the take of its cassette."""


class Replicas(Protocol):
    """All replicas, as the primary sees them. What they used before is noted once they have done it."""

    async def apply(self, control: Control) -> Sequence[str]:
        """Have this be in force on all; returns the names of those that have not done it in time."""

    async def forget(self, name: str) -> None:
        """Have all unload a cassette."""


class PrimaryCassettes(MemoryCassettes):
    """The cassettes of the process that decides for all."""

    def __init__(
        self, store: CassetteStore, control: Control, context: CassetteContext, replicas: Replicas
    ) -> None:
        super().__init__(store, control, context)
        self._replicas = replicas
        self._count = itertools.count(1)
        self._number_of: WeakKeyDictionary[CassetteIndex, int] = WeakKeyDictionary()
        self._numbered: WeakValueDictionary[int, CassetteIndex] = WeakValueDictionary()

    # What replicas ask.

    async def copy(self, name: str) -> Copy:
        """Load a cassette. Raises StoreError."""
        return Copy(self._number(await self.load(name, "replay")), self._watched.mark(name))

    async def decision(self, name: str, incoming: Incoming, mode: Mode) -> Decision:
        """Decide on a request. Raises what `decide` does."""
        plan = await self.decide(name, incoming, mode)
        if isinstance(plan, Replay):
            held = plan.interaction
            return Decision(
                *(self._number(plan.cassette), plan.key, plan.target, held.index),
                interaction=held if held.stored_keys else None,
                note=plan.note,
            )
        if isinstance(plan, Miss) and isinstance(plan.searched, CassetteIndex):
            return Decision(self._number(plan.searched), miss=replace(plan, searched=None))
        raise ValueError(f"no replica asks what to do in mode {mode}")

    def note_use(self, copy: int, own: int, take: int, index: int) -> None:
        """Count a recording as used, unless its cassette or its take has ended."""
        cassette = self._numbered.get(copy)
        if cassette is not None and cassette.take.number == own:
            with cassette.in_take(take):
                cassette.touch(index, cassette.take)

    def _number(self, cassette: CassetteIndex) -> int:
        if (number := self._number_of.get(cassette)) is None:
            number = self._number_of[cassette] = next(self._count)
            self._numbered[number] = cassette
        return number

    # What changes for all.

    async def load(self, name: str, mode: Mode) -> CassetteIndex:
        if MODE_POLICIES[mode].records:
            raise _writes_nothing()
        return await super().load(name, mode)

    async def steer(self, change: Callable[[Control], Control]) -> Sequence[str]:
        await super().steer(lambda now: _without_recording(change(now)))
        return await self._replicas.apply(self.control)

    async def _out_of_use(self, name: str) -> None:
        await super()._out_of_use(name)
        await self._replicas.forget(name)

    async def _unload(self, name: str) -> None:
        await super()._unload(name)
        await self._replicas.forget(name)
        await self._replicas.apply(self.control)

    async def eject(self, name: str, *, prune: bool) -> "CassetteReport":
        if prune:
            raise _writes_nothing()
        report = await super().eject(name, prune=False)
        return replace(report, laggards=tuple(await self._replicas.apply(self.control)))

    # What would write.

    async def add_rules(self, name: str, rules: Rules) -> Rules:
        raise _writes_nothing()

    async def while_claimed(self, name: str, work: Callable[[CassetteIndex], Awaitable[T]]) -> T:
        raise _writes_nothing()

    async def change(self, name: str, work: Change[T]) -> T:
        raise _writes_nothing()


class ReplicaCassettes(MemoryCassettes):
    """The cassettes of a process that answers."""

    def __init__(
        self, store: CassetteStore, control: Control, context: CassetteContext, primary: Primary
    ) -> None:
        super().__init__(store, control, context)
        self._primary = primary
        self._numbers: dict[str, int] = {}
        self._loading: set[str] = set()

    async def open(self) -> None:
        await super().open()
        self.control = await self._primary.join(self._apply, self._drop)

    async def decide(self, name: str, incoming: Incoming, mode: Mode) -> Plan:
        if not MODE_POLICIES[mode].replays:
            return await super().decide(name, incoming, mode)
        planner = self._context.planner
        for _ in range(_TRIES):
            cassette = await self.load(name, mode)
            if is_large(incoming.request):
                incoming = await planner.with_body_digest(cassette.head, cassette.rules, incoming)
            if (replay := planner.replay_only(cassette, incoming)) is not None:
                return replay
            found = await self._primary.decide(name, _to_send(incoming), mode)
            if (plan := await self._plan(name, found)) is not None:
                return plan
            await asyncio.sleep(_RETRY_S)
        raise _changing(name)

    async def _plan(self, name: str, found: Decision) -> Plan | None:
        """The plan that was decided on; None where its cassette is not there any more."""
        if self._numbers.get(name, 0) < found.number:
            self._drop(name)
        cassette = await self.load(name, "replay")
        if self._numbers.get(name) != found.number:
            return None
        if found.miss is not None:
            return replace(found.miss, searched=cassette)
        interaction, item = found.interaction, cassette.get(found.recording)
        if (
            interaction is None
            and item is not None
            and found.recording in cassette.indexes(found.key)
        ):
            interaction = exchange_of(item)
        if interaction is None:
            # The file was written while one of the two read it: it will be loaded anew.
            return None
        return Replay(cassette, interaction, found.target, found.key, found.note)

    async def _load_anew(self, name: str, mode: Mode) -> CassetteIndex:
        """Load what the primary has loaded."""
        for _ in range(_TRIES):
            self._loading.add(name)
            number, mark = await self._primary.load(name)
            cassette = await super()._load_anew(name, "replay")
            if name in self._loading and self._watched.mark(name) == mark:
                own = cassette.take.number
                note = partial(self._primary.note_use, number)
                cassette.take = NotedTake(own, own=own, note=note)
                self._numbers[name] = number
                await self._store.release(name)
                return cassette
            self._drop(name)
            await asyncio.sleep(_RETRY_S)
        raise _changing(name)

    def _drop(self, name: str) -> None:
        """Forget a cassette: the next request loads it anew."""
        self._loading.discard(name)
        if (cassette := self.loaded.pop(name, None)) is not None:
            free_later(cassette.parts())
            self._forget(name)

    def _forget(self, name: str) -> None:
        super()._forget(name)
        self._numbers.pop(name, None)


def _to_send(incoming: Incoming) -> Incoming:
    """The request without what was computed of it here, and without what opens a large body."""
    if (large := incoming.large_body) is not None:
        request = replace(incoming.request, file=large.sent)
        incoming = incoming._replace(request=request)
    return incoming._replace(large=None)


def _without_recording(control: Control) -> Control:
    if control.records:
        raise _writes_nothing()
    return control


def _writes_nothing() -> AdminError:
    return AdminError(
        "several workers replay from one folder and write nothing to it: use --workers 1, or a "
        "store that processes share, --store sqlite:FILE",
        status=409,
        code="several_workers",
    )


def _changing(name: str) -> StoreAway:
    return StoreAway(f"cassette '{name}' is being changed: ask again")
