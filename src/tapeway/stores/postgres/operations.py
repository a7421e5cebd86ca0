"""How PostgreSQL runs the operations of a SQL store: each statement is awaited, in one transaction."""

import asyncio
from functools import lru_cache
from typing import Any, TypeVar

from tapeway.stores.postgres.pool import Session
from tapeway.stores.sql.cursors import HELD
from tapeway.stores.sql.statements import Computation, Op, Statement, Wanted, render

T = TypeVar("T")

DIALECT = {
    "lock": "FOR UPDATE",
    "share": "FOR KEY SHARE",
    "lock_name": "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
    "now": "extract(epoch FROM clock_timestamp())::float8",
    "clock": "extract(epoch FROM clock_timestamp())::float8",
    "greatest": "greatest",
    # By arrays and not by a join: without statistics, as in a new database, that is planned as a scan
    # of the whole cassette. The driver knows arrays of text without asking the server.
    "keys": "= ANY(ARRAY(SELECT decode(unnest({}::text[]), 'hex')))",
    "numbers": "= ANY({}::text[]::bigint[])",
    **{"any": "= ANY(ARRAY", "end": ")"},
    "held": HELD,
    "id": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    **{"name": 'text COLLATE "C"', "text": "text", "int": "bigint", "bool": "boolean"},
    **{"float": "double precision", "bytes": "bytea"},
    **{"table": "", "keyed": ""},
    **{"busy": "WITH (fillfactor = 50)", "moving": "WITH (fillfactor = 70)"},
}


@lru_cache(maxsize=512)
def text_of(sql: str) -> str:
    """A statement in PostgreSQL's dialect; its tables are still to be qualified."""
    return render(sql, DIALECT)


async def perform(op: Op[T], session: Session) -> T:
    """The result of an operation, inside a transaction or outside of one."""
    answer: Any = None
    try:
        while True:
            ask = op.send(answer)
            if isinstance(ask, Computation):
                answer = await asyncio.to_thread(ask.work)
            else:
                answer = await _answer(ask, session)
    except StopIteration as done:
        result: T = done.value
        return result


async def _answer(ask: Statement, session: Session) -> Any:
    sql = text_of(ask.sql)
    if ask.wanted is Wanted.ROWS:
        return await session.rows(sql, *ask.args)
    if ask.wanted is Wanted.COUNT:
        return await session.run(sql, *ask.args)
    return await session.each(sql, ask.args)
