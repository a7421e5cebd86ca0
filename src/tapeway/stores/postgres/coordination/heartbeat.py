"""An instance's own connection: what keeps its leases, says it is alive, and hears hints.

It is apart from the pool, so that a busy one costs no lease and no touch.
"""

import asyncio
import logging
import random
import time

from tapeway.errors import StoreError
from tapeway.stores.postgres import errors
from tapeway.stores.postgres.coordination.control import Member
from tapeway.stores.postgres.coordination.leases import HeldLeases
from tapeway.stores.postgres.coordination.notifications import CONTROL, Notifications
from tapeway.stores.postgres.pool import DriverConnection, Pool, Session

log = logging.getLogger(__name__)

BEAT_S = 1.0


class Heartbeat:
    """Runs until it is cancelled; whatever fails is tried again with the next beat."""

    def __init__(self, pool: Pool, leases: HeldLeases, hints: Notifications) -> None:
        self.member: Member | None = None
        self._pool = pool
        self._leases = leases
        self._hints = hints
        self._connection: DriverConnection | None = None
        self._failed = False
        self._woken = asyncio.Event()
        self._renewed = time.monotonic()
        self._pause_s = min(BEAT_S, leases.expiry_s / 3)

    def nudge(self) -> None:
        """Beat at once."""
        self._woken.set()

    async def run(self) -> None:
        try:
            with self._hints.expected(CONTROL) as told:
                self._woken = told
                while True:
                    told.clear()
                    if await self._beat():
                        await self._pause(told)
        finally:
            if self._connection is not None:
                self._connection.terminate()

    async def _pause(self, told: asyncio.Event) -> None:
        # Not all at the same moment.
        seconds = self._pause_s * random.uniform(0.75, 1.0)
        try:
            async with asyncio.timeout(seconds):
                await told.wait()
        except TimeoutError:
            return

    async def _beat(self) -> bool:
        try:
            connection = await self._connected()
            heard = await self._said(self._session(connection))
            if self._failed:
                log.warning("%s: the database answers again", self._pool.address.shown)
            self._failed = False
            return heard
        except StoreError as exc:
            self._hang_up(exc)
        except errors.FAULTS as exc:
            self._hang_up(errors.translated(exc, self._pool.address, "say that this one is alive"))
        return True

    def _session(self, connection: DriverConnection) -> Session:
        return Session(connection, self._pool.address.schema)

    async def _said(self, session: Session) -> bool:
        if time.monotonic() - self._renewed >= self._leases.expiry_s / 3:
            renewed = time.monotonic()
            await self._leases.renew(session)
            self._renewed = renewed
        return self.member is None or await self.member.beat(session)

    async def _connected(self) -> DriverConnection:
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        self._connection = connection = await self._pool.connect()
        # Through what gives each transaction another connection, no hint would come.
        if not self._pool.pooled:
            await self._session(connection).run("SET synchronous_commit = off")
            await connection.add_listener(self._hints.channel, self._hear)
            connection.add_termination_listener(self._lost)
            self._hints.wake_all()
        return connection

    def _hear(self, _: DriverConnection, __: int, ___: str, hint: str) -> None:
        self._hints.wake(hint)

    def _lost(self, _: DriverConnection) -> None:
        self.nudge()

    def _hang_up(self, why: StoreError) -> None:
        if not self._failed:
            log.warning("%s", why.message)
        self._failed = True
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
