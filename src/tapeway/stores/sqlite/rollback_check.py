"""The number of the last change that was acknowledged, kept beside a store's file.

It is written without a sync, so it may be behind; where it is ahead of the file, recordings are
lost that were acknowledged: a `-wal` was removed, or an old copy of the file was put in its place.
"""

import os
import re
from contextlib import suppress

import apsw

from tapeway.errors import CassetteCorrupt
from tapeway.stores.shared.durable_files import FILE_MODE
from tapeway.stores.sqlite.connection import rows
from tapeway.stores.sqlite.location import StoreLocation

_LINE = re.compile(r"([0-9a-f]{16}) (\d{1,18})\n?")


class RollbackCheck:
    """Used by one thread."""

    def __init__(self, place: StoreLocation) -> None:
        self._place = place
        self._id = ""
        self._fd: int | None = None

    def refuse_emptied(self) -> None:
        """Raise CassetteCorrupt for an empty file in the place of one that held recordings."""
        found = self._read()
        if found is not None:
            raise CassetteCorrupt(
                f"{self._place} is empty, though recordings were made into it: restore it, or "
                f"remove it and {self._place.lock} to begin anew"
            )

    def begin_anew(self) -> None:
        """Forget a file that was removed."""
        with suppress(OSError):
            os.truncate(self._place.lock, 0)

    def compare(self, connection: apsw.Connection) -> None:
        """Raise CassetteCorrupt where the file lacks changes that were acknowledged."""
        # In this order: others go on writing.
        found = self._read()
        self._id, changes = rows(connection, "SELECT id, changes FROM state")[0]
        if found is not None and found[0] == self._id and found[1] > changes:
            raise CassetteCorrupt(
                f"{self._place} lacks the last {found[1] - changes} changes that were acknowledged:"
                f" its -wal was removed, or it is an old copy; restore it, or remove "
                f"{self._place.lock} to go on without them"
            )

    def note(self, change: int) -> None:
        """A change that is durable."""
        with suppress(OSError):
            if self._fd is None:
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                self._fd = os.open(self._place.lock, flags, FILE_MODE)
                os.fchmod(self._fd, FILE_MODE)
            # Of one length, so that no number is ever half of another.
            os.pwrite(self._fd, b"%b %018d\n" % (self._id.encode(), change), 0)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _read(self) -> tuple[str, int] | None:
        try:
            line = self._place.lock.read_text("ascii")
        except (OSError, UnicodeDecodeError):
            return None
        found = _LINE.fullmatch(line)
        return None if found is None else (found[1], int(found[2]))
