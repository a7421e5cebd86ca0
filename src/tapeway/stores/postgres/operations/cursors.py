"""The cursors of keys per take, the recordings that a take used, and the next index of a cassette."""

import secrets
from collections.abc import Mapping, Sequence

from tapeway.core.model.cassette import CursorStep
from tapeway.core.model.control import CursorState
from tapeway.stores.postgres.operations.rows import hexes, indexable, numbers
from tapeway.stores.postgres.pool import Session

_READ = """
SELECT key, state, version FROM @turn WHERE name = $1 AND take = $2 AND key = ANY(ARRAY(SELECT decode(unnest($3::text[]), 'hex')))
"""
BEGIN = """
INSERT INTO @turn (name, take, key, state, version) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (name, take, key) DO NOTHING
"""
_LOCKED = "SELECT state FROM @turn WHERE name = $1 AND take = $2 AND key = $3 FOR UPDATE"
_GO_ON = """
UPDATE @turn SET state = $4, version = version + 1 WHERE name = $1 AND take = $2 AND key = $3
"""
# A recording counts as used if any take in force used it, so the latest take that used it is enough.
# A row that is up to date is not even locked. A recording that was removed must not count.
TOUCH = """
INSERT INTO @touched AS touched (name, take, number)
SELECT CAST($1 AS text), CAST($2 AS bigint), CAST($3 AS bigint)
WHERE NOT EXISTS (SELECT 1 FROM @touched t WHERE t.name = $1 AND t.number = $3 AND t.take >= $2)
AND EXISTS (SELECT 1 FROM @interaction WHERE cassette = (SELECT id FROM @cassette WHERE name = $1)
  AND number = $3 AND exchange)
ON CONFLICT (name, number) DO UPDATE SET take = excluded.take WHERE touched.take < excluded.take
"""
HIGHEST = """
SELECT coalesce(max(next), 0) FROM @source
WHERE cassette = (SELECT id FROM @cassette WHERE name = $1)
"""
"""An index above all that a cassette ever had."""

_RESERVE = f"""
INSERT INTO @numbering AS numbering (name, next)
VALUES ($1, ({HIGHEST}) + CAST($2 AS bigint))
ON CONFLICT (name) DO UPDATE SET next = greatest(numbering.next + $2, excluded.next)
RETURNING next - $2
"""  # noqa: S608

_TAKE_OVER = """
INSERT INTO @numbering AS numbering (name, next)
SELECT CAST($1 AS text), next FROM @numbering WHERE name = $2
ON CONFLICT (name) DO UPDATE SET next = greatest(numbering.next, excluded.next)
"""


async def read(
    name: str, take: int, keys: Sequence[bytes], session: Session
) -> Mapping[bytes, CursorState]:
    """The cursors of the keys advanced in a take."""
    if not keys:
        return {}
    read_rows = await session.rows(_READ, name, take, hexes(keys))
    states = {key: CursorState(state, version) for key, state, version in read_rows}
    return {key: states[at] for key in keys if (at := indexable(key)) in states}


def first_version() -> int:
    """The version of a new cursor; later versions count on from this number.

    So a reset cursor has no version of the time before.
    """
    return secrets.randbits(62) | 1


async def step(name: str, step: CursorStep, session: Session) -> None:
    """Advance a cursor from wherever it is."""
    cursor = (name, step.take, indexable(step.key))
    while not (await session.run(BEGIN, *cursor, step.advance(None), first_version())):
        columns = await session.row(_LOCKED, *cursor)
        if columns is not None:
            await session.run(_GO_ON, *cursor, step.advance(columns[0]))
            return


async def touch(name: str, take: int, index: int, session: Session) -> int:
    """Count a recording as used."""
    return await session.run(TOUCH, name, take, index)


async def forget(name: str, session: Session) -> None:
    """Reset the cursors of a cassette that was removed or replaced."""
    for table in ("turn", "touched"):
        await session.run(f"DELETE FROM @{table} WHERE name = $1", name)  # noqa: S608


async def forget_touched(name: str, removed: Sequence[int], session: Session) -> int:
    """Forget the use of removed recordings."""
    sql = "DELETE FROM @touched WHERE name = $1 AND number = ANY($2::text[]::bigint[])"
    return await session.run(sql, name, numbers(removed))


async def take_over_numbering(name: str, by: str, session: Session) -> None:
    """Continue the numbering of a replaced cassette."""
    await session.run(_TAKE_OVER, name, by)
    await session.run("DELETE FROM @numbering WHERE name = $1", by)


async def reserve(name: str, count: int, session: Session) -> int:
    """Reserve `count` consecutive indexes above all there were; returns the first."""
    columns = await session.row(_RESERVE, name, count)
    assert columns is not None  # noqa: S101 - an upsert returns its row
    return int(columns[0])
