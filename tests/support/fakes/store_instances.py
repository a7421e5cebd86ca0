"""Instances of one store in memory, which waits and fails where a test says so."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tapeway.core.correlation.index import issued_keys
from tapeway.core.matching.rules import rules_of_meta
from tapeway.core.misses.neighbours import Neighbours, SoughtRequest
from tapeway.core.model.cassette import (
    CassetteHead,
    CursorStep,
    Lease,
    LogPage,
    Recording,
    RecordingTitle,
    TakenRecording,
)
from tapeway.core.model.control import Control, CursorMove, CursorState
from tapeway.core.model.interaction import AnyInteraction, Interaction, exchange_of
from tapeway.errors import Fenced, StoreError, out_of_touch
from tapeway.ports import Issuer, MoveDone
from tapeway.stores.file.journal import payload_of
from tapeway.stores.support.columns import keys_of
from tests.support.fakes.derived_log import DerivedLog
from tests.support.fakes.shared_store import BitByBitStore

_Key = tuple[str, int, bytes]


@dataclass(slots=True)
class Common:
    """What all instances of a store see."""

    held: dict[str, list[AnyInteraction]] = field(default_factory=dict)
    heads: dict[str, CassetteHead] = field(default_factory=dict)
    takes: dict[tuple[str, int], int] = field(default_factory=dict)
    turns: dict[_Key, CursorState] = field(default_factory=dict)
    touched: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    leases: dict[tuple[str, bytes], Lease] = field(default_factory=dict)
    numbers: Counter[str] = field(default_factory=Counter)
    fences: int = 0
    control: Control | None = None
    logs: dict[str, DerivedLog] = field(default_factory=dict)
    instances: "list[InstanceStore]" = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class InstanceStore(BitByBitStore):
    """One of them. `in_touch` is a test's to change; `lost` counts lost races."""

    def __init__(self, common: Common) -> None:
        super().__init__()
        self.common = common
        self.held, self.heads = common.held, common.heads
        self.in_touch = True
        self._applied = 0
        self.lost = 0
        self.calls: Counter[str] = Counter()
        self._looked = asyncio.Event()
        self._apply: Callable[[Control], None] = lambda _: None

    @property
    def trouble(self) -> StoreError | None:
        return None if self.in_touch else out_of_touch(self.url)

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        payload_of(recording)
        if (lease := recording.lease) is not None:
            if self.common.leases.get((name, lease.key)) != lease:
                raise Fenced("another instance records this by now")
            del self.common.leases[name, lease.key]
        item = recording.interaction
        self.heads.setdefault(name, head)
        held = self.held.setdefault(name, [])
        held[:] = [kept for kept in held if kept.index not in recording.supersedes]
        held.append(item)
        if (step := recording.step) is not None:
            self.common.takes[name, item.index] = step.take
            self._move(name, step, item.index)
        self.common.changed.set()

    def _under(self, name: str, keys: Sequence[bytes]) -> list[TakenRecording]:
        if name not in self.heads:
            return []
        rules, found = rules_of_meta(self.heads[name].meta), []
        for interaction in self.held[name]:
            exchange = exchange_of(interaction)
            if exchange is not None and set(keys_of(exchange, rules)) & set(keys):
                found.append(self._dated(name, interaction))
        return found

    async def near(self, name: str, method: str, path: str, limit: int) -> Sequence[TakenRecording]:
        self.calls["near"] += 1
        return [self._dated(name, interaction) for interaction in self.held.get(name, [])[-limit:]]

    async def neighbours(self, name: str, asked: SoughtRequest) -> Sequence[TakenRecording]:
        self.calls["neighbours"] += 1
        items = {recording.index: recording for recording in self.held.get(name, [])}
        near = Neighbours(items.values()).near(asked, items.get)
        return [self._dated(name, interaction) for interaction in near]

    async def alike(self, name: str, key: bytes) -> Sequence[TakenRecording]:
        self.calls["alike"] += 1
        return self._under(name, [key])

    async def issuers(self, name: str, keys: Sequence[bytes]) -> Mapping[bytes, Issuer]:
        self.calls["issuers"] += 1
        found: dict[bytes, Issuer] = {}
        for recording in self.held.get(name, []):
            exchange = exchange_of(recording)
            for key in issued_keys(exchange) if exchange is not None else ():
                if key in keys:
                    found.setdefault(
                        key, Issuer(recording.index, self._dated(name, recording).take)
                    )
        return found

    async def used(self, name: str, takes: Sequence[int]) -> Collection[int]:
        return set[int]().union(*[self.common.touched.get((name, take), ()) for take in takes])

    async def titles(self, name: str, numbers: Sequence[int]) -> Sequence[RecordingTitle]:
        return [
            RecordingTitle(
                interaction.index, interaction.request.method, interaction.request.target
            )
            for interaction in self.held.get(name, [])
            if isinstance(interaction, Interaction) and interaction.index in numbers
        ]

    async def reserve(self, name: str) -> int:
        self.common.numbers[name] += 1
        return self.common.numbers[name] - 1

    def _log(self, name: str) -> DerivedLog | None:
        if name not in self.heads:
            return None
        log = self.common.logs.setdefault(name, DerivedLog())
        log.follow(
            self.held, self.heads[name], [self._dated(name, item) for item in self.held[name]]
        )
        return log

    async def since(self, name: str, seen: int) -> LogPage | None:
        self.calls["since"] += 1
        log = self._log(name)
        return None if log is None else log.page(seen)

    async def documents(self, name: str, indexes: Sequence[int]) -> Sequence[TakenRecording]:
        self.calls["documents"] += 1
        return [
            self._dated(name, item) for item in self.held.get(name, ()) if item.index in indexes
        ]

    async def cursors(
        self, name: str, take: int, keys: Sequence[bytes]
    ) -> Mapping[bytes, CursorState]:
        self.calls["cursors"] += 1
        common = self.common.turns
        return {key: common[name, take, key] for key in keys if (name, take, key) in common}

    def advance(self, move: CursorMove, done: MoveDone) -> None:
        self.calls["advance"] += 1
        self._advance(move)
        asyncio.get_running_loop().call_soon(done, move, None)

    def _advance(self, move: CursorMove) -> None:
        cursor, before = (move.name, move.take, move.key), move.before
        assert move.state is not None
        if isinstance(before, CursorMove):
            if before.after is None:
                return
            before = before.after
        log = self._log(move.name)
        if log is not None:
            move.revision = len(log.rows)
        if move.seen is not None and (log is None or not log.is_as_seen(move.seen)):
            return
        if self.common.turns.get(cursor) != before:
            self.lost += 1
            return
        version = before.version + 1 if before is not None else 1
        move.after = self.common.turns[cursor] = CursorState(move.state, version)
        if move.touched is not None:
            self.common.touched.setdefault(cursor[:2], set()).add(move.touched)

    async def claim(self, name: str, key: bytes, *, wait: bool = False) -> Lease | None:
        if (name, key) in self.common.leases:
            while wait and (name, key) in self.common.leases:
                self.common.changed.clear()
                await self.common.changed.wait()
            return None
        self.common.fences += 1
        lease = self.common.leases[name, key] = Lease(name, key, self.common.fences)
        return lease

    async def release_lease(self, lease: Lease) -> None:
        if self.common.leases.get((lease.name, lease.key)) == lease:
            del self.common.leases[lease.name, lease.key]
        self.common.changed.set()

    async def fences(self, name: str) -> frozenset[int]:
        self.calls["fences"] += 1
        self._looked.set()
        return frozenset(
            [lease.fence for (of, _), lease in self.common.leases.items() if of == name]
        )

    async def looked(self, count: int) -> None:
        """Wait until somebody has looked so many times who holds leases."""
        async with asyncio.timeout(60):
            while self.calls["fences"] < count:
                self._looked.clear()
                await self._looked.wait()

    async def join(self, wanted: Control, apply: Callable[[Control], None]) -> Control:
        self._apply = apply
        self.common.instances.append(self)
        if self.common.control is None:
            self.common.control = wanted
        self._applied = self.common.control.generation
        return self.common.control

    async def confirm(self) -> None:
        if not self.in_touch:
            raise out_of_touch(self.url)
        now = self.common.control
        if now is not None and now.generation > self._applied:
            self._apply(now)
            self._applied = now.generation

    async def steer(self, change: Callable[[Control], Control]) -> Control:
        assert self.common.control is not None
        now = self.common.control
        now = self.common.control = replace(change(now), generation=now.generation + 1)
        self._apply(now)
        self._applied = now.generation
        return now

    async def instances(self) -> Sequence[str]:
        return [f"instance {at}" for at, _ in enumerate(self.common.instances)]

    def steal(self, lease_of: bytes, name: str = "default") -> None:
        """Let another instance have the lease, as when this one was silent for too long."""
        self.common.fences += 1
        self.common.leases[name, lease_of] = Lease(name, lease_of, self.common.fences)

    def _dated(self, name: str, item: AnyInteraction) -> TakenRecording:
        return TakenRecording(item, self.common.takes.get((name, item.index), 0), item.index)

    def _move(self, name: str, step: CursorStep, index: int) -> None:
        at = name, step.take, step.key
        before = self.common.turns.get(at)
        state = step.advance(None if before is None else before.state)
        self.common.turns[at] = CursorState(state, before.version + 1 if before is not None else 1)
        self.common.touched.setdefault((name, step.take), set()).add(index)
