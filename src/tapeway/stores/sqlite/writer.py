"""The thread that writes into a SQLite file: recordings that wait share one sync."""

import asyncio
import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, TypeVar

import apsw

from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.core.model.interaction import AnyInteraction, large_bodies
from tapeway.errors import (
    CassetteEdited,
    CassetteLocked,
    StoreError,
    StoreFull,
    StorePoisoned,
    TapewayError,
    copy_of,
)
from tapeway.stores.sqlite import bodies, recordings, schema
from tapeway.stores.sqlite.connection import (
    BUSY_MS,
    check_small,
    connect,
    immediate_transaction,
    leaves_disk_in_doubt,
)
from tapeway.stores.sqlite.location import StoreFileAbsent, StoreLocation
from tapeway.stores.sqlite.lock_file import LockFile
from tapeway.stores.sqlite.recordings import Change
from tapeway.stores.sqlite.worker_thread import WorkerThread
from tapeway.stores.support.columns import recording_text
from tapeway.stores.support.large_bodies import BodyUpload
from tapeway.stores.support.serial_executor import Done, result_of, tell

log = logging.getLogger(__name__)

T = TypeVar("T")

_CHECKPOINT_PAGES = 1000
REWRITTEN_BYTES = 1024**3
"""A larger file is not rewritten to wipe it: recordings would wait too long."""
WIPE_MS = 1000
"""How long wiping waits for other connections, which wait for the wiping too."""
_FRAME_HEADER = 24
"""Bytes that the write-ahead log adds to each page."""
_ACTION = "write the recording"
UNSEEN: Final = object()


class _Append(NamedTuple):
    """A recording that waits to be written, with its text if quickly made."""

    name: str
    head: CassetteHead
    recording: Recording
    text: bytes | None
    done: Done


class Writer:
    """Writes into a store's file, and creates it at the first write.

    It holds the file's lock as long as it has any cassette. After a failed sync (`poisoned`) nothing
    is acknowledged until `claim` or `release` succeeds.
    """

    def __init__(
        self, location: StoreLocation, superseded: Callable[[str, int, bytes, bytes], None]
    ) -> None:
        """`superseded` gets each recording that another one replaced, before the row is gone."""
        self._superseded = superseded
        self._location = location
        self._thread = WorkerThread(str(location), _ACTION, self._connect)
        self._lock = LockFile(location)
        self._claimed: set[str] = set()
        self._changed: set[str] = set()
        self._kept: dict[str, Counter[bytes]] = {}
        """The digests of the bodies that were kept for a cassette and are to be recorded."""
        self._uploads: set[BodyUpload] = set()
        self._waiting: deque[_Append] = deque()
        self._handed_over = True
        self._file: tuple[int, int] | None = None
        self._wal_pages = 0
        self.poisoned = False

    def has(self, name: str) -> bool:
        """Whether this process records into a cassette."""
        return name in self._claimed

    async def append(
        self, name: str, head: CassetteHead, recording: Recording, text: bytes | None
    ) -> None:
        """Write a recording, in the order of the calls; durable on return."""
        loop = asyncio.get_running_loop()
        waiting = _Append(name, head, recording, text, loop.create_future())
        self._waiting.append(waiting)
        if self._handed_over:
            self._handed_over = False
            # All that is recorded in this turn of the event loop wakes the thread once.
            loop.call_soon(self._hand_over)
        if (failure := await waiting.done) is not None:
            try:
                raise failure
            finally:
                # Each would keep the other, and the recording.
                del failure

    async def run(self, name: str, work: Callable[[Change], T]) -> T:
        """The result of a change of a cassette in a transaction of its own, once durable."""

        def written() -> T:
            self._begin(name)
            self._changed.add(name)
            return self._write(work)

        return await self._in_thread(written)

    async def claim(self, name: str, seen: object = UNSEEN) -> None:
        """Become the process that writes. `seen` is the version of the cassette that was read.

        Raises CassetteLocked, CassetteEdited for another version, StoreError.
        """
        await self._in_thread(partial(self._claim, name, seen))

    async def upload(self, name: str, pieces: Iterable[bytes]) -> BodyUpload:
        """Write a large body, for a recording that is appended next; durable on return."""
        await self._in_thread(partial(self._claim, name, UNSEEN))
        upload = BodyUpload(pieces)
        self._uploads.add(upload)
        try:
            while (block := await asyncio.to_thread(upload.take)) or upload.id is None:
                await self.run(name, partial(bodies.add_block, upload=upload, block=block))
            self._kept.setdefault(name, Counter())[upload.digest] += 1
            await self.run(name, partial(bodies.finish, upload=upload))
        except BaseException:
            if upload.id is not None:
                # Where that fails, as on a full disk, a sweep removes it later.
                with suppress(StoreError):
                    dropped = partial(bodies.remove, body=upload.id)
                    await asyncio.shield(self.run(name, dropped))
            raise
        finally:
            self._uploads.discard(upload)
        return upload

    async def release(self, name: str) -> None:
        """Write the final form of a cassette, and let go of the file with the last one."""
        await self._in_thread(partial(self._release, name))

    async def wipe(self) -> Sequence[str]:
        """Rewrite the file without what was removed; what is still readable there, a sentence each."""
        return await self._in_thread(self._wiped_alone)

    async def close(self) -> None:
        """Write the final form of all cassettes, wipe the file, and let go of it."""
        await self._in_thread(self._close)
        await self._thread.close()

    # In the thread.

    async def _in_thread(self, work: Callable[[], T]) -> T:
        self._hand_over()
        return await result_of(self._thread.submit_unconnected(work))

    def _hand_over(self) -> None:
        if self._handed_over:
            return
        self._handed_over = True
        try:
            self._thread.submit_unconnected(self._write_waiting)
        except RuntimeError as exc:
            refused = [(waiting.done, copy_of(exc)) for waiting in self._waiting]
            self._waiting.clear()
            tell(refused)

    def _begin(self, name: str) -> None:
        if not self._lock.held:
            self._location.refuse_read_only()
            self._lock.take()
        self._claimed.add(name)

    def _claim(self, name: str, seen: object) -> None:
        was_claimed = name in self._claimed
        self._begin(name)
        if self.poisoned:
            self._recover()
        if was_claimed or seen is UNSEEN or self._version(name) == seen:
            return
        self._let_go(name)
        raise CassetteEdited(
            f"cassette '{name}' in {self._location} was changed or recorded into by somebody since "
            "it was loaded for replay: eject it, so that it is loaded anew"
        )

    def _version(self, name: str) -> str | None:
        if not self._is_there():
            return None
        found = self._thread.run_here(partial(recordings.stat, name=name))
        return None if found is None else found.version

    def _is_there(self) -> bool:
        try:
            return self._lock.examine().st_size > 0
        except StoreFileAbsent:
            return False

    def _release(self, name: str) -> None:
        if name not in self._claimed:
            return
        try:
            if self.poisoned:
                self._recover()
            self._settle(name)
        except StoreFull as exc:
            # All is stored; the next release numbers the recordings.
            log.warning("%s", exc.message)
        finally:
            self._let_go(name)

    def _settle(self, name: str) -> None:
        kept = self._kept.pop(name, None)
        if not self._is_there():
            return
        if name in self._changed or self._thread.run_here(partial(recordings.has_gaps, name=name)):
            self._write(lambda change: change.settle(name))
        if kept or name in self._changed:
            self._sweep()
        self._changed.discard(name)

    def _let_go(self, name: str) -> None:
        self._claimed.discard(name)
        self._kept.pop(name, None)
        if not self._claimed:
            self._thread.disconnect()
            self._lock.let_go()

    def _sweep(self) -> None:
        """Remove the bodies that nothing refers to and nobody is about to record."""
        spared = {digest for kept in self._kept.values() for digest in kept}
        under_way = {upload.id for upload in self._uploads if upload.id is not None}
        unused = self._thread.run_here(partial(bodies.unused, spared=spared, under_way=under_way))
        for body in unused:
            self._write(partial(bodies.remove, body=body))

    def _close(self) -> None:
        try:
            if self._claimed and not self.poisoned:
                for name in sorted(self._claimed):
                    self._settle(name)
                for warning in self._wiped() if self._is_there() else ():
                    log.warning("%s", warning)
        except StoreError as exc:
            # What was acknowledged is durable; the next process does the rest.
            log.error("at stop: %s", exc.message)
        self._thread.disconnect()
        self._claimed.clear()
        self._lock.let_go()

    def _connect(self) -> apsw.Connection:
        self._location.refuse_read_only()
        try:
            self._lock.examine()
        except StoreFileAbsent:
            # Before the file exists: a process that sees an empty file finds no earlier number.
            self._lock.reset()
            self._location.create()
        self._location.make_private()
        place = str(self._location)
        connection = connect(
            self._location.path, "write", lambda opened: schema.check(opened, place)
        )
        try:
            schema.create(connection, place, self._lock.refuse_emptied)
            self._lock.compare(connection)
            connection.set_wal_hook(self._committed_to_wal)
            status = self._location.examine()
        except BaseException:
            connection.close()
            raise
        self._file = status.st_dev, status.st_ino
        return connection

    def _committed_to_wal(self, _: apsw.Connection, __: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _write_waiting(self) -> None:
        ended: list[tuple[Done, BaseException | None]] = []
        taken: list[tuple[_Append, bytes]] = []
        while self._waiting:
            waiting = self._waiting.popleft()
            try:
                self._begin(waiting.name)
                text = recording_text(waiting.recording) if waiting.text is None else waiting.text
                taken.append((waiting, text))
            except BaseException as exc:
                ended.append((waiting.done, exc))
        if taken:
            try:
                results = self._write(partial(_appended, taken))
            except BaseException as exc:
                results = [copy_of(exc) for _ in taken]
            for (waiting, _), result in zip(taken, results, strict=True):
                self._changed.add(waiting.name)
                if result is None and (kept := self._kept.get(waiting.name)):
                    self._recorded(waiting.recording.interaction, kept)
            ended += [(waiting.done, at) for (waiting, _), at in zip(taken, results, strict=True)]
        tell(ended)

    def _recorded(self, item: AnyInteraction, kept: Counter[bytes]) -> None:
        for file in large_bodies(item):
            kept.subtract([bytes.fromhex(file.digest)])
        for digest in [digest for digest, count in kept.items() if count <= 0]:
            del kept[digest]

    def _write(self, work: Callable[[Change], T]) -> T:
        if self.poisoned:
            raise StorePoisoned(
                f"{self._location}: an earlier write failed, so nothing more is acknowledged; check "
                "the disk, then eject a cassette or start again"
            )
        result, number = self._run_here(partial(self._transaction, work))
        self._lock.note(number)
        if self._wal_pages > _CHECKPOINT_PAGES:
            # Queued: the caller gets the result first.
            self._thread.submit_unconnected(self._checkpoint)
        return result

    def _transaction(
        self, work: Callable[[Change], T], connection: apsw.Connection
    ) -> tuple[T, int]:
        with immediate_transaction(connection):
            change = Change(connection)
            result = work(change)
            change.end()
            for replaced in change.superseded:
                self._superseded(*replaced)
        self._refuse_replaced()
        return result, change.number

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
            elif self._thread.connected and isinstance(exc, StoreFull):
                # The log would keep all the room there was.
                with suppress(StoreError):
                    self._thread.run_here(lambda connection: connection.wal_checkpoint())
            raise

    def _checkpoint(self) -> None:
        if self.poisoned or self._wal_pages <= _CHECKPOINT_PAGES or not self._thread.connected:
            return
        self._wal_pages = 0
        try:
            self._run_here(lambda connection: connection.wal_checkpoint())
        except CassetteLocked:
            # A process that reads is making one.
            return
        except StoreFull as exc:
            log.warning("%s", exc.message)
        except StoreError as exc:
            log.error("%s", exc.message)

    def _wiped_alone(self) -> Sequence[str]:
        if not self._is_there():
            return ()
        alone = not self._lock.held
        if alone:
            self._location.refuse_read_only()
            self._lock.take()
        try:
            return () if self.poisoned else self._wiped()
        finally:
            if alone:
                self._thread.disconnect()
                self._lock.let_go()

    def _wiped(self) -> Sequence[str]:
        try:
            self._sweep()
            whole = self._run_here(partial(_wiped, self._refuse_without_room))
        except StoreError as exc:
            return [
                f"{self._location}: what was removed may still be readable in the file or its -wal "
                f"({exc.message}): stop all processes that use the file; the next one that writes "
                "into it wipes it when it stops"
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
        """After a failed sync: write all that was acknowledged to disk again. Raises StoreError."""
        self._thread.disconnect()

        def checkpoint(connection: apsw.Connection) -> None:
            # Writes the whole log into the file, and syncs it.
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            check_small(connection)

        self._thread.run_here(checkpoint)
        self.poisoned = False


def _appended(taken: Sequence[tuple[_Append, bytes]], change: Change) -> list[BaseException | None]:
    """Add recordings. One that is refused by itself changes nothing, and the others continue."""
    results: list[BaseException | None] = []
    for (name, head, recording, _, _), text in taken:
        try:
            change.append(
                *(name, head, recording.interaction, text),
                supersedes=recording.supersedes,
                read=recording.read,
            )
        except TapewayError as exc:
            results.append(copy_of(exc))
        else:
            results.append(None)
    return results


def _wiped(refuse_without_room: Callable[[int, int], None], connection: apsw.Connection) -> bool:
    """Wipe a file after a removal; False for a file too large to be rewritten. Raises StoreFull.

    SQLite writes zeros over deleted rows. But when SQLite moves rows between pages, the first page
    keeps a copy. Only a rewritten file is clean.
    """
    if not recordings.needs_wiping(connection):
        return True
    pages, size = connection.pragma("page_count"), connection.pragma("page_size")
    small = isinstance(pages, int) and isinstance(size, int) and pages * size <= REWRITTEN_BYTES
    connection.set_busy_timeout(WIPE_MS)
    try:
        if small:
            refuse_without_room(pages, size)
            _vacuum(connection)
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        connection.execute("UPDATE file SET removed = 0")
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
        # The log would keep all the room there was, and nothing could be recorded any more.
        with suppress(apsw.Error):
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        raise
