"""The heartbeat of an instance: reports the instance alive, and receives notifications.

The heartbeat has a separate connection, so that a busy pool delays nothing here.
"""

import asyncio
import logging
import random

from tapeway.errors import StoreError
from tapeway.stores.postgres import errors
from tapeway.stores.postgres.notifications import CONTROL, Notifications
from tapeway.stores.postgres.operations import perform
from tapeway.stores.postgres.pool import DriverConnection, Pool, Session
from tapeway.stores.sql import coordination
from tapeway.stores.sql.coordination import Member

log = logging.getLogger(__name__)

BEAT_S = 1.0


class Heartbeat:
    """Runs until it is stopped or cancelled; what fails is tried again with the next beat."""

    def __init__(self, pool: Pool, member: Member, notifications: Notifications) -> None:
        self._member = member
        self._pool = pool
        self._notifications = notifications
        self._connection: DriverConnection | None = None
        self.trouble = ""
        """Why the last beat failed, empty where it did not."""
        self._woken = asyncio.Event()
        self._stopping = False
        self._ended = asyncio.Event()
        self._pause_s = min(BEAT_S, member.lease_s / 3)

    def beat_now(self) -> None:
        """Beat at once."""
        self._woken.set()

    async def stop(self) -> None:
        """Let the beat under way end, and make no more.

        A server goes on with a statement whose client left: after the instance has left, a beat
        would report the instance alive again.
        """
        self._stopping = True
        self.beat_now()
        await self._ended.wait()

    async def run(self) -> None:
        try:
            with self._notifications.listening(CONTROL) as woken:
                self._woken = woken
                while not self._stopping:
                    woken.clear()
                    if await self._beat():
                        await self._pause(woken)
        finally:
            if self._connection is not None:
                self._connection.terminate()
            self._ended.set()

    async def _pause(self, woken: asyncio.Event) -> None:
        # Random: the instances should not beat all at once.
        seconds = self._pause_s * random.uniform(0.75, 1.0)
        try:
            async with asyncio.timeout(seconds):
                await woken.wait()
        except TimeoutError:
            return

    async def _beat(self) -> bool:
        try:
            connection = await self._connected()
            heard = await self._report(self._session(connection))
            if self.trouble:
                log.warning("%s: the database answers again", self._pool.address.shown)
            self.trouble = ""
            return heard
        except StoreError as exc:
            self._disconnect(exc)
        except errors.FAULTS as exc:
            self._disconnect(
                errors.translated(exc, self._pool.address, "report that this instance is alive")
            )
        return True

    def _session(self, connection: DriverConnection) -> Session:
        return Session(connection, self._pool.address.schema)

    async def _report(self, session: Session) -> bool:
        """Report this instance alive, and apply a pending change; False if there was one."""
        member, asked_at = self._member, self._member.clock()
        if member.unreleased:
            await self._give_back(session)
        await perform(coordination.beat(member), session)
        now = await perform(coordination.in_force(), session)
        if not member.joined or now is None or now.generation <= member.applied:
            member.heard(asked_at)
            return True
        if not member.apply(now):
            return True
        member.heard(asked_at)
        return False

    async def _give_back(self, session: Session) -> None:
        """Give back the leases that could not be given back before."""
        if self._pool.pooled:
            await perform(coordination.give_back_owed(self._member), session)
            return
        # A lease that a crash of the server brought back would live as long as this instance.
        await session.run("SET synchronous_commit = on")
        await perform(coordination.give_back_owed(self._member), session)
        await session.run("SET synchronous_commit = off")

    async def _connected(self) -> DriverConnection:
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        self._connection = connection = await self._pool.connect()
        # A pooler that gives each transaction another connection passes no notification on.
        if not self._pool.pooled:
            await self._session(connection).run("SET synchronous_commit = off")
            await connection.add_listener(self._notifications.channel, self._notified)
            connection.add_termination_listener(self._disconnected)
            self._notifications.wake_all()
        return connection

    def _notified(self, _: DriverConnection, __: int, ___: str, topic: str) -> None:
        self._notifications.wake(topic)

    def _disconnected(self, _: DriverConnection) -> None:
        self.beat_now()

    def _disconnect(self, why: StoreError) -> None:
        if not self.trouble:
            log.warning("%s", why.message)
        self.trouble = why.message
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
