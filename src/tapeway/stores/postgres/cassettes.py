"""What a PostgreSQL store knows of cassettes without their recordings."""

from collections.abc import Sequence
from datetime import UTC, datetime

from tapeway.core.matching.rules import Rules
from tapeway.core.model.cassette import CassetteHead, CassetteStat, Outline
from tapeway.stores.postgres import rows
from tapeway.stores.postgres.pool import Session
from tapeway.stores.shared import columns

_MAKE = """
INSERT INTO @cassette (name, created_at, run_id, meta) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO NOTHING
"""
_WITH_OTHERS = "SELECT id, meta FROM @cassette WHERE name = $1 FOR KEY SHARE"
_ALONE = "SELECT id, meta FROM @cassette WHERE name = $1 FOR UPDATE"
_OUTLINE = """
SELECT c.created_at, c.run_id, c.meta, t.exchange, t.route, t.base, sum(t.count)::bigint AS count
FROM @cassette c LEFT JOIN @source t ON t.cassette = c.id
WHERE c.name = $1 GROUP BY c.id, t.exchange, t.route, t.base
"""
_STAT = """
SELECT c.id, c.revision, length(c.meta) AS head, c.modified_at, max(t.modified_at) AS last,
  coalesce(sum(t.bytes), 0)::bigint AS bytes, coalesce(sum(t.changes), 0)::bigint AS changes
FROM @cassette c LEFT JOIN @source t ON t.cassette = c.id
WHERE c.name = $1 GROUP BY c.id
"""
_RESTATE = """
UPDATE @cassette SET created_at = $2, run_id = $3, meta = $4, revision = revision + 1,
  modified_at = clock_timestamp()
WHERE name = $1
"""
_RENAME = """
UPDATE @cassette SET name = $2, revision = revision + 1, modified_at = clock_timestamp() WHERE id = $1
"""
_COUNT_ON = """
INSERT INTO @numbering AS numbering (name, next, next_place)
SELECT $1, next, next_place FROM @numbering WHERE name = $2
ON CONFLICT (name) DO UPDATE SET next = greatest(numbering.next, excluded.next),
  next_place = greatest(numbering.next_place, excluded.next_place)
"""


async def hold(
    session: Session, name: str, head: CassetteHead, *, alone: bool = False
) -> tuple[int, Rules]:
    """A cassette's number and rules, made if there is none, kept in being until the commit.

    `alone` waits for all who record into it, and lets others wait. Who holds it otherwise already
    must not ask for that: two of them would wait for each other.
    """
    while (found := await held(session, name, alone=alone)) is None:
        await session.run(_MAKE, name, *rows.head_text(head))
    return found


async def held(session: Session, name: str, *, alone: bool = False) -> tuple[int, Rules] | None:
    """The same for one that is there."""
    found = await session.row(_ALONE if alone else _WITH_OTHERS, name)
    return None if found is None else (found["id"], columns.rules_of(found["meta"].decode()))


async def state(session: Session, name: str, head: CassetteHead) -> Rules:
    """Put another head in force. Raises StoreError for rules that cannot be used."""
    stored = rows.head_text(head)
    own = columns.rules_of(stored[-1].decode())
    await session.run(_RESTATE, name, *stored)
    return own


async def outline(session: Session, name: str, where: str) -> Outline | None:
    found = await session.rows(_OUTLINE, name)
    if not found:
        return None
    counted = [line for line in found if line["count"]]
    sources = [
        (line["route"].decode(), line["base"].decode()) for line in counted if line["exchange"]
    ]
    count = sum([line["count"] for line in counted])
    return Outline(rows.head(found[0], where), count, frozenset(sources))


async def stat(session: Session, name: str) -> CassetteStat | None:
    found = await session.row(_STAT, name)
    if found is None:
        return None
    changed: datetime = max(filter(None, (found["modified_at"], found["last"])))
    return CassetteStat(
        found["head"] + found["bytes"],
        changed.astimezone(UTC).isoformat(timespec="microseconds"),
        f"{found['id']}.{found['revision']}.{found['changes']}",
    )


async def names(session: Session) -> Sequence[str]:
    return [line["name"] for line in await session.rows("SELECT name FROM @cassette ORDER BY name")]


async def remove(session: Session, name: str) -> bool:
    """With where its keys stand. A recording that is on its way makes it anew."""
    found = await held(session, name, alone=True)
    await forget(session, name)
    if found is None:
        return False
    await session.run("DELETE FROM @cassette WHERE id = $1", found[0])
    return True


async def supplant(session: Session, name: str, by: str) -> None:
    """One with its recordings in the place of another, whose indexes are not given out again."""
    found = await held(session, by, alone=True)
    if found is None:
        return
    await remove(session, name)
    await forget(session, by)
    await session.run(_RENAME, found[0], name)
    await session.run(_COUNT_ON, name, by)
    await session.run("DELETE FROM @numbering WHERE name = $1", by)


async def forget(session: Session, name: str) -> None:
    """Where its keys stand, and what was touched."""
    for table in ("turn", "touched"):
        await session.run(f"DELETE FROM @{table} WHERE name = $1", name)  # noqa: S608
