"""Connections to a SQLite file whose commits are durable on return; SQLite's errors as StoreErrors.

Each setting is read back: SQLite ignores an unsupported one without an error.
"""

import errno
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import apsw

from tapeway.errors import (
    CassetteCorrupt,
    CassetteLocked,
    CassetteUnreadable,
    ConfigError,
    StoreError,
    StoreFull,
    StorePoisoned,
)

OLDEST = (3, 51, 3)
"""Older versions can lose commits in WAL mode."""

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)
_LOCKED = (apsw.BusyError, apsw.LockedError, apsw.ProtocolError)
_FORBIDDEN = (apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError)
log = logging.getLogger(__name__)

Role = Literal["write", "read", "copy", "copy with log"]
"""Write; read while others write; or read a file that nobody can write, with or without a log."""

BUSY_MS = 5000
"""How long to wait for a lock of another process."""

_RETRY_S = 0.01

CHECKED_BYTES = 4 * 1024 * 1024
"""A file up to this size is checked at opening, which takes milliseconds."""

_NO_LINK = apsw.SQLITE_OPEN_NOFOLLOW
_WRITABLE = apsw.SQLITE_OPEN_READWRITE | _NO_LINK
_COPY = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI | _NO_LINK
_FLAGS = {"write": _WRITABLE, "read": _WRITABLE, "copy": _COPY, "copy with log": _COPY}
# A log is read without a file for memory in common, where the connection locks all others out: on a
# disk that takes no lock either.
_QUERIES = {"copy": "?immutable=1", "copy with log": "?vfs=unix-none"}
_SETTINGS = {"trusted_schema": 0, "foreign_keys": 1, "cell_size_check": 1}
# What tapeway does not use and a file of somebody else may have.
_SWITCHES = {
    apsw.SQLITE_DBCONFIG_DEFENSIVE: 1,
    apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER: 0,
    apsw.SQLITE_DBCONFIG_ENABLE_VIEW: 0,
    apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA: 0,
}
WAL = "wal"
FULL, _EXTRA = 2, 3
_warned: set[str] = set()


def connect(
    path: Path, role: Role, check: Callable[[apsw.Connection], bool] = lambda _: False
) -> apsw.Connection:
    """A connection to an existing file.

    `check` is called with it before any other table is read, and says whether the file has tapeway's
    tables; then the content of a small file is checked too.

    Raises StoreError, ConfigError, apsw.CantOpenError, and what `check` raises.
    """
    refuse_old_library(apsw.sqlite_lib_version())
    # A parent folder may be a link, the file itself may not: SQLite refuses links anywhere.
    plain = path.parent.resolve() / path.name
    query = _QUERIES.get(role)
    name = str(plain) if query is None else plain.as_uri() + query
    connection = apsw.Connection(name, flags=_FLAGS[role])
    try:
        connection.set_busy_timeout(BUSY_MS)
        for switch, value in _SWITCHES.items():
            connection.config(switch, value)
        if role == "copy with log":
            connection.pragma("locking_mode", "exclusive")
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        for setting, value in _SETTINGS.items():
            set_and_check(connection, setting, value)
        if role != "write":
            set_and_check(connection, "query_only", 1)
        # Before anything is written: a file of somebody else is left as it is.
        known = check(connection)
        if role == "write":
            _make_durable(connection, str(path))
            set_and_check(connection, "secure_delete", 1)
        if known:
            check_small(connection)
    except apsw.Error as exc:
        # Read before the connection is closed: closing changes it.
        number = connection.system_errno
        connection.close()
        raise store_error(exc, str(path), "open the file", number) from exc
    except BaseException:
        connection.close()
        raise
    return connection


def _write_ahead(connection: apsw.Connection) -> object:
    """Turn the write-ahead log on; returns the journal mode of the file afterwards.

    SQLite does not wait for a reader of a file without a log: SQLite fails at once, whatever the busy
    time-out.
    """
    until = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            return connection.pragma("journal_mode", WAL)
        except apsw.BusyError:
            if time.monotonic() >= until:
                raise
            time.sleep(_RETRY_S)


def set_and_check(connection: apsw.Connection, setting: str, value: int) -> None:
    """Change a setting. Raises StoreError where SQLite does not take it."""
    connection.pragma(setting, value)
    if (answer := connection.pragma(setting)) != value:
        raise StoreError(f"SQLite does not take the setting {setting} = {value}: it says {answer}")


@contextmanager
def snapshot(connection: apsw.Connection) -> Iterator[None]:
    """A read transaction: everything read inside is of one moment."""
    with connection:
        yield


@contextmanager
def immediate_transaction(connection: apsw.Connection) -> Iterator[None]:
    """A transaction that locks the file at once; rolled back if the block raises."""
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
    """All rows of a query; STRICT tables guarantee their types."""
    return connection.execute(query, bindings).fetchall()


def check_small(connection: apsw.Connection) -> None:
    """Check a file of at most CHECKED_BYTES. Raises apsw.CorruptError."""
    pages, size = connection.pragma("page_count"), connection.pragma("page_size")
    if isinstance(pages, int) and isinstance(size, int) and pages * size <= CHECKED_BYTES:
        result = connection.execute("PRAGMA quick_check(1)").get
        if result != "ok":
            raise apsw.CorruptError(str(result))


def store_error(exc: apsw.Error, path: str, action: str, number: int = 0) -> StoreError:
    """The error to raise for a failed action such as "open the file"; `number` is the last `errno`."""
    reason = str(exc)
    if isinstance(exc, apsw.FullError) or (is_io(exc) and number in _DISK_FULL):
        return StoreFull(
            f"{path}: no room to {action} ({reason}); free some, all that was acknowledged is kept"
        )
    if isinstance(exc, _LOCKED):
        return CassetteLocked(
            f"{path}: could not {action}, another process holds the file; see which one and end it"
        )
    if isinstance(exc, _DAMAGED):
        return CassetteCorrupt(
            f"{path} is no SQLite file, or damaged ({reason}); it was left as it is: restore it, or "
            "move it away to record again"
        )
    if os.path.exists(path) and not os.access(path, os.R_OK):
        return CassetteUnreadable(f"{path}: could not {action} ({reason}); check the permissions")
    if isinstance(exc, _FORBIDDEN) or number in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StoreError(
            f"{path}: could not {action} ({reason}); check the permissions", status=503
        )
    if isinstance(exc, apsw.IOError):
        return StorePoisoned(
            f"{path}: the disk failed to {action} ({reason}); check the disk, then eject and go on"
        )
    return StoreError(f"{path}: could not {action} ({reason}); see what holds it", status=503)


def leaves_disk_in_doubt(exc: StoreError) -> bool:
    """Whether SQLite raised it and the state of the disk is now unknown."""
    return isinstance(exc.__cause__, apsw.Error) and isinstance(
        exc, StorePoisoned | CassetteCorrupt
    )


def is_io(exc: apsw.Error) -> bool:
    """Whether a system call failed."""
    return isinstance(exc, apsw.IOError | apsw.CantOpenError)


def refuse_old_library(version: str) -> None:
    """Raise ConfigError for a version of SQLite that can lose commits."""
    if tuple(map(int, version.split("."))) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise ConfigError(
            f"this is SQLite {version}, which can lose recordings: update the package apsw to "
            f"one that brings {wanted} or newer"
        )


def _make_durable(connection: apsw.Connection, path: str) -> None:
    mode = _write_ahead(connection)
    if mode != "wal":
        mode = connection.pragma("journal_mode", "delete")
        if mode != "delete":
            raise StoreError(f"{path}: SQLite keeps its journal in '{mode}', which is not safe")
        if path not in _warned:
            _warned.add(path)
            log.warning(
                "%s: this file system does not support a write-ahead log: recording is slower", path
            )
    # The writer makes checkpoints after it has answered, not before.
    connection.wal_autocheckpoint(0)
    connection.pragma("journal_size_limit", 64 * 1024 * 1024)
    set_and_check(connection, "synchronous", FULL if mode == "wal" else _EXTRA)
