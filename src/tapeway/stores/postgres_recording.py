"""A recording, written in one transaction with all that goes with it."""

from uuid import UUID

from tapeway.core.matching.rules import Rules
from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.errors import Fenced
from tapeway.stores import postgres_cassettes as cassettes
from tapeway.stores import postgres_entries as entries
from tapeway.stores import postgres_rows as rows
from tapeway.stores import row
from tapeway.stores.postgres_pool import Session
from tapeway.stores.postgres_tally import Change
from tapeway.stores.postgres_turns import step, touch

# Waits for a transaction of the same attempt whose connection was lost.
_ATTEMPT = "INSERT INTO @attempt (id) VALUES ($1) ON CONFLICT DO NOTHING"
_LEASE = "DELETE FROM @lease WHERE name = $1 AND key = $2 AND owner = $3 AND fence = $4"
# In the order of their indexes, so that no two who supersede the same wait for each other.
_SUPERSEDED = """
SELECT index, place, http, route, base, length(document) AS size FROM @interaction
WHERE cassette = $1 AND index = ANY($2::text[]::bigint[]) ORDER BY index FOR UPDATE
"""
_REMOVE = "DELETE FROM @interaction WHERE cassette = $1 AND index = ANY($2::text[]::bigint[])"
_NEXT = "UPDATE @counter SET next_index = next_index + 1 WHERE name = $1 RETURNING next_index - 1 AS index"


async def attempted(session: Session, attempt: UUID) -> bool:
    """Whether a transaction of this attempt took place already. Call it first in each of them."""
    return not await session.run(_ATTEMPT, attempt)


async def take_back(session: Session, attempt: UUID) -> None:
    """Let an attempt that changed nothing be none."""
    await session.run("DELETE FROM @attempt WHERE id = $1", attempt)


async def record(
    session: Session,
    name: str,
    head: CassetteHead,
    recording: Recording,
    text: str,
    place: int,
    *,
    owner: UUID,
    attempt: UUID,
) -> None:
    """Write a recording, unless this attempt did. Raises Fenced."""
    if await attempted(session, attempt):
        return
    number, own = await cassettes.hold(session, name, head)
    lease, moved = recording.lease, recording.step
    if lease is not None and not await session.run(
        _LEASE, name, rows.short(lease.key), owner, lease.fence
    ):
        raise Fenced(f"another instance records the same into cassette '{name}' by now")
    change = Change()
    place = await _supersede(session, number, recording, place, change)
    take = 0 if moved is None else moved.take
    index = await _add(session, name, number, own, recording, text, place, take, change)
    if moved is not None:
        await step(session, name, moved, attempt)
        await touch(session, name, moved.take, index)
    await change.write(session, number)


async def _supersede(
    session: Session, number: int, recording: Recording, place: int, change: Change
) -> int:
    if not recording.supersedes:
        return place
    wanted = [str(each) for each in recording.supersedes]
    gone = await session.rows(_SUPERSEDED, number, wanted)
    await session.run(_REMOVE, number, wanted)
    for line in gone:
        change.remove(rows.Source(line["http"], line["route"], line["base"]), line["size"])
    return min([line["place"] for line in gone], default=place)


async def _add(
    session: Session,
    name: str,
    number: int,
    own: Rules,
    recording: Recording,
    text: str,
    place: int,
    take: int,
    change: Change,
) -> int:
    index, item = recording.interaction.index, recording.interaction
    made = row.row_of(item, text, own)
    sql = f"{rows.ADD} ON CONFLICT (cassette, index) DO NOTHING"
    while not await session.run(sql, *rows.values(made, number, index, place, take)):
        # The answer is paid for: that somebody else has this index is no reason to lose it.
        next_one = await session.row(_NEXT, name)
        assert next_one is not None  # noqa: S101 - its place was taken from there
        index = next_one["index"]
        made = row.row_of(item, row.numbered(text, index), own)
    await entries.add_keys(session, number, [(index, made)])
    await entries.use_bodies(session, number, index, made)
    change.add(rows.source(made), len(made.text.encode()))
    return index
