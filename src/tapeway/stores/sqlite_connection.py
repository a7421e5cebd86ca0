"""Connections to a SQLite file, set up so that a commit that returned is on the disk.

What a setting answers is looked at: SQLite says nothing when it does not take one.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import apsw

from tapeway.errors import StoreError
from tapeway.stores.sqlite_trouble import refuse_old, store_error

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
