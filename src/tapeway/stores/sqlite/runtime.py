"""The driver of SQLite: the threads, connections and files of an open store."""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

import apsw

from tapeway.core.digests import sha256
from tapeway.core.model.cassette import Lease, Recording
from tapeway.core.model.control import Control
from tapeway.errors import StoreError
from tapeway.stores.sql import bodies, cassettes, coordination
from tapeway.stores.sql.bodies import BodyCache
from tapeway.stores.sql.coordination import OUT_OF_TOUCH_S, Member
from tapeway.stores.sql.statements import Op
from tapeway.stores.sql.store import Make, Reach
from tapeway.stores.sqlite import schema
from tapeway.stores.sqlite.connection import (
    check_small,
    connect,
    immediate_transaction,
    snapshot,
    store_error,
)
from tapeway.stores.sqlite.heartbeat import HeartbeatThread, has_ended, this_process
from tapeway.stores.sqlite.location import StoreFileAbsent, StoreLocation
from tapeway.stores.sqlite.moves import (
    AttachedRecordings,
    CursorMoves,
    LoopConnection,
    file_identity,
)
from tapeway.stores.sqlite.operations import Suspended, resume, run
from tapeway.stores.sqlite.rollback_check import RollbackCheck
from tapeway.stores.sqlite.shared_file import SharedFile
from tapeway.stores.sqlite.worker_thread import WorkerThread
from tapeway.stores.sqlite.writer import RecordingWriter
from tapeway.stores.support.background_tasks import BackgroundTasks

log = logging.getLogger(__name__)

T = TypeVar("T")

STALE_S = 15.0
"""A process silent for so many seconds counts as dead, and others take over the leases. The silent
process refuses requests much earlier, after `coordination.OUT_OF_TOUCH_S`.
"""

_LEASE_WAIT_S = 1.0
_POLL_S = 0.02

GRACE_S = 600.0
"""How long an unreferenced body or half-written cassette stays: its writer may still be at work."""


class Runtime:
    """Lives from the store's `open` to its `close`. Each file is opened at its first use.

    Three threads read, so that a look-up waits for no scan, and a scan for no export.
    """

    one_database = False

    def __init__(self, location: StoreLocation, clock: Callable[[], float]) -> None:
        self.location = location
        self.clock = clock
        self.place = str(location)
        self.bodies = BodyCache(self.place, self._pieces_of, self.scratch)
        self.writer = RecordingWriter(location, self)
        self._quick_reader = self._reader("read the recordings")
        self._readers = {
            Reach.LOOK: self._quick_reader,
            Reach.SCAN: self._reader("scan the recordings"),
            Reach.WHOLE: self._reader("read the cassette"),
        }
        self._shared_file = SharedFile(location, clock)
        self.shared_thread = WorkerThread(
            f"{location}.shared", "use the shared file", self._shared_file.connect
        )
        recordings = AttachedRecordings(location, clock, self._read_file)
        here = LoopConnection(
            self._shared_file.connect,
            AttachedRecordings(location, clock, lambda: self._quick_reader.connected_to),
            clock,
        )
        self.moves = CursorMoves(self.shared_thread, recordings, here)
        self.member = Member(
            f"{socket.gethostname()}:{os.getpid()}",
            clock,
            lease_s=STALE_S,
            silent_s=STALE_S,
            touch_s=OUT_OF_TOUCH_S,
            process=this_process(),
        )
        self._takes = 0
        self._wiping = asyncio.Lock()
        self._heartbeat = HeartbeatThread(
            f"{location}.shared", self._shared_file.connect, self.member
        )
        self.background = BackgroundTasks(self.place)

    async def open(self) -> None:
        await self.background.open()

    async def read(
        self,
        action: str,
        make: Make[T],
        otherwise: T,
        *,
        reach: Reach = Reach.LOOK,
        cursors: bool = False,
        moment: bool = False,
        long: bool = False,
    ) -> T:
        """The result of a query, or `otherwise` where there is no file."""
        if cursors and not self.shared_thread.connected:
            await self.shared_thread.run(lambda _: None)

        def work(connection: apsw.Connection) -> T:
            if cursors:
                self._attach(connection)
            with snapshot(connection) if moment else nullcontext():
                return run(make(), connection)

        try:
            return await self._readers[reach].run(work)
        except StoreFileAbsent:
            return otherwise

    async def write(
        self, action: str, make: Make[T], *, long: bool = False, patient: bool = False
    ) -> T:
        """The result of a transaction, once it is durable."""
        return await self.writer.run(make)

    async def record(self, name: str, recording: Recording, make: Make[None]) -> None:
        lease, step = recording.lease, recording.step

        def with_lease(op: Op[None]) -> Op[None]:
            if step is not None:
                yield from schema.note_takes(step.take)
            yield from op
            if lease is not None:
                yield from coordination.give_back(lease, self.member)

        await self.writer.record(lambda: with_lease(make()), lease)

    def use_lease(self, lease: Lease) -> Op[None]:
        """Refuse a lease after a take-over. The writer refuses a returned lease."""
        yield from schema.refuse_lost(lease, self.place)

    async def turn(
        self, action: str, make: Make[T], *, once: bool = False, durable: bool = True
    ) -> T:
        """`durable` changes nothing: the shared file need not survive a crash."""

        def work(connection: apsw.Connection) -> T:
            with immediate_transaction(connection):
                return run(make(), connection, quick=True)

        return await self.shared_thread.run(work)

    async def read_turns(self, action: str, make: Make[T]) -> T:
        return await self.shared_thread.run(lambda connection: run(make(), connection, quick=True))

    def shard(self) -> int:
        """One row of counts is enough where one transaction runs at a time."""
        return 0

    def note_removal(self) -> None:
        """The file notes by itself what is removed."""

    def finish(self, suspended: Sequence[Suspended]) -> Sequence[Any]:
        """Let operations go on whose recordings are durable; called in the writer's thread."""

        def work(connection: apsw.Connection) -> Sequence[Any]:
            with immediate_transaction(connection):
                return [resume(operation, connection) for operation in suspended]

        return self.shared_thread.run_blocking(work)

    def release_later(self, lease: Lease) -> None:
        """End a lease as soon as the shared file can be written."""
        self.member.unreleased.append(lease)

    # What instances share.

    def go_on_beating(self) -> None:
        self._heartbeat.start()

    def bury(self) -> Op[None]:
        """Remove the processes that have ended."""
        for instance, process in (yield from coordination.registered()):
            if has_ended(process):
                yield from coordination.remove_dead(instance)

    async def claimed(self, lease: Lease, lost: Sequence[int]) -> None:
        self.writer.leases.add(lease)
        if lost:
            await self.writer.run(partial(schema.lose, lost))

    def has_ended(self, lease: Lease) -> bool:
        """False: a lease is not in the database of the recordings, so a recording cannot end it."""
        return False

    def ended(self, lease: Lease) -> None:
        """Tell nobody: processes that wait for a lease poll."""
        self.writer.leases.discard(lease)

    async def wait_for_end(
        self, name: str, key: bytes, held: Callable[[], Awaitable[bool]]
    ) -> None:
        until = self.clock() + _LEASE_WAIT_S
        while self.clock() < until and await held():  # noqa: ASYNC110 - another process ends it
            await asyncio.sleep(_POLL_S)

    async def takes(self) -> int:
        return await self.read("read the takes", schema.takes, 0)

    async def joined(self, control: Control, *, alone: bool) -> None:
        await self._note_takes(control.takes)

    async def steered(self, control: Control) -> None:
        self.member.apply(control)
        # The caller waits until all processes have reported the change.
        await self.turn("report the change", lambda: coordination.beat(self.member))
        await self._note_takes(control.takes)

    async def check(self) -> Sequence[str]:
        """The damage that SQLite finds in the whole file."""

        def work(connection: apsw.Connection) -> Sequence[str]:
            try:
                problems = [
                    str(problem) for (problem,) in connection.execute("PRAGMA integrity_check")
                ]
                if problems == ["ok"]:
                    lost = connection.execute("PRAGMA foreign_key_check").fetchall()
                    problems = [f"a row of '{table}' refers to what is gone" for table, *_ in lost]
            except apsw.CorruptError as exc:
                problems = [str(exc)]
            return [f"{self.place}: {problem}" for problem in problems]

        try:
            return await self._readers[Reach.WHOLE].run(work)
        except StoreFileAbsent:
            return []

    async def _note_takes(self, takes: int) -> None:
        """Store how many takes ever began, where the file can be written."""
        if takes <= self._takes or not self.location.writable:
            return
        try:
            await self.writer.run(partial(schema.note_takes, takes))
            self._takes = takes
        except StoreError as exc:
            log.warning("%s", exc.message)

    async def sweep(self) -> None:
        """Remove bodies that no recording refers to, and half-written cassettes."""
        if await self._may_sweep():
            await self.writer.until_done(partial(bodies.sweep, GRACE_S))
            await self.writer.until_done(partial(cassettes.clear_leftovers, GRACE_S))

    async def _may_sweep(self) -> bool:
        return await self.read("look", bodies.has_idle, otherwise=False) or await self.read(
            "look", cassettes.has_leftovers, otherwise=False
        )

    async def wipe(self) -> Sequence[str]:
        """Wipe what was removed from the file; what is still readable there, a sentence each."""
        async with self._wiping:
            if not self.location.writable or not await self.read(
                "look", schema.needs_wiping, otherwise=False
            ):
                return []
            await self.sweep()
            return await self.writer.wipe()

    @property
    def has_cursors(self) -> bool:
        """Whether there may be cursors of some cassette."""
        return self.shared_thread.connected or self._shared_file.path.exists()

    def scratch(self) -> str | None:
        """The folder for temporary files: the store's folder, None where this process cannot write."""
        for folder in (self.location.folder, *self.location.folder.parents):
            if folder.is_dir():
                return str(folder) if os.access(folder, os.W_OK) else None
        return None

    async def close(self) -> None:
        await self.background.close()
        await self._heartbeat.stop()
        self.member.left()
        try:
            if self.shared_thread.connected:
                await self.turn(
                    "leave the other processes", partial(coordination.leave, self.member)
                )
        except StoreError as exc:
            log.warning("%s", exc.message)
        await self._wipe_at_the_end()
        await self.moves.close()
        # The last one to close the recordings writes the log into the file: one that may write.
        await self.writer.close()
        for thread in (self.shared_thread, *self._readers.values()):
            await thread.close()
        self._shared_file.close()
        self.bodies.close()

    async def _wipe_at_the_end(self) -> None:
        if not self.writer.connected and not self._quick_reader.connected:
            return
        try:
            for warning in await self.wipe():
                log.warning("%s", warning)
        except StoreError as exc:
            log.warning("%s", exc.message)

    def _reader(self, action: str) -> WorkerThread:
        return WorkerThread(
            str(self.location),
            action,
            self._connect_to_read,
            lambda: file_identity(self.location.path),
        )

    def _read_file(self) -> object:
        """The file that was read; for threads that may block. Raises StoreError."""
        if not self._quick_reader.connected:
            with suppress(StoreFileAbsent):
                self._quick_reader.run_blocking(lambda _: None)
        return self._quick_reader.connected_to

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
            connection.create_scalar_function("sha256", _sha256, 1, deterministic=True)

        return connect(self.location.path, self.location.role, check)

    def _pieces_of(self, digest: str) -> Iterator[bytes]:
        try:
            with closing(self._connect_to_read()) as connection:
                number = 0
                while pieces := run(bodies.pieces_from(digest, number), connection):
                    yield from [data for _, data in pieces]
                    number = pieces[-1][0] + 1
        except apsw.Error as exc:
            raise store_error(exc, self.place, "read a large body") from exc


def _sha256(*document: Any) -> Any:
    return sha256(*document).digest()
