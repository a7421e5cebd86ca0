"""`FILE.shared`: what the processes on a SQLite store share besides recordings.

It need not survive a crash. Each process that uses it holds a shared lock on `FILE.lock`, which the
kernel releases when the process ends. A process that gets the lock exclusively is the only one, and
creates the file again.
"""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import apsw

from tapeway.errors import StoreError
from tapeway.stores.sql.tables import CURSORS
from tapeway.stores.sqlite.connection import (
    BUSY_MS,
    immediate_transaction,
    rows,
    set_and_check,
    write_ahead,
)
from tapeway.stores.sqlite.location import StoreLocation
from tapeway.stores.sqlite.operations import main_text
from tapeway.stores.sqlite.schema import user_version
from tapeway.stores.support.durable_files import FILE_MODE, make_root, store_error
from tapeway.stores.support.format_versions import refuse_other_version

TABLES = """
-- Of how many recordings a take was the last that used them.
CREATE TABLE used (
    name TEXT NOT NULL, take INTEGER NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (name, take)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER touched_added AFTER INSERT ON touched BEGIN
    INSERT INTO used VALUES (new.name, new.take, 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER touched_later AFTER UPDATE OF take ON touched BEGIN
    UPDATE used SET count = count - 1 WHERE name = old.name AND take = old.take;
    INSERT INTO used VALUES (new.name, new.take, 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;
CREATE TRIGGER touched_removed AFTER DELETE ON touched BEGIN
    UPDATE used SET count = count - 1 WHERE name = old.name AND take = old.take;
    DELETE FROM used WHERE name = old.name AND take = old.take AND count = 0;
END;
"""

VERSION = 4

_ATTEMPTS = 20


class SharedFile:
    """Locked from the first connection to `close`. Callers close their connections."""

    def __init__(self, location: StoreLocation, clock: Callable[[], float]) -> None:
        """`clock` is the same in all processes of the machine."""
        self._location = location
        self._clock = clock
        self._lock: int | None = None
        self.path = location.beside(".shared")

    def connect(self) -> apsw.Connection:
        """A connection; the file is created again where no process uses it. Raises apsw.Error, StoreError."""
        self._take_lock()
        connection = _connect(self.path)
        connection.create_scalar_function("clock", lambda *_: self._clock(), 0)
        return connection

    def close(self) -> None:
        """Release the lock, and remove the file where no other process uses it."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(self.path)
            os.close(lock)

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        try:
            path = self._location.lock
            if self._location.writable:
                make_root(self._location.folder)
            else:
                # A store on a read-only disk can be replayed by several processes all the same.
                path = _temporary_lock(self._location.path)
                self.path = path.with_name("shared")
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(path, flags, FILE_MODE)
        except OSError as exc:
            raise store_error(exc, str(self._location), "take the lock beside it") from exc
        try:
            os.fchmod(lock, FILE_MODE)
            self._open_whole(lock)
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock

    def _open_whole(self, lock: int) -> None:
        for _ in range(_ATTEMPTS):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            else:
                self._create()
            # Between the two locks another process may create the file again: nobody has used it
            # yet.
            fcntl.flock(lock, fcntl.LOCK_SH)
            if self._is_whole():
                return
            fcntl.flock(lock, fcntl.LOCK_UN)
        raise StoreError(f"{self.path} cannot be read: remove it and start again", status=503)

    def _create(self) -> None:
        _remove(self.path)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
        os.chmod(self.path, FILE_MODE)
        connection = _connect(self.path)
        try:
            with immediate_transaction(connection):
                connection.execute(main_text(CURSORS) + TABLES)
                connection.pragma("user_version", VERSION)
        finally:
            connection.close()

    def _is_whole(self) -> bool:
        try:
            connection = _connect(self.path)
        except apsw.Error:
            return False
        try:
            if rows(connection, "SELECT count(*) FROM control") != [(1,)]:
                return False
            refuse_other_version(user_version(connection), VERSION, str(self.path))
            return True
        except apsw.Error:
            return False
        finally:
            connection.close()


def _connect(path: Path) -> apsw.Connection:
    plain = path.parent.resolve() / path.name
    # The recordings are attached by an address that says read-only.
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(str(plain), flags=flags)
    try:
        connection.set_busy_timeout(BUSY_MS)
        # Not checked: without WAL, readers wait for writers.
        write_ahead(connection)
        set_and_check(connection, "synchronous", 0)
        set_and_check(connection, "trusted_schema", 0)
    except BaseException:
        connection.close()
        raise
    return connection


def _remove(path: Path) -> None:
    for ending in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            os.unlink(path.with_name(path.name + ending))


def _temporary_lock(path: Path) -> Path:
    """A lock in a private temporary folder, the same for all processes of the file."""
    name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"tapeway-{os.getuid()}-{name}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    lstat = os.lstat(folder)
    if lstat.st_uid != os.getuid() or not folder.is_dir() or folder.is_symlink():
        raise StoreError(f"{folder} belongs to somebody else: remove it", status=503)
    return folder / "lock"
