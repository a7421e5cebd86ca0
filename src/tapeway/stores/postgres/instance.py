"""The driver of PostgreSQL: the pool, the heartbeat and the background tasks of an open store.

One instance at a time removes unused data.
"""

import asyncio
import hashlib
import itertools
import os
import random
import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from tapeway.core.model.cassette import Lease, Recording
from tapeway.core.model.control import Control
from tapeway.errors import StoreError, out_of_touch
from tapeway.stores.postgres import schema
from tapeway.stores.postgres.address import PostgresAddress
from tapeway.stores.postgres.appends import SHARDS, Appends
from tapeway.stores.postgres.body_reader import BodyReader
from tapeway.stores.postgres.gathering import Gathering
from tapeway.stores.postgres.heartbeat import Heartbeat
from tapeway.stores.postgres.moves import WaitingMoves
from tapeway.stores.postgres.notifications import CONTROL, Notifications, lease_topic
from tapeway.stores.postgres.operations import bodies, cassettes, coordination
from tapeway.stores.postgres.operations.coordination import Member
from tapeway.stores.postgres.pool import COMMAND_S, LONG_S, PATIENCE_S, Pool, Session, Work
from tapeway.stores.support.background_tasks import BackgroundTasks
from tapeway.stores.support.large_bodies import BodyCache

T = TypeVar("T")
_FULL = 12
"""Every so many sweeps, all unused data is removed too."""
_EXPIRED = (
    "DELETE FROM @attempt WHERE created_at < clock_timestamp() - interval '1 hour'",
    "DELETE FROM @mover WHERE seen < clock_timestamp() - interval '1 hour'",
)

_GRACE = 1.2
"""The time after which an instance refuses requests, times this: nobody waits for an instance
silent for longer.
"""

GRACE_S = 3600.0
"""How long an unreferenced body or half-written cassette stays: its writer may still be at work."""

_LEAVE_S = 3.0


class PostgresInstance:
    """Lives from the store's `open` to its `close`."""

    def __init__(self, address: PostgresAddress, lease_s: float, touch_s: float) -> None:
        self.place = address.shown
        self.pool = Pool(address)
        self._body_reader = BodyReader(self.pool)
        self.bodies = BodyCache(self.place, self._body_reader.pieces_of, lambda: None)
        self.removed = False
        """Whether something was removed that must not stay readable."""
        self.background = BackgroundTasks(address.shown)
        self.member = Member(
            f"{socket.gethostname()}:{os.getpid()}",
            coordination.boot_clock,
            lease_s=lease_s,
            silent_s=touch_s * _GRACE,
            touch_s=touch_s,
        )
        self._held: set[Lease] = set()
        self._confirmations = Gathering[None, None](self._confirm, self.background.spawn)
        self._notifications = Notifications(self.pool, self.background.tasks)
        self.heartbeat = Heartbeat(self.pool, self.member, self._notifications)

    async def open(self) -> None:
        """Prepare the tables. Raises StoreAway, StoreError."""
        await self.background.open()
        try:
            await schema.prepare(self.pool)
        except BaseException:
            await self._end()
            raise
        self.moves = WaitingMoves(self.pool, self.background.spawn)
        self._appends = Appends(self.pool, self.member, self.background)

    async def close(self) -> None:
        with suppress(StoreError, TimeoutError):
            # If the removal fails, the other instances notice the missing heartbeat.
            async with asyncio.timeout(_LEAVE_S):
                await self._leave()
        await self._end()
        await self.moves.close()
        await self._appends.close()

    async def _leave(self) -> None:
        if not self.member.beats:
            return
        await self.heartbeat.stop()
        self.member.left()
        await self.turn("leave the other instances", partial(coordination.leave, self.member))
        for lease in list(self._held):
            self.ended(lease)

    async def _end(self) -> None:
        await self.background.close()
        await self.pool.close()
        await asyncio.to_thread(self._body_reader.close)
        self.bodies.close()

    # Operations.

    async def read(
        self, action: str, work: Work[T], *, moment: bool = False, long: bool = False
    ) -> T:
        """The result of a query.

        All its statements see one `moment`. It takes `long` where it may read a whole cassette in one
        statement.
        """
        query = self.pool.snapshot if moment else self.pool.read
        return await query(action, work, limit=LONG_S if long else COMMAND_S)

    async def write(
        self, action: str, work: Work[T], *, long: bool = False, patient: bool = False
    ) -> T:
        """The result of a transaction, durable on return, made once however often it is tried.

        The result is JSON. What is paid for is `patient`, what reads or writes a cassette `long`.
        """
        once = self.pool.write_once(
            action,
            work,
            patience=PATIENCE_S if patient else 0.0,
            limit=LONG_S if long else COMMAND_S,
        )
        return await self.background.run(once)

    async def record(self, name: str, recording: Recording, work: Work[None]) -> None:
        """Run the transaction of a recording. Raises IndexTaken."""
        await self.write(f"record into '{name}'", work, patient=True)
        self._recorded(recording)

    async def append(self, name: str, recording: Recording, text: bytes) -> None:
        """Record it together with those that wait. Raises Alone where it was not tried."""
        await self.background.run(self._append(name, recording, text))

    async def _append(self, name: str, recording: Recording, text: bytes) -> None:
        await self._appends.append(name, recording, text)
        self._recorded(recording)

    def _recorded(self, recording: Recording) -> None:
        if recording.lease is not None:
            self.ended(recording.lease)

    async def reserve(self, name: str) -> int:
        return await self.background.run(self._appends.reserve(name))

    async def claim(self, lease: Lease) -> bool:
        """Whether the lease was free, and is this instance's. Raises StoreError."""
        return await self._appends.claim(lease)

    async def turn(
        self, action: str, work: Work[T], *, once: bool = False, durable: bool = True
    ) -> T:
        """The result of a transaction on cursors, numbers, leases or instances.

        A transaction may be made twice unless `once` is set; its result is JSON then. Without
        `durable` a crash of the database may undo the transaction.
        """
        if once:
            return await self.pool.write_once(action, work)
        # A lease that a crash brought back would live as long as this instance.
        return await self.pool.write(action, work, durable=durable)

    def shard(self) -> int:
        # Others than recordings that are made together: these lock cursors first.
        return SHARDS + secrets.randbelow(SHARDS)

    def note_removal(self) -> None:
        self.removed = True

    # What instances share.

    def go_on_beating(self) -> None:
        self.background.start(self.heartbeat.run())
        self.background.start(sweep_periodically(self.pool))

    def claimed(self, lease: Lease) -> None:
        """Note a lease of this instance."""
        self._held.add(lease)

    def has_ended(self, lease: Lease) -> bool:
        return lease not in self._held

    def ended(self, lease: Lease) -> None:
        self._held.discard(lease)
        self._notifications.send(lease_topic(lease.name, lease.key))

    async def wait_for_end(
        self, name: str, key: bytes, held: Callable[[], Awaitable[bool]]
    ) -> None:
        # Listen before looking: the lease may be given back in between.
        with self._notifications.listening(lease_topic(name, key)) as woken:
            if not await held():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(random.uniform(0.5, 1.0)):
                    await woken.wait()

    async def joined(self, control: Control, *, alone: bool) -> None:
        if alone:
            # Nobody uses the cursors of earlier instances.
            with suppress(StoreError):
                await sweep_takes(self.pool, control)

    def steered(self, control: Control) -> None:
        """This instance changed what is in force. The notification ends streams of other instances."""
        self.member.apply(control)
        self._notifications.send(CONTROL)

    async def confirm(self) -> None:
        """Apply what is in force. Raises StoreAway."""
        await self._confirmations.add(None)

    async def _confirm(self, waiting: Sequence[None]) -> Sequence[None]:
        member = self.member
        newer, asked_at = partial(coordination.newer, member.applied), member.clock()
        control = await self.pool.read("read what is in force", newer)
        if control is not None:
            member.apply(control)
        if member.is_behind(control):
            raise out_of_touch(self.place)
        member.heard(control, asked_at)
        return waiting


async def sweep_periodically(pool: Pool) -> None:
    """Remove cursors of ended takes within a minute, and all that is unused every five minutes or so,
    until cancelled.
    """
    before: Control | None = None
    for number in itertools.count(1):
        await asyncio.sleep(coordination.SWEEP_S * random.uniform(0.8, 1.2))
        with suppress(StoreError):
            before = await sweep_takes(pool, before) or before
            if number % _FULL == 0:
                await sweep(pool)


async def sweep_takes(pool: Pool, before: Control | None) -> Control | None:
    """Remove the cursors of takes that had ended in `before`, a batch at a time, unless another
    instance is at work; returns what is in force.

    Requests of takes that ended since may be under way.
    """
    now = await _sweep_alone(pool, coordination.in_force)
    if before is not None:
        while await _sweep_alone(pool, partial(coordination.forget_ended, before)):
            pass
    return now


async def sweep(pool: Pool) -> None:
    """Remove unused rows in small transactions, unless another instance is doing so."""
    for sql in _EXPIRED:
        await _sweep_alone(pool, partial(_run, sql))
    await _sweep_alone(pool, partial(coordination.forget_expired, GRACE_S))
    for step in (bodies.sweep, cassettes.clear_leftovers):
        while await _sweep_alone(pool, partial(step, GRACE_S)):
            pass


async def _run(sql: str, session: Session) -> int:
    return await session.run(sql)


def sweep_lock(schema: str) -> int:
    """The advisory lock that an instance holds in each transaction of a sweep."""
    digest = hashlib.sha256(f"tapeway sweep {schema}".encode()).digest()
    return int.from_bytes(digest[:8], signed=True)


async def _sweep_alone(pool: Pool, work: Work[T]) -> T | None:
    """The result of a transaction, None while another instance sweeps."""

    async def alone(session: Session) -> T | None:
        lock = sweep_lock(session.schema)
        row = await session.row("SELECT pg_try_advisory_xact_lock($1) AS mine", lock)
        return await work(session) if row is not None and row["mine"] else None

    return await pool.write("sweep", alone, limit=LONG_S, durable=False)
