"""How each fault is made and ended. A fault lasts until all processes are ready for everything again."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from soak.clusters import LEASE_S, Cluster, PostgresInstances, SqliteProcess
from soak.history import Fault, FaultKind, History, Steered
from soak.schedule import PlannedFault
from soak.takes import START_MODE
from tests.stores.postgres_server import run

_TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'tapeway' AND pid <> pg_backend_pid()
"""
_OF_ALL: frozenset[FaultKind] = frozenset({"crash", "terminate", "full", "starved"})
_JUMPS = ("+3h", "-2d", "+400d", "-1h")
_BEAT_S = 0.05
_DELAY_S = 0.3
_AFTERWARDS_S = {"postgres": 1.5, "sqlite": 0.3}
"""An instance that was stopped may be ready, and find that it has lost the database, within a second."""


class Faults:
    """Makes faults, and notes when each began and when everything was well again."""

    def __init__(self, cluster: Cluster, history: History, now: Callable[[], float]) -> None:
        self._cluster = cluster
        self._history = history
        self._now = now
        self.left_out: dict[str, str] = {}
        """What could not be made here, and why."""

    async def make(self, planned: PlannedFault) -> None:
        """One fault from its beginning to its end."""
        await asyncio.sleep(planned.after_s)
        if (reason := self._cluster.why_not(planned.kind)) is not None:
            self.left_out[planned.kind] = reason
            return
        began = self._now()
        match self._cluster:
            case PostgresInstances() as cluster:
                await self._to_instances(cluster, planned)
            case SqliteProcess() as cluster:
                await self._to_process(cluster, planned, began)
        await self._cluster.well()
        await asyncio.sleep(_AFTERWARDS_S[self._cluster.kind])
        await self._cluster.well()
        of_all = planned.kind in _OF_ALL or self._cluster.kind == "sqlite"
        instance = None if of_all else planned.instance
        self._history.faults.append(Fault(planned.kind, instance, began, self._now()))

    async def _to_instances(self, cluster: PostgresInstances, planned: PlannedFault) -> None:
        member, relay = cluster.members[planned.instance], cluster.relays[planned.instance]
        match planned.kind:
            case "kill":
                await member.kill()
                await asyncio.sleep(planned.lasts_s)
                await member.start()
            case "stop":
                await _stopped(cluster.processes(planned.instance), planned.lasts_s)
            case "crash":
                await asyncio.to_thread(cluster.server.stop, "immediate")
                await asyncio.sleep(planned.lasts_s)
                await asyncio.to_thread(cluster.server.start)
            case "terminate":
                for _ in range(3):
                    await run(cluster.server.dsn, _TERMINATE)
                    await asyncio.sleep(planned.lasts_s / 3)
            case "drop":
                relay.set("drop")
                await asyncio.sleep(planned.lasts_s)
                relay.set("pass")
            case "delay":
                relay.set("delay", _DELAY_S)
                await asyncio.sleep(planned.lasts_s)
                relay.set("pass")
            case "full":
                await _filled(cluster, planned.lasts_s)
                if not cluster.server.runs:
                    # Without room for its log it gives up.
                    await asyncio.to_thread(cluster.server.start)
            case _:
                await self._clock(planned)

    async def _to_process(
        self, cluster: SqliteProcess, planned: PlannedFault, began: float
    ) -> None:
        (process,) = cluster.members
        match planned.kind:
            case "kill":
                await process.kill()
                await asyncio.sleep(planned.lasts_s)
                await process.start()
                self._history.steered.append(Steered("start", None, START_MODE, began, self._now()))
            case "stop":
                await _stopped(cluster.processes(planned.instance), planned.lasts_s)
            case "full":
                await _filled(cluster, planned.lasts_s)
            case _:
                await self._clock(planned)

    async def _clock(self, planned: PlannedFault) -> None:
        assert self._cluster.clock is not None
        for jump in _JUMPS[planned.instance :] + _JUMPS[: planned.instance]:
            self._cluster.clock.jump(jump)
            await asyncio.sleep(planned.lasts_s / 2)

    async def watch_for_starvation(self) -> None:
        """Note when this machine had no time for anybody: leases end then, though nobody failed."""
        last = self._now()
        while True:
            await asyncio.sleep(_BEAT_S)
            now = self._now()
            if now - last > LEASE_S / 4:
                self._history.faults.append(Fault("starved", None, last - LEASE_S, now + LEASE_S))
            last = now


async def _stopped(pids: Sequence[int], seconds: float) -> None:
    _signal(pids, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        _signal(pids, signal.SIGCONT)


def _signal(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


async def _filled(cluster: Cluster, seconds: float) -> None:
    assert cluster.disk is not None
    ballast = cluster.disk / "ballast"
    fill(ballast)
    try:
        await asyncio.sleep(seconds)
    finally:
        ballast.unlink()


def fill(ballast: Path) -> None:
    """Take all the room there is on a disk."""
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"\0" * 2**16) == 2**16:
            pass
