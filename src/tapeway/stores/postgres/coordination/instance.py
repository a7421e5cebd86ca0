"""One instance of a PostgreSQL store, from its opening to its end: what others know of it.

Work that goes on whoever leaves while it is under way.

What goes by itself once nobody needs it any more.
"""

import asyncio
import hashlib
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar
from uuid import uuid4

from tapeway.core.model.cassette import Lease
from tapeway.core.model.control import Control
from tapeway.errors import StoreError, closed
from tapeway.stores.postgres import bodies, schema
from tapeway.stores.postgres.address import PostgresAddress
from tapeway.stores.postgres.coordination import cursors, leases
from tapeway.stores.postgres.coordination.control import (
    Member,
    change_control,
    in_force,
    instances_behind,
)
from tapeway.stores.postgres.coordination.heartbeat import Heartbeat
from tapeway.stores.postgres.coordination.leases import HeldLeases
from tapeway.stores.postgres.coordination.notifications import CONTROL, Notifications, hint_of
from tapeway.stores.postgres.pool import LONG_S, Pool, Session

T = TypeVar("T")
_EVERY_S = 300.0
_OVER = (
    "DELETE FROM @attempt WHERE created_at < clock_timestamp() - interval '1 hour'",
    "DELETE FROM @instance WHERE seen < clock_timestamp() - interval '1 hour'",
    "DELETE FROM @lease WHERE expires < clock_timestamp() - interval '1 hour'",
)

_IN_FORCE_S = 2.0
"""How long a change waits for all to apply it."""
_LOOK_S = 0.05
_LEAVE_S = 3.0


class BackgroundTasks:
    """Those of one store, from its opening to its end."""

    def __init__(self, place: str) -> None:
        self._place = place
        self.tasks = asyncio.TaskGroup()
        self._endless: list[asyncio.Task[None]] = []
        self._over = False

    async def open(self) -> None:
        await self.tasks.__aenter__()

    async def close(self) -> None:
        """Wait for all that have an end."""
        self.stop()
        self._over = True
        await self.tasks.__aexit__(None, None, None)

    def start(self, endless: Coroutine[None, None, None]) -> None:
        """Something that runs until the end."""
        self._endless.append(self.tasks.create_task(endless))

    def stop(self) -> None:
        """End what has no end of its own."""
        while self._endless:
            self._endless.pop().cancel()

    def drop(self, work: Coroutine[None, None, None]) -> None:
        """Something nobody waits for."""
        self.tasks.create_task(_settled(work))

    async def run(
        self, work: Coroutine[None, None, T], unclaimed: Callable[[T], None] | None = None
    ) -> T:
        """What comes of it; `unclaimed` is given that where nobody waited for it any more."""
        if self._over:
            work.close()
            raise closed(self._place)
        task = self.tasks.create_task(_settled(work))
        try:
            result = await asyncio.shield(task)
        except asyncio.CancelledError:
            if unclaimed is not None:
                task.add_done_callback(lambda done: _leave(done, unclaimed))
            raise
        if isinstance(result, _Failed):
            raise result.exc
        return result


class _Failed:
    def __init__(self, exc: Exception) -> None:
        self.exc = exc


async def _settled(work: Coroutine[None, None, T]) -> T | _Failed:
    # What is raised in a task of a group ends all the others.
    try:
        return await work
    except Exception as exc:
        return _Failed(exc)


def _leave(task: "asyncio.Task[T | _Failed]", unclaimed: Callable[[T], None]) -> None:
    if not task.cancelled() and not isinstance(result := task.result(), _Failed):
        unclaimed(result)


async def keep(pool: Pool) -> None:
    """Look after it now and then, until cancelled; one instance at a time."""
    while True:
        await asyncio.sleep(_EVERY_S * random.uniform(0.5, 1.5))
        with suppress(StoreError):
            await pool.write("sweep", sweep, limit=LONG_S, durable=False)


async def sweep(session: Session) -> None:
    """Remove it all, unless another instance is at it."""
    name = f"tapeway sweep {session.schema}".encode()
    lock = int.from_bytes(hashlib.sha256(name).digest()[:8], signed=True)
    found = await session.row("SELECT pg_try_advisory_xact_lock($1) AS mine", lock)
    if found is None or not found["mine"]:
        return
    for sql in _OVER:
        await session.run(sql)
    await bodies.sweep(session)
    control = await in_force(session)
    if control is not None:
        await cursors.sweep(session, control)


class PostgresInstance:
    """Its connections, leases, and share in what is in force."""

    def __init__(self, address: PostgresAddress, lease_s: float, touch_s: float) -> None:
        self.id = uuid4()
        self.pool = Pool(address)
        self.errands = BackgroundTasks(address.shown)
        self._touch_s = touch_s
        self._leases = HeldLeases(self.id, lease_s)
        self._hints = Notifications(self.pool, self.errands.tasks)
        self._line = Heartbeat(self.pool, self._leases, self._hints)
        self._attending = False

    async def open(self) -> None:
        """Raises StoreAway, StoreError."""
        await self.errands.open()
        try:
            await schema.prepare(self.pool)
        except BaseException:
            await self._end()
            raise

    async def close(self) -> None:
        self.errands.stop()
        with suppress(StoreError, TimeoutError):
            # What it cannot say, others find out by themselves.
            async with asyncio.timeout(_LEAVE_S):
                await self._leave()
        await self._end()

    async def _leave(self) -> None:
        if not self._attending:
            return
        hints = self._leases.hints()

        async def leave(session: Session) -> None:
            await self._leases.leave(session)
            if self._line.member is not None:
                await self._line.member.leave(session)

        await self.pool.write("leave", leave, durable=False)
        for hint in hints:
            self._hints.send(hint)

    async def _end(self) -> None:
        await self.errands.close()
        await self.pool.close()

    # Leases.

    async def claim(self, name: str, key: bytes) -> Lease | None:
        self._attend()
        attempt = uuid4()

        async def claim(session: Session) -> Lease | None:
            return await self._leases.claim(session, name, key, attempt)

        return await self.errands.run(
            self.pool.write("claim a lease", claim), unclaimed=self._not_wanted
        )

    async def lapsed(self, name: str, key: bytes) -> None:
        self._attend()

        async def is_held(session: Session) -> bool:
            return await leases.is_held(session, name, key)

        # Before looking: what is given back in between is heard of.
        with self._hints.expected(hint_of(name, key)) as told:
            if not await self.pool.read("look at a lease", is_held):
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(random.uniform(0.5, 1.0)):
                    await told.wait()

    async def give_back(self, lease: Lease) -> None:
        self._leases.forget(lease)

        async def give_back(session: Session) -> None:
            await self._leases.give_back(session, lease)

        # Should it come back after a crash of the server, it ends by itself.
        work = self.pool.write("give a lease back", give_back, durable=False)
        await self.errands.run(work)
        self.tell(lease)

    def tell(self, lease: Lease) -> None:
        """Let those hear who wait for it that it has ended."""
        self._leases.forget(lease)
        self._hints.send(hint_of(lease.name, lease.key))

    def _not_wanted(self, lease: Lease | None) -> None:
        if lease is not None:
            self._leases.forget(lease)
            self.errands.drop(self.give_back(lease))

    # Steering.

    async def join(self, wanted: Control, apply: Callable[[Control], None]) -> Control:
        member, attempt = Member(self.id, apply, self._touch_s), uuid4()

        async def join(session: Session) -> Control:
            return await member.join(session, wanted, attempt)

        control = await self.pool.write("join", join)
        self._line.member = member
        self._attend()
        return control

    async def steer(self, change: Callable[[Control], Control]) -> tuple[Control, Sequence[str]]:
        attempt = uuid4()

        async def steer(session: Session) -> Control:
            return await change_control(session, change, attempt)

        control = await self.errands.run(self.pool.write("change what is in force", steer))
        if self._line.member is not None:
            self._line.member.apply(control)
        self._hints.send(CONTROL)
        return control, await self._behind(control)

    async def _behind(self, control: Control) -> Sequence[str]:
        behind = partial(instances_behind, generation=control.generation, touch_s=self._touch_s)
        until = time.monotonic() + _IN_FORCE_S
        while laggards := await self.pool.read("see who has applied it", behind):
            if time.monotonic() >= until:
                return laggards
            await asyncio.sleep(_LOOK_S)
        return ()

    @property
    def in_touch(self) -> bool:
        return self._line.member is not None and self._line.member.in_touch

    def _attend(self) -> None:
        if not self._attending:
            self._attending = True
            self.errands.start(self._line.run())
            self.errands.start(keep(self.pool))
