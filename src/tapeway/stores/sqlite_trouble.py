"""What SQLite complains of, as errors that name the file and say what to do."""

import errno

import apsw

from tapeway.errors import (
    CassetteCorrupt,
    CassetteLocked,
    ConfigError,
    StoreError,
    StoreFull,
    StorePoisoned,
)

OLDEST = (3, 51, 3)
"""Older ones can lose commits in WAL mode."""

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)
_HELD = (apsw.BusyError, apsw.LockedError, apsw.ProtocolError)
_FORBIDDEN = (apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError)


def refuse_old(version: str) -> None:
    """Raise ConfigError for a SQLite that cannot be relied on."""
    if tuple(map(int, version.split("."))) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise ConfigError(
            f"this is SQLite {version}, which can lose recordings: update the package apsw to "
            f"one that brings {wanted} or newer"
        )


def store_error(exc: apsw.Error, place: str, deed: str, number: int = 0) -> StoreError:
    """The error to raise for a failed deed; `number` is the system's own of the last failed call."""
    said = str(exc)
    if isinstance(exc, apsw.FullError) or (is_io(exc) and number in _FULL):
        return StoreFull(
            f"{place}: no room to {deed} ({said}); free some, all that was acknowledged is kept"
        )
    if isinstance(exc, _HELD):
        return CassetteLocked(
            f"{place}: could not {deed}, another process holds the file; see which one and end it"
        )
    if isinstance(exc, _DAMAGED):
        return CassetteCorrupt(
            f"{place} is no SQLite file, or damaged ({said}); it was left as it is: restore it, or "
            "move it away to record anew"
        )
    if isinstance(exc, _FORBIDDEN) or number in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StoreError(f"{place}: could not {deed} ({said}); check the permissions", status=503)
    if isinstance(exc, apsw.IOError):
        return StorePoisoned(
            f"{place}: the disk failed to {deed} ({said}); check the disk, then eject and go on"
        )
    return StoreError(f"{place}: could not {deed} ({said}); see what holds it", status=503)


def is_io(exc: apsw.Error) -> bool:
    """Whether a call to the system failed."""
    return isinstance(exc, apsw.IOError | apsw.CantOpenError)


def leaves_doubt(exc: StoreError) -> bool:
    """Whether SQLite said so, and the state of the disk is unknown after it."""
    return isinstance(exc.__cause__, apsw.Error) and isinstance(
        exc, StorePoisoned | CassetteCorrupt
    )
