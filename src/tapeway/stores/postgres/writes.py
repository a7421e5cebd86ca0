"""Changes of the recordings in PostgreSQL, each inside a transaction that its caller began.

Every change updates the counts of its cassette.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from uuid import UUID

from tapeway.core.matching.rules import Rules
from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.core.model.condition import Condition
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.errors import Fenced, StoreError
from tapeway.formats.native.document import interaction_digest
from tapeway.paging import batch_from
from tapeway.stores.postgres import cassettes, rows
from tapeway.stores.postgres.coordination.cursors import forget_touched, step, touch
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

_IN_USE = "UPDATE @body SET idle_since = NULL WHERE digest = $1 AND idle_since IS NOT NULL"
_USE = """
INSERT INTO @usage (digest, cassette, number)
SELECT digest, $2::bigint, $3::bigint FROM @body WHERE digest = $1 FOR KEY SHARE
"""

_COUNT = """
INSERT INTO @numbering AS numbering (name, next) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET next = greatest(numbering.next, $2)
"""

_EDITED = """
SELECT number, document, sha256, place, take, exchange, route, base, length(document) AS size
FROM @interaction WHERE cassette = $1 AND number = $2 FOR UPDATE
"""

Numbered = tuple[int, AnyInteraction, str]
"""An interaction with its index and its document."""

# It waits for an unfinished transaction of the same attempt whose connection was lost.
_LEASE = "DELETE FROM @lease WHERE name = $1 AND key = $2 AND instance = $3 AND fence = $4"

# Ordered, so that two transactions that supersede the same recordings cannot deadlock.
_SUPERSEDED = """
SELECT number, place, exchange, route, base, length(document) AS size FROM @interaction
WHERE cassette = $1 AND number = ANY($2::text[]::bigint[]) ORDER BY number FOR UPDATE
"""
_REMOVE = "DELETE FROM @interaction WHERE cassette = $1 AND number = ANY($2::text[]::bigint[])"
_NEXT = "UPDATE @numbering SET next = next + 1 WHERE name = $1 RETURNING next - 1 AS number"


class CountChange:
    """The difference that one transaction makes to the counts of a cassette."""

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
        """Write the difference. Call it last: it locks a row until the transaction ends.

        Each source has several rows, so that concurrent recordings seldom wait for each other.
        """
        shard = secrets.randbelow(_SHARDS)
        for source in sorted(self._counts):
            await session.run(
                _ADD,
                *(cassette, shard, source.exchange, source.route, source.base),
                *(self._counts[source], self._bytes[source]),
            )


def numbered(items: Iterable[tuple[AnyInteraction, str]], index: int) -> list[Numbered]:
    """Interactions and their documents, numbered from `index` on."""
    return [
        (at, item, columns.text_with_index(text, at))
        for at, (item, text) in enumerate(items, index)
    ]


def brought_in(items: Iterable[AnyInteraction]) -> list[tuple[AnyInteraction, str]]:
    """Interactions with their documents. Raises StoreError for one that cannot be stored."""
    return [(item, columns.imported_text(item)) for item in items]


async def add(session: Session, cassette: int, rules: Rules, items: Sequence[Numbered]) -> None:
    """Add interactions, each in the place of its index, with keys, bodies and counts."""
    change = CountChange()
    interactions = [(index, columns.columns_of(item, text, rules)) for index, item, text in items]
    await session.each(
        rows.INSERT,
        [rows.values_of(each, cassette, index, index, 0) for index, each in interactions],
    )
    await add_keys(session, cassette, interactions)
    for index, each in interactions:
        await use_bodies(session, cassette, index, each)
        change.add(rows.source_of(each), len(each.text.encode()))
    await change.write(session, cassette)


async def add_keys(
    session: Session, cassette: int, interactions: Iterable[tuple[int, columns.InteractionColumns]]
) -> None:
    """Add the keys of interactions."""
    keyed = {
        (cassette, rows.indexable(key), index) for index, each in interactions for key in each.keys
    }
    if len(keyed) == 1:
        await session.run(_KEY, *keyed.pop())
    elif keyed:
        await session.each(_KEY, sorted(keyed))


async def use_bodies(
    session: Session, cassette: int, index: int, row: columns.InteractionColumns
) -> None:
    """Refer to the large bodies of an interaction. Raises StoreError for a body that is not stored."""
    # Ordered, so that two transactions that use the same bodies cannot deadlock.
    for digest in sorted(row.bodies):
        await session.run(_IN_USE, bytes.fromhex(digest))
        if not await session.run(_USE, bytes.fromhex(digest), cassette, index):
            raise StoreError(f"the large body sha256-{digest} was not kept before: keep it first")


async def extend(
    session: Session, name: str, head: CassetteHead, items: Sequence[Numbered]
) -> None:
    """Add interactions at the end of a cassette."""
    cassette, rules = await cassettes.lock_or_create(session, name, head)
    await add(session, cassette, rules, items)


async def save(session: Session, name: str, stored: StoredCassette) -> bool:
    """Replace a cassette, its recordings numbered by position; whether there were others before.

    Readers see all of it or nothing.
    """
    cassette, _ = await cassettes.lock_or_create(session, name, stored.head, exclusive=True)
    gone = await session.run("DELETE FROM @interaction WHERE cassette = $1", cassette)
    await session.run("DELETE FROM @source WHERE cassette = $1", cassette)
    await cassettes.forget_cursors(session, name)
    rules = await cassettes.set_head(session, name, stored.head)
    items = stored.interactions
    first = 0
    while first < len(items):
        batch = await asyncio.to_thread(_numbered_batch, items, first)
        await add(session, cassette, rules, batch)
        first += len(batch)
    await session.run(_COUNT, name, len(items))
    return gone > 0


def _numbered_batch(items: Sequence[AnyInteraction], first: int) -> Sequence[Numbered]:
    return numbered(brought_in(batch_from(items, first, _BATCH)), first)


async def replace_if(
    session: Session, name: str, mark: str | None, stored: StoredCassette | None
) -> bool:
    """Save or remove a cassette that still has this mark; None for no cassette."""
    if mark is None:
        if stored is None or not await cassettes.create(session, name, stored.head):
            return False
    else:
        # Recordings under way have to end first: afterwards nobody else changes it.
        await cassettes.lock(session, name, exclusive=True)
        found = await cassettes.stat(session, name)
        if found is None or found.mark != mark:
            return False
    if stored is None:
        return await cassettes.remove(session, name)
    await save(session, name, stored)
    return True


async def replace_head(session: Session, name: str, head: CassetteHead, where: str) -> None:
    """Replace the head of a cassette that is there, and index all recordings again if its rules differ."""
    locked = await cassettes.lock(session, name, exclusive=True)
    if locked is None:
        return
    cassette, before = locked
    if await cassettes.has_head(session, name, head):
        return
    rules = await cassettes.set_head(session, name, head)
    if rules == before:
        return
    await session.run("DELETE FROM @key WHERE cassette = $1", cassette)
    after = -1
    while found := await session.rows(
        rows.SELECT_RECORDING
        + f"WHERE cassette = $1 AND number > $2 ORDER BY number LIMIT {_BATCH}",
        *(cassette, after),
    ):
        items = [each.item for each in rows.recordings_of(found, where)]
        await add_keys(
            session, cassette, [(each.index, columns.columns_of(each, "", rules)) for each in items]
        )
        after = items[-1].index


async def edit(
    session: Session,
    name: str,
    index: int,
    changed: AnyInteraction | None,
    condition: Condition,
    where: str,
) -> bool:
    """Replace one interaction, or remove it; False if there is none of that index.

    Raises AdminError (412) where it is not what the condition demands.
    """
    found = await cassettes.lock(session, name)
    if found is None or (old := await session.row(_EDITED, found[0], index)) is None:
        return False
    if condition.given:
        (held,) = rows.recordings_of([old], where)
        condition.check(interaction_digest(held.item))
    if not isinstance(changed, Interaction):
        await forget_touched(session, name, [index])
    (cassette, rules), change = found, CountChange()
    change.remove(rows.RecordingSource(old["exchange"], old["route"], old["base"]), old["size"])
    for table in ("interaction",) if changed is None else ("key", "usage"):
        sql = f"DELETE FROM @{table} WHERE cassette = $1 AND number = $2"  # noqa: S608
        await session.run(sql, cassette, index)
    if changed is not None:
        ((_, _, text),) = numbered(brought_in([changed]), index)
        row = columns.columns_of(changed, text, rules)
        await session.run(
            rows.UPDATE, *rows.values_of(row, cassette, index, old["place"], old["take"])
        )
        await add_keys(session, cassette, [(index, row)])
        await use_bodies(session, cassette, index, row)
        change.add(rows.source_of(row), len(text.encode()))
    await change.write(session, cassette)
    return True


async def record(
    session: Session,
    name: str,
    head: CassetteHead,
    recording: Recording,
    text: str,
    *,
    instance: UUID,
) -> None:
    """Write a recording. Raises Fenced."""
    cassette, rules = await cassettes.lock_or_create(session, name, head)
    lease, cursor_step = recording.lease, recording.step
    if lease is not None and not await session.run(
        _LEASE, name, rows.indexable(lease.key), instance, lease.fence
    ):
        raise Fenced(f"another instance records the same into cassette '{name}' by now")
    change = CountChange()
    if recording.supersedes:
        await forget_touched(session, name, recording.supersedes)
    place = await _supersede(session, cassette, recording, change)
    take = 0 if cursor_step is None else cursor_step.take
    index = await _add(session, name, cassette, rules, recording, text, place, take, change)
    if cursor_step is not None:
        await step(session, name, cursor_step)
        await touch(session, name, cursor_step.take, index)
    await change.write(session, cassette)


async def _supersede(
    session: Session, cassette: int, recording: Recording, change: CountChange
) -> int | None:
    """Remove what a recording supersedes; returns its place, None where that is its index."""
    if not recording.supersedes:
        return None
    wanted = [str(each) for each in recording.supersedes]
    gone = await session.rows(_SUPERSEDED, cassette, wanted)
    await session.run(_REMOVE, cassette, wanted)
    for row in gone:
        change.remove(rows.RecordingSource(row["exchange"], row["route"], row["base"]), row["size"])
    return min([row["place"] for row in gone], default=None)


async def _add(
    session: Session,
    name: str,
    cassette: int,
    rules: Rules,
    recording: Recording,
    text: str,
    place: int | None,
    take: int,
    change: CountChange,
) -> int:
    index, item = recording.interaction.index, recording.interaction
    row = columns.columns_of(item, text, rules)
    sql = f"{rows.INSERT} ON CONFLICT (cassette, number) DO NOTHING"
    while not await session.run(
        sql, *rows.values_of(row, cassette, index, index if place is None else place, take)
    ):
        # The response is paid for: where another recording has this index, take the next one.
        next_one = await session.row(_NEXT, name)
        assert next_one is not None  # noqa: S101 - its index was taken in that row
        index = next_one["number"]
        row = columns.columns_of(item, columns.text_with_index(text, index), rules)
    await add_keys(session, cassette, [(index, row)])
    await use_bodies(session, cassette, index, row)
    change.add(rows.source_of(row), len(row.text.encode()))
    return index
