"""Connections to a SQLite file, set up so that a commit that returned is on the disk.

What a setting answers is looked at: SQLite says nothing when it does not take one.

What SQLite complains of, as errors that name the file and say what to do.
"""

import errno
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

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
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)
_HELD = (apsw.BusyError, apsw.LockedError, apsw.ProtocolError)
_FORBIDDEN = (apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError)
log = logging.getLogger(__name__)

Role = Literal["write", "read", "copy"]
"""To write, to read beside those who write, or to read what nobody can write."""

BUSY_MS = 5000
"""How long a lock of another process is waited for."""

CHECKED_BYTES = 4 * 1024 * 1024
"""A file up to this size is looked through when it is opened: that takes milliseconds."""
_NO_LINK = apsw.SQLITE_OPEN_NOFOLLOW
_FLAGS = {
    "write": apsw.SQLITE_OPEN_READWRITE | _NO_LINK,
    "read": apsw.SQLITE_OPEN_READWRITE | _NO_LINK,
    "copy": apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI | _NO_LINK,
}
_SETTINGS = {"trusted_schema": 0, "foreign_keys": 1, "cell_size_check": 1}
_WAL = "wal"
_FULL, _EXTRA = 2, 3
_told: set[str] = set()


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
    if isinstance(exc, apsw.FullError) or (is_io(exc) and number in _DISK_FULL):
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


def connect(
    path: Path, role: Role, look: Callable[[apsw.Connection], None] = lambda _: None
) -> apsw.Connection:
    """A connection to a file that is there, once it was looked at.

    Raises StoreError, ConfigError, apsw.CantOpenError, and what `look` raises.
    """
    refuse_old(apsw.sqlite_lib_version())
    # A parent folder may be a link, the file itself may not: SQLite refuses links anywhere.
    plain = path.parent.resolve() / path.name
    name = f"{plain.as_uri()}?immutable=1" if role == "copy" else str(plain)
    connection = apsw.Connection(name, flags=_FLAGS[role])
    try:
        connection.set_busy_timeout(BUSY_MS)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        for setting, value in _SETTINGS.items():
            set_and_check(connection, setting, value)
        if role == "write":
            _make_durable(connection, str(path))
        else:
            set_and_check(connection, "query_only", 1)
        look(connection)
    except apsw.Error as exc:
        # Asked before it is closed: that is a call, too.
        number = connection.system_errno
        connection.close()
        raise store_error(exc, str(path), "open the file", number) from exc
    except BaseException:
        connection.close()
        raise
    return connection


def set_and_check(connection: apsw.Connection, setting: str, value: int) -> None:
    """Set what must be set. Raises StoreError where it does not take."""
    connection.pragma(setting, value)
    if (answer := connection.pragma(setting)) != value:
        raise StoreError(f"SQLite does not take the setting {setting} = {value}: it says {answer}")


@contextmanager
def snapshot(connection: apsw.Connection) -> Iterator[None]:
    """All that is read inside is as it was at one moment."""
    with connection:
        yield


@contextmanager
def immediate_transaction(connection: apsw.Connection) -> Iterator[None]:
    """One that locks the file at once: all of it is committed, or nothing where it raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def rows(
    connection: apsw.Connection, query: str, bindings: Sequence[str | int | bytes | None] = ()
) -> list[tuple[Any, ...]]:
    """All a query gives, of the types that STRICT tables hold their columns to."""
    return connection.execute(query, bindings).fetchall()


def check_small(connection: apsw.Connection) -> None:
    """Look through a small file. Raises apsw.CorruptError."""
    pages, size = connection.pragma("page_count"), connection.pragma("page_size")
    if isinstance(pages, int) and isinstance(size, int) and pages * size <= CHECKED_BYTES:
        found = connection.execute("PRAGMA quick_check(1)").get
        if found != "ok":
            raise apsw.CorruptError(str(found))


def _make_durable(connection: apsw.Connection, place: str) -> None:
    mode = connection.pragma("journal_mode", _WAL)
    if mode != "wal":
        mode = connection.pragma("journal_mode", "delete")
        if mode != "delete":
            raise StoreError(f"{place}: SQLite keeps its journal in '{mode}', which is not safe")
        if place not in _told:
            _told.add(place)
            log.warning(
                "%s: this file system takes no write-ahead log; recording works, more slowly", place
            )
    # Checkpoints are made behind the answer and not before it.
    connection.wal_autocheckpoint(0)
    connection.pragma("journal_size_limit", 64 * 1024 * 1024)
    set_and_check(connection, "synchronous", _FULL if mode == "wal" else _EXTRA)
