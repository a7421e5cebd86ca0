"""One instance of a PostgreSQL store: its pool, leases, heartbeat and background tasks.

Work in `BackgroundTasks` continues when its caller is cancelled. One instance at a time removes
unused data.
"""

import asyncio
import hashlib
import itertools
import random
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar
from uuid import uuid4

from tapeway.core.model.cassette import Lease, Recording
from tapeway.core.model.control import Control
from tapeway.errors import StoreError, closed
from tapeway.stores.postgres import schema
from tapeway.stores.postgres.address import PostgresAddress
from tapeway.stores.postgres.body_reader import BodyReader
from tapeway.stores.postgres.coordination import cursors, leases
from tapeway.stores.postgres.coordination.control import (
    Member,
    change_control,
    in_force,
    instances_behind,
    read_back,
)
from tapeway.stores.postgres.coordination.heartbeat import Heartbeat
from tapeway.stores.postgres.coordination.leases import HeldLeases
from tapeway.stores.postgres.coordination.moves import WaitingMoves
from tapeway.stores.postgres.coordination.notifications import CONTROL, Notifications, lease_topic
from tapeway.stores.postgres.errors import reads_only
from tapeway.stores.postgres.operations import perform
from tapeway.stores.postgres.pool import COMMAND_S, LONG_S, PATIENCE_S, Pool, Session, Work
from tapeway.stores.sql import bodies, cassettes
from tapeway.stores.sql.bodies import BodyCache
from tapeway.stores.sql.statements import Op
from tapeway.stores.sql.store import Make, Reach

T = TypeVar("T")
SWEEP_EVERY_S = 24.0
"""Of the cursors that a sweep finds, the next one removes those whose takes had ended by then: so they
are gone within a minute, and a request of such a take has had this long to end.
"""
_FULL = 12
"""Every so many sweeps whatever else is unused goes too."""
_EXPIRED = (
    "DELETE FROM @attempt WHERE created_at < clock_timestamp() - interval '1 hour'",
    "DELETE FROM @mover WHERE seen < clock_timestamp() - interval '1 hour'",
    "DELETE FROM @instance WHERE seen < clock_timestamp() - interval '1 hour'",
    "DELETE FROM @lease WHERE expires < clock_timestamp() - interval '1 hour'",
)

_APPLIED_WITHIN_S = 2.0
"""How long a change waits for the other instances to apply it."""

GRACE_S = 3600.0
"""How long an unreferenced body or half-written cassette stays: its writer may still be at work."""

_SHARDS = 16
_POLL_S = 0.05
_LEAVE_S = 3.0


class PostgresInstance:
    """The driver of PostgreSQL, and what one instance shares with the others: leases, and the mode in
    force.
    """

    one_database = True

    def __init__(self, address: PostgresAddress, lease_s: float, touch_s: float) -> None:
        self.id = uuid4()
        self.place = address.shown
        self.pool = Pool(address)
        self._body_reader = BodyReader(self.pool)
        self.bodies = BodyCache(self.place, self._body_reader.pieces_of, lambda: None)
        self.removed = False
        """Whether something was removed that must not stay readable."""
        self.background = BackgroundTasks(address.shown)
        self._touch_s = touch_s
        self._leases = HeldLeases(self.id, lease_s)
        self._notifications = Notifications(self.pool, self.background.tasks)
        self._heartbeat = Heartbeat(self.pool, self._leases, self._notifications)
        self._background_started = False

    async def open(self) -> None:
        """Prepare the tables. Raises StoreAway, StoreError."""
        await self.background.open()
        try:
            await schema.prepare(self.pool)
        except BaseException:
            await self._end()
            raise
        self.moves = WaitingMoves(self.pool, self.background.spawn)

    async def close(self) -> None:
        with suppress(StoreError, TimeoutError):
            # If this fails, the others notice the missing heartbeat.
            async with asyncio.timeout(_LEAVE_S):
                await self._leave()
        await self._end()
        await self.moves.close()

    async def _leave(self) -> None:
        if not self._background_started:
            return
        topics = self._leases.topics()
        await self._heartbeat.stop()

        async def leave(session: Session) -> None:
            await self._leases.leave(session)
            if self._heartbeat.member is not None:
                await self._heartbeat.member.leave(session)

        await self.pool.write("leave the other instances", leave, durable=False)
        for topic in topics:
            self._notifications.send(topic)

    async def _end(self) -> None:
        await self.background.close()
        await self.pool.close()
        await asyncio.to_thread(self._body_reader.close)
        self.bodies.close()

    # Operations.

    async def read(
        self,
        action: str,
        make: Make[T],
        otherwise: T,
        *,
        reach: Reach = Reach.LOOK,
        cursors: bool = False,
        moment: bool = False,
        long: bool = False,
    ) -> T:
        query = self.pool.snapshot if moment else self.pool.read
        limit = LONG_S if long else COMMAND_S
        return await query(action, lambda session: perform(make(), session), limit=limit)

    async def write(
        self, action: str, make: Make[T], *, long: bool = False, patient: bool = False
    ) -> T:
        work = self.pool.write_once(
            action,
            lambda session: perform(make(), session),
            patience=PATIENCE_S if patient else 0.0,
            limit=LONG_S if long else COMMAND_S,
        )
        return await self.background.run(work)

    async def record(self, name: str, recording: Recording, make: Make[None]) -> None:
        # What is computed is computed before the transaction.
        made = [make()]
        await self.write(
            f"record into '{name}'", lambda: made.pop() if made else make(), patient=True
        )
        if recording.lease is not None:
            self.announce_end(recording.lease)

    def use_lease(self, lease: Lease) -> Op[None]:
        return self._leases.use(lease)

    async def turn(self, action: str, make: Make[T]) -> T:
        return await self.pool.write(
            action, lambda session: perform(make(), session), durable=False
        )

    async def read_turns(self, action: str, make: Make[T]) -> T:
        return await self.pool.read(action, lambda session: perform(make(), session))

    def shard(self) -> int:
        return secrets.randbelow(_SHARDS)

    def note_removal(self) -> None:
        self.removed = True

    # Leases.

    async def claim(self, name: str, key: bytes) -> Lease | None:
        self._start_background()
        return await self.background.run(self._claim(name, key), abandoned=self._release_abandoned)

    async def _claim(self, name: str, key: bytes) -> Lease | None:
        fence = await self.pool.write_once(
            "claim a lease", lambda session: self._leases.claim(session, name, key)
        )
        if not fence:
            return None
        lease = Lease(name, key, fence)
        self._leases.remember(lease)
        return lease

    async def wait_for_lease(self, name: str, key: bytes) -> None:
        self._start_background()

        # Listen before looking: the lease may be given back in between.
        with self._notifications.listening(lease_topic(name, key)) as woken:
            if not await self.pool.read(
                "read a lease", lambda session: leases.is_held(session, name, key)
            ):
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(random.uniform(0.5, 1.0)):
                    await woken.wait()

    async def release_lease(self, lease: Lease) -> None:
        self._leases.forget(lease)

        # Not durable: where a crash of the server brings it back, it expires.
        work = self.pool.write(
            "give a lease back",
            lambda session: self._leases.release_lease(session, lease),
            durable=False,
        )
        await self.background.run(work)
        self.announce_end(lease)

    def announce_end(self, lease: Lease) -> None:
        """Notify those who wait for a lease that it has ended."""
        self._leases.forget(lease)
        self._notifications.send(lease_topic(lease.name, lease.key))

    def _release_abandoned(self, lease: Lease | None) -> None:
        if lease is not None:
            self._leases.forget(lease)
            self.background.spawn(self.release_lease(lease))

    # Steering.

    async def join(self, wanted: Control, apply: Callable[[Control], None]) -> Control:
        if self.pool.reads_only:
            raise reads_only(self.pool.address.shown)
        member = Member(self.id, apply, self._touch_s)
        joined = await self.pool.write_once(
            "join the other instances", lambda session: member.join(session, wanted)
        )
        control = read_back(joined)
        self._heartbeat.member = member
        self._start_background()
        if not member.found_others:
            # What those before it left is in nobody's use.
            with suppress(StoreError):
                await sweep_takes(self.pool, control)
        return control

    async def steer(self, change: Callable[[Control], Control]) -> tuple[Control, Sequence[str]]:
        changed = await self.background.run(
            self.pool.write_once(
                "change what is in force", lambda session: change_control(session, change)
            )
        )
        control = read_back(changed)
        if self._heartbeat.member is not None:
            self._heartbeat.member.apply(control)
        self._notifications.send(CONTROL)
        return control, await self._waited_for(control.generation)

    async def behind(self, generation: int) -> Sequence[str]:
        behind = partial(instances_behind, generation=generation, touch_s=self._touch_s)
        return await self.pool.read("see which instances applied the change", behind)

    async def _waited_for(self, generation: int) -> Sequence[str]:
        until = time.monotonic() + _APPLIED_WITHIN_S
        while laggards := await self.behind(generation):
            if time.monotonic() >= until:
                return laggards
            await asyncio.sleep(_POLL_S)
        return ()

    @property
    def in_touch(self) -> bool:
        return self._heartbeat.member is not None and self._heartbeat.member.in_touch

    @property
    def trouble(self) -> str:
        return self._heartbeat.trouble

    def _start_background(self) -> None:
        if not self._background_started:
            self._background_started = True
            self.background.start(self._heartbeat.run())
            self.background.start(sweep_periodically(self.pool))


class BackgroundTasks:
    """The tasks of one store, from its opening to its end."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.tasks = asyncio.TaskGroup()
        self._endless: list[asyncio.Task[None]] = []
        self._closed = False

    async def open(self) -> None:
        await self.tasks.__aenter__()

    async def close(self) -> None:
        """Cancel what runs until the end, and wait for the rest."""
        while self._endless:
            self._endless.pop().cancel()
        self._closed = True
        await self.tasks.__aexit__(None, None, None)

    def start(self, endless: Coroutine[None, None, None]) -> None:
        """Run something until the store is closed."""
        self._endless.append(self.tasks.create_task(endless))

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run something that no caller waits for."""
        self.tasks.create_task(_settled(work))

    async def run(
        self, work: Coroutine[None, None, T], abandoned: Callable[[T], None] | None = None
    ) -> T:
        """The result of `work`; where the caller was cancelled, `abandoned` gets it instead."""
        if self._closed:
            work.close()
            raise closed(self._url)
        task = self.tasks.create_task(_settled(work))
        try:
            result = await asyncio.shield(task)
        except asyncio.CancelledError:
            if abandoned is not None:
                task.add_done_callback(lambda done: _hand_over(done, abandoned))
            raise
        if isinstance(result, _Failed):
            raise result.exc
        return result


async def sweep_periodically(pool: Pool) -> None:
    """Remove cursors of ended takes within a minute, and all that is unused every five minutes or so,
    until cancelled.
    """
    before: Control | None = None
    for number in itertools.count(1):
        await asyncio.sleep(SWEEP_EVERY_S * random.uniform(0.8, 1.2))
        with suppress(StoreError):
            before = await sweep_takes(pool, before) or before
            if number % _FULL == 0:
                await sweep(pool)


async def sweep_takes(pool: Pool, before: Control | None) -> Control | None:
    """Remove the cursors of takes that had ended in `before`, a batch at a time, unless another
    instance is doing so; returns what is in force.

    Requests of takes that ended since may be under way.
    """
    now = await _sweep_alone(pool, in_force)
    if before is not None:
        while await _sweep_alone(pool, partial(cursors.sweep_some, control=before)):
            pass
    return now


async def sweep(pool: Pool) -> None:
    """Remove what is unused in small transactions, unless another instance is doing so."""
    for sql in _EXPIRED:
        await _sweep_alone(pool, partial(Session.run, sql=sql))
    for step in (bodies.sweep, cassettes.clear_leftovers):
        while await _sweep_alone(pool, partial(_performed, partial(step, GRACE_S))):
            pass


async def _performed(make: Make[T], session: Session) -> T:
    return await perform(make(), session)


def sweep_lock(schema: str) -> int:
    """The advisory lock that an instance holds in each transaction of a sweep."""
    digest = hashlib.sha256(f"tapeway sweep {schema}".encode()).digest()
    return int.from_bytes(digest[:8], signed=True)


async def _sweep_alone(pool: Pool, work: Work[T]) -> T | None:
    """The result of a transaction, None where another instance is in one of these."""

    async def alone(session: Session) -> T | None:
        lock = sweep_lock(session.schema)
        found = await session.row("SELECT pg_try_advisory_xact_lock($1) AS mine", lock)
        return await work(session) if found is not None and found["mine"] else None

    return await pool.write("sweep", alone, limit=LONG_S, durable=False)


class _Failed:
    def __init__(self, exc: Exception) -> None:
        self.exc = exc


async def _settled(work: Coroutine[None, None, T]) -> T | _Failed:
    # An exception in a task of a TaskGroup would cancel all the others.
    try:
        return await work
    except Exception as exc:
        return _Failed(exc)


def _hand_over(task: "asyncio.Task[T | _Failed]", abandoned: Callable[[T], None]) -> None:
    if not task.cancelled() and not isinstance(result := task.result(), _Failed):
        abandoned(result)
