"""Interactions that are brought in, edited, or found under other keys.

A recording, written in one transaction with all that goes with it.

How many recordings a cassette has and where they came from, counted with every change.
"""

import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from uuid import UUID

from tapeway.core.matching.rules import Rules
from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.core.model.interaction import AnyInteraction
from tapeway.errors import Fenced, StoreError
from tapeway.stores.postgres import cassettes, rows
from tapeway.stores.postgres.coordination.cursors import step, touch
from tapeway.stores.postgres.pool import Session
from tapeway.stores.postgres.rows import RecordingSource
from tapeway.stores.shared import columns

_SHARDS = 16

_ADD = """
INSERT INTO @source AS source (cassette, shard, exchange, route, base, count, bytes,
  changes, modified_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, 1, clock_timestamp())
ON CONFLICT (cassette, shard, exchange, route, base) DO UPDATE SET
  count = source.count + excluded.count, bytes = source.bytes + excluded.bytes,
  changes = source.changes + 1, modified_at = excluded.modified_at
"""
_BATCH = 100
_KEY = "INSERT INTO @key (cassette, digest, number) VALUES ($1, $2, $3)"

_USE = """
INSERT INTO @usage (digest, cassette, number)
SELECT digest, $2::bigint, $3::bigint FROM @body WHERE digest = $1 FOR KEY SHARE
"""

_COUNT = """
INSERT INTO @numbering AS numbering (name, next, next_place) VALUES ($1, $2, $2)
ON CONFLICT (name) DO UPDATE SET next = greatest(numbering.next, $2),
  next_place = greatest(numbering.next_place, $2)
"""

_EDITED = """
SELECT place, take, exchange, route, base, length(document) AS size FROM @interaction
WHERE cassette = $1 AND number = $2 FOR UPDATE
"""

Numbered = tuple[int, AnyInteraction, str]
"""An interaction with its index and its document."""

# Waits for a transaction of the same attempt whose connection was lost.
_ATTEMPT = "INSERT INTO @attempt (id) VALUES ($1) ON CONFLICT DO NOTHING"
_LEASE = "DELETE FROM @lease WHERE name = $1 AND key = $2 AND instance = $3 AND fence = $4"

# In the order of their indexes, so that no two who supersede the same wait for each other.
_SUPERSEDED = """
SELECT number, place, exchange, route, base, length(document) AS size FROM @interaction
WHERE cassette = $1 AND number = ANY($2::text[]::bigint[]) ORDER BY number FOR UPDATE
"""
_REMOVE = "DELETE FROM @interaction WHERE cassette = $1 AND number = ANY($2::text[]::bigint[])"
_NEXT = "UPDATE @numbering SET next = next + 1 WHERE name = $1 RETURNING next - 1 AS number"


class Change:
    """What one transaction makes of the counts of a cassette."""

    def __init__(self) -> None:
        self._counts: Counter[RecordingSource] = Counter()
        self._bytes: Counter[RecordingSource] = Counter()

    def add(self, source: RecordingSource, size: int) -> None:
        self._counts[source] += 1
        self._bytes[source] += size

    def remove(self, source: RecordingSource, size: int) -> None:
        self._counts[source] -= 1
        self._bytes[source] -= size

    async def write(self, session: Session, cassette: int) -> None:
        """Call it last: who counts in the same rows waits until the transaction ends.

        There are enough of them that those who record at the same time seldom do.
        """
        shard = secrets.randbelow(_SHARDS)
        for source in sorted(self._counts):
            await session.run(
                _ADD,
                *(cassette, shard, source.exchange, source.route, source.base),
                *(self._counts[source], self._bytes[source]),
            )


def numbered(items: Iterable[tuple[AnyInteraction, str]], index: int) -> list[Numbered]:
    """Interactions and their documents from this index on."""
    return [(at, item, columns.numbered(text, at)) for at, (item, text) in enumerate(items, index)]


def brought_in(items: Iterable[AnyInteraction]) -> list[tuple[AnyInteraction, str]]:
    """Interactions with their documents. Raises StoreError for one that could not be read again."""
    return [(item, columns.brought_in(item)) for item in items]


async def add(
    session: Session, number: int, own: Rules, items: Sequence[Numbered], place: int
) -> None:
    """Interactions with places from this one on, counted."""
    change = Change()
    made = [(index, columns.row_of(item, text, own)) for index, item, text in items]
    await session.each(
        rows.ADD,
        [rows.values(each, number, index, place + at, 0) for at, (index, each) in enumerate(made)],
    )
    await add_keys(session, number, made)
    for index, each in made:
        await use_bodies(session, number, index, each)
        change.add(rows.source(each), len(each.text.encode()))
    await change.write(session, number)


async def add_keys(
    session: Session, number: int, made: Iterable[tuple[int, columns.InteractionColumns]]
) -> None:
    """Find interactions under their keys from now on."""
    keyed = {(number, rows.short(key), index) for index, each in made for key in each.keys}
    if len(keyed) == 1:
        await session.run(_KEY, *keyed.pop())
    elif keyed:
        await session.each(_KEY, sorted(keyed))


async def use_bodies(
    session: Session, number: int, index: int, made: columns.InteractionColumns
) -> None:
    """Refer to the large bodies of an interaction. Raises StoreError for one that was not kept."""
    for digest in made.bodies:
        if not await session.run(_USE, bytes.fromhex(digest), number, index):
            raise StoreError(f"the large body sha256-{digest} was not kept before: keep it first")


async def extend(
    session: Session, name: str, head: CassetteHead, items: Sequence[Numbered], place: int
) -> None:
    """Interactions at the end of a cassette."""
    number, own = await cassettes.hold(session, name, head)
    await add(session, number, own, items, place)


async def save(session: Session, name: str, cassette: StoredCassette) -> None:
    """Each recording numbered by its position; nobody sees a half of it."""
    number, _ = await cassettes.hold(session, name, cassette.head, alone=True)
    for table in ("interaction", "source"):
        sql = f"DELETE FROM @{table} WHERE cassette = $1"  # noqa: S608
        await session.run(sql, number)
    await cassettes.forget(session, name)
    own = await cassettes.state(session, name, cassette.head)
    held = cassette.interactions
    for first in range(0, len(held), _BATCH):
        items = numbered(brought_in(held[first : first + _BATCH]), first)
        await add(session, number, own, items, first)
    await session.run(_COUNT, name, len(held))


async def restate(session: Session, name: str, head: CassetteHead, where: str) -> None:
    """Put another head in force, and find everything under its new keys, if its rules are new."""
    number, before = await cassettes.hold(session, name, head, alone=True)
    own = await cassettes.state(session, name, head)
    if own == before:
        return
    await session.run("DELETE FROM @key WHERE cassette = $1", number)
    after = -1
    while lines := await session.rows(
        rows.FIND + f"WHERE cassette = $1 AND number > $2 ORDER BY number LIMIT {_BATCH}",
        *(number, after),
    ):
        held = [each.item for each in rows.found(lines, where)]
        await add_keys(
            session, number, [(each.index, columns.row_of(each, "", own)) for each in held]
        )
        after = held[-1].index


async def edit(session: Session, name: str, index: int, changed: AnyInteraction | None) -> bool:
    """Put another interaction in the place of one, or remove it; False where there is none."""
    found = await cassettes.held(session, name)
    if found is None or (old := await session.row(_EDITED, found[0], index)) is None:
        return False
    (number, own), change = found, Change()
    change.remove(rows.RecordingSource(old["exchange"], old["route"], old["base"]), old["size"])
    for table in ("interaction",) if changed is None else ("key", "usage"):
        sql = f"DELETE FROM @{table} WHERE cassette = $1 AND number = $2"  # noqa: S608
        await session.run(sql, number, index)
    if changed is not None:
        ((_, _, text),) = numbered(brought_in([changed]), index)
        made = columns.row_of(changed, text, own)
        await session.run(rows.CHANGE, *rows.values(made, number, index, old["place"], old["take"]))
        await add_keys(session, number, [(index, made)])
        await use_bodies(session, number, index, made)
        change.add(rows.source(made), len(text.encode()))
    await change.write(session, number)
    return True


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
        change.remove(
            rows.RecordingSource(line["exchange"], line["route"], line["base"]), line["size"]
        )
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
    made = columns.row_of(item, text, own)
    sql = f"{rows.ADD} ON CONFLICT (cassette, number) DO NOTHING"
    while not await session.run(sql, *rows.values(made, number, index, place, take)):
        # The answer is paid for: that somebody else has this index is no reason to lose it.
        next_one = await session.row(_NEXT, name)
        assert next_one is not None  # noqa: S101 - its place was taken from there
        index = next_one["number"]
        made = columns.row_of(item, columns.numbered(text, index), own)
    await add_keys(session, number, [(index, made)])
    await use_bodies(session, number, index, made)
    change.add(rows.source(made), len(made.text.encode()))
    return index
