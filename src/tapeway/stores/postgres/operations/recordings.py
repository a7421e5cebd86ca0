"""Changes of single recordings: each keeps the keys, the large bodies in use and the counts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.core.model.condition import Condition
from tapeway.core.model.interaction import AnyInteraction, Interaction, exchange_of
from tapeway.errors import CassetteCorrupt, StoreError, fenced, recording_edited
from tapeway.formats.native.document import decode, encode, interaction_digest
from tapeway.paging import batch_from
from tapeway.stores.postgres.operations import coordination, cursors, rows
from tapeway.stores.postgres.operations.cassette_rows import (
    WRITES,
    CassetteRow,
    cassette,
    cassette_or_new,
)
from tapeway.stores.postgres.operations.coordination import Member
from tapeway.stores.postgres.operations.rows import LogChange, Numbered, numbers
from tapeway.stores.postgres.pool import Session
from tapeway.stores.support import columns

_BATCH = 500
"""Recordings that are added in one transaction."""

_TRIES = 2
"""The first may have waited for a transaction that replaced a body."""

# Ordered: two transactions that superseded equal recordings cannot deadlock.
_HELD = """
SELECT number, place, take, exchange, route, base, size, document, sha256 FROM @interaction
WHERE cassette = $1 AND number = ANY($2::text[]::bigint[]) ORDER BY number FOR UPDATE
"""
_REMOVE = "DELETE FROM @interaction WHERE cassette = $1 AND number = ANY($2::text[]::bigint[])"
_KEY = """
INSERT INTO @key (cassette, generation, digest, number) VALUES ($1, $2, $3, $4)
ON CONFLICT (cassette, generation, digest, number) DO NOTHING
"""
_IN_USE = "UPDATE @body SET idle_since = NULL WHERE digest = $1 AND idle_since IS NOT NULL"
_USE = """
INSERT INTO @usage (cassette, number, body)
SELECT CAST($2 AS bigint), CAST($3 AS bigint), id FROM @body WHERE digest = $1 FOR KEY SHARE
"""
_RELEASE = """
UPDATE @body AS body SET idle_since = 0 WHERE idle_since IS NULL
AND id = ANY(ARRAY (SELECT u.body FROM @usage u WHERE u.cassette = $1 AND u.number = ANY($2::text[]::bigint[])))
AND NOT EXISTS (SELECT 1 FROM @usage u WHERE u.body = body.id
  AND NOT (u.cassette = $1 AND u.number = ANY($2::text[]::bigint[])))
"""


class IndexTaken(StoreError):
    """Another recording has this index: reserve one, and try again."""


@dataclass(frozen=True, slots=True)
class _Held:
    number: int
    place: int
    take: int
    exchange: object
    route: bytes
    base: bytes
    size: int
    document: bytes
    sha256: bytes


async def record(
    name: str,
    head: CassetteHead,
    recording: Recording,
    text: bytes,
    shard: int,
    member: Member,
    session: Session,
) -> None:
    """Write a recording in the place of the superseded recordings, or of its index.

    The cursor moves on once the recording is durable. Raises Fenced, IndexTaken, RecordingEdited.
    """
    into = await cassette_or_new(name, head, session)
    lease = recording.lease
    if lease is not None and not await coordination.give_back(lease, member, session):
        raise fenced(name)
    change, step, index = LogChange(), recording.step, recording.interaction.index
    removed = (
        (await _remove(into, recording.supersedes, change, session)) if recording.supersedes else []
    )
    if recording.goes_on is not None:
        _check_unchanged(name, removed, recording.goes_on)
    # Not at the end: the index was reserved at the request, and later requests may finish earlier.
    place = min([held.place for held in removed], default=index)
    take = 0 if step is None else step.take
    await _add(into, (index, recording.interaction, text), place, take, change, session)
    await change.log(into.id, session)
    await change.count(into.id, shard, session)
    if recording.supersedes:
        await cursors.forget_touched(name, recording.supersedes, session)
    if step is not None:
        await cursors.step(name, step, session)
        await cursors.touch(name, step.take, index, session)


async def extend(
    name: str, head: CassetteHead, items: Sequence[Numbered], shard: int, session: Session
) -> None:
    """Add interactions at the end of a cassette. Raises IndexTaken."""
    into = await cassette_or_new(name, head, session)
    await add_at_end(into, items, shard, session)


async def add_at_end(
    into: CassetteRow, items: Sequence[Numbered], shard: int, session: Session
) -> None:
    """Add interactions at the end of a cassette, given the cassette's row."""
    change = LogChange()
    for item in items:
        await _add(into, item, item[0], 0, change, session)
    await change.log(into.id, session)
    await change.count(into.id, shard, session)


async def edit(
    name: str,
    index: int,
    changed: tuple[AnyInteraction, bytes] | None,
    condition: Condition,
    shard: int,
    session: Session,
) -> bool:
    """Replace one interaction, or remove it; False if there is none of that index.

    Raises AdminError (412) where the condition does not hold.
    """
    if (into := await cassette(name, WRITES, session)) is None:
        return False
    held_row = await session.row(_HELD, into.id, numbers([index]))
    if held_row is None:
        return False
    old, change = _Held(*held_row), LogChange()
    if condition.given:
        held = rows.interaction_of(old.document, old.sha256, index, f"cassette '{name}'")
        condition.check(interaction_digest(held))
    if changed is None:
        await _remove(into, [index], change, session)
    else:
        item, text = changed
        change.remove(index, old.exchange, old.route, old.base, old.size)
        await session.run(_RELEASE, into.id, numbers([index]))
        for table in ("key", "usage"):
            sql = f"DELETE FROM @{table} WHERE cassette = $1 AND number = $2"  # noqa: S608
            await session.run(sql, into.id, index)
        new = columns.columns_of(item, text, columns.rules_of(into.meta))
        await session.run(rows.UPDATE, *rows.values_of(new, into.id, index, old.place, old.take))
        coming = await _find_by(into, index, item, new, session)
        change.add(new, index, old.place, old.take, coming)
    await change.log(into.id, session)
    await change.count(into.id, shard, session)
    if changed is None or not isinstance(changed[0], Interaction):
        await cursors.forget_touched(name, [index], session)
    return True


async def release_bodies(
    cassette_id: int, numbers_of_removed: Sequence[int], session: Session
) -> int:
    """Mark bodies as idle where only these interactions refer to them.

    Each goes with the next sweep, unless somebody has just stored the same one for a recording.
    """
    return await session.run(_RELEASE, cassette_id, numbers(numbers_of_removed))


async def remove_rows(cassette_id: int, numbers_of_removed: Sequence[int], session: Session) -> int:
    """Remove interactions with their keys, and release the bodies."""
    await release_bodies(cassette_id, numbers_of_removed, session)
    return await session.run(_REMOVE, cassette_id, numbers(numbers_of_removed))


def with_texts(items: Iterable[AnyInteraction]) -> list[tuple[AnyInteraction, bytes]]:
    """Interactions with their documents. Raises StoreError for an unstorable interaction."""
    return [(item, columns.imported_text(item)) for item in items]


def numbered(items: Iterable[tuple[AnyInteraction, bytes]], first: int) -> list[Numbered]:
    """Interactions and their documents, numbered from `first` on."""
    return [
        (at, item, text if item.index == at else columns.text_with_index(text, at))
        for at, (item, text) in enumerate(items, first)
    ]


def numbered_batch(items: Sequence[AnyInteraction], first: int) -> list[Numbered]:
    """A batch of the interactions from position `first` on, numbered by position."""
    return numbered(with_texts(batch_from(items, first, _BATCH)), first)


async def _remove(
    into: CassetteRow, gone: Sequence[int], change: LogChange, session: Session
) -> list[_Held]:
    removed = [_Held(*fields) for fields in (await session.rows(_HELD, into.id, numbers(gone)))]
    if removed:
        await remove_rows(into.id, [held.number for held in removed], session)
    for held in removed:
        change.remove(held.number, held.exchange, held.route, held.base, held.size)
    return removed


def _check_unchanged(name: str, removed: Sequence[_Held], before: AnyInteraction) -> None:
    """Raise RecordingEdited unless these rows hold the interaction as it was recorded."""
    for held in removed:
        if held.number == before.index:
            item = rows.interaction_of(
                held.document, held.sha256, held.number, f"cassette '{name}'"
            )
            # A document may change once when it is read and written again.
            if interaction_digest(item) == interaction_digest(decode(encode(before), before.index)):
                return
    raise recording_edited(name, before.index)


async def _add(
    into: CassetteRow,
    numbered: Numbered,
    place: int,
    take: int,
    change: LogChange,
    session: Session,
) -> None:
    number, item, text = numbered
    new = columns.columns_of(item, text, columns.rules_of(into.meta))
    if not (await session.run(rows.INSERT, *rows.values_of(new, into.id, number, place, take))):
        raise IndexTaken(f"another recording has index {number}")
    coming = await _find_by(into, number, item, new, session)
    change.add(new, number, place, take, coming)


async def _find_by(
    into: CassetteRow,
    number: int,
    item: AnyInteraction,
    new: columns.InteractionColumns,
    session: Session,
) -> bytes | None:
    """Add the keys by the rules in force and by the coming rules, and use the bodies.

    Returns the match key by the coming rules.
    """
    keys, coming_key = [(into.generation, key) for key in new.keys], None
    exchange = exchange_of(item)
    if exchange is not None and into.coming_meta is not None:
        rules = columns.rules_of(into.coming_meta)
        coming = columns.keys_of(exchange, rules)
        coming_key = columns.filed_key(item, rules).key
        keys += [(into.coming_generation or 0, key) for key in coming]
    await add_keys(into.id, number, keys, session)
    # Ordered: two transactions that use equal bodies cannot deadlock.
    for digest in sorted(new.bodies):
        if not (await _use(into, number, bytes.fromhex(digest), session)):
            raise CassetteCorrupt(
                f"the large body sha256-{digest} that the recording refers to is not there: keep it "
                "first; nothing was recorded"
            )
    return coming_key


async def _use(into: CassetteRow, number: int, digest: bytes, session: Session) -> int:
    used = 0
    for _ in range(_TRIES):
        await session.run(_IN_USE, digest)
        used = await session.run(_USE, digest, into.id, number)
        if used:
            break
    return used


async def add_keys(
    cassette_id: int, number: int, keys: Iterable[tuple[int, bytes]], session: Session
) -> None:
    """Have an interaction found by these keys, each of a generation."""
    unique = sorted({(generation, rows.indexable(key)) for generation, key in keys})
    many = [(cassette_id, generation, key, number) for generation, key in unique]
    if len(many) == 1:
        await session.run(_KEY, *many[0])
    else:
        await session.each(_KEY, many)
