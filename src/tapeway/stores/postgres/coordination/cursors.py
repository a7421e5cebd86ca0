"""The cursors of keys per take, the same for all instances."""

from collections.abc import Mapping, Sequence

from tapeway.core.model.cassette import CursorStep
from tapeway.core.model.control import Control, CursorState
from tapeway.stores.postgres import rows
from tapeway.stores.postgres.pool import Session

BATCH = 2000
"""Rows of ended takes that are removed in one transaction."""

_READ = f"""
SELECT key, state, version FROM @turn
WHERE name = $1 AND take = $2 AND key {rows.IN_HEX_ARRAY.format("$3")}
"""  # noqa: S608
# Of the takes of a cassette that are in force the later ones began in slots: what a later one used is
# used. A row that is up to date is not even locked.
_TOUCH = """
INSERT INTO @touched AS touched (name, take, number) SELECT $1::text, $2::bigint, $3::bigint
WHERE EXISTS (SELECT 1 FROM @interaction
  WHERE cassette = (SELECT id FROM @cassette WHERE name = $1) AND number = $3 AND exchange)
AND NOT EXISTS (SELECT 1 FROM @touched t WHERE t.name = $1 AND t.number = $3 AND t.take >= $2)
ON CONFLICT (name, number) DO UPDATE SET take = excluded.take WHERE touched.take < excluded.take
"""

# Each name by one look into the index: DISTINCT would read all rows.
_NAMES = """
WITH RECURSIVE found AS (
  (SELECT name FROM @{table} ORDER BY name LIMIT 1)
  UNION ALL
  SELECT (SELECT name FROM @{table} t WHERE t.name > found.name ORDER BY name LIMIT 1)
  FROM found WHERE found.name IS NOT NULL)
SELECT name FROM found WHERE name IS NOT NULL
"""
_UNTOUCH = "DELETE FROM @touched WHERE name = $1 AND number = ANY($2::text[]::bigint[])"
_ENDED = """
DELETE FROM @{table} WHERE ctid = ANY(ARRAY(
  SELECT ctid FROM @{table} WHERE name = $1 AND take < $2 LIMIT $3))
"""
_LOCKED = """
SELECT state, version FROM @turn WHERE name = $1 AND take = $2 AND key = $3 FOR UPDATE
"""


async def read(
    session: Session, name: str, take: int, keys: Sequence[bytes]
) -> Mapping[bytes, CursorState]:
    """The cursors of those keys that were advanced in this take."""
    if not keys:
        return {}
    found = await session.rows(_READ, name, take, rows.hex_array(keys))
    by_indexed = {row["key"]: CursorState(row["state"], row["version"]) for row in found}
    return {
        key: by_indexed[rows.indexable(key)] for key in keys if rows.indexable(key) in by_indexed
    }


async def step(session: Session, name: str, step: CursorStep) -> None:
    """Advance a cursor from wherever it is."""
    indexed = rows.indexable(step.key)
    while (found := await session.row(_LOCKED, name, step.take, indexed)) is None:
        # Where two insert at once, the second finds the row of the first.
        if await session.run(
            "INSERT INTO @turn (name, take, key, state, version) "
            "VALUES ($1, $2, $3, $4, nextval('@version_base')) ON CONFLICT DO NOTHING",
            *(name, step.take, indexed, step.advance(None)),
        ):
            return
    await session.run(
        "UPDATE @turn SET state = $4, version = version + 1 "
        "WHERE name = $1 AND take = $2 AND key = $3",
        *(name, step.take, indexed, step.advance(found["state"])),
    )


async def touch(session: Session, name: str, take: int, index: int) -> None:
    await session.run(_TOUCH, name, take, index)


async def forget_touched(session: Session, name: str, gone: Sequence[int]) -> None:
    """Forget that recordings were used which were removed."""
    await session.run(_UNTOUCH, name, list(map(str, gone)))


async def sweep_some(session: Session, control: Control) -> bool:
    """Remove a batch of the cursors of takes that had ended when this was in force, by index;
    whether there may be more.
    """
    left = BATCH
    for table in ("turn", "touched", "used"):
        for row in await session.rows(_NAMES.format(table=table)):
            name = row["name"]
            sql = _ENDED.format(table=table)
            left -= await session.run(sql, name, control.take_of(name), left)
            if not left:
                return True
    return False
