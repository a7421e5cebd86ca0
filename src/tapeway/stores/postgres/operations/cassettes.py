"""Changes of whole cassettes: made without a name, row by row, then put in force by a name.

So no recording waits for a change. A missing row proves nothing where transactions commit at the
same time: a transaction that names a cassette holds the lock of the name.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.condition import Unchanged
from tapeway.core.model.interaction import exchange_of
from tapeway.stores.postgres.operations import cursors, recordings, rows
from tapeway.stores.postgres.operations.cassette_rows import (
    CHANGES,
    FIRST_GENERATION,
    CassetteRow,
    cassette,
    insert,
    lock_name,
    new_token,
    version_of,
)
from tapeway.stores.postgres.pool import DriverRow as Row
from tapeway.stores.postgres.pool import Session
from tapeway.stores.support.columns import FiledKey, filed_key, keys_of, rules_of

BATCH = 200
"""Recordings per transaction: some milliseconds, to keep other writers from waiting."""

LOG_BATCH = 2000
"""Rows of a log that one transaction removes."""

_TAKE_NAME = "UPDATE @cassette SET name = NULL, modified_at = :now WHERE id = $1"
_GIVE_NAME = """
UPDATE @cassette SET name = $2, modified_at = :now WHERE id = $1
"""
_IN_FORCE = """
UPDATE @cassette SET created_at = $2, run_id = $3, meta = $4, token = $5,
  modified_at = :now
WHERE id = $1
"""
_REMOVED_FIRST = "SELECT number FROM @interaction WHERE cassette = $1 ORDER BY number LIMIT $2"
_FORGET_LOG = """
DELETE FROM @log WHERE cassette = $1 AND revision = ANY(ARRAY (
  SELECT revision FROM @log WHERE cassette = $1 ORDER BY revision LIMIT $2))
"""
_LEFTOVER = """
SELECT id FROM @cassette WHERE name IS NULL AND modified_at < :now - $1 ORDER BY id LIMIT 1
"""
_COMING = "SELECT coming_generation FROM @cassette WHERE id = $1 FOR UPDATE"
_TO_REKEY = """
SELECT number, document, sha256 FROM @interaction
WHERE cassette = $1 AND number > $2 AND exchange ORDER BY number LIMIT $3
"""
_COMING_KEY = """
UPDATE @log SET coming_key = $3, marks = marks | $4 WHERE cassette = $1 AND number = $2 AND live
"""
_NEW_KEYS = """
UPDATE @log SET key = coming_key, coming_key = NULL WHERE cassette = $1 AND coming_key IS NOT NULL
"""
_TO_LOG = """
SELECT number, document, sha256, place, take FROM @interaction
WHERE cassette = $1 AND number > $2 ORDER BY number LIMIT $3
"""
_OLD_KEYS = """
SELECT number FROM @key WHERE cassette = $1
AND generation < (SELECT generation FROM @cassette WHERE id = $1) ORDER BY generation, digest LIMIT $2
"""
_FORGET_KEYS = """
DELETE FROM @key WHERE cassette = $1
AND generation < (SELECT generation FROM @cassette WHERE id = $1) AND number = ANY($2::text[]::bigint[])
"""


async def add_nameless(head: CassetteHead, session: Session) -> int:
    """Add an empty cassette that nobody sees yet."""
    inserted = await insert(None, head, session)
    return int(inserted[0][0])


async def fill(
    cassette_id: int,
    items: Sequence[rows.Numbered],
    head: CassetteHead,
    shard: int,
    session: Session,
) -> None:
    """Add a batch of interactions to one without a name."""
    await session.run("UPDATE @cassette SET modified_at = :now WHERE id = $1", cassette_id)
    into = CassetteRow(cassette_id, rows.head_values(head)[2])
    await recordings.add_at_end(into, items, shard, session)


async def put_in_place(
    name: str, cassette_id: int, only: Unchanged | None, session: Session
) -> tuple[bool, int | None]:
    """Name a cassette that has none. Returns whether it was named, and the id of rows to remove.

    These are the rows of the cassette that had the name before. If that cassette is not in the
    state of `only`, the new cassette stays without a name, and its rows are to be removed.
    """
    await lock_name(name, session)
    before = await cassette(name, CHANGES, session)
    if only is not None and (await version_of(name, session)) != only.version:
        return False, cassette_id
    if before is not None:
        await session.run(_TAKE_NAME, before.id)
    await session.run(_GIVE_NAME, cassette_id, name)
    await cursors.forget(name, session)
    return True, None if before is None else before.id


async def take_out(name: str, only: Unchanged | None, session: Session) -> int | None:
    """Remove a cassette for all readers by taking its name; the id of its rows, None for none."""
    await lock_name(name, session)
    before = await cassette(name, CHANGES, session)
    if before is None or (only is not None and (await version_of(name, session)) != only.version):
        return None
    await session.run(_TAKE_NAME, before.id)
    await cursors.forget(name, session)
    return before.id


async def rename(name: str, by: str, session: Session) -> int | None:
    """Rename `by` to `name`; the id of the replaced cassette's rows, None for none."""
    for locked in sorted({name, by}):
        await lock_name(locked, session)
    if (renamed := await cassette(by, CHANGES, session)) is None:
        return None
    before = await cassette(name, CHANGES, session)
    if before is not None:
        await session.run(_TAKE_NAME, before.id)
    await session.run(_GIVE_NAME, renamed.id, name)
    await cursors.forget(name, session)
    await cursors.forget(by, session)
    await cursors.take_over_numbering(name, by, session)
    return None if before is None else before.id


async def remove_some(cassette_id: int, session: Session) -> bool:
    """Remove a batch of the rows of a cassette without a name; whether there are more."""
    numbers = await session.rows(_REMOVED_FIRST, cassette_id, BATCH)
    if numbers:
        await recordings.remove_rows(cassette_id, [number for (number,) in numbers], session)
        return True
    if await session.run(_FORGET_LOG, cassette_id, LOG_BATCH) == LOG_BATCH:
        return True
    await session.run("DELETE FROM @source WHERE cassette = $1", cassette_id)
    await session.run("DELETE FROM @cassette WHERE id = $1", cassette_id)
    return False


async def clear_leftovers(grace_s: float, session: Session) -> bool:
    """Remove a batch of a cassette that was left half-written or half-removed for so long; whether
    there is more.
    """
    if (leftover := await session.row(_LEFTOVER, grace_s)) is None:
        return False
    await remove_some(leftover[0], session)
    return True


# A new head whose rules give the recordings new keys.


async def begin_rekey(name: str, head: CassetteHead, session: Session) -> tuple[int, int] | None:
    """Begin to index a cassette by the rules of a new head; the cassette's id, and the generation
    of the keys.

    None if nothing is left to do: there is no cassette, or the rules stay the same and the keys are
    those that this tapeway computes. From now on
    every recording adds keys of both generations.
    """
    if (cassette_row := await cassette(name, CHANGES, session)) is None:
        return None
    meta = rows.head_values(head)[2]
    is_current = cassette_row.generation >= FIRST_GENERATION
    if is_current and rules_of(meta) == rules_of(cassette_row.meta):
        await session.run(_IN_FORCE, cassette_row.id, *rows.head_values(head), new_token())
        return None
    before = max(cassette_row.generation, cassette_row.coming_generation or 0)
    coming = max(before + 1, FIRST_GENERATION)
    await session.run(
        "UPDATE @cassette SET coming_meta = $2, coming_generation = $3 WHERE id = $1",
        *(cassette_row.id, meta, coming),
    )
    return cassette_row.id, coming


async def rekey(
    cassette_id: int, generation: int, head: CassetteHead, after: int, session: Session
) -> int | None:
    """Index a batch of recordings by the new rules; returns the number of the last one.

    After the last batch the new rules are in force, and the result is -1. None if another change of
    the rules came in between: then this change is abandoned.
    """
    # Who edits or records meanwhile waits.
    coming = await session.row(_COMING, cassette_id)
    if coming is None or coming[0] != generation:
        return None
    page = await session.rows(_TO_REKEY, cassette_id, after, BATCH)
    filed: list[tuple[int, int, bytes, int]] = []
    for number, keys, (key, marks) in await asyncio.to_thread(partial(_keys_of, page, head)):
        await recordings.add_keys(cassette_id, number, [(generation, key) for key in keys], session)
        if key is not None:
            filed.append((cassette_id, number, key, marks))
    await session.each(_COMING_KEY, filed)
    if len(page) == BATCH:
        return int(page[-1][0])
    await session.run(
        "UPDATE @cassette SET generation = $2, coming_generation = NULL, coming_meta = NULL "
        "WHERE id = $1",
        *(cassette_id, generation),
    )
    await session.run(_NEW_KEYS, cassette_id)
    await session.run(_IN_FORCE, cassette_id, *rows.head_values(head), new_token())
    return -1


async def forget_keys(cassette_id: int, session: Session) -> bool:
    """Remove a batch of the keys of earlier rules; whether there may be more."""
    page = await session.rows(_OLD_KEYS, cassette_id, BATCH)
    if page:
        rekeyed = rows.numbers({number for (number,) in page})
        await session.run(_FORGET_KEYS, cassette_id, rekeyed)
    return bool(page)


async def has_old_keys(name: str, session: Session) -> bool:
    """Whether the keys of a cassette were computed by an earlier tapeway."""
    columns = await session.row("SELECT generation FROM @cassette WHERE name = $1", name)
    return columns is not None and columns[0] < FIRST_GENERATION


async def is_changing(name: str, session: Session) -> bool:
    """Whether a change of the rules is under way."""
    columns = await session.row("SELECT coming_generation FROM @cassette WHERE name = $1", name)
    return columns is not None and columns[0] is not None


def _keys_of(
    page: Sequence[Row], head: CassetteHead
) -> list[tuple[int, Sequence[bytes], FiledKey]]:
    under = rules_of(rows.head_values(head)[2])
    made: list[tuple[int, Sequence[bytes], FiledKey]] = []
    for number, document, digest in page:
        exchange = exchange_of(rows.interaction_of(document, digest, number, "the cassette"))
        if exchange is not None:
            made.append((number, keys_of(exchange, under), filed_key(exchange, under)))
    return made


# The log of a cassette that has none.


async def log_of_all(cassette_id: int, meta: bytes, session: Session) -> None:
    """Add all recordings of a cassette to its log. Raises CassetteCorrupt."""
    after = -1
    while page := await session.rows(_TO_LOG, cassette_id, after, BATCH):
        change = await asyncio.to_thread(_change_of, page, meta)
        await change.log(cassette_id, session)
        after = page[-1][0]


def _change_of(page: Sequence[Row], meta: bytes) -> rows.LogChange:
    change, under = rows.LogChange(), rules_of(meta)
    for number, document, digest, place, take in page:
        item = rows.interaction_of(document, digest, number, "a cassette")
        change.log_added(number, place, take, filed_key(item, under))
    return change
