"""Reads and writes files: no loss goes unnoticed.

Every file is opened relative to a folder's descriptor and never through a symbolic link, so that
nobody can exchange a checked file; every failure becomes an error that says what to do.
"""

import errno
import fcntl
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from weakref import finalize

from tapeway.errors import (
    CassetteCorrupt,
    CassetteEdited,
    CassetteUnreadable,
    StoreError,
    StoreFull,
    StorePoisoned,
)

FILE_MODE = 0o600
FOLDER_MODE = 0o700
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_DESCRIPTOR = {errno.EMFILE, errno.ENFILE}
_FORBIDDEN = {errno.EACCES, errno.EPERM}
_PROBE = 64 * 1024
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


WINDOW = 1024 * 1024
"""The size of a piece that is read, searched or hashed at once: no other thread runs meanwhile."""


class FileText:
    """The bytes of a file, read on demand, and the signature at opening.

    A small file is read at once. A larger file is held open: a process may replace or remove the
    file meanwhile. Raises CassetteEdited for a shortened file, OSError.
    """

    def __init__(self, fd: int, place: str, most: int | None = None) -> None:
        """It closes `fd`; `place` names the file in errors, `most` is how much of it counts."""
        self._fd = fd
        close = finalize(self, os.close, fd)
        fstat = os.fstat(fd)
        self.signature = signature(fstat)
        self._place = place
        self._size = fstat.st_size if most is None else min(most, fstat.st_size)
        self._window = 0, b""
        if self._size <= WINDOW:
            self._window = 0, self._read(0, self._size)
            close()
            self._fd = -1

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self._size)
        at, window = self._window
        if at <= start and stop <= at + len(window):
            return window[start - at : stop - at]
        return self._read(start, stop)

    def find(self, sought: bytes, start: int = 0, end: int | None = None) -> int:
        """Where these bytes are for the first time, -1 where they are not."""
        end = self._size if end is None else end
        while start + len(sought) <= end:
            at, window = self._window
            if not at <= start <= start + len(sought) <= at + len(window):
                at, window = start, self._read(start, min(start + WINDOW, self._size))
                self._window = at, window
            index = window.find(sought, start - at, end - at)
            if index >= 0:
                return at + index
            # The end of this window may be the beginning of what is sought.
            start = at + len(window) - len(sought) + 1
        return -1

    def pieces(self) -> Iterator[bytes]:
        """All of it in order."""
        for start in range(0, self._size, WINDOW):
            yield self[start : start + WINDOW]

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of all of it."""
        digest = hashlib.sha256()
        for piece in self.pieces():
            digest.update(piece)
        return digest.hexdigest()

    @property
    def unchanged(self) -> bool:
        """Whether the file was not written since it was opened."""
        return self._fd < 0 or signature(os.fstat(self._fd)) == self.signature

    def _read(self, start: int, stop: int) -> bytes:
        pieces: list[bytes] = []
        while start < stop:
            # One call reads two GiB at most.
            pieces.append(data := os.pread(self._fd, stop - start, start))
            if not data:
                raise CassetteEdited(f"{self._place} was cut while it was read: load it again")
            start += len(data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def is_full(exc: OSError) -> bool:
    """Whether there was no room: space, quota or the largest size allowed."""
    return exc.errno in _FULL


def store_error(exc: OSError, place: str, action: str) -> StoreError:
    """The error to raise where an action such as "write the recording" failed."""
    reason = exc.strerror or str(exc)
    if is_full(exc):
        return StoreFull(
            f"{place}: no room to {action} ({reason}); free some, all that was acknowledged is kept"
        )
    if exc.errno == errno.EIO:
        return StorePoisoned(
            f"{place}: the disk failed to {action} ({reason}); check the disk, then eject and go on"
        )
    advice = "check the permissions" if exc.errno in _FORBIDDEN else "see what holds it"
    if exc.errno == errno.EROFS:
        advice = "mount it for writing, use another --store, or replay only (--mode replay)"
    if exc.errno in _NO_DESCRIPTOR:
        advice = "close some files or connections, or allow more (ulimit -n)"
    return StoreError(f"{place}: could not {action} ({reason}); {advice}", status=503)


def read_error(exc: OSError, place: str, action: str) -> StoreError:
    """The error of a failed reading."""
    error = store_error(exc, place, action)
    return CassetteUnreadable(error.message) if exc.errno in _FORBIDDEN else error


def open_file(folder: int, name: str, flags: int, place: str) -> int:
    """A descriptor of a regular file with one name. Raises OSError, CassetteCorrupt otherwise."""
    # Not blocking: opening a FIFO that nobody writes to would wait for ever.
    safe = flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(name, safe, FILE_MODE, dir_fd=folder)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise CassetteCorrupt(f"{place} is a symbolic link: put the file itself there") from exc
        if exc.errno in (errno.ENXIO, errno.EISDIR):
            raise CassetteCorrupt(f"{place} is not a regular file: move it away") from exc
        raise
    fstat = os.fstat(fd)
    # A file that the owner removed just now has no name: the reader looks again.
    if stat.S_ISREG(fstat.st_mode) and fstat.st_nlink <= 1:
        return fd
    os.close(fd)
    if stat.S_ISREG(fstat.st_mode):
        raise CassetteCorrupt(f"{place} has a second name (a hard link): put a copy there")
    raise CassetteCorrupt(f"{place} is not a regular file: move it away")


def read_file(folder: int, name: str, place: str, most: int | None = None) -> FileText | None:
    """The text of a file up to a size, None where there is none. Raises OSError, CassetteCorrupt."""
    try:
        fd = open_file(folder, name, os.O_RDONLY, place)
    except FileNotFoundError:
        return None
    return FileText(fd, place, most)


def signature_of(folder: int, name: str) -> tuple[int, int, int, int] | None:
    """What tells whether a file is still the same, or None where there is none."""
    try:
        return signature(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        return None


def signature(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def check_writes(folder: Path) -> None:
    """Raise StoreError where no file could be written in a folder, or in the one to hold it."""
    existing = next((parent for parent in (folder, *folder.parents) if parent.exists()), folder)
    try:
        # On Linux it has no name: a crash leaves nothing behind.
        with tempfile.TemporaryFile(dir=existing, buffering=0) as file:
            write_all(file.fileno(), bytes(_PROBE))
    except OSError as exc:
        raise store_error(exc, str(existing), "write a recording") from exc


def write_all(fd: int, data: bytes) -> None:
    """Write everything: a full disk may take a part and say nothing until the next call."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def create_file(folder: int, name: str, flags: int) -> int:
    """A descriptor of a new file that only the owner may read, whatever the umask."""
    flags |= os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, FILE_MODE, dir_fd=folder)
    try:
        os.fchmod(fd, FILE_MODE)
    except BaseException:
        os.close(fd)
        os.unlink(name, dir_fd=folder)
        raise
    return fd


def sync_data(fd: int) -> None:
    """Make a file's content durable. Raises OSError."""
    if sys.platform == "darwin":
        # There a plain sync leaves the data in the drive's memory.
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def sync_folder(folder: int) -> None:
    """Make the names in a folder durable. Raises OSError."""
    try:
        os.fsync(folder)
    except OSError as exc:
        # Some network and FUSE file systems have no such thing and sync names by themselves.
        if exc.errno != errno.EINVAL:
            raise


def make_root(path: Path) -> None:
    """Make a folder and missing folders above, for the owner alone. Raises OSError."""
    missing: list[Path] = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for folder_above in reversed(missing):
        parent = os.open(folder_above.parent, OPEN_FOLDER)
        try:
            make_folder(parent, folder_above.name)
        finally:
            os.close(parent)


def make_folder(parent: int, name: str) -> None:
    try:
        os.mkdir(name, FOLDER_MODE, dir_fd=parent)
    except FileExistsError:
        return
    # A umask can only take away: a mask of 0777 would shut us out of our folder.
    os.chmod(name, FOLDER_MODE, dir_fd=parent)
    sync_folder(parent)
