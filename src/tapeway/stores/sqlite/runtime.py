"""The threads and files that a SQLite store uses while it is open."""

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw

from tapeway.core.model.cassette import TakenRecording
from tapeway.core.model.control import CursorState
from tapeway.errors import StoreError, StoreFull
from tapeway.stores.sqlite import bodies, schema, writes
from tapeway.stores.sqlite.connection import Role, check_small, connect
from tapeway.stores.sqlite.coordination import cursors, members
from tapeway.stores.sqlite.coordination.cursors import DiskFullCursors, write_touched
from tapeway.stores.sqlite.coordination.heartbeat import HeartbeatThread
from tapeway.stores.sqlite.coordination.members import ProcessMember
from tapeway.stores.sqlite.coordination.shared_file import SharedFile
from tapeway.stores.sqlite.location import StoreFileAbsent, StoreLocation
from tapeway.stores.sqlite.queries import Reading
from tapeway.stores.sqlite.rollback_check import RollbackCheck
from tapeway.stores.sqlite.transaction import WriteTransaction
from tapeway.stores.sqlite.worker_thread import WorkerThread
from tapeway.stores.sqlite.writer import Recorded, RecordingWriter

log = logging.getLogger(__name__)

T = TypeVar("T")

_BODIES_AT_ONCE = 4


class Runtime:
    """From its making to `close`. Nothing is opened before it is used."""

    def __init__(self, place: StoreLocation, clock: Callable[[], float]) -> None:
        self.place = place
        self.clock = clock
        self.library = bodies.Library(str(place), self._connect_to_read, self.scratch)
        self.reading = Reading(str(place), self.library)
        self.writer = RecordingWriter(place, self._step)
        self.keepers = ThreadPoolExecutor(_BODIES_AT_ONCE, thread_name_prefix="tapeway-bodies")
        self._quick = self._reader("read the recordings")
        self._thorough = self._reader("look through the recordings")
        self._slow = self._reader("read the cassette")
        self._file = SharedFile(place, self._highest_fence)
        self._desk = WorkerThread(f"{place}.shared", "tell the other processes", self._file.connect)
        self.instance = ProcessMember.of_this_process(secrets.token_hex(3))
        self.overflow = DiskFullCursors()
        self._takes = 0
        self.watch = HeartbeatThread(self._desk, self.instance, clock)

    async def read(self, work: Callable[[apsw.Connection], T], otherwise: T) -> T:
        """What a short look gives, or something else where there is no file."""
        try:
            return await self._quick.run(work)
        except StoreFileAbsent:
            return otherwise

    async def look_through(self, work: Callable[[apsw.Connection], T], otherwise: T) -> T:
        """The same for what looks at more than a few recordings."""
        try:
            return await self._thorough.run(work)
        except StoreFileAbsent:
            return otherwise

    async def go_through(self, work: Callable[[apsw.Connection], T], otherwise: T) -> T:
        """The same for what may go through all there is."""
        try:
            return await self._slow.run(work)
        except StoreFileAbsent:
            return otherwise

    async def compare(self, work: Callable[[apsw.Connection], T], otherwise: T) -> T:
        """The same for what is read together with the shared file, there as `shared`.

        What that has no room for stays in `overflow`.
        """
        used = self.overflow.used()
        try:
            await self.tell(partial(write_touched, used) if used else lambda _: None)
        except StoreFull:
            used = []
        self.overflow.written(used)

        def both(connection: apsw.Connection) -> T:
            self._attach(connection)
            return work(connection)

        return await self.look_through(both, otherwise)

    async def look(
        self, name: str, take: int, keys: Sequence[bytes], digests: Sequence[bytes]
    ) -> tuple[Mapping[bytes, CursorState], Sequence[TakenRecording]]:
        """Turns and then recordings, by one visit to one thread."""
        if not self._desk.connected:
            await self.tell(lambda _: None)

        def both(
            connection: apsw.Connection,
        ) -> tuple[Mapping[bytes, CursorState], Sequence[TakenRecording]]:
            self._attach(connection)
            found = cursors.read(name, take, keys, connection)
            return found, self.reading.find(name, digests, connection)

        return await self.read(both, ({}, []))

    async def note_takes(self, takes: int) -> None:
        """Remember how many takes ever began, where that can be written."""
        if takes <= self._takes or not self.place.writable:
            return
        try:
            await self.write(lambda pen: writes.note_takes(pen, takes))
            self._takes = takes
        except StoreError as exc:
            log.warning("%s", exc.message)

    async def tidy_up(self) -> None:
        """Remove what was left over: bodies nobody refers to, halves of cassettes."""
        if await self.read(writes.is_untidy, otherwise=False):
            await self.writer.until_done(bodies.sweep)
            await self.writer.until_done(writes.clear_leftovers)

    async def write(self, work: Callable[[WriteTransaction], T]) -> T:
        """What a transaction gives, once it is durable."""
        return await self.writer.run(work)

    async def tell(self, work: Callable[[apsw.Connection], T]) -> T:
        """What work on the shared file gives."""
        return await self._desk.run(work)

    def scratch(self) -> str | None:
        """A folder with room beside the file, where one can be written."""
        for folder in (self.place.folder, *self.place.folder.parents):
            if folder.is_dir():
                return str(folder) if os.access(folder, os.W_OK) else None
        return None

    async def close(self) -> None:
        await self.watch.stop()
        try:
            if self._desk.connected:
                await self.tell(lambda connection: members.leave(self.instance, connection))
        except StoreError as exc:
            log.warning("%s", exc.message)
        await asyncio.to_thread(self.keepers.shutdown)
        for desk in (self.writer, self._quick, self._thorough, self._slow, self._desk):
            await desk.close()
        self._file.close()
        self.library.close()

    def _reader(self, deed: str) -> WorkerThread:
        return WorkerThread(
            str(self.place), deed, self._connect_to_read, lambda: _which(self.place.path)
        )

    def _attach(self, connection: apsw.Connection) -> None:
        if "shared" not in connection.db_names():
            connection.execute("ATTACH ? AS shared", (str(self._file.path.resolve()),))

    def _connect_to_read(self) -> apsw.Connection:
        found = self.place.look()
        told = RollbackCheck(self.place)
        if not found.st_size:
            told.refuse_emptied()
            raise StoreFileAbsent
        log_file = self.place.beside("-wal")
        logged = log_file.exists() and log_file.stat().st_size
        role: Role = "read" if self.place.writable or logged else "copy"

        def look(connection: apsw.Connection) -> None:
            version = schema.stored_version(connection, str(self.place))
            if version is None:
                raise StoreFileAbsent
            check_small(connection)
            told.compare(connection)
            if version < schema.VERSION:
                raise schema.OldSchema

        try:
            return connect(self.place.path, role, look)
        except schema.OldSchema:
            self._upgrade()
            return connect(self.place.path, role, look)

    def _upgrade(self) -> None:
        if not self.place.writable:
            raise StoreError(
                f"{self.place}: an older tapeway wrote its tables, and they cannot be upgraded "
                "where the file is read-only: open it once where it can be written",
                status=503,
            )
        upgrade = partial(schema.upgrade, place=str(self.place))
        connect(self.place.path, "write", upgrade).close()

    def _highest_fence(self) -> int:
        try:
            with closing(self._connect_to_read()) as connection:
                return self.reading.highest_fence(connection)
        except StoreFileAbsent:
            return 0

    def _step(self, recorded: list[Recorded]) -> None:
        steps = [(name, index, each.step) for name, index, each in recorded if each.step]
        if not steps:
            return
        try:
            self._desk.now(lambda connection: cursors.step(steps, connection))
        except StoreError as exc:
            # It is recorded: at worst the next one to ask is given this answer once more.
            log.error("%s", exc.message)


def _which(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
