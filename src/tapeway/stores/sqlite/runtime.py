"""The threads, connections and files of an open SQLite store."""

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import TypeVar

import apsw

from tapeway.core.model.cassette import TakenRecording
from tapeway.core.model.control import CursorMove, CursorState
from tapeway.errors import StoreError
from tapeway.stores.shared.cursor_moves import made
from tapeway.stores.sqlite import bodies, schema, writes
from tapeway.stores.sqlite.connection import check_small, connect
from tapeway.stores.sqlite.coordination import cursors, members
from tapeway.stores.sqlite.coordination.heartbeat import HeartbeatThread
from tapeway.stores.sqlite.coordination.loop_connection import LoopConnection
from tapeway.stores.sqlite.coordination.members import ProcessMember
from tapeway.stores.sqlite.coordination.moves import CursorMoves
from tapeway.stores.sqlite.coordination.shared_file import SharedFile
from tapeway.stores.sqlite.coordination.sight import RecordingsInSight, file_identity
from tapeway.stores.sqlite.location import StoreFileAbsent, StoreLocation
from tapeway.stores.sqlite.queries import CassetteQueries, mark_of
from tapeway.stores.sqlite.rollback_check import RollbackCheck
from tapeway.stores.sqlite.transaction import WriteTransaction
from tapeway.stores.sqlite.worker_thread import WorkerThread
from tapeway.stores.sqlite.writer import Recorded, RecordingWriter

log = logging.getLogger(__name__)

T = TypeVar("T")

_BODIES_AT_ONCE = 4


class Runtime:
    """Lives from the store's `open` to its `close`. Each file is opened at its first use.

    Three threads read, so that a look-up waits for no scan, and a scan for no export.
    """

    def __init__(self, location: StoreLocation, clock: Callable[[], float]) -> None:
        self.location = location
        self.clock = clock
        self.body_cache = bodies.BodyCache(str(location), self._connect_to_read, self.scratch)
        self.queries = CassetteQueries(str(location), self.body_cache)
        self.writer = RecordingWriter(location, self._move_cursors)
        self.body_writers = ThreadPoolExecutor(_BODIES_AT_ONCE, thread_name_prefix="tapeway-bodies")
        self._quick_reader = self._reader("read the recordings")
        self._scan_reader = self._reader("scan the recordings")
        self._full_reader = self._reader("read the cassette")
        self._shared_file = SharedFile(location, self._highest_fence)
        self._shared_thread = WorkerThread(
            f"{location}.shared", "use the shared file", self._shared_file.connect
        )
        self._in_sight = self._recordings_in_sight()
        here = LoopConnection(self._shared_file.connect, self._recordings_in_sight(), clock)
        self.moves = CursorMoves(self._shared_thread, self._in_sight, here)
        self.instance = ProcessMember.of_this_process(secrets.token_hex(3))
        self._takes = 0
        self._wiping = asyncio.Lock()
        self.heartbeat = HeartbeatThread(self._shared_thread, self.instance, clock)

    async def read(self, work: Callable[[apsw.Connection], T], otherwise: T) -> T:
        """The result of a look-up, or `otherwise` where there is no file."""
        try:
            return await self._quick_reader.run(work)
        except StoreFileAbsent:
            return otherwise

    async def scan(self, work: Callable[[apsw.Connection], T], otherwise: T) -> T:
        """The same for what reads more than a few recordings."""
        try:
            return await self._scan_reader.run(work)
        except StoreFileAbsent:
            return otherwise

    async def read_all(self, work: Callable[[apsw.Connection], T], otherwise: T) -> T:
        """The same for what may read a whole cassette or file."""
        try:
            return await self._full_reader.run(work)
        except StoreFileAbsent:
            return otherwise

    async def read_with_shared(self, work: Callable[[apsw.Connection], T], otherwise: T) -> T:
        """The same for a query that joins the shared file, attached as `shared`."""
        if not self._shared_thread.connected:
            await self.run_shared(lambda _: None)

        def both(connection: apsw.Connection) -> T:
            self._attach(connection)
            return work(connection)

        return await self.scan(both, otherwise)

    async def cursors_and_recordings(
        self, name: str, take: int, keys: Sequence[bytes], digests: Sequence[bytes]
    ) -> tuple[Mapping[bytes, CursorState], Sequence[TakenRecording], str | None]:
        """The cassette's mark, then cursors, then recordings, in one call to one thread."""
        if not self._shared_thread.connected:
            await self.run_shared(lambda _: None)

        def both(
            connection: apsw.Connection,
        ) -> tuple[Mapping[bytes, CursorState], Sequence[TakenRecording], str | None]:
            self._attach(connection)
            # Where it is not attached when a cursor is moved, nothing can be compared.
            mark = mark_of(connection, name) if self.location.writable else None
            found = cursors.read(name, take, keys, connection)
            return found, self.queries.find(name, digests, connection), mark

        return await self.read(both, ({}, [], None))

    async def note_takes(self, takes: int) -> None:
        """Store how many takes ever began, where the file can be written."""
        if takes <= self._takes or not self.location.writable:
            return
        try:
            await self.write(lambda transaction: writes.note_takes(transaction, takes))
            self._takes = takes
        except StoreError as exc:
            log.warning("%s", exc.message)

    async def sweep(self) -> None:
        """Remove bodies that no recording refers to, and half-written cassettes."""
        if await self.read(writes.needs_sweep, otherwise=False):
            await self.writer.until_done(bodies.sweep)
            await self.writer.until_done(writes.clear_leftovers)

    async def wipe(self) -> Sequence[str]:
        """Wipe what was removed from the file; what is still readable there, a sentence each."""
        async with self._wiping:
            if not self.location.writable or not await self.read(
                writes.needs_wiping, otherwise=False
            ):
                return []
            await self.sweep()
            return await self.writer.wipe()

    async def write(self, work: Callable[[WriteTransaction], T]) -> T:
        """The result of a transaction, once it is durable."""
        return await self.writer.run(work)

    async def forget_cursors(self, name: str) -> None:
        """Reset the cursors of a cassette, where there are any of some cassette."""
        if self._shared_thread.connected or self._shared_file.path.exists():
            await self.run_shared(partial(cursors.forget, name))

    async def run_shared(self, work: Callable[[apsw.Connection], T]) -> T:
        """The result of work on the shared file."""
        return await self._shared_thread.run(work)

    @property
    def reads(self) -> bool:
        """Whether the recordings were read, so that cursors can be moved in sight of them."""
        return self._quick_reader.connected

    async def make_move(self, move: CursorMove) -> CursorState | None:
        """Move a cursor in sight of the recordings, as `made`."""
        if not self._quick_reader.connected:
            await self.read(lambda _: None, None)
        return await made(self.moves.add, move)

    def scratch(self) -> str | None:
        """The folder for temporary files: that of the store, None where it cannot be written."""
        for folder in (self.location.folder, *self.location.folder.parents):
            if folder.is_dir():
                return str(folder) if os.access(folder, os.W_OK) else None
        return None

    async def close(self) -> None:
        await self.heartbeat.stop()
        try:
            if self._shared_thread.connected:
                await self.run_shared(lambda connection: members.leave(self.instance, connection))
        except StoreError as exc:
            log.warning("%s", exc.message)
        await self._wipe_at_the_end()
        await self.moves.close()
        await asyncio.to_thread(self.body_writers.shutdown)
        # The last one to close the recordings writes the log into the file: one that may write.
        for thread in (
            self.writer,
            self._shared_thread,
            self._quick_reader,
            self._scan_reader,
            self._full_reader,
        ):
            await thread.close()
        self._shared_file.close()
        self.body_cache.close()

    async def _wipe_at_the_end(self) -> None:
        if not self.writer.connected and not self._quick_reader.connected:
            return
        try:
            for each in await self.wipe():
                log.warning("%s", each)
        except StoreError as exc:
            log.warning("%s", exc.message)

    def _reader(self, action: str) -> WorkerThread:
        return WorkerThread(
            str(self.location),
            action,
            self._connect_to_read,
            lambda: file_identity(self.location.path),
        )

    def _recordings_in_sight(self) -> RecordingsInSight:
        return RecordingsInSight(self.location, self.clock, lambda: self._quick_reader.connected_to)

    def _attach(self, connection: apsw.Connection) -> None:
        if "shared" not in connection.db_names():
            connection.execute("ATTACH ? AS shared", (str(self._shared_file.path.resolve()),))

    def _connect_to_read(self) -> apsw.Connection:
        rollback_check = RollbackCheck(self.location)
        if not rollback_check.examine().st_size:
            raise StoreFileAbsent

        def check(connection: apsw.Connection) -> None:
            version = schema.stored_version(connection, str(self.location))
            if version is None and rollback_check.has_number:
                # Perhaps its first process has committed the tables in between.
                version = schema.stored_version(connection, str(self.location))
                if version is None:
                    rollback_check.refuse_emptied()
            if version is None:
                raise StoreFileAbsent
            check_small(connection)
            rollback_check.compare(connection)

        return connect(self.location.path, self.location.role, check)

    def _highest_fence(self) -> int:
        try:
            with closing(self._connect_to_read()) as connection:
                return self.queries.highest_fence(connection)
        except StoreFileAbsent:
            return 0

    def _move_cursors(self, recorded: list[Recorded]) -> None:
        steps = [(name, index, each.step) for name, index, each in recorded if each.step]
        gone = [(name, index) for name, _, each in recorded for index in each.supersedes]
        leases = [each.lease for _, _, each in recorded if each.lease]

        def move(connection: apsw.Connection) -> None:
            cursors.forget_touched(gone, connection)
            cursors.step(steps, connection)
            for each in leases:
                members.release_lease(each, connection)

        if not steps and not gone and not leases:
            return
        try:
            self._shared_thread.run_blocking(move)
        except StoreError as exc:
            # The recording is durable: at worst the next equal request replays it once more.
            log.error("%s", exc.message)
            for each in leases:
                self.heartbeat.release_later(each)
