"""One instance of a PostgreSQL store, from its opening to its end: what others know of it."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from uuid import uuid4

from tapeway.core.model.cassette import Lease
from tapeway.core.model.control import Control
from tapeway.errors import StoreError
from tapeway.stores import postgres_control, postgres_house, postgres_leases, postgres_schema
from tapeway.stores.postgres_address import Address
from tapeway.stores.postgres_control import Member
from tapeway.stores.postgres_errands import Errands
from tapeway.stores.postgres_hints import CONTROL, Hints, hint_of
from tapeway.stores.postgres_leases import Leases
from tapeway.stores.postgres_line import Line
from tapeway.stores.postgres_pool import Pool, Session

_IN_FORCE_S = 2.0
"""How long a change waits for all to apply it."""

_LOOK_S = 0.05
_LEAVE_S = 3.0


class Instance:
    """Its connections, leases, and share in what is in force."""

    def __init__(self, address: Address, lease_s: float, touch_s: float) -> None:
        self.id = uuid4()
        self.pool = Pool(address)
        self.errands = Errands(address.shown)
        self._touch_s = touch_s
        self._leases = Leases(self.id, lease_s)
        self._hints = Hints(self.pool, self.errands.tasks)
        self._line = Line(self.pool, self._leases, self._hints)
        self._attending = False

    async def open(self) -> None:
        """Raises StoreAway, StoreError."""
        await self.errands.open()
        try:
            await postgres_schema.prepare(self.pool)
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
            return await postgres_leases.is_held(session, name, key)

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
            return await postgres_control.steer(session, change, attempt)

        control = await self.errands.run(self.pool.write("change what is in force", steer))
        if self._line.member is not None:
            self._line.member.apply(control)
        self._hints.send(CONTROL)
        return control, await self._behind(control)

    async def _behind(self, control: Control) -> Sequence[str]:
        behind = partial(
            postgres_control.behind, generation=control.generation, touch_s=self._touch_s
        )
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
            self.errands.start(postgres_house.keep(self.pool))
