"""Cassettes in one SQLite file, shared by the processes of a machine.

Each process has a thread for writing, three for reading (no hit waits for an export), and a thread
for the shared file with cursors, leases and the mode. A replay waits for no sync, and the event
loop for no disk: a cursor that the event loop moves waits for nobody (`moves.py`).

A recording is durable before the cursor of its key moves on. A request in between finds the
recording and replays it, like simultaneous equal requests.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tapeway.errors import StoreError, out_of_touch, poisoned
from tapeway.ports import Found, StoreFacts
from tapeway.stores.sql.store import SqlStore
from tapeway.stores.sqlite.location import StoreLocation
from tapeway.stores.sqlite.runtime import Runtime
from tapeway.stores.support.durable_files import check_writes


class SqliteStore(SqlStore[Runtime]):
    """A SQLite file. The first write creates it; several stores of one file are fine."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is the same for all processes of the machine."""
        super().__init__(f"sqlite:{path}", StoreFacts(durability="disk", paged=True, file=path))
        self._location = StoreLocation(path)
        self._clock = clock

    @property
    def shared(self) -> "SqliteStore":
        """The store itself: several processes may use it at once."""
        return self

    @property
    def trouble(self) -> StoreError | None:
        if self._opened is None or not self._opened.member.in_touch:
            return out_of_touch(self.url)
        return poisoned(self.url) if self._opened.writer.poisoned else None

    async def check_writes(self, name: str | None = None) -> None:
        if self._opened is not None and self._opened.writer.poisoned:
            raise poisoned(self.url)
        self._location.refuse_read_only()
        await asyncio.to_thread(check_writes, self._location.folder)

    async def open(self) -> None:
        if self._opened is None:
            self._location.refuse_network()
            self._opened = Runtime(self._location, self._clock)
            await self._opened.open()
            try:
                # Fails now for a file that cannot be read.
                await self.names()
            except BaseException:
                await self.close()
                raise

    # Cassettes.

    async def release(self, name: str) -> None:
        """Recordings are always in their final form: this only removes leftovers."""
        self._for_cassette(name)
        await self._driver.writer.recover()
        await self._driver.sweep()

    async def erase(self) -> Sequence[str]:
        return await self._driver.wipe()

    async def check(self) -> Sequence[str]:
        """The damage that SQLite finds in the whole file, then the damage of the content."""
        return await self._driver.check() or await super().check()

    # Cursors.

    async def look(
        self, name: str, take: int, keys: Sequence[bytes], digests: Sequence[bytes]
    ) -> Found:
        looked_up = await super().look(name, take, keys, digests)
        # A file on a read-only disk is not attached when a cursor is moved: nothing can be compared.
        return looked_up if self._location.writable else looked_up._replace(version=None)

    async def _forget_cursors(self, name: str) -> None:
        if self._driver.has_cursors:
            await super()._forget_cursors(name)

    async def _before_writing(self) -> None:
        self._location.refuse_read_only()
        await self._driver.writer.recover()
