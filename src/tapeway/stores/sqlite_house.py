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
from tapeway.stores import sqlite_bodies as bodies
from tapeway.stores import sqlite_instances as instances
from tapeway.stores import sqlite_rows as rows
from tapeway.stores import sqlite_schema as schema
from tapeway.stores import sqlite_turns as turns
from tapeway.stores.sqlite_connection import Role, check_small, connect
from tapeway.stores.sqlite_desk import Desk
from tapeway.stores.sqlite_instances import Instance
from tapeway.stores.sqlite_overflow import Overflow, write_touched
from tapeway.stores.sqlite_pen import Pen
from tapeway.stores.sqlite_place import Absent, Place
from tapeway.stores.sqlite_reading import Reading
from tapeway.stores.sqlite_shared import SharedFile
from tapeway.stores.sqlite_told import Told
from tapeway.stores.sqlite_watch import Watch
from tapeway.stores.sqlite_writer import Recorded, Writer

log = logging.getLogger(__name__)

T = TypeVar("T")

_BODIES_AT_ONCE = 4


class House:
    """From its making to `close`. Nothing is opened before it is used."""

    def __init__(self, place: Place, clock: Callable[[], float]) -> None:
        self.place = place
        self.clock = clock
        self.library = bodies.Library(str(place), self._connect_to_read, self.scratch)
        self.reading = Reading(str(place), self.library)
        self.writer = Writer(place, self._step)
        self.keepers = ThreadPoolExecutor(_BODIES_AT_ONCE, thread_name_prefix="tapeway-bodies")
        self._quick = self._reader("read the recordings")
        self._thorough = self._reader("look through the recordings")
        self._slow = self._reader("read the cassette")
        self._file = SharedFile(place, self._highest_fence)
        self._desk = Desk(f"{place}.shared", "tell the other processes", self._file.connect)
        self.instance = Instance.of_this_process(secrets.token_hex(3))
        self.overflow = Overflow()
        self._takes = 0
        self.watch = Watch(self._desk, self.instance, clock)

    async def read(self, work: Callable[[apsw.Connection], T], otherwise: T) -> T:
        """What a short look gives, or something else where there is no file."""
        try:
            return await self._quick.run(work)
        except Absent:
            return otherwise

    async def look_through(self, work: Callable[[apsw.Connection], T], otherwise: T) -> T:
        """The same for what looks at more than a few recordings."""
        try:
            return await self._thorough.run(work)
        except Absent:
            return otherwise

    async def go_through(self, work: Callable[[apsw.Connection], T], otherwise: T) -> T:
        """The same for what may go through all there is."""
        try:
            return await self._slow.run(work)
        except Absent:
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
            found = turns.read(name, take, keys, connection)
            return found, self.reading.find(name, digests, connection)

        return await self.read(both, ({}, []))

    async def note_takes(self, takes: int) -> None:
        """Remember how many takes ever began, where that can be written."""
        if takes <= self._takes or not self.place.writable:
            return
        try:
            await self.write(lambda pen: rows.note_takes(pen, takes))
            self._takes = takes
        except StoreError as exc:
            log.warning("%s", exc.message)

    async def tidy_up(self) -> None:
        """Remove what was left over: bodies nobody refers to, halves of cassettes."""
        if await self.read(rows.is_untidy, otherwise=False):
            await self.writer.until_done(bodies.sweep)
            await self.writer.until_done(rows.clear_leftovers)

    async def write(self, work: Callable[[Pen], T]) -> T:
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
                await self.tell(lambda connection: instances.leave(self.instance, connection))
        except StoreError as exc:
            log.warning("%s", exc.message)
        await asyncio.to_thread(self.keepers.shutdown)
        for desk in (self.writer, self._quick, self._thorough, self._slow, self._desk):
            await desk.close()
        self._file.close()
        self.library.close()

    def _reader(self, deed: str) -> Desk:
        return Desk(str(self.place), deed, self._connect_to_read, lambda: _which(self.place.path))

    def _attach(self, connection: apsw.Connection) -> None:
        if "shared" not in connection.db_names():
            connection.execute("ATTACH ? AS shared", (str(self._file.path.resolve()),))

    def _connect_to_read(self) -> apsw.Connection:
        found = self.place.look()
        told = Told(self.place)
        if not found.st_size:
            told.refuse_emptied()
            raise Absent
        log_file = self.place.beside("-wal")
        logged = log_file.exists() and log_file.stat().st_size
        role: Role = "read" if self.place.writable or logged else "copy"

        def look(connection: apsw.Connection) -> None:
            if not schema.is_there(connection, str(self.place)):
                raise Absent
            check_small(connection)
            told.compare(connection)

        return connect(self.place.path, role, look)

    def _highest_fence(self) -> int:
        try:
            with closing(self._connect_to_read()) as connection:
                return self.reading.highest_fence(connection)
        except Absent:
            return 0

    def _step(self, recorded: list[Recorded]) -> None:
        steps = [(name, index, each.step) for name, index, each in recorded if each.step]
        if not steps:
            return
        try:
            self._desk.now(lambda connection: turns.step(steps, connection))
        except StoreError as exc:
            # It is recorded: at worst the next one to ask is given this answer once more.
            log.error("%s", exc.message)


def _which(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
