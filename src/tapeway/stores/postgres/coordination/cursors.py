"""Where the keys of a cassette stand in a take, the same for all instances."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from tapeway.core.model.cassette import CursorStep
from tapeway.core.model.control import Control, CursorState
from tapeway.stores.postgres import rows
from tapeway.stores.postgres.pool import Session

_TURNS = f"""
SELECT key, state, version FROM @turn
WHERE name = $1 AND take = $2 AND key {rows.AMONG.format("$3")}
"""  # noqa: S608
_TOUCH = "INSERT INTO @touched (name, take, number) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"

# Nobody waits for the disk: a turn need not survive it.
_QUICK = "WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true) AS off)"
_MARK = """
, marked AS (
  INSERT INTO @touched (name, take, number) SELECT $1::text, $2::bigint, $6::bigint FROM moved ON CONFLICT DO NOTHING)
SELECT count(*) AS done FROM moved
"""
_FIRST = f"""
{_QUICK}, moved AS (
  INSERT INTO @turn (name, take, key, state, version, attempt)
  SELECT $1::text, $2::bigint, $3::bytea, $4::bytea, 1, $5::uuid FROM quick ON CONFLICT DO NOTHING RETURNING 1)
{_MARK}
"""  # noqa: S608
_NEXT = f"""
{_QUICK}, moved AS (
  UPDATE @turn SET state = $4, version = version + 1, attempt = $5 FROM quick
  WHERE name = $1 AND take = $2 AND key = $3 AND version = $7 RETURNING 1)
{_MARK}
"""  # noqa: S608
_DONE = """
SELECT 1 FROM @turn WHERE name = $1 AND take = $2 AND key = $3 AND version = $4 AND attempt = $5
"""
_LOCKED = """
SELECT state, version FROM @turn WHERE name = $1 AND take = $2 AND key = $3 FOR UPDATE
"""


async def turns(
    session: Session, name: str, take: int, keys: Sequence[bytes]
) -> Mapping[bytes, CursorState]:
    """Those of the keys that were advanced at all."""
    if not keys:
        return {}
    found = await session.rows(_TURNS, name, take, rows.listed(keys))
    by_short = {line["key"]: CursorState(line["state"], line["version"]) for line in found}
    return {key: by_short[rows.short(key)] for key in keys if rows.short(key) in by_short}


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
    """Put a new state in the place of `before`; False where somebody was quicker.

    Done again after a lost connection, it knows its own work.
    """
    short = rows.short(key)
    known: tuple[object, ...] = (name, take, short, state, attempt, touched)
    if before is None:
        found = await session.row(_FIRST, *known)
    else:
        found = await session.row(_NEXT, *known, before.version)
    if found is not None and found["done"]:
        return True
    version = 1 if before is None else before.version + 1
    return await session.row(_DONE, name, take, short, version, attempt) is not None


async def step(session: Session, name: str, step: CursorStep, attempt: UUID) -> None:
    """Move a turn on, whatever it is by now."""
    short = rows.short(step.key)
    while (found := await session.row(_LOCKED, name, step.take, short)) is None:
        # Where two come first, the second finds what the first one left.
        if await session.run(
            "INSERT INTO @turn (name, take, key, state, version, attempt) "
            "VALUES ($1, $2, $3, $4, 1, $5) ON CONFLICT DO NOTHING",
            *(name, step.take, short, step.advance(None), attempt),
        ):
            return
    await session.run(
        "UPDATE @turn SET state = $4, version = version + 1, attempt = $5 "
        "WHERE name = $1 AND take = $2 AND key = $3",
        *(name, step.take, short, step.advance(found["state"]), attempt),
    )


async def touch(session: Session, name: str, take: int, index: int) -> None:
    await session.run(_TOUCH, name, take, index)


async def sweep(session: Session, control: Control) -> None:
    """Forget takes that are over; requests that began in the last one may still go on."""
    oldest = min([control.since, *control.cassette_takes.values()]) - 1
    for table in ("turn", "touched"):
        await session.run(f"DELETE FROM @{table} WHERE take < $1", oldest)  # noqa: S608
