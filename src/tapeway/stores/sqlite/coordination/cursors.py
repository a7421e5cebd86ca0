"""The cursors of keys per take, and the recordings a take used, in the shared file."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext

import apsw

from tapeway.core.model.cassette import CursorStep
from tapeway.core.model.control import STAYED, Control, CursorMove, CursorState
from tapeway.stores.sqlite.connection import immediate_transaction, rows
from tapeway.stores.sqlite.queries import mark_of

_KEYS = 500
_BEGIN = "INSERT INTO turn VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_GO_ON = """
UPDATE turn SET state = ?, version = ? WHERE name = ? AND take = ? AND key = ? AND version = ?
"""
_NEXT_VERSIONS = "UPDATE counter SET version = version + ? RETURNING version"
_READ = "SELECT state, version FROM turn WHERE name = ? AND take = ? AND key = ?"

# Of the takes of a cassette that are in force the later ones began in slots: what a later one used is
# used. A recording that was removed meanwhile must not count; this file is locked already, and who
# removes one comes here afterwards.
_TOUCH = """
INSERT INTO touched (name, take, number) SELECT ?1, ?2, ?3
WHERE NOT EXISTS (SELECT 1 FROM touched WHERE name = ?1 AND number = ?3 AND take >= ?2) AND {held}
ON CONFLICT DO UPDATE SET take = excluded.take
"""
_TOUCH_ANY = _TOUCH.format(held="true")
_TOUCH_HELD = _TOUCH.format(
    held="EXISTS (SELECT 1 FROM recordings.interaction i JOIN recordings.cassette c "
    "ON c.id = i.cassette WHERE c.name = ?1 AND i.number = ?3 AND i.exchange)"
)
RECORDINGS = "recordings"
"""The schema under which the file of the recordings is attached."""

log = logging.getLogger(__name__)

VERSIONS = 1000
"""So many versions are reserved at once."""

BATCH = 2000
"""Cursors of ended takes that are removed in one transaction, which takes some milliseconds."""

_NAMES = """
WITH RECURSIVE found (name) AS (
    SELECT min(name) FROM {table}
    UNION ALL
    SELECT (SELECT min(name) FROM {table} WHERE name > found.name) FROM found
    WHERE found.name IS NOT NULL
) SELECT name FROM found WHERE name IS NOT NULL
"""


def read(
    name: str, take: int, keys: Sequence[bytes], connection: apsw.Connection
) -> Mapping[bytes, CursorState]:
    """The cursors of those keys that were advanced in this take."""
    found: dict[bytes, CursorState] = {}
    for start in range(0, len(keys), _KEYS):
        some = keys[start : start + _KEYS]
        placeholders = ", ".join("?" * len(some))
        rows = connection.execute(
            "SELECT key, state, version FROM turn "  # noqa: S608 - only question marks
            f"WHERE name = ? AND take = ? AND key IN ({placeholders})",
            (name, take, *some),
        )
        found |= {key: CursorState(state, version) for key, state, version in rows}
    return found


class Versions:
    """Numbers for the states of cursors, those of one connection.

    None is used twice by anybody, so that a reset cursor differs from the one before. They are
    reserved in blocks: the counter is a page of its own, which each transaction would write.
    """

    def __init__(self) -> None:
        self._next = self._end = 0

    def take(self, count: int, connection: apsw.Connection) -> int:
        """The first of so many; call it in a transaction."""
        if self._end - self._next < count:
            block = max(count, VERSIONS)
            self._end = 1 + connection.execute(_NEXT_VERSIONS, (block,)).get
            self._next = self._end - block
        first, self._next = self._next, self._next + count
        return first

    def forget(self) -> None:
        """Reserve others: the transaction that reserved these may have failed."""
        self._next = self._end = 0


def make(moves: Sequence[CursorMove], versions: Versions, connection: apsw.Connection) -> None:
    """Make steps in this order, in one transaction; none locks the file where all cursors stay.

    `after` of a step stays None where the cursor has moved on since, or the mark differs.
    """
    try:
        _make(moves, versions, connection)
    except BaseException:
        versions.forget()
        for each in moves:
            each.after = None
        raise


def _make(moves: Sequence[CursorMove], versions: Versions, connection: apsw.Connection) -> None:
    marks: dict[str, str | None] = {}
    steps = sum(each.state is not None for each in moves)
    with immediate_transaction(connection) if steps else nullcontext():
        version = versions.take(steps, connection) if steps else 0
        for each in moves:
            if each.mark is not None and each.name not in marks:
                marks[each.name] = _mark(each.name, connection)
            if each.mark is not None and marks[each.name] != each.mark:
                continue
            if each.state is None:
                each.after = STAYED
            elif _replace(connection, each, each.state, version):
                each.after = CursorState(each.state, version)
                version += 1
                if each.touched is not None:
                    held = each.mark is not None
                    _touch(connection, each.name, each.take, each.touched, held=held)


def _replace(connection: apsw.Connection, move: CursorMove, state: bytes, version: int) -> bool:
    """Put the new state in the place of the one before, if that is the one that is there."""
    before, cursor = move.before, (move.name, move.take, move.key)
    if before is None:
        connection.execute(_BEGIN, (*cursor, state, version))
        return connection.changes() == 1
    if isinstance(before, CursorMove):
        before = before.after
        if before is None:
            return False
    connection.execute(_GO_ON, (state, version, *cursor, before.version))
    return connection.changes() == 1


def _mark(name: str, connection: apsw.Connection) -> str | None:
    attached = RECORDINGS in connection.db_names()
    return mark_of(connection, name, RECORDINGS) if attached else None


def step(done: Iterable[tuple[str, int, CursorStep]], connection: apsw.Connection) -> None:
    """Advance the cursors of new recordings, given as cassette, index and step."""
    with immediate_transaction(connection):
        for name, index, each in done:
            now = connection.execute(_READ, (name, each.take, each.key)).fetchone()
            _put(
                connection, name, each.take, each.key, each.advance(None if now is None else now[0])
            )
            # Where the file is not attached, nothing is known to have removed it since.
            held = RECORDINGS not in connection.db_names()
            _touch(connection, name, each.take, index, held=held)


def forget(name: str, connection: apsw.Connection) -> None:
    """Reset the cursors of a cassette that was removed or replaced."""
    with immediate_transaction(connection):
        for table in ("turn", "used", "touched"):
            connection.execute(f"DELETE FROM {table} WHERE name = ?", (name,))  # noqa: S608


def forget_touched(gone: Iterable[tuple[str, int]], connection: apsw.Connection) -> None:
    """Forget that recordings were used which were removed, given as cassette and index."""
    with immediate_transaction(connection):
        connection.executemany("DELETE FROM touched WHERE name = ? AND number = ?", gone)


def forget_some(control: Control, connection: apsw.Connection) -> bool:
    """Remove a batch of the cursors of takes that had ended when this was in force; whether there
    may be more.

    In batches, since nobody else writes meanwhile.
    """
    left = BATCH
    with immediate_transaction(connection):
        for table, key in (("turn", "name, take, key"), ("touched", "name, number")):
            for (name,) in rows(connection, _NAMES.format(table=table)):
                connection.execute(
                    f"DELETE FROM {table} WHERE ({key}) IN ("  # noqa: S608
                    f"SELECT {key} FROM {table} WHERE name = ? AND take < ? LIMIT ?)",
                    (name, control.take_of(name), left),
                )
                left -= connection.changes()
                if not left:
                    return True
    return False


def reserve(name: str, above: int, count: int, connection: apsw.Connection) -> int:
    """Reserve `count` consecutive indexes for this process, at least `above`; returns the first."""
    end = connection.execute(
        "INSERT INTO numbering VALUES (?1, ?2 + ?3) "
        "ON CONFLICT DO UPDATE SET next = max(next, ?2) + ?3 RETURNING next",
        (name, above, count),
    ).get
    return int(end) - count


def _put(connection: apsw.Connection, name: str, take: int, key: bytes, state: bytes) -> None:
    version = connection.execute(_NEXT_VERSIONS, (1,)).get
    connection.execute(
        "INSERT INTO turn VALUES (?1, ?2, ?3, ?4, ?5) "
        "ON CONFLICT DO UPDATE SET state = ?4, version = ?5",
        (name, take, key, state, version),
    )


def _touch(
    connection: apsw.Connection, name: str, take: int, index: int, *, held: bool = False
) -> None:
    """Count a recording as used, if it is there; `held` says that this is known."""
    if held or RECORDINGS in connection.db_names():
        connection.execute(_TOUCH_ANY if held else _TOUCH_HELD, (name, take, index))
