"""The tables of a SQLite store, and what a file has to look like before anything in it is used.

    cassettes ─┬─ recordings ─┬─ documents
               └─ sources     └─ uses ── bodies ── pieces

A file holds exactly these tables. A trigger, a view, a generated column or an index on an expression
is code that SQLite runs for whoever opens the file: such a file was made by somebody else.
"""

import secrets
from collections.abc import Callable
from functools import lru_cache

import apsw

from tapeway.errors import CassetteCorrupt
from tapeway.stores.sqlite.connection import immediate_transaction
from tapeway.stores.support.format_versions import refuse_other_version

APPLICATION = 0x7A9E3A41
"""Marks the file as tapeway's, in its header."""

VERSION = 8

TABLES = """
CREATE TABLE cassettes (
  id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
  created_at BLOB NOT NULL, run_id BLOB NOT NULL, meta BLOB NOT NULL,
  -- The number of its last change.
  change INTEGER NOT NULL, modified_at REAL NOT NULL
) STRICT;
-- How many recordings a cassette has, and where they came from.
CREATE TABLE sources (
  id INTEGER PRIMARY KEY, cassette INTEGER NOT NULL REFERENCES cassettes,
  exchange INTEGER NOT NULL, route BLOB NOT NULL, base BLOB NOT NULL,
  count INTEGER NOT NULL, size INTEGER NOT NULL,
  UNIQUE (cassette, exchange, route, base)
) STRICT;
-- An id is never used again, and its document never changes. `number` is the index of an interaction,
-- `place` its position in the order. `key` is the match key under the rules of the cassette; without a
-- key the document is read when the cassette is loaded.
CREATE TABLE recordings (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  cassette INTEGER NOT NULL REFERENCES cassettes, source INTEGER NOT NULL REFERENCES sources,
  number INTEGER NOT NULL, place INTEGER NOT NULL,
  key BLOB, marks INTEGER NOT NULL, size INTEGER NOT NULL
) STRICT;
CREATE INDEX recordings_in_order ON recordings (cassette, place, number, id);
CREATE INDEX recordings_by_number ON recordings (cassette, number);
CREATE TABLE documents (
  id INTEGER PRIMARY KEY REFERENCES recordings, text BLOB NOT NULL, sha256 BLOB NOT NULL
) STRICT;
CREATE TABLE bodies (
  id INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB UNIQUE, size INTEGER NOT NULL
) STRICT;
CREATE TABLE pieces (
  body INTEGER NOT NULL REFERENCES bodies, number INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (body, number)
) STRICT;
CREATE TABLE uses (
  recording INTEGER NOT NULL REFERENCES recordings, body INTEGER NOT NULL REFERENCES bodies,
  PRIMARY KEY (recording, body)
) STRICT, WITHOUT ROWID;
CREATE INDEX uses_of_body ON uses (body);
-- `changes` counts transactions; `removed` says that the file has to be wiped.
CREATE TABLE file (
  id TEXT NOT NULL, changes INTEGER NOT NULL, removed INTEGER NOT NULL
) STRICT;
"""

# `ANALYZE` makes the latter two.
_OF_SQLITE = {
    ("table", "sqlite_sequence", "CREATE TABLE sqlite_sequence(name,seq)"),
    ("table", "sqlite_stat1", "CREATE TABLE sqlite_stat1(tbl,idx,stat)"),
    ("table", "sqlite_stat4", "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)"),
}
_Part = tuple[str, str, str | None]
"""The kind, the name and the text of a part of a schema."""


class OlderVersion(Exception):
    """The file has the tables of the version before."""


def check(connection: apsw.Connection, path: str, *, older: str = "") -> bool:
    """Whether the file has tapeway's tables; False for an empty file.

    Only SQLite's own table of all parts is read. `older` has the tables of the version before, to
    look for these instead. Raises CassetteCorrupt for a file of another program, of another version,
    and with other parts; OlderVersion.
    """
    application, version = connection.pragma("application_id"), user_version(connection)
    found: set[_Part] = {
        (str(kind), str(name), None if sql is None else str(sql))
        for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_schema")
    }
    if not application and not version and not found:
        return False
    if application != APPLICATION:
        raise CassetteCorrupt(
            f"{path} is a SQLite file of another program: give --store sqlite: another file"
        )
    if not older and version == VERSION - 1:
        raise OlderVersion
    refuse_other_version(version, VERSION - 1 if older else VERSION, path)
    _refuse_foreign_parts(found - _OF_SQLITE, _parts(older or TABLES), path)
    return True


def create(
    connection: apsw.Connection, path: str, begin: Callable[[], None] = lambda: None
) -> None:
    """Create the tables in an empty file. `begin` is called before: an error leaves the file empty."""
    with immediate_transaction(connection):
        if not check(connection, path):
            begin()
            make_tables(connection, secrets.token_hex(8), 0)


def make_tables(connection: apsw.Connection, file_id: str, changes: int) -> None:
    """Create the tables of a file with this identity, in a transaction of the caller."""
    connection.execute(TABLES)
    connection.execute("INSERT INTO file VALUES (?, ?, 0)", (file_id, changes))
    connection.pragma("application_id", APPLICATION)
    connection.pragma("user_version", VERSION)


def user_version(connection: apsw.Connection) -> int:
    """The version in the file's header."""
    version = connection.pragma("user_version")
    return version if isinstance(version, int) else 0


def _refuse_foreign_parts(found: set[_Part], made: frozenset[_Part], path: str) -> None:
    names = {name for _, name, _ in made}
    for kind, name, _ in sorted(found - made, key=lambda part: part[:2]):
        what = f"the {kind} '{name}'"
        raise CassetteCorrupt(
            f"{path} holds {what}, which tapeway did not make: it may run code of whoever made the "
            "file, which was left as it is; use a file of your own"
            if name not in names
            else f"{path}: {what} is not as tapeway makes it, so somebody else has changed the "
            "file, which was left as it is; restore it from a copy"
        )
    for kind, name, _ in sorted(made - found, key=lambda part: part[:2]):
        raise CassetteCorrupt(f"{path} lacks the {kind} '{name}': restore it from a copy")


@lru_cache(maxsize=2)
def _parts(tables: str) -> frozenset[_Part]:
    """The parts of a file in which these tables were just made."""
    connection = apsw.Connection(":memory:")
    try:
        connection.execute(tables)
        return (
            frozenset(
                (str(kind), str(name), None if sql is None else str(sql))
                for kind, name, sql in connection.execute(
                    "SELECT type, name, sql FROM sqlite_schema"
                )
            )
            - _OF_SQLITE
        )
    finally:
        connection.close()
