"""The tables of a SQLite store.

    cassette ─┬─ interaction ─┬─ key       digests to find it by, per generation of the rules
              └─ source       └─ usage ── body ── piece

A cassette without a name is being written or removed. Every write updates its counts, so that no
query counts rows. `number` is an interaction's index, `place` its position in the order.
"""

import secrets
from collections.abc import Callable

import apsw

from tapeway.errors import CassetteCorrupt
from tapeway.stores.shared.format_versions import refuse_other_version
from tapeway.stores.sqlite.connection import immediate_transaction

APPLICATION = 0x7A9E3A41
"""Marks the file as tapeway's, in its header."""

VERSION = 3

TABLES = """
-- `removed` is the number of the last change after which the file has to be wiped, or 0.
CREATE TABLE state (
    id TEXT NOT NULL, changes INTEGER NOT NULL, takes INTEGER NOT NULL, removed INTEGER NOT NULL
) STRICT;
CREATE TABLE cassette (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT UNIQUE,
    created_at TEXT NOT NULL, run_id TEXT NOT NULL, meta TEXT NOT NULL,
    generation INTEGER NOT NULL DEFAULT 0,
    coming_meta TEXT, coming_generation INTEGER,
    count INTEGER NOT NULL DEFAULT 0, exchanges INTEGER NOT NULL DEFAULT 0,
    next INTEGER NOT NULL DEFAULT 0,
    size INTEGER NOT NULL DEFAULT 0,
    changed INTEGER NOT NULL DEFAULT 0, modified_at TEXT NOT NULL
) STRICT;
CREATE TABLE interaction (
    id INTEGER PRIMARY KEY,
    cassette INTEGER NOT NULL REFERENCES cassette,
    number INTEGER NOT NULL, place INTEGER NOT NULL, take INTEGER NOT NULL,
    exchange INTEGER NOT NULL,
    route TEXT NOT NULL, base TEXT NOT NULL,
    method TEXT NOT NULL, path TEXT NOT NULL, query TEXT NOT NULL,
    weight INTEGER, size INTEGER NOT NULL,
    document TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX interaction_number ON interaction (cassette, number);
CREATE UNIQUE INDEX interaction_place ON interaction (cassette, place, exchange, number);
CREATE INDEX interaction_path ON interaction (cassette, method, path, number, weight);
CREATE TABLE key (
    cassette INTEGER NOT NULL, generation INTEGER NOT NULL, digest BLOB NOT NULL,
    interaction INTEGER NOT NULL REFERENCES interaction ON DELETE CASCADE,
    PRIMARY KEY (cassette, generation, digest, interaction)
) STRICT, WITHOUT ROWID;
CREATE INDEX key_interaction ON key (interaction);
CREATE TABLE source (
    cassette INTEGER NOT NULL REFERENCES cassette,
    route TEXT NOT NULL, base TEXT NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (cassette, route, base)
) STRICT, WITHOUT ROWID;
CREATE TABLE body (
    id INTEGER PRIMARY KEY, digest TEXT UNIQUE, size INTEGER NOT NULL, idle_since INTEGER
) STRICT;
CREATE INDEX body_idle ON body (idle_since) WHERE idle_since IS NOT NULL;
CREATE TABLE piece (
    body INTEGER NOT NULL REFERENCES body, number INTEGER NOT NULL, data BLOB NOT NULL,
    UNIQUE (body, number)
) STRICT;
CREATE TABLE usage (
    interaction INTEGER NOT NULL REFERENCES interaction ON DELETE CASCADE,
    body INTEGER NOT NULL REFERENCES body,
    PRIMARY KEY (interaction, body)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_body ON usage (body);
CREATE TABLE fence (
    name TEXT NOT NULL, key BLOB NOT NULL, fence INTEGER NOT NULL, PRIMARY KEY (name, key)
) STRICT, WITHOUT ROWID;
"""

_NAMES = {"state", "cassette", "interaction", "key", "source", "body", "piece", "usage", "fence"}


def stored_version(connection: apsw.Connection, path: str) -> int | None:
    """The version of a file's tables, None for an empty file.

    Raises CassetteCorrupt for a file of another program, of another version, and without a table.
    """
    application, version = connection.pragma("application_id"), user_version(connection)
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    if not application and not version and not found:
        return None
    if application != APPLICATION:
        raise CassetteCorrupt(
            f"{path} is a SQLite file of another program: give --store sqlite: another file"
        )
    refuse_other_version(version, VERSION, path)
    if not found >= _NAMES:
        raise CassetteCorrupt(f"{path} lacks some of its tables: restore it from a copy")
    return version


def create(
    connection: apsw.Connection, path: str, begin: Callable[[], None] = lambda: None
) -> None:
    """Create the tables in an empty file; safe where several processes do so at once.

    `begin` is called before: what it raises leaves the file empty.
    """
    with immediate_transaction(connection):
        if stored_version(connection, path) is None:
            begin()
            connection.execute(TABLES)
            connection.execute("INSERT INTO state VALUES (?, 0, 0, 0)", (secrets.token_hex(8),))
            connection.pragma("application_id", APPLICATION)
            connection.pragma("user_version", VERSION)


def user_version(connection: apsw.Connection) -> int:
    """The version in the file's header."""
    version = connection.pragma("user_version")
    return version if isinstance(version, int) else 0
