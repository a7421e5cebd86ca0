"""The steps of cursors in the shared file."""

from collections.abc import Sequence
from contextlib import nullcontext

import apsw

from tapeway.core.model.control import STAYED, CursorMove, CursorState
from tapeway.stores.sql.cassette_rows import MARK
from tapeway.stores.sql.cursors import BEGIN, TOUCH, first_version
from tapeway.stores.sql.rows import indexable
from tapeway.stores.sqlite.connection import immediate_transaction
from tapeway.stores.sqlite.operations import RECORDINGS, quick_text

_GO_ON = """
UPDATE turn SET state = ?, version = ? WHERE name = ? AND take = ? AND key = ? AND version = ?
"""
_BEGIN = quick_text(BEGIN, attached=False)
_MARK = quick_text(MARK.format("$1"), attached=True)
_TOUCH_RECORDED = quick_text(TOUCH, attached=False)
"""For a recording that is known to be there."""


def make(moves: Sequence[CursorMove], connection: apsw.Connection) -> None:
    """Make the steps in order, in a transaction; without a move the file is not locked.

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
    """Replace the expected state of a cursor by the new state; None if the state is another."""
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
