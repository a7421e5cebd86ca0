"""The file of a SQLite store: the tables, the marks of tapeway's files, and the table `state`.

The table tells the takes that ever began, and whether something was removed since the last wiping.
"""

import secrets
from collections.abc import Callable, Sequence

import apsw

from tapeway.core.model.cassette import Lease
from tapeway.errors import CassetteCorrupt, Fenced
from tapeway.stores.sql.statements import Op, each, row, run
from tapeway.stores.sql.tables import RECORDINGS
from tapeway.stores.sqlite.connection import immediate_transaction
from tapeway.stores.sqlite.operations import main_text
from tapeway.stores.support.format_versions import refuse_other_version

APPLICATION = 0x7A9E3A41
"""Marks the file as tapeway's, in its header."""

VERSION = 7

_STATE = """
-- `removed` is the number of the last change after which the file has to be wiped, or 0.
CREATE TABLE state (
    id TEXT NOT NULL, changes INTEGER NOT NULL, takes INTEGER NOT NULL, removed INTEGER NOT NULL
) STRICT;
-- Leases that were taken over from instances which seemed to have ended.
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
_TABLES = main_text(RECORDINGS) + _STATE
_NAMES = {
    *("state", "cassette", "interaction", "key", "source", "body", "piece", "usage", "lost"),
}


def stored_version(connection: apsw.Connection, path: str) -> int | None:
    """The version of a file's tables, None for an empty file.

    Raises CassetteCorrupt for a file of another program, of another version, and without a table.
    """
    application, version = connection.pragma("application_id"), user_version(connection)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    if not application and not version and not tables:
        return None
    if application != APPLICATION:
        raise CassetteCorrupt(
            f"{path} is a SQLite file of another program: give --store sqlite: another file"
        )
    refuse_other_version(version, VERSION, path)
    if not tables >= _NAMES:
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
            connection.execute(_TABLES)
            connection.execute("INSERT INTO state VALUES (?, 0, 0, 0)", (secrets.token_hex(8),))
            connection.pragma("application_id", APPLICATION)
            connection.pragma("user_version", VERSION)


def user_version(connection: apsw.Connection) -> int:
    """The version in the file's header."""
    version = connection.pragma("user_version")
    return version if isinstance(version, int) else 0


def takes() -> Op[int]:
    """How many takes ever began."""
    state = yield from row("SELECT takes FROM state")
    return 0 if state is None else int(state[0])


def note_takes(count: int) -> Op[int]:
    """Store how many takes ever began."""
    return (yield from run("UPDATE state SET takes = $1 WHERE takes < $1", count))


def needs_wiping() -> Op[bool]:
    """Whether something was removed since the file was wiped."""
    state = yield from row("SELECT removed FROM state")
    return state is not None and bool(state[0])


def lose(fences: Sequence[int]) -> Op[None]:
    """From now on, refuse recordings under these leases."""
    yield from each("INSERT INTO lost VALUES ($1) ON CONFLICT DO NOTHING", [(at,) for at in fences])


def refuse_lost(lease: Lease, place: str) -> Op[None]:
    """Raise Fenced for a lease after a take-over by another process."""
    if (yield from row("SELECT 1 FROM lost WHERE fence = $1", lease.fence)) is not None:
        raise Fenced(
            f"{place}: another process records the same for cassette '{lease.name}' by now: this "
            "answer was not written"
        )
