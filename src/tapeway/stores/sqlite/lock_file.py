"""`FILE.lock`: which process writes into a SQLite file, and how many changes it acknowledged.

A process that writes holds an exclusive lock on it, which the kernel releases when the process ends.
Before the name of that process it has the number of the last acknowledged change. The number is
written without a sync, so it may be behind the file. If the number is ahead, recordings are lost:
the `-wal` was removed, or an old copy replaced the file.
"""

import fcntl
import os
import re
import socket
import sys
from contextlib import suppress
from pathlib import Path

import apsw

from tapeway.errors import CassetteCorrupt, CassetteLocked
from tapeway.stores.sqlite.connection import rows
from tapeway.stores.sqlite.location import StoreLocation
from tapeway.stores.support.durable_files import FILE_MODE, make_root, store_error

_LINE = re.compile(rb"([0-9a-f]{16}) (\d{18})\n")
_LINE_BYTES = 36
_MOST_NAME_BYTES = 200
_NO_NUMBER = bytes(_LINE_BYTES)


class LockFile:
    """Not thread-safe: each thread has its own."""

    def __init__(self, location: StoreLocation) -> None:
        self._location = location
        self._id = ""
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        """Whether this process writes into the file."""
        return self._fd is not None

    def take(self) -> None:
        """Become the process that writes. Raises CassetteLocked if another one does, StoreError."""
        try:
            make_root(self._location.folder)
            while self._fd is None:
                fd = self._open()
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if not self._is_in_place(fd):
                        # Somebody removed it between the two calls.
                        os.close(fd)
                        continue
                    os.fchmod(fd, FILE_MODE)
                except BlockingIOError as exc:
                    locked = self._locked(fd)
                    os.close(fd)
                    raise locked from exc
                except BaseException:
                    os.close(fd)
                    raise
                self._fd = fd
        except OSError as exc:
            raise store_error(exc, str(self._location), "take the lock beside it") from exc
        # The holder is named only in a message: a full disk may prevent the write.
        with suppress(OSError):
            os.ftruncate(self._fd, _LINE_BYTES)
            os.pwrite(self._fd, _this_process(), _LINE_BYTES)

    def let_go(self) -> None:
        """Let another process write."""
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                os.ftruncate(fd, _LINE_BYTES if _LINE.match(os.pread(fd, _LINE_BYTES, 0)) else 0)
            os.close(fd)

    # What was acknowledged.

    def examine(self) -> os.stat_result:
        """The state of the file. Raises CassetteCorrupt as `refuse_emptied`, and StoreFileAbsent."""
        # The number first: another process may fill an empty file, and note one, in between.
        had_number = self.has_number
        status = self._location.examine()
        if had_number and not status.st_size:
            self.refuse_emptied()
        return status

    def refuse_emptied(self) -> None:
        """Raise CassetteCorrupt for an empty file that held recordings before."""
        if self.has_number:
            raise CassetteCorrupt(
                f"{self._location} is empty, though recordings were made into it: it was cut, or its "
                f"-wal was removed; restore it, or remove it and {self._location.lock} to begin anew"
            )

    @property
    def has_number(self) -> bool:
        """Whether changes of the file were acknowledged."""
        return self._read() is not None

    def reset(self) -> None:
        """Forget the number of a file that was removed."""
        if self._fd is not None:
            with suppress(OSError):
                os.pwrite(self._fd, _NO_NUMBER, 0)

    def compare(self, connection: apsw.Connection, table: str = "file") -> None:
        """Raise CassetteCorrupt where the file lacks acknowledged changes."""
        # The number first: another process goes on writing.
        noted = self._read()
        self._id, changes = rows(connection, f"SELECT id, changes FROM {table}")[0]  # noqa: S608
        if noted is not None and noted[0] == self._id and noted[1] > changes:
            raise CassetteCorrupt(
                f"{self._location} lacks the last {noted[1] - changes} changes that were acknowledged:"
                f" its -wal was removed, or it is an old copy; restore it, or remove "
                f"{self._location.lock} to go on without them"
            )

    def note(self, change: int) -> None:
        """Write the number of a durable change."""
        if self._fd is not None:
            with suppress(OSError):
                # A fixed length, so that a reader never sees a mix of two numbers.
                os.pwrite(self._fd, b"%b %018d\n" % (self._id.encode(), change), 0)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self._location.lock, flags, FILE_MODE)

    def _is_in_place(self, fd: int) -> bool:
        try:
            there = os.stat(self._location.lock, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(fd))

    def _locked(self, fd: int) -> CassetteLocked:
        name = os.pread(fd, _MOST_NAME_BYTES, _LINE_BYTES).decode("utf-8", "replace").strip()
        return CassetteLocked(
            f"{name or 'another process'} writes into {self._location}, and a SQLite file has one "
            "process that writes: stop that one, replay only, or use a folder or postgresql://… "
            "for several processes"
        )

    def _read(self) -> tuple[str, int] | None:
        try:
            with self._location.lock.open("rb") as file:
                match = _LINE.match(file.read(_LINE_BYTES))
        except OSError:
            return None
        return None if match is None else (match[1].decode(), int(match[2]))


def _this_process() -> bytes:
    """The process as the error of another one names it. Its arguments may hold a password."""
    command = Path(sys.argv[0] if sys.argv else "").name or "python"
    text = f"process {os.getpid()} ({command}) on {socket.gethostname()}"
    return text.encode("utf-8", "replace")[:_MOST_NAME_BYTES]
