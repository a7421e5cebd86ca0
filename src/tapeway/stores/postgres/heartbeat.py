"""The heartbeat of an instance: reports the instance alive, and receives notifications.

The heartbeat has a separate connection, so that a busy pool delays nothing here.
"""

import asyncio
import logging
import random

from tapeway.errors import StoreError
from tapeway.stores.postgres import errors
from tapeway.stores.postgres.notifications import CONTROL, Notifications
from tapeway.stores.postgres.operations import coordination
from tapeway.stores.postgres.operations.coordination import BEAT_S, Member
from tapeway.stores.postgres.pool import DriverConnection, Pool, Session

log = logging.getLogger(__name__)


class Heartbeat:
    """Runs until it is stopped or cancelled; what fails is tried again with the next beat."""

    def __init__(self, pool: Pool, member: Member, notifications: Notifications) -> None:
        self._member = member
        self._pool = pool
        self._notifications = notifications
        self._connection: DriverConnection | None = None
        self.trouble = ""
        """Why the last beat failed, empty after a success."""
        self.is_refused = False
        """Whether the database refused the last report, and could be read."""
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
                    if await self._beat() and not self._stopping:
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
        """Report this instance alive, and apply a pending change; False if there was one."""
        asked_at = self._member.clock()
        try:
            # The report comes first: a change before the report is read below, a later one waits.
            refusal = await self._refusal()
            applied = await self._pick_up(asked_at)
        except StoreError as exc:
            return self._failed(exc)
        except errors.FAULTS as exc:
            return self._failed(self._translated(exc))
        if self.trouble and refusal is None:
            log.warning("%s: the database answers again", self._pool.address.shown)
        self._note(refusal)
        self.is_refused = refusal is not None
        return not applied

    async def _refusal(self) -> StoreError | None:
        """Report this instance alive; the error where the database can be read but not written."""
        try:
            await self._report()
        except errors.FAULTS as exc:
            if not errors.refuses_writes(exc) or await self._is_standby(exc):
                raise
            # Replays go on: what is in force can be read.
            return self._translated(exc)
        return None

    async def _report(self) -> None:
        session = await self._session()
        if self._member.unreleased:
            await self._give_back(session)
        await coordination.beat(self._member, session)

    async def _is_standby(self, exc: BaseException) -> bool:
        """Whether a read-only server is a standby, which may not know what is in force."""
        if not errors.is_read_only(exc):
            return False
        # Only a new connection sees that the server's default has changed.
        self._disconnect()
        row = await (await self._session()).row("SELECT pg_is_in_recovery() AS standby")
        return row is None or bool(row["standby"])

    async def _pick_up(self, asked_at: float) -> bool:
        """Apply a pending change; whether one was applied."""
        control = await coordination.in_force(await self._session())
        before = self._member.applied
        if control is not None and self._member.is_behind(control):
            self._member.apply(control)
        self._member.heard(control, asked_at)
        return self._member.applied != before

    def _failed(self, exc: StoreError) -> bool:
        self._note(exc)
        self._disconnect()
        return True

    def _note(self, exc: StoreError | None) -> None:
        if exc is not None and not self.trouble:
            log.warning("%s", exc.message)
        self.trouble = "" if exc is None else exc.message

    def _translated(self, exc: BaseException) -> StoreError:
        return errors.translated(exc, self._pool.address, "report that this instance is alive")

    async def _session(self) -> Session:
        return Session(await self._connected(), self._pool.address.schema)

    async def _give_back(self, session: Session) -> None:
        """Give back the leases that could not be given back before."""
        if self._pool.pooled:
            await coordination.give_back_owed(self._member, session)
            return
        # A lease that a crash of the server brought back would live as long as this instance.
        await session.run("SET synchronous_commit = on")
        await coordination.give_back_owed(self._member, session)
        await session.run("SET synchronous_commit = off")

    async def _connected(self) -> DriverConnection:
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        self._connection = connection = await self._pool.connect()
        # A pooler that gives each transaction another connection passes no notification on.
        if not self._pool.pooled:
            session = Session(connection, self._pool.address.schema)
            await session.run("SET synchronous_commit = off")
            await connection.add_listener(self._notifications.channel, self._notified)
            connection.add_termination_listener(self._disconnected)
            self._notifications.wake_all()
            # The beat under way reads the mode and the takes in any case.
            self._woken.clear()
        return connection

    def _notified(self, _: DriverConnection, __: int, ___: str, topic: str) -> None:
        self._notifications.wake(topic)

    def _disconnected(self, _: DriverConnection) -> None:
        self.beat_now()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
