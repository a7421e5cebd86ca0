"""Brokers that replay one folder as a supervisor and its workers do, in one process.

What they tell each other is pickled on the way, as it is between processes.
"""

import pickle
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TypeVar

from tapeway.core.cassette.plan import Incoming, Plan
from tapeway.core.http.routing import RouteTable
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.control import Control, Mode, Repeats
from tapeway.engine.broker import Broker
from tapeway.engine.recorder import Policy
from tapeway.engine.replicas import Copy, Decision, Primary, PrimaryCassettes, Replicas
from tapeway.ports import CassetteStore
from tapeway.stores.file.store import FileStore
from tests.support.fakes.broker import HEAD, ROUTES
from tests.support.fakes.live_service import FakeResponder

T = TypeVar("T")


class NearReplicas:
    """Those that have joined."""

    def __init__(self) -> None:
        self.joined: list[tuple[Callable[[Control], None], Callable[[str], None]]] = []

    async def apply(self, control: Control) -> Sequence[str]:
        for apply, _ in self.joined:
            apply(_sent(control))
        return ()

    async def forget(self, name: str) -> None:
        for _, forget in self.joined:
            forget(name)


class NearPrimary:
    """The primary of a replica in the same process; `decided` is what it was asked about."""

    def __init__(self, cassettes: PrimaryCassettes, replicas: NearReplicas) -> None:
        self.cassettes = cassettes
        self.decided: list[Incoming] = []
        self._replicas = replicas

    async def join(
        self, apply: Callable[[Control], None], forget: Callable[[str], None]
    ) -> Control:
        self._replicas.joined.append((apply, forget))
        return _sent(self.cassettes.control)

    async def load(self, name: str) -> Copy:
        return await self.cassettes.copy(name)

    async def decide(self, name: str, incoming: Incoming, mode: Mode) -> Decision:
        self.decided.append(incoming)
        return _sent(await self.cassettes.decision(name, _sent(incoming), mode))

    def note_use(self, copy: int, own: int, take: int, index: int) -> None:
        self.cassettes.note_use(copy, own, take, index)


@dataclass(frozen=True, slots=True)
class ReplicaBrokers:
    """The primary's broker, and those of replicas that answer in turns."""

    primary: Broker
    replicas: tuple[Broker, ...]
    asked: NearPrimary
    turns: "cycle[Broker]"

    @property
    def store(self) -> CassetteStore:
        return self.primary.store

    async def decide(self, name: str, incoming: Incoming) -> Plan:
        return await next(self.turns).decide(name, incoming)


@asynccontextmanager
async def replica_brokers(
    folder: Path,
    cassette: str = "default",
    *,
    mode: Mode = "replay",
    repeats: Repeats | None = None,
    routes: RouteTable = ROUTES,
    rules: Rules = NO_RULES,
    count: int = 2,
) -> AsyncIterator[ReplicaBrokers]:
    """Replay this folder."""

    def broker(replicas: Replicas | None, primary: Primary | None) -> Broker:
        return Broker(
            FileStore(folder),
            FakeResponder(),
            mode=mode,
            cassette=cassette,
            routes=routes,
            policy=Policy(repeats=repeats),
            new_head=lambda: HEAD,
            rules=rules,
            replicas=replicas,
            primary=primary,
        )

    near = NearReplicas()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(broker(near, None))
        assert first.primary is not None
        asked = NearPrimary(first.primary, near)
        others = [await stack.enter_async_context(broker(None, asked)) for _ in range(count)]
        yield ReplicaBrokers(first, tuple(others), asked, cycle(others))


def _sent(value: T) -> T:
    found: T = pickle.loads(pickle.dumps(value))  # noqa: S301 - its own
    return found
