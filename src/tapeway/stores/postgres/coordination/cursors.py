"""The cursors of keys per take, the same for all instances."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from tapeway.core.model.cassette import CursorStep
from tapeway.core.model.control import Control, CursorState
from tapeway.stores.postgres import rows
from tapeway.stores.postgres.pool import Session

_READ = f"""
SELECT key, state, version FROM @turn
WHERE name = $1 AND take = $2 AND key {rows.IN_HEX_ARRAY.format("$3")}
"""  # noqa: S608
_TOUCH = "INSERT INTO @touched (name, take, number) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"

# Not durable: a cursor need not survive a crash of the server.
_QUICK = "WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true) AS off)"
_TOUCH_MOVED = """
, touched_rows AS (
  INSERT INTO @touched (name, take, number) SELECT $1::text, $2::bigint, $6::bigint FROM moved ON CONFLICT DO NOTHING)
SELECT count(*) AS done FROM moved
"""
_FIRST = f"""
{_QUICK}, moved AS (
  INSERT INTO @turn (name, take, key, state, version, attempt)
  SELECT $1::text, $2::bigint, $3::bytea, $4::bytea, 1, $5::uuid FROM quick ON CONFLICT DO NOTHING RETURNING 1)
{_TOUCH_MOVED}
"""  # noqa: S608
_NEXT = f"""
{_QUICK}, moved AS (
  UPDATE @turn SET state = $4, version = version + 1, attempt = $5 FROM quick
  WHERE name = $1 AND take = $2 AND key = $3 AND version = $7 RETURNING 1)
{_TOUCH_MOVED}
"""  # noqa: S608
_DONE = """
SELECT 1 FROM @turn WHERE name = $1 AND take = $2 AND key = $3 AND version = $4 AND attempt = $5
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


async def advance(
    session: Session,
    name: str,
    take: int,
    key: bytes,
    before: CursorState | None,
    state: bytes,
    touched: int,
    attempt: UUID,
) -> bool:
    """Replace the state `before`; False where the cursor has moved on since.

    Run again after a lost connection, it recognises its own commit by `attempt`.
    """
    indexed = rows.indexable(key)
    values: tuple[object, ...] = (name, take, indexed, state, attempt, touched)
    if before is None:
        found = await session.row(_FIRST, *values)
    else:
        found = await session.row(_NEXT, *values, before.version)
    if found is not None and found["done"]:
        return True
    version = 1 if before is None else before.version + 1
    return await session.row(_DONE, name, take, indexed, version, attempt) is not None


async def step(session: Session, name: str, step: CursorStep, attempt: UUID) -> None:
    """Advance a cursor from wherever it is."""
    indexed = rows.indexable(step.key)
    while (found := await session.row(_LOCKED, name, step.take, indexed)) is None:
        # Where two insert at once, the second finds the row of the first.
        if await session.run(
            "INSERT INTO @turn (name, take, key, state, version, attempt) "
            "VALUES ($1, $2, $3, $4, 1, $5) ON CONFLICT DO NOTHING",
            *(name, step.take, indexed, step.advance(None), attempt),
        ):
            return
    await session.run(
        "UPDATE @turn SET state = $4, version = version + 1, attempt = $5 "
        "WHERE name = $1 AND take = $2 AND key = $3",
        *(name, step.take, indexed, step.advance(found["state"]), attempt),
    )


async def touch(session: Session, name: str, take: int, index: int) -> None:
    await session.run(_TOUCH, name, take, index)


async def sweep(session: Session, control: Control) -> None:
    """Remove the cursors of takes that had ended when this was in force, all by index."""
    for table in ("turn", "touched"):
        for row in await session.rows(_NAMES.format(table=table)):
            name = row["name"]
            sql = f"DELETE FROM @{table} WHERE name = $1 AND take < $2"  # noqa: S608
            await session.run(sql, name, control.take_of(name))
