"""The steps of cursors, and the removal of those of ended takes, in the shared file."""

import logging
from collections.abc import Sequence
from contextlib import nullcontext

import apsw

from tapeway.core.model.control import STAYED, Control, CursorMove, CursorState
from tapeway.stores.sql.cassette_rows import MARK
from tapeway.stores.sql.cursors import BEGIN, TOUCH, first_version
from tapeway.stores.sql.rows import indexable
from tapeway.stores.sqlite.connection import immediate_transaction, rows
from tapeway.stores.sqlite.operations import RECORDINGS, quick_text

_GO_ON = """
UPDATE turn SET state = ?, version = ? WHERE name = ? AND take = ? AND key = ? AND version = ?
"""
_BEGIN = quick_text(BEGIN, attached=False)
_MARK = quick_text(MARK.format("$1"), attached=True)
_TOUCH_RECORDED = quick_text(TOUCH, attached=False)
"""For a recording that is known to be there."""

log = logging.getLogger(__name__)

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


def make(moves: Sequence[CursorMove], connection: apsw.Connection) -> None:
    """Make steps in this order, in one transaction; none locks the file where all cursors stay.

    `after` of a step stays None where the cursor has moved on since, or the mark differs.
    """
    try:
        _make(moves, connection)
    except BaseException:
        for each in moves:
            each.after = None
        raise


def _make(moves: Sequence[CursorMove], connection: apsw.Connection) -> None:
    marks: dict[str, str | None] = {}
    steps = any(each.state is not None for each in moves)
    with immediate_transaction(connection) if steps else nullcontext():
        for each in moves:
            if each.mark is not None and each.name not in marks:
                marks[each.name] = _mark(each.name, connection)
            if each.mark is not None and marks[each.name] != each.mark:
                continue
            if each.state is None:
                each.after = STAYED
                continue
            each.after = _replace(connection, each, each.state)
            if each.after is not None and each.touched is not None:
                touched = each.name, each.take, each.touched
                _touch(connection, touched, recorded=each.mark is not None)


def _replace(connection: apsw.Connection, move: CursorMove, state: bytes) -> CursorState | None:
    """Put the new state in the place of the one before, if that is the one that is there."""
    before, cursor = move.before, (move.name, move.take, indexable(move.key))
    if before is None:
        version = first_version()
        connection.execute(_BEGIN, (*cursor, state, version))
        return CursorState(state, version) if connection.changes() == 1 else None
    if isinstance(before, CursorMove):
        before = before.after
        if before is None:
            return None
    version = before.version + 1
    connection.execute(_GO_ON, (state, version, *cursor, before.version))
    return CursorState(state, version) if connection.changes() == 1 else None


def _mark(name: str, connection: apsw.Connection) -> str | None:
    if RECORDINGS not in connection.db_names():
        return None
    found: str | None = connection.execute(_MARK, (name,)).get
    return found


def _touch(connection: apsw.Connection, touched: tuple[str, int, int], *, recorded: bool) -> None:
    """Count a recording as used, if it is there; `recorded` says that this is known.

    This file is locked already, and who removes a recording comes here afterwards.
    """
    if recorded:
        connection.execute(_TOUCH_RECORDED, touched)
    elif RECORDINGS in connection.db_names():
        connection.execute(quick_text(TOUCH, attached=True), touched)


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
