"""Statements on whole cassettes: lock, list, describe, remove and rename them."""

from collections.abc import Sequence
from datetime import UTC, datetime

from tapeway.core.matching.rules import Rules
from tapeway.core.model.cassette import CassetteHead, CassetteStat, Outline
from tapeway.stores.postgres import rows
from tapeway.stores.postgres.pool import Session
from tapeway.stores.shared import columns

_INSERT = """
INSERT INTO @cassette (name, created_at, run_id, meta) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO NOTHING
"""
_LOCK_SHARED = "SELECT id, meta FROM @cassette WHERE name = $1 FOR KEY SHARE"
_LOCK_EXCLUSIVE = "SELECT id, meta FROM @cassette WHERE name = $1 FOR UPDATE"
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
MARK = """
SELECT c.id || '.' || c.revision || '.' || coalesce(sum(t.changes), 0)
FROM @cassette c LEFT JOIN @source t ON t.cassette = c.id WHERE c.name = {} GROUP BY c.id
"""
"""That of `stat`."""
_OF_HEAD = (
    "SELECT 1 FROM @cassette WHERE name = $1 AND created_at = $2 AND run_id = $3 AND meta = $4"
)
_RESTATE = """
UPDATE @cassette SET created_at = $2, run_id = $3, meta = $4, revision = revision + 1,
  modified_at = clock_timestamp()
WHERE name = $1
"""
_RENAME = """
UPDATE @cassette SET name = $2, revision = revision + 1, modified_at = clock_timestamp() WHERE id = $1
"""
_TAKE_OVER_NUMBERING = """
INSERT INTO @numbering AS numbering (name, next) SELECT $1, next FROM @numbering WHERE name = $2
ON CONFLICT (name) DO UPDATE SET next = greatest(numbering.next, excluded.next)
"""


async def lock_or_create(
    session: Session, name: str, head: CassetteHead, *, exclusive: bool = False
) -> tuple[int, Rules]:
    """A cassette's id and rules, locked until the commit, and created where there is none.

    The shared lock keeps it from being removed; `exclusive` also keeps others from recording. A
    transaction that has the shared lock must not ask for the exclusive one: two would deadlock.
    """
    while (found := await lock(session, name, exclusive=exclusive)) is None:
        await create(session, name, head)
    return found


async def create(session: Session, name: str, head: CassetteHead) -> bool:
    """Create an empty cassette, locked until the commit; False if there is one."""
    return bool(await session.run(_INSERT, name, *rows.head_values(head)))


async def lock(session: Session, name: str, *, exclusive: bool = False) -> tuple[int, Rules] | None:
    """The same for an existing cassette, else None."""
    found = await session.row(_LOCK_EXCLUSIVE if exclusive else _LOCK_SHARED, name)
    return None if found is None else (found["id"], columns.rules_of(found["meta"].decode()))


async def set_head(session: Session, name: str, head: CassetteHead) -> Rules:
    """Replace the head. Raises StoreError for rules that cannot be used."""
    stored = rows.head_values(head)
    rules = columns.rules_of(stored[-1].decode())
    await session.run(_RESTATE, name, *stored)
    return rules


async def has_head(session: Session, name: str, head: CassetteHead) -> bool:
    """Whether a cassette has this very head."""
    stored = rows.head_values(head)
    return await session.row(_OF_HEAD, name, *stored) is not None


async def outline(session: Session, name: str, where: str) -> Outline | None:
    found = await session.rows(_OUTLINE, name)
    if not found:
        return None
    counted = [row for row in found if row["count"]]
    sources = [(row["route"].decode(), row["base"].decode()) for row in counted if row["exchange"]]
    count = sum([row["count"] for row in counted])
    return Outline(rows.head_of(found[0], where), count, frozenset(sources))


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


async def mark(session: Session, name: str) -> str | None:
    """What differs after every change of a cassette, None where there is none."""
    found = await session.row(f"SELECT ({MARK.format('$1')}) AS mark", name)
    return None if found is None else found["mark"]


async def names(session: Session) -> Sequence[str]:
    return [row["name"] for row in await session.rows("SELECT name FROM @cassette ORDER BY name")]


async def remove(session: Session, name: str) -> bool:
    """Remove a cassette and its cursors. A recording under way creates it again."""
    found = await lock(session, name, exclusive=True)
    await forget_cursors(session, name)
    if found is None:
        return False
    await session.run("DELETE FROM @cassette WHERE id = $1", found[0])
    return True


async def replace_cassette(session: Session, name: str, by: str) -> bool:
    """Replace the cassette `name` by the cassette `by`; whether there was one of the name.

    Indexes of the old one are not reused.
    """
    found = None if name == by else await lock(session, by, exclusive=True)
    if found is None:
        return False
    replaced = await remove(session, name)
    await forget_cursors(session, by)
    await session.run(_RENAME, found[0], name)
    await session.run(_TAKE_OVER_NUMBERING, name, by)
    await session.run("DELETE FROM @numbering WHERE name = $1", by)
    return replaced


async def forget_cursors(session: Session, name: str) -> None:
    """Remove the cursors of a cassette, and which recordings were used."""
    for table in ("turn", "touched", "used"):
        await session.run(f"DELETE FROM @{table} WHERE name = $1", name)  # noqa: S608
