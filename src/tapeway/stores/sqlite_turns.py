"""Where keys stand in a take, and which recordings it touched: kept in the shared file."""

from collections.abc import Iterable, Mapping, Sequence

import apsw

from tapeway.core.model.cassette import CursorStep
from tapeway.core.model.control import Control, CursorState
from tapeway.stores.sqlite_connection import rows

_KEYS = 500
_READ = "SELECT state, version FROM turn WHERE name = ? AND take = ? AND key = ?"


def read(
    name: str, take: int, keys: Sequence[bytes], connection: apsw.Connection
) -> Mapping[bytes, CursorState]:
    """The turns of those keys that were advanced at all."""
    found: dict[bytes, CursorState] = {}
    for start in range(0, len(keys), _KEYS):
        some = keys[start : start + _KEYS]
        marks = ", ".join("?" * len(some))
        rows = connection.execute(
            "SELECT key, state, version FROM turn "  # noqa: S608 - question marks
            f"WHERE name = ? AND take = ? AND key IN ({marks})",
            (name, take, *some),
        )
        found |= {key: CursorState(state, version) for key, state, version in rows}
    return found


def advance(
    name: str,
    take: int,
    key: bytes,
    before: CursorState | None,
    state: bytes,
    touched: int,
    connection: apsw.Connection,
) -> bool:
    """Put a state in the place of the one that was seen; False where it is another by now."""
    connection.execute("BEGIN IMMEDIATE")
    now = connection.execute(_READ, (name, take, key)).fetchone()
    if now != (None if before is None else (before.state, before.version)):
        connection.execute("ROLLBACK")
        return False
    _put(connection, name, take, key, state)
    _touch(connection, name, take, touched)
    connection.execute("COMMIT")
    return True


def step(done: Iterable[tuple[str, int, CursorStep]], connection: apsw.Connection) -> None:
    """Move on the turns of what was recorded under these indexes, whatever they are by now."""
    connection.execute("BEGIN IMMEDIATE")
    for name, index, each in done:
        now = connection.execute(_READ, (name, each.take, each.key)).fetchone()
        _put(connection, name, each.take, each.key, each.moved(None if now is None else now[0]))
        _touch(connection, name, each.take, index)
    connection.execute("COMMIT")


def forget(name: str, connection: apsw.Connection) -> None:
    """Nothing of a cassette was used yet: it was removed, or is another one."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM turn WHERE name = ?", (name,))
    connection.execute("DELETE FROM touched WHERE name = ?", (name,))
    connection.execute("COMMIT")


def forget_before(control: Control, connection: apsw.Connection) -> None:
    """Remove what takes left that ended before the last change; inside a transaction."""
    for table in ("turn", "touched"):
        found = rows(connection, f"SELECT DISTINCT name, take FROM {table}")  # noqa: S608
        for name, take in found:
            if take < control.take_of(name):
                connection.execute(
                    f"DELETE FROM {table} WHERE name = ? AND take = ?",  # noqa: S608
                    (name, take),
                )


def reserve(name: str, above: int, count: int, connection: apsw.Connection) -> int:
    """The first of so many indexes nobody else gets, none of them below `above`."""
    behind = connection.execute(
        "INSERT INTO numbering VALUES (?1, ?2 + ?3) "
        "ON CONFLICT DO UPDATE SET next = max(next, ?2) + ?3 RETURNING next",
        (name, above, count),
    ).get
    return int(behind) - count


def _put(connection: apsw.Connection, name: str, take: int, key: bytes, state: bytes) -> None:
    # Never a number again: a turn that was forgotten and came back is another one.
    version = connection.execute("UPDATE counter SET version = version + 1 RETURNING version").get
    connection.execute(
        "INSERT INTO turn VALUES (?1, ?2, ?3, ?4, ?5) "
        "ON CONFLICT DO UPDATE SET state = ?4, version = ?5",
        (name, take, key, state, version),
    )


def _touch(connection: apsw.Connection, name: str, take: int, index: int) -> None:
    connection.execute("INSERT OR IGNORE INTO touched VALUES (?, ?, ?)", (name, take, index))
