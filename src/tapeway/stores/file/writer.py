"""The right to write a cassette: the lock, the journal, and the replacement of the file.

A fold (file + journal ─► a new file, then no journal) may be broken off after each of its steps:
write the new file under a temporary name and sync; append the file's digest to the journal as a
commit, so that no load applies the journal to the new file; rename the file; sync the folder;
remove the journal. A journal whose sync failed takes no more lines: a new journal with the commit
replaces the old journal.

One writer a cassette: a lock the kernel lets go of when its holder dies.
"""

import errno
import fcntl
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from tapeway.core.model.cassette import CassetteHead
from tapeway.errors import CassetteEdited, CassetteLocked, StoreError
from tapeway.formats.fields import Document
from tapeway.formats.native.assets import moved_out
from tapeway.stores.file import bodies, snapshot
from tapeway.stores.file.append_log import AppendLog
from tapeway.stores.file.handles import is_held, is_lock_path
from tapeway.stores.file.journal import Commit, Header, lines, payload
from tapeway.stores.file.paths import Paths
from tapeway.stores.file.snapshot import Snapshot
from tapeway.stores.support.durable_files import (
    FILE_MODE,
    create_file,
    open_file,
    read_file,
    signature_of,
    store_error,
    sync_data,
    sync_folder,
    write_all,
)
from tapeway.stores.support.serialize import cassette_pieces

log = logging.getLogger(__name__)

_LOOK_S = 1.0
WRITTEN_AT_ONCE = 1024 * 1024


class WriterLock:
    """Held from `take` to `close`. The file itself stays: replacing it would let two in."""

    def __init__(self, fd: int, *, was_let_go: bool) -> None:
        self._fd = fd
        self.was_let_go = was_let_go
        """Whether the last holder released the lock; a killed process leaves a name in the file."""

    @classmethod
    def take(cls, folder: int, name: str, place: str, own: str = "") -> "WriterLock":
        """The lock. Raises CassetteLocked if another process holds it, OSError, CassetteCorrupt.

        `own` is the lock path with which this process parked the lock.
        """
        fd = open_file(folder, name, os.O_RDWR | os.O_CREAT, place)
        try:
            _lock(fd, place, _LOOK_S if own else 0.0)
            _refuse_parked(folder, fd, own, place)
            was_let_go = not os.fstat(fd).st_size
            os.fchmod(fd, FILE_MODE)
        except BaseException:
            os.close(fd)
            raise
        # The holder is named only in a message: a full disk may prevent the write.
        with suppress(OSError):
            os.ftruncate(fd, 0)
            write_all(fd, b"%d\n" % os.getpid())
        return cls(fd, was_let_go=was_let_go)

    def park(self, lock_path: str) -> None:
        """Close the lock, and keep other processes out by `lock_path`, of this process's lock.

        Raises OSError.
        """
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, b"%d %b\n" % (os.getpid(), lock_path.encode()), 0)
        os.close(self._fd)

    def let_go(self) -> None:
        """Close the lock, and leave nothing behind that the next holder would have to look for."""
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
        self.close()

    def close(self) -> None:
        os.close(self._fd)


def _lock(fd: int, place: str, patience_s: float) -> None:
    until = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            # A process that reads the holder's name holds the lock for a moment.
            if time.monotonic() >= until:
                raise _locked(_holder(fd)[0], place) from exc
            time.sleep(0.001)
        else:
            return


def _refuse_parked(folder: int, fd: int, own: str, place: str) -> None:
    process, lock_path = _holder(fd)
    if lock_path not in ("", own) and is_held(folder, lock_path):
        raise _locked(process, place)


def _holder(fd: int) -> tuple[str, str]:
    """The process that a lock file names, and the lock path of a parked lock."""
    process, _, lock_path = os.pread(fd, 256, 0).decode("ascii", "replace").strip().partition(" ")
    return process, lock_path if is_lock_path(lock_path) else ""


def _locked(process: str, place: str) -> CassetteLocked:
    who = f"process {process}" if process.isdigit() else "another process"
    return CassetteLocked(
        f"{who} records into this cassette (it holds {place}): stop that one, "
        "use another cassette, or replay only"
    )


class CassetteWriter:
    """Held from `take` to `close`. Every method may raise StoreError or a child of StoreError.

    A parked writer has no handles, and only `unpark` and `close` may be called.
    """

    def __init__(self, paths: Paths, folder: int, lock: WriterLock) -> None:
        self.folder = folder
        self._paths = paths
        self._lock = lock
        self._file = paths.shown(paths.cassette)
        self._base: str | None = None
        self._journal: AppendLog | None = None
        self._lock_path = ""

    @classmethod
    def take(cls, paths: Paths) -> "CassetteWriter":
        """The claim, the folder made if need be. Raises CassetteLocked where another has it."""
        folder = paths.make_folder()
        try:
            paths.refuse_twin(folder)
            _refuse_unwritable(folder)
            lock = WriterLock.take(folder, paths.lock, paths.shown(paths.lock))
            try:
                paths.settle(folder)
                _remove_leftovers(folder, paths, killed=not lock.was_let_go)
            except BaseException:
                lock.close()
                raise
        except OSError as exc:
            os.close(folder)
            raise store_error(exc, paths.shown(paths.lock), "take the lock to record") from exc
        except BaseException:
            os.close(folder)
            raise
        return cls(paths, folder, lock)

    @property
    def poisoned(self) -> bool:
        return self._journal is not None and self._journal.poisoned

    @property
    def parked(self) -> bool:
        """Whether it has no handles at present."""
        return bool(self._lock_path)

    def park(self, process_lock: str) -> None:
        """Close all handles; while that lock of the process is held, nobody else records.

        Raises OSError; then nothing has changed.
        """
        lock_path = self._paths.from_folder(process_lock)
        self._lock.park(lock_path)
        self._lock_path = lock_path
        if self._journal is not None:
            self._journal.park()
        os.close(self.folder)

    def unpark(self) -> None:
        """Open the handles again. Raises CassetteEdited where the journal is not as it was left."""
        place = self._paths.shown(self._paths.lock)
        if (folder := self._paths.open_folder()) is None:
            raise CassetteEdited(f"the folder of {place} was removed meanwhile: record again")
        try:
            lock = WriterLock.take(folder, self._paths.lock, place, self._lock_path)
            try:
                if self._journal is not None:
                    self._journal.unpark(folder, self._paths.journal)
            except BaseException:
                lock.close()
                raise
        except OSError as exc:
            os.close(folder)
            raise store_error(exc, place, "take the lock to record") from exc
        except BaseException:
            os.close(folder)
            raise
        self.folder, self._lock, self._lock_path = folder, lock, ""

    @property
    def recorded(self) -> bool:
        """Whether there are recordings that the file does not hold yet."""
        return self._journal is not None

    @property
    def unfolded_bytes(self) -> int:
        """The size of the journal and of the file that it is to be folded into."""
        if self._journal is None:
            return 0
        try:
            return self._journal.size + os.path.getsize(self._file)
        except OSError:
            return max(1, self._journal.size)

    @property
    def unfolded_containers(self) -> int:
        """How many brackets open in the journal and in the file that it is to be folded into."""
        containers = 0
        # By their paths: it may be parked.
        for place in (self._paths.shown(self._paths.journal), self._file):
            with suppress(OSError), Path(place).open("rb") as file:
                while text := file.read(WRITTEN_AT_ONCE):
                    containers += text.count(b"{") + text.count(b"[")
        return containers

    def snapshot(self) -> Snapshot:
        """The cassette as it is now, with all that was acknowledged and nothing else."""
        size = self._journal.size if self._journal else 0
        return snapshot.take(self.folder, self._paths, journal_size=size)

    def resume(self, whole: Snapshot) -> None:
        """Go on from what was found: cut a torn tail, remove a journal that is folded in already."""
        self._base = whole.digest
        place = self._paths.shown(self._paths.journal)
        try:
            if whole.journal is None or not whole.entries:
                with suppress(FileNotFoundError):
                    os.unlink(self._paths.journal, dir_fd=self.folder)
                return
            self._journal = AppendLog.resume(
                self.folder,
                self._paths.journal,
                place,
                size=whole.journal.size,
                lines=len(whole.journal.steps) + 1,
            )
        except OSError as exc:
            raise store_error(exc, place, "go on with the journal") from exc
        if whole.journal.torn:
            log.warning("%s: %s; cut off", place, whole.journal.tail_text)
        if self._base != whole.journal.header.base:
            log.warning(
                "%s was changed since %s began; its recordings go on top", self._file, place
            )

    def append(self, head: CassetteHead, payloads: Sequence[bytes]) -> None:
        """Add recordings, durable on return, all or none."""
        if self._journal is None:
            self._begin(head, payloads)
        else:
            self._journal.append(lines(payloads, self._journal.lines))

    def fold(self) -> None:
        """Bring the journal's recordings into the file. Raises CassetteEdited."""
        if self._journal is not None:
            now = self._unedited()
            pieces = None
            if now.entries:
                documents = now.documents()
                pieces = self._pieces(documents.head, documents)
            self._replace(now, pieces)

    def replace_head(self, head: CassetteHead) -> None:
        """Put this head in the place of the one there is, and fold. Raises CassetteEdited."""
        now = self._unedited()
        if now.exists:
            self._replace(now, self._pieces(head, now.documents()))

    def replace(self, head: CassetteHead, documents: Iterable[Document]) -> None:
        """Put a cassette in the place of file and journal. Raises CassetteEdited, StoreError."""
        self._replace(self._unedited(), self._pieces(head, documents))

    def _pieces(self, head: CassetteHead, documents: Iterable[Document]) -> Iterator[bytes]:
        """The file in pieces; large binaries are written before the references to them."""
        keep = partial(bodies.keep_asset, self.folder, self._paths)
        moved = (moved_out(document, keep) for document in documents)
        return cassette_pieces(self._paths.serializer, head, moved)

    def remove(self) -> bool:
        """Remove journal, file and large bodies, durably; False where there was nothing."""
        try:
            # The journal first: a journal without its file would count as a cassette.
            unlinked = [
                self._unlinked(file) for file in (self._paths.journal, self._paths.cassette)
            ]
            if self._journal is not None:
                self._close_journal()
            sync_folder(self.folder)
        except OSError as exc:
            raise store_error(exc, self._file, "remove the cassette") from exc
        self._base = None
        self.sweep()
        return any(unlinked)

    def _unlinked(self, name: str) -> bool:
        try:
            os.unlink(name, dir_fd=self.folder)
        except FileNotFoundError:
            return False
        return True

    def close(self) -> None:
        if self.parked:
            return
        # What was acknowledged was synced before: a close has nothing left to lose.
        for close in (self._close_journal, self._lock.let_go, lambda: os.close(self.folder)):
            with suppress(OSError):
                close()

    def _begin(self, head: CassetteHead, payloads: Sequence[bytes]) -> None:
        place = self._paths.shown(self._paths.journal)
        try:
            journal = AppendLog.create(self.folder, self._paths.journal, place)
        except OSError as exc:
            raise store_error(exc, place, "begin a journal") from exc
        self._journal = journal
        try:
            journal.append(lines([payload(Header(head, self._base)), *payloads], 0))
            sync_folder(self.folder)
        except OSError as exc:
            journal.disown()
            raise store_error(exc, place, "begin a journal") from exc
        except BaseException:
            if not journal.poisoned:
                self._drop_journal()
            raise

    def _unedited(self) -> Snapshot:
        # Before it is parsed: an edit may have left it unreadable.
        if snapshot.digest_of(self.folder, self._paths) != self._base:
            raise self._edited()
        now = self.snapshot()
        if self._journal and self._journal.size > (now.journal.size if now.journal else 0):
            place = self._paths.shown(self._paths.journal)
            raise CassetteEdited(f"{place} was removed or cut meanwhile: what it held is gone")
        return now

    def sweep(self, spared: Collection[str] = ()) -> None:
        """Remove the large bodies that the file does not speak of, once there is no journal."""
        try:
            bodies.sweep(self.folder, self._paths, spared)
        except (OSError, StoreError) as exc:
            # Only room is lost, and the next time it is tried again.
            reason = exc.message if isinstance(exc, StoreError) else exc.strerror
            log.warning("%s: unused bodies could not be removed: %s", self._file, reason)

    def _edited(self) -> CassetteEdited:
        journal = self._paths.shown(self._paths.journal)
        kept = f"; what was recorded is in {journal}" if self._journal else ""
        return CassetteEdited(
            f"{self._file} was changed by somebody while it was loaded and left as it is{kept}: "
            "load it again to go on from the change"
        )

    def _replace(self, now: Snapshot, pieces: Iterable[bytes] | None) -> None:
        try:
            if pieces is not None:
                self._rename_over(now, pieces)
            self._drop_journal()
        except OSError as exc:
            raise store_error(exc, self._file, "write the cassette") from exc

    def _rename_over(self, now: Snapshot, pieces: Iterable[bytes]) -> None:
        temporary = self._paths.temporary(secrets.token_hex(4))
        try:
            digest = _write_new(self.folder, temporary, pieces)
            if digest == now.digest:
                os.unlink(temporary, dir_fd=self.folder)
                return
            self._commit(digest)
            self._refuse_if_edited_since(now)
            os.rename(
                temporary, self._paths.cassette, src_dir_fd=self.folder, dst_dir_fd=self.folder
            )
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=self.folder)
            raise
        self._base = digest
        sync_folder(self.folder)

    def _commit(self, digest: str) -> None:
        journal = self._journal
        if journal is None:
            return
        commit = lines([payload(Commit(digest))], journal.lines)
        if journal.poisoned:
            self._renew_journal(journal, commit)
        else:
            journal.append(commit)

    def _renew_journal(self, journal: AppendLog, commit: Sequence[bytes]) -> None:
        """Put a new journal in the place of one whose sync failed: what was acknowledged, and `commit`.

        Without a commit, a load would apply the old journal again to the folded file.
        """
        place = self._paths.shown(self._paths.journal)
        file = read_file(self.folder, self._paths.journal, place, journal.size)
        if file is None or not journal.size:
            return
        temporary = self._paths.temporary(secrets.token_hex(4))
        try:
            _write_new(self.folder, temporary, (*file.pieces(), *commit))
            os.rename(
                temporary, self._paths.journal, src_dir_fd=self.folder, dst_dir_fd=self.folder
            )
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=self.folder)
            raise
        # Before the file is renamed: after a crash no file may be there with the old journal.
        sync_folder(self.folder)

    def _refuse_if_edited_since(self, now: Snapshot) -> None:
        before = now.file.signature if now.file else None
        if signature_of(self.folder, self._paths.cassette) != before:
            raise self._edited()

    def _drop_journal(self) -> None:
        # Not synced: if the journal comes back after a crash, its last line is the commit.
        if self._journal is not None:
            os.unlink(self._paths.journal, dir_fd=self.folder)
            with suppress(OSError):
                self._close_journal()

    def _close_journal(self) -> None:
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.close()


def _write_new(folder: int, name: str, pieces: Iterable[bytes]) -> str:
    """Write a new file, durably; returns the digest of its content."""
    digest = hashlib.sha256()
    fd = create_file(folder, name, os.O_WRONLY)
    try:
        for data in _in_larger_pieces(pieces):
            digest.update(data)
            write_all(fd, data)
        # The clock of a file system stands still for milliseconds: without this, two files written
        # one after the other would have equal times.
        now = time.time_ns()
        os.utime(fd, ns=(now, now))
        sync_data(fd)
    finally:
        os.close(fd)
    return digest.hexdigest()


def _in_larger_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes in larger pieces, so that a write is not a few bytes."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= WRITTEN_AT_ONCE:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


def _remove_leftovers(folder: int, paths: Paths, *, killed: bool) -> None:
    # The folder may have thousands of cassettes: it is read only if there may be something.
    for leftover in paths.leftovers(folder) if killed else ():
        os.unlink(leftover, dir_fd=folder)
    bodies.remove_leftovers(folder, paths)


def _refuse_unwritable(folder: int) -> None:
    # A lock file that is there can be opened where no journal could be made beside it.
    if not os.access(".", os.W_OK, dir_fd=folder):
        # It says not why, and a read-only mount has no permissions to check.
        read_only = os.fstatvfs(folder).f_flag & os.ST_RDONLY
        number = errno.EROFS if read_only else errno.EACCES
        raise OSError(number, os.strerror(number))
