"""Upgrades a SQLite file of the version before, once, with a copy of the file beside it."""

import logging
import os
from collections.abc import Callable
from contextlib import closing
from functools import partial

import apsw

from tapeway.cooperative import Yielding
from tapeway.errors import CassetteLocked, StoreError
from tapeway.stores.sqlite import schema
from tapeway.stores.sqlite.connection import connect, immediate_transaction, rows, store_error
from tapeway.stores.sqlite.location import StoreLocation
from tapeway.stores.sqlite.lock_file import LockFile
from tapeway.stores.sqlite.recordings import Change, Row, row_of
from tapeway.stores.sqlite.resident import refuse_changed
from tapeway.stores.support import columns
from tapeway.stores.support.durable_files import FILE_MODE, sync_folder
from tapeway.stores.support.durable_files import store_error as file_error

log = logging.getLogger(__name__)

_TABLES = """
CREATE TABLE cassette (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT UNIQUE,
  -- Drawn when it is made: no other cassette of any database ever has it.
  token TEXT NOT NULL,
  revision INTEGER NOT NULL DEFAULT 0,
  created_at BLOB NOT NULL, run_id BLOB NOT NULL, meta BLOB NOT NULL,
  generation INTEGER NOT NULL DEFAULT 0,
  coming_meta BLOB, coming_generation INTEGER,
  modified_at REAL NOT NULL
) STRICT;
CREATE TABLE interaction (
  cassette INTEGER NOT NULL REFERENCES cassette ON DELETE CASCADE,
  number INTEGER NOT NULL, place INTEGER NOT NULL, take INTEGER NOT NULL,
  exchange INTEGER NOT NULL,
  route BLOB NOT NULL, base BLOB NOT NULL,
  method BLOB NOT NULL, path BLOB NOT NULL, query BLOB NOT NULL,
  method_path BLOB NOT NULL,
  weight INTEGER, size INTEGER NOT NULL,
  forward BLOB, backward BLOB,
  document BLOB NOT NULL, sha256 BLOB NOT NULL,
  PRIMARY KEY (cassette, number)
) STRICT;
CREATE INDEX interaction_place ON interaction (cassette, place, number);
CREATE INDEX interaction_path ON interaction (cassette, method_path, number) WHERE weight IS NOT NULL;
CREATE INDEX interaction_forward ON interaction (cassette, forward, number DESC);
CREATE INDEX interaction_backward ON interaction (cassette, backward, number DESC);
CREATE TABLE key (
  cassette INTEGER NOT NULL, generation INTEGER NOT NULL, digest BLOB NOT NULL, number INTEGER NOT NULL,
  PRIMARY KEY (cassette, generation, digest, number),
  FOREIGN KEY (cassette, number) REFERENCES interaction ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX key_interaction ON key (cassette, number);
CREATE TABLE source (
  cassette INTEGER NOT NULL REFERENCES cassette ON DELETE CASCADE,
  shard INTEGER NOT NULL, exchange INTEGER NOT NULL, route BLOB NOT NULL, base BLOB NOT NULL,
  count INTEGER NOT NULL, size INTEGER NOT NULL,
  changes INTEGER NOT NULL,
  -- Above all indexes that were ever counted here.
  next INTEGER NOT NULL,
  modified_at REAL NOT NULL,
  PRIMARY KEY (cassette, shard, exchange, route, base)
) STRICT, WITHOUT ROWID;
CREATE TABLE body (
  id INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB UNIQUE, size INTEGER NOT NULL, idle_since REAL
) STRICT;
CREATE INDEX body_idle ON body (idle_since) WHERE idle_since IS NOT NULL;
CREATE TABLE piece (
  body INTEGER NOT NULL REFERENCES body, number INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (body, number)
) STRICT;
CREATE TABLE usage (
  cassette INTEGER NOT NULL, number INTEGER NOT NULL, body INTEGER NOT NULL REFERENCES body,
  PRIMARY KEY (cassette, number, body),
  FOREIGN KEY (cassette, number) REFERENCES interaction ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_body ON usage (body);
CREATE TABLE state (
    id TEXT NOT NULL, changes INTEGER NOT NULL, takes INTEGER NOT NULL, removed INTEGER NOT NULL
) STRICT;
CREATE TABLE lost (fence INTEGER PRIMARY KEY) STRICT;
CREATE TRIGGER interaction_removed AFTER DELETE ON interaction BEGIN
    UPDATE state SET removed = changes;
END;
CREATE TRIGGER interaction_replaced AFTER UPDATE OF document ON interaction BEGIN
    UPDATE state SET removed = changes;
END;
CREATE TRIGGER head_replaced AFTER UPDATE OF meta ON cassette BEGIN
    UPDATE state SET removed = changes;
END;
CREATE TRIGGER piece_removed AFTER DELETE ON piece BEGIN
    UPDATE state SET removed = changes;
END;
"""
"""The tables of version 7."""
_NAMES = ("usage", "piece", "body", "key", "source", "interaction", "cassette", "lost", "state")
_INTERACTIONS = """
SELECT number, place, exchange, route, base, size, document, sha256, (
  SELECT group_concat(u.body) FROM usage u WHERE u.cassette = i.cassette AND u.number = i.number)
FROM interaction i WHERE cassette = ? ORDER BY place, number
"""


def refuse_to_upgrade(location: StoreLocation) -> None:
    """Raise StoreError where the file cannot be written."""
    if not location.writable:
        raise StoreError(
            f"{location} was written by the tapeway before this one, and cannot be written here: open "
            "it once where it can be, as with 'tapeway cassette ls', which upgrades it",
            status=503,
        )


def upgrade(location: StoreLocation) -> None:
    """Upgrade a file, all of it or nothing; the file as it was stays beside it.

    Raises CassetteLocked while another process uses the file, StoreFull, CassetteCorrupt, StoreError.
    """
    place, lock = str(location), LockFile(location)
    lock.take()
    try:
        check = partial(schema.check, path=place, older=_TABLES)
        with closing(connect(location.path, "write", check)) as connection:
            try:
                lock.compare(connection, "state")
                changes = _changes(connection)
                copy = _copied(connection, location)
                lock.note(_upgraded(connection, place, changes))
            except apsw.Error as exc:
                number = connection.system_errno
                raise store_error(exc, place, "upgrade the file", number) from exc
    finally:
        lock.let_go()
    log.warning(
        "%s was upgraded to this version of tapeway; %s is a copy of it as it was: remove it when you "
        "need it no more, since what you redact or delete from now on stays in it",
        *(location, copy),
    )


def _copied(connection: apsw.Connection, location: StoreLocation) -> str:
    """Copy the file durably; the name of the copy."""
    draft = location.beside(".version-7.tmp")
    copy, number = location.beside(".version-7"), 1
    while copy.exists():
        copy, number = location.beside(f".version-7-{number + 1}"), number + 1
    try:
        draft.unlink(missing_ok=True)
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
        try:
            connection.execute("VACUUM INTO ?", (str(draft),))
            _sync(str(draft), os.fsync)
            os.rename(draft, copy)
            _sync(str(location.folder), sync_folder)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as exc:
        raise file_error(exc, str(copy), "copy the file before its upgrade") from exc
    return str(copy)


def _sync(path: str, sync: Callable[[int], None]) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync(fd)
    finally:
        os.close(fd)


def _changes(connection: apsw.Connection) -> tuple[str, int]:
    file_id, changes = rows(connection, "SELECT id, changes FROM state")[0]
    return file_id, changes


def _upgraded(connection: apsw.Connection, place: str, copied: tuple[str, int]) -> int:
    """Fill the new tables and drop the old ones; the number of this change."""
    # Tables are dropped in any order.
    connection.pragma("foreign_keys", 0)
    with immediate_transaction(connection):
        if _changes(connection) != copied:
            raise CassetteLocked(
                f"{place} is written by another process while it is upgraded: stop that one"
            )
        schema.make_tables(connection, *copied)
        change = Change(connection)
        connection.execute(
            "INSERT INTO bodies SELECT id, digest, size FROM body WHERE digest IS NOT NULL;"
            "INSERT INTO pieces SELECT body, number, data FROM piece "
            "WHERE body IN (SELECT id FROM bodies)"
        )
        cassettes = rows(
            connection,
            "SELECT id, name, created_at, run_id, meta FROM cassette WHERE name IS NOT NULL ORDER BY id",
        )
        for id_, name, *head in cassettes:
            _copy_cassette(change, id_, change.new_cassette(name, *head), name, head[2])
        for table in _NAMES:
            connection.execute(f"DROP TABLE {table}")
        # What was removed in the old tables is in the pages that they leave.
        change.note_removal()
        change.end()
    return change.number


def _copy_cassette(change: Change, before: int, cassette: int, name: str, meta: bytes) -> None:
    step, shown = Yielding().step, f"cassette '{name}'"
    for columns_before in change.connection.execute(_INTERACTIONS, (before,)):
        number, place, exchange, route, base, size, text, digest, bodies = columns_before
        try:
            refuse_changed(text, digest, shown)
            item = columns.interaction_of(text, number, shown)
            row = row_of(item, text, columns.rules_of(meta))
        except StoreError:
            # Damage stays what it is: whoever reads it is told.
            row = Row(text, digest, size, exchange, route, base)
        used = [int(body) for body in bodies.split(",")] if bodies else []
        change.insert(cassette, number, place, row, used)
        step()
