"""The thread of a process that writes to the SQLite file: recordings that wait share one sync."""

import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar, cast

import apsw

from tapeway.core.model.cassette import Lease
from tapeway.errors import (
    CassetteEdited,
    CassetteLocked,
    Fenced,
    StoreError,
    StoreFull,
    StorePoisoned,
    TapewayError,
    copy_of,
)
from tapeway.stores.sql.statements import Op
from tapeway.stores.sqlite import schema
from tapeway.stores.sqlite.connection import (
    BUSY_MS,
    check_small,
    connect,
    immediate_transaction,
    leaves_disk_in_doubt,
)
from tapeway.stores.sqlite.location import StoreFileAbsent, StoreLocation
from tapeway.stores.sqlite.operations import Suspended, run_until_quick
from tapeway.stores.sqlite.rollback_check import RollbackCheck
from tapeway.stores.sqlite.worker_thread import WorkerThread
from tapeway.stores.support.serial_executor import result_of

log = logging.getLogger(__name__)

T = TypeVar("T")

_CHECKPOINT_PAGES = 1000
REWRITTEN_BYTES = 1024**3
"""A larger file is not rewritten to wipe it: others would wait too long."""
WIPE_MS = 1000
"""How long wiping waits for other connections, which wait for the wiping too."""
_FRAME_HEADER = 24
"""Bytes that the write-ahead log adds to each page."""
_ACTION = "write the recording"


@dataclass(frozen=True, slots=True)
class _Waiting:
    make: Callable[[], Op[None]]
    lease: Lease | None
    done: "Future[None]"


class QuickFile(Protocol):
    """Where an operation goes on once its recordings are durable."""

    def finish(self, suspended: Sequence[Suspended]) -> Sequence[Any]:
        """The results of these, in one transaction. Raises StoreError."""

    def release_later(self, lease: Lease) -> None:
        """End a lease under which was recorded, as soon as it can be written."""


class RecordingWriter:
    """Writes to a store's file, and creates it at the first write.

    After a failed sync (`poisoned`) nothing is acknowledged until `recover` succeeds.
    """

    def __init__(self, location: StoreLocation, quick: QuickFile) -> None:
        self._location = location
        self._quick = quick
        self._thread = WorkerThread(str(location), _ACTION, self._connect)
        self._waiting: deque[_Waiting] = deque()
        self._rollback_check = RollbackCheck(location)
        self._file: tuple[int, int] | None = None
        self._wal_pages = 0
        self.poisoned = False
        self.leases: set[Lease] = set()
        """Claimed leases, neither given back nor used for a recording."""

    @property
    def connected(self) -> bool:
        return self._thread.connected

    async def record(self, make: Callable[[], Op[None]], lease: Lease | None) -> None:
        """Run what records, in the order of the calls; durable on return.

        Those that wait share one transaction. `make` is called in the writer's thread.
        """
        done: Future[None] = Future()
        self._waiting.append(_Waiting(make, lease, done))
        self._thread.submit_unconnected(self._write_waiting)
        await result_of(done)

    async def run(self, make: Callable[[], Op[T]]) -> T:
        """The result of an operation in a separate transaction, once durable."""
        return await result_of(self._thread.submit_unconnected(partial(self._write_one, make)))

    async def until_done(self, step: Callable[[], Op[bool]]) -> None:
        """Repeat a step, each time in a new transaction, as long as the step returns True."""
        while await self.run(step):
            pass

    async def recover(self) -> None:
        """After a failed sync: write all that was acknowledged to disk again. Raises StoreError."""
        if self.poisoned:
            await result_of(self._thread.submit_unconnected(self._recover))

    async def wipe(self) -> Sequence[str]:
        """Rewrite the file without what was removed; what is still readable there, a sentence each."""
        return await result_of(self._thread.submit_unconnected(self._wipe))

    async def close(self) -> None:
        await self._thread.close()
        self._rollback_check.close()

    def _connect(self) -> apsw.Connection:
        self._location.refuse_read_only()
        try:
            self._rollback_check.examine()
        except StoreFileAbsent:
            # Before the file exists: a process that sees an empty file finds no earlier number.
            self._rollback_check.reset()
            self._location.create()
        self._location.make_private()
        connection = connect(self._location.path, "write", self._check)
        status = self._location.examine()
        self._file = status.st_dev, status.st_ino
        return connection

    def _check(self, connection: apsw.Connection) -> None:
        # Before its first checkpoint a file has its tables in the log alone.
        schema.create(connection, str(self._location), self._rollback_check.refuse_emptied)
        check_small(connection)
        self._rollback_check.compare(connection)
        connection.set_wal_hook(self._committed_to_wal)

    def _committed_to_wal(self, _: apsw.Connection, __: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _write_one(self, make: Callable[[], Op[T]]) -> T:
        written = self._write(lambda connection: run_until_quick(make(), connection))
        if isinstance(written, Suspended):
            (result,) = self._quick.finish([written])
            return cast("T", result)
        return written

    def _write_waiting(self) -> None:
        taken: list[tuple[_Waiting, Op[None]]] = []
        while self._waiting:
            waiting = self._waiting.popleft()
            try:
                taken.append((waiting, waiting.make()))
            except BaseException as exc:
                waiting.done.set_exception(copy_of(exc))
        if not taken:
            return
        try:
            results = self._write(partial(self._record_all, taken))
        except BaseException as exc:
            for waiting, _ in taken:
                waiting.done.set_exception(copy_of(exc))
            return
        outcomes = [(waiting, result) for (waiting, _), result in zip(taken, results, strict=True)]
        self._finish([(waiting, at) for waiting, at in outcomes if isinstance(at, Suspended)])
        for waiting, result in outcomes:
            if isinstance(result, TapewayError):
                waiting.done.set_exception(result)
            else:
                waiting.done.set_result(None)

    def _record_all(
        self, taken: list[tuple[_Waiting, Op[None]]], connection: apsw.Connection
    ) -> list[Suspended | TapewayError | None]:
        results: list[Suspended | TapewayError | None] = []
        used: set[Lease] = set()
        for waiting, op in taken:
            connection.execute("SAVEPOINT one")
            try:
                if waiting.lease in used or (waiting.lease and waiting.lease not in self.leases):
                    raise Fenced(
                        f"{self._location}: the lease of a recording for cassette "
                        f"'{waiting.lease.name}' was given back: this answer was not written"
                    )
                results.append(run_until_quick(op, connection))
                if waiting.lease is not None:
                    used.add(waiting.lease)
            except TapewayError as exc:
                # The recording itself was refused, not by the disk: the others continue.
                connection.execute("ROLLBACK TO one")
                results.append(copy_of(exc))
            connection.execute("RELEASE one")
        return results

    def _finish(self, suspended: Sequence[tuple[_Waiting, Suspended]]) -> None:
        if not suspended:
            return
        leases = [waiting.lease for waiting, _ in suspended if waiting.lease is not None]
        self.leases.difference_update(leases)
        try:
            self._quick.finish([at for _, at in suspended])
        except StoreError as exc:
            # The recording is durable: at worst the next equal request replays it once more.
            log.error("%s", exc.message)
            for lease in leases:
                self._quick.release_later(lease)

    def _write(self, work: Callable[[apsw.Connection], T]) -> T:
        if self.poisoned:
            raise StorePoisoned(
                f"{self._location}: an earlier write failed, so nothing more is acknowledged; check "
                "the disk, then eject a cassette or start again"
            )
        result, change = self._run_here(partial(self._transaction, work))
        self._rollback_check.note(change)
        if self._wal_pages > _CHECKPOINT_PAGES:
            # Queued: the caller gets the result first.
            self._thread.submit_unconnected(self._checkpoint)
        return result

    def _transaction(
        self, work: Callable[[apsw.Connection], T], connection: apsw.Connection
    ) -> tuple[T, int]:
        with immediate_transaction(connection):
            change = connection.execute(
                "UPDATE state SET changes = changes + 1 RETURNING changes"
            ).get
            result = work(connection)
        self._refuse_replaced()
        return result, change

    def _refuse_replaced(self) -> None:
        # What is written into a removed file is lost when this process ends.
        try:
            status = self._location.examine()
        except StoreFileAbsent:
            status = None
        if status is None or (status.st_dev, status.st_ino) != self._file:
            raise CassetteEdited(
                f"{self._location} was removed or replaced while it was in use; nothing is recorded "
                "into it any more: stop all processes that use it, then start again"
            )

    def _run_here(self, work: Callable[[apsw.Connection], T]) -> T:
        try:
            return self._thread.run_here(work)
        except StoreError as exc:
            # A file that cannot be opened fails each time by itself.
            if self._thread.connected and leaves_disk_in_doubt(exc):
                self.poisoned = True
            raise

    def _checkpoint(self) -> None:
        if self.poisoned or self._wal_pages <= _CHECKPOINT_PAGES:
            return
        self._wal_pages = 0
        try:
            self._run_here(lambda connection: connection.wal_checkpoint())
        except CassetteLocked:
            # Another process is making one.
            return
        except StoreFull as exc:
            log.warning("%s", exc.message)
        except StoreError as exc:
            log.error("%s", exc.message)

    def _wipe(self) -> Sequence[str]:
        try:
            whole = self._run_here(partial(_wiped, self._refuse_without_room))
        except StoreError as exc:
            return [
                f"{self._location}: what was removed may still be readable in the file or its -wal "
                f"({exc.message}): stop all processes that use the file; the last one wipes it"
            ]
        if whole:
            return []
        return [
            f"{self._location} is too large to be rewritten while it is used: copies of what was "
            "removed may be left in its pages: stop all processes that use it, then run the "
            f"statement VACUUM on it, as in: sqlite3 {self._location} VACUUM"
        ]

    def _refuse_without_room(self, pages: int, size: int) -> None:
        # A checkpoint may enlarge the file; then the log takes all pages, with a header for each.
        growth = max(0, pages * size - self._location.examine().st_size)
        wanted, disk = growth + pages * (size + _FRAME_HEADER), os.statvfs(self._location.folder)
        if disk.f_bavail * disk.f_frsize < wanted:
            raise StoreFull(
                f"{self._location}: no room to rewrite the file, which takes {wanted} bytes; free some"
            )

    def _recover(self) -> None:
        self._thread.disconnect()

        def checkpoint(connection: apsw.Connection) -> None:
            # Writes the whole log into the file, and syncs it.
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            check_small(connection)

        self._thread.run_here(checkpoint)
        self.poisoned = False


def _wiped(refuse_without_room: Callable[[int, int], None], connection: apsw.Connection) -> bool:
    """Wipe a file after a removal; False for a file too large to be rewritten. Raises StoreFull.

    SQLite writes zeros over deleted rows. But when SQLite moves rows between pages, the first page
    keeps a copy. Only a rewritten file is clean.
    """
    removed = connection.execute("SELECT removed FROM state").get
    if not removed:
        return True
    pages, size = connection.pragma("page_count"), connection.pragma("page_size")
    small = isinstance(pages, int) and isinstance(size, int) and pages * size <= REWRITTEN_BYTES
    connection.set_busy_timeout(WIPE_MS)
    try:
        if small:
            refuse_without_room(pages, size)
            _vacuum(connection)
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        # Unless another process has removed something since.
        connection.execute("UPDATE state SET removed = 0 WHERE removed = ?", (removed,))
    finally:
        connection.set_busy_timeout(BUSY_MS)
    return small


def _vacuum(connection: apsw.Connection) -> None:
    # The checkpoint afterwards needs no room then.
    with suppress(apsw.BusyError):
        connection.wal_checkpoint()
    try:
        connection.execute("VACUUM")
    except (apsw.FullError, apsw.IOError):
        # The log would keep all the room there was, and no process could write any more.
        with suppress(apsw.Error):
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        raise
