"""The tables of a SQLite store.

    cassette ─┬─ interaction ─┬─ key       digests to find it by, per generation of the rules
              └─ source       └─ usage ── body ── piece

A cassette without a name is being written or removed. Every write updates its counts, so that no
query counts rows. `number` is an interaction's index, `place` its position in the order.
"""

import secrets
from collections.abc import Callable, Mapping

import apsw

from tapeway.core.cassette.recording_keys import index_keys
from tapeway.core.matching.rules import Rules
from tapeway.core.model.interaction import exchange_of
from tapeway.errors import CassetteCorrupt
from tapeway.stores.shared.columns import interaction_of, rules_of
from tapeway.stores.shared.format_versions import pending_upgrades
from tapeway.stores.sqlite.connection import immediate_transaction, rows

APPLICATION = 0x7A9E3A41
"""Marks the file as tapeway's, in its header."""

VERSION = 2

TABLES = """
CREATE TABLE state (
    id TEXT NOT NULL, changes INTEGER NOT NULL, takes INTEGER NOT NULL
) STRICT;
CREATE TABLE cassette (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT UNIQUE,
    created_at TEXT NOT NULL, run_id TEXT NOT NULL, meta TEXT NOT NULL,
    generation INTEGER NOT NULL DEFAULT 0,
    coming_meta TEXT, coming_generation INTEGER,
    count INTEGER NOT NULL DEFAULT 0, exchanges INTEGER NOT NULL DEFAULT 0,
    next INTEGER NOT NULL DEFAULT 0, last_place INTEGER NOT NULL DEFAULT 0,
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

_BATCH = 500


def upgrade_1_to_2(connection: apsw.Connection) -> None:
    """Index every recording by the keys of its request as it is stored.

    Those of version 1 left credentials out, so that recordings which hold some are not found by them.
    """
    connection.execute("DELETE FROM key")
    cassettes = rows(
        connection, "SELECT id, generation, meta, coming_generation, coming_meta FROM cassette"
    )
    for id_, generation, meta, coming_generation, coming_meta in cassettes:
        _index_anew(connection, id_, generation, rules_of(meta))
        if coming_generation is not None:
            _index_anew(connection, id_, coming_generation, rules_of(coming_meta))


def _index_anew(connection: apsw.Connection, cassette: int, generation: int, under: Rules) -> None:
    after = -1
    while found := rows(
        connection,
        "SELECT id, number, document FROM interaction WHERE cassette = ? AND number > ? "
        "AND exchange ORDER BY number LIMIT ?",
        (cassette, after, _BATCH),
    ):
        for id_, number, text in found:
            exchange = exchange_of(interaction_of(text, number, "an older file"))
            digests = [] if exchange is None else index_keys(exchange, under)
            connection.executemany(
                "INSERT OR IGNORE INTO key VALUES (?, ?, ?, ?)",
                [(cassette, generation, digest, id_) for digest in digests],
            )
            after = number


UPGRADES: dict[int, Callable[[apsw.Connection], None]] = {1: upgrade_1_to_2}
"""From each older version to the next, such as `upgrade_1_to_2` under 1. Each runs in a transaction
that its caller began."""

_NAMES = {"state", "cassette", "interaction", "key", "source", "body", "piece", "usage", "fence"}


class OldSchema(Exception):
    """The tables are of an older version and must be upgraded before they are read."""


def stored_version(connection: apsw.Connection, path: str) -> int | None:
    """The version of a file's tables, None for an empty file.

    Raises CassetteCorrupt for a file of another program, of a newer tapeway, and without a table.
    """
    application, version = connection.pragma("application_id"), user_version(connection)
    found = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    if not application and not version and not found:
        return None
    if application != APPLICATION:
        raise CassetteCorrupt(
            f"{path} is a SQLite file of another program: give --store sqlite: another file"
        )
    pending_upgrades(version, VERSION, UPGRADES, path)
    if version == VERSION and not found >= _NAMES:
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
            connection.execute("INSERT INTO state VALUES (?, 0, 0)", (secrets.token_hex(8),))
            connection.pragma("application_id", APPLICATION)
            connection.pragma("user_version", VERSION)


def upgrade(connection: apsw.Connection, path: str) -> None:
    """Bring the tables of an older version to this one. Raises CassetteCorrupt."""
    run_upgrades(connection, path, VERSION, UPGRADES)


def run_upgrades(
    connection: apsw.Connection,
    path: str,
    known: int,
    upgrades: Mapping[int, Callable[[apsw.Connection], None]],
) -> None:
    """Upgrade to version `known` in one transaction: where one step fails, nothing is changed.

    Processes that open the file at the same time wait, and find it done.
    """
    if user_version(connection) == known:
        return
    with immediate_transaction(connection):
        found = user_version(connection)
        try:
            for each in pending_upgrades(found, known, upgrades, path):
                each(connection)
        except (apsw.SQLError, apsw.ConstraintError) as exc:
            raise CassetteCorrupt(
                f"{path}: its tables could not be upgraded from version {found} to {known} "
                f"({exc}): use the tapeway that wrote it; it was left as it is"
            ) from exc
        connection.pragma("user_version", known)


def user_version(connection: apsw.Connection) -> int:
    """The version in the file's header."""
    version = connection.pragma("user_version")
    return version if isinstance(version, int) else 0
