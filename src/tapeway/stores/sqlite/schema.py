"""The file of a SQLite store: the tables, and the marks of tapeway's files."""

import secrets
from collections.abc import Callable

import apsw

from tapeway.errors import CassetteCorrupt
from tapeway.stores.sql.tables import RECORDINGS
from tapeway.stores.sqlite import state
from tapeway.stores.sqlite.connection import immediate_transaction
from tapeway.stores.sqlite.operations import main_text
from tapeway.stores.support.format_versions import refuse_other_version

APPLICATION = 0x7A9E3A41
"""Marks the file as tapeway's, in its header."""

VERSION = 7

_TABLES = main_text(RECORDINGS) + state.TABLES
_NAMES = {
    *("state", "cassette", "interaction", "key", "source", "body", "piece", "usage", "lost"),
}


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
            connection.execute(_TABLES)
            connection.execute("INSERT INTO state VALUES (?, 0, 0, 0)", (secrets.token_hex(8),))
            connection.pragma("application_id", APPLICATION)
            connection.pragma("user_version", VERSION)


def user_version(connection: apsw.Connection) -> int:
    """The version in the file's header."""
    version = connection.pragma("user_version")
    return version if isinstance(version, int) else 0
