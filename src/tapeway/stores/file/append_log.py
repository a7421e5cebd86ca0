"""A file that is only appended to, durable after every append.

A line that could not be written leaves no trace; a sync that failed leaves the disk's state
unknown, and nothing is acknowledged any more (a second sync would say "done" about lost pages).
"""

import os
from collections.abc import Sequence

from tapeway.errors import CassetteEdited, StorePoisoned
from tapeway.stores.support.durable_files import (
    FILE_MODE,
    create_file,
    is_full,
    open_file,
    store_error,
    sync_data,
    write_all,
)

_ACTION = "write the recording"
_AGAIN = "eject and record again"
_JOINED = 1024 * 1024
"""More is not copied."""


class AppendLog:
    """An open log of `lines` lines in `size` bytes, all of them durable."""

    def __init__(self, fd: int, place: str, *, size: int = 0, lines: int = 0) -> None:
        self._fd = fd
        self._place = place
        self.size = size
        self.lines = lines
        self.poisoned = False
        self._parked: tuple[int, int] | None = None

    @classmethod
    def create(cls, folder: int, name: str, place: str) -> "AppendLog":
        """A new log; its name is durable once the folder is synced. Raises OSError."""
        return cls(create_file(folder, name, os.O_WRONLY | os.O_APPEND), place)

    @classmethod
    def resume(cls, folder: int, name: str, place: str, *, size: int, lines: int) -> "AppendLog":
        """A log found on the disk, cut to what was whole in it. Raises OSError."""
        fd = open_file(folder, name, os.O_WRONLY | os.O_APPEND, place)
        try:
            os.fchmod(fd, FILE_MODE)
            if os.fstat(fd).st_size > size:
                os.ftruncate(fd, size)
            # What a killed process wrote may have been read back from memory alone.
            sync_data(fd)
        except BaseException:
            os.close(fd)
            raise
        return cls(fd, place, size=size, lines=lines)

    def append(self, lines: Sequence[bytes]) -> None:
        """Add lines, durable on return, all or none.

        Raises StoreFull, after which appends work again once there is room; StorePoisoned, after
        which no append works; CassetteEdited when somebody took the file away.
        """
        if self.poisoned:
            raise earlier_sync_failed(self._place)
        if os.fstat(self._fd).st_nlink == 0:
            raise CassetteEdited(f"{self._place} was removed meanwhile: {_AGAIN}")
        size = sum(map(len, lines))
        try:
            # One call for all: at each the thread waits for the interpreter again.
            for piece in (b"".join(lines),) if size <= _JOINED else lines:
                write_all(self._fd, piece)
            sync_data(self._fd)
        except OSError as exc:
            self._undo(exc)
        self.size += size
        self.lines += len(lines)

    def disown(self) -> None:
        """Take nothing of it for durable: its name may not be."""
        self.size = self.lines = 0
        self.poisoned = True

    def park(self) -> None:
        """Close it, to be opened again. Raises OSError."""
        fstat = os.fstat(self._fd)
        self._parked = fstat.st_dev, fstat.st_ino
        os.close(self._fd)

    def unpark(self, folder: int, name: str) -> None:
        """Open it again. Raises CassetteEdited where somebody changed the file, OSError."""
        try:
            fd = open_file(folder, name, os.O_WRONLY | os.O_APPEND, self._place)
        except FileNotFoundError:
            raise CassetteEdited(f"{self._place} was removed meanwhile: {_AGAIN}") from None
        fstat = os.fstat(fd)
        if ((fstat.st_dev, fstat.st_ino), fstat.st_size) != (self._parked, self.size):
            os.close(fd)
            raise CassetteEdited(f"{self._place} was changed meanwhile: {_AGAIN}")
        self._fd, self._parked = fd, None

    def close(self) -> None:
        if self._parked is None:
            os.close(self._fd)

    def _undo(self, cause: OSError) -> None:
        if is_full(cause):
            try:
                os.ftruncate(self._fd, self.size)
                sync_data(self._fd)
            except OSError:
                self.poisoned = True
            raise store_error(cause, self._place, _ACTION) from cause
        self.poisoned = True
        reason = cause.strerror or str(cause)
        raise StorePoisoned(
            f"{self._place}: could not {_ACTION} ({reason}), so nothing more is acknowledged; "
            "check the disk, then eject the cassette to write it anew"
        ) from cause


def earlier_sync_failed(place: str) -> StorePoisoned:
    """The error for a journal that takes nothing more."""
    return StorePoisoned(
        f"{place}: an earlier sync failed, so nothing more is acknowledged; "
        "check the disk, then eject the cassette to write it anew"
    )
