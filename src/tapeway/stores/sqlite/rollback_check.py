"""Detects a SQLite file that lacks acknowledged recordings.

`FILE.lock` has the number of the last acknowledged change. The number is written without a sync, so
it may be behind the file. If the number is ahead, recordings are lost: the `-wal` was removed, or
an old copy replaced the file.
"""

import os
import re
from contextlib import suppress

import apsw

from tapeway.errors import CassetteCorrupt
from tapeway.stores.sqlite.connection import rows
from tapeway.stores.sqlite.location import StoreLocation
from tapeway.stores.support.durable_files import FILE_MODE

_LINE = re.compile(r"([0-9a-f]{16}) (\d{1,18})\n?")


class RollbackCheck:
    """Not thread-safe: each thread has its own."""

    def __init__(self, location: StoreLocation) -> None:
        self._location = location
        self._id = ""
        self._fd: int | None = None

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
        with suppress(OSError):
            os.truncate(self._location.lock, 0)

    def compare(self, connection: apsw.Connection) -> None:
        """Raise CassetteCorrupt where the file lacks acknowledged changes."""
        # The number first: other processes go on writing.
        noted = self._read()
        self._id, changes = rows(connection, "SELECT id, changes FROM state")[0]
        if noted is not None and noted[0] == self._id and noted[1] > changes:
            raise CassetteCorrupt(
                f"{self._location} lacks the last {noted[1] - changes} changes that were acknowledged:"
                f" its -wal was removed, or it is an old copy; restore it, or remove "
                f"{self._location.lock} to go on without them"
            )

    def note(self, change: int) -> None:
        """Write the number of a durable change."""
        with suppress(OSError):
            if self._fd is None:
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                self._fd = os.open(self._location.lock, flags, FILE_MODE)
                os.fchmod(self._fd, FILE_MODE)
            # A fixed length, so that a reader never sees a mix of two numbers.
            os.pwrite(self._fd, b"%b %018d\n" % (self._id.encode(), change), 0)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _read(self) -> tuple[str, int] | None:
        try:
            line = self._location.lock.read_text("ascii")
        except (OSError, UnicodeDecodeError):
            return None
        match = _LINE.fullmatch(line)
        return None if match is None else (match[1], int(match[2]))
