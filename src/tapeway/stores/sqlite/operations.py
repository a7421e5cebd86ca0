"""How SQLite runs the operations of a SQL store.

The tables are in two files. At the first statement on the quick file an operation is suspended: the
durable part is committed, and the operation goes on in a transaction of the quick file.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import apsw

from tapeway.core.json_text import dump
from tapeway.stores.sql.cursors import HELD
from tapeway.stores.sql.statements import Computation, Op, Statement, Wanted, render

T = TypeVar("T")

DIALECT = {
    # One transaction at a time: it has locked everything.
    **{"lock": "", "share": "", "lock_name": "SELECT $1"},
    "now": "unixepoch('subsec')",
    # The same in all processes of the machine, and never set; connections to the shared file have it.
    "clock": "clock()",
    "greatest": "max",
    "keys": "IN (SELECT unhex(value) FROM json_each({}))",
    "numbers": "IN (SELECT CAST(value AS INTEGER) FROM json_each({}))",
    **{"any": "IN", "end": ""},
    **{"held": HELD, "above": "{}"},
    **{"id": "INTEGER PRIMARY KEY AUTOINCREMENT", "name": "TEXT", "text": "TEXT"},
    **{"int": "INTEGER", "bool": "INTEGER", "float": "REAL", "bytes": "BLOB"},
    "table": "STRICT",
    **dict.fromkeys(("keyed", "busy", "moving"), "STRICT, WITHOUT ROWID"),
}
RECORDINGS = "recordings"
"""The schema of the recordings' file where it is attached to connections of the quick file."""

_OF_RECORDINGS = re.compile(r"@(cassette|interaction|key|source|body|piece|usage)\b")


class Suspended(NamedTuple):
    """An operation at its first quick statement."""

    op: Op[Any]
    at: Statement


class _Prepared(NamedTuple):
    text: str
    lists: bool
    """Whether some arguments are lists, which are JSON here."""


@lru_cache(maxsize=512)
def main_text(sql: str) -> str:
    """A statement on the file of the recordings, with the other one attached or none."""
    return render(sql, DIALECT).replace("@", "").replace("$", "?")


@lru_cache(maxsize=512)
def quick_text(sql: str, *, attached: bool) -> str:
    """A statement on the other file, with the recordings attached or none."""
    text = render(sql, DIALECT if attached else {**DIALECT, "held": "true"})
    text = _OF_RECORDINGS.sub(rf"{RECORDINGS}.\1", text)
    return text.replace("@", "").replace("$", "?")


def run(op: Op[T], connection: apsw.Connection, *, quick: bool = False) -> T:
    """The result of an operation; `quick` means a connection to the file of quick changes."""
    result: T = _run(op, None, connection, _quick(connection) if quick else _main)
    return result


def run_until_quick(op: Op[T], connection: apsw.Connection) -> T | Suspended:
    """The result of an operation, or where its durable part ends."""
    result: T | Suspended = _run(op, None, connection, _main, suspends=True)
    return result


def resume(suspended: Suspended, connection: apsw.Connection) -> Any:
    """The result of an operation whose durable part is committed."""
    prepared = _quick(connection)
    answer = _answer(suspended.at, connection, prepared)
    return _run(suspended.op, answer, connection, prepared)


def _run(
    op: Op[Any],
    answer: Any,
    connection: apsw.Connection,
    prepared: Callable[[str], _Prepared],
    *,
    suspends: bool = False,
) -> Any:
    try:
        while True:
            ask = op.send(answer)
            if isinstance(ask, Computation):
                answer = ask.work()
            elif suspends and ask.quick:
                return Suspended(op, ask)
            else:
                answer = _answer(ask, connection, prepared)
    except StopIteration as done:
        return done.value


def _answer(
    ask: Statement, connection: apsw.Connection, prepared: Callable[[str], _Prepared]
) -> Any:
    text, lists = prepared(ask.sql)
    if ask.wanted is Wanted.NOTHING:
        connection.executemany(text, ask.args)
        return None
    args = ask.args
    if lists:
        args = [dump(arg).decode() if type(arg) is list else arg for arg in args]
    cursor = connection.execute(text, args)
    return cursor.fetchall() if ask.wanted is Wanted.ROWS else connection.changes()


@lru_cache(maxsize=512)
def _main(sql: str) -> _Prepared:
    text = main_text(sql)
    return _Prepared(text, "json_each" in text)


@lru_cache(maxsize=512)
def _beside_recordings(sql: str) -> _Prepared:
    text = quick_text(sql, attached=True)
    return _Prepared(text, "json_each" in text)


@lru_cache(maxsize=512)
def _alone(sql: str) -> _Prepared:
    text = quick_text(sql, attached=False)
    return _Prepared(text, "json_each" in text)


def _quick(connection: apsw.Connection) -> Callable[[str], _Prepared]:
    return _beside_recordings if RECORDINGS in connection.db_names() else _alone
