"""Recordings in flight among all instances of a store: each holds a lease until it is durable."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tapeway.core.model.cassette import Lease
from tapeway.errors import Draining, StoreError
from tapeway.ports import SharedStore
from tapeway.sharing import LiveCalls

_LOOK_S = 0.05


class Flights:
    """Those that this instance sees, its own and the others'."""

    def __init__(self, store: SharedStore, calls: LiveCalls) -> None:
        self._store = store
        self._calls = calls

    @asynccontextmanager
    async def flight(self, name: str, key: bytes) -> AsyncIterator[None]:
        """Let others see a recording that no other one is like; none of them takes it over."""
        lease = await self._store.claim(name, key)
        try:
            yield
        finally:
            if lease is not None:
                await self.end(lease)

    async def end(self, lease: Lease) -> None:
        """Give it back if the store can be reached."""
        try:
            await self._store.give_back(lease)
        except StoreError:
            # It ends by itself.
            return

    async def landed(self, name: str) -> None:
        """Wait for all that are under way now, on any instance.

        One whose instance is gone is waited for until its lease ends. Raises Draining, StoreError.
        """
        under_way = await self._store.fences(name)
        await self._calls.ended(name)
        while under_way & await self._store.fences(name):
            if self._calls.draining:
                raise Draining(
                    "tapeway is stopping while other instances still record; eject again"
                )
            await asyncio.sleep(_LOOK_S)
