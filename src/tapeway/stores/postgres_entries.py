"""Interactions that are brought in, edited, or found under other keys."""

from collections.abc import Iterable, Sequence

from tapeway.core.matching.rules import Rules
from tapeway.core.model.cassette import CassetteHead, Held, StoredCassette
from tapeway.errors import StoreError
from tapeway.stores import postgres_cassettes as cassettes
from tapeway.stores import postgres_rows as rows
from tapeway.stores import row
from tapeway.stores.postgres_pool import Session
from tapeway.stores.postgres_tally import Change

_BATCH = 100

_KEY = "INSERT INTO @key (cassette, key, index) VALUES ($1, $2, $3)"
_USE = """
INSERT INTO @body_use (digest, cassette, index)
SELECT digest, $2::bigint, $3::bigint FROM @body WHERE digest = $1 FOR KEY SHARE
"""
_COUNT = """
INSERT INTO @counter AS counter (name, next_index, next_place) VALUES ($1, $2, $2)
ON CONFLICT (name) DO UPDATE SET next_index = greatest(counter.next_index, $2),
  next_place = greatest(counter.next_place, $2)
"""
_EDITED = """
SELECT place, take, http, route, base, length(document) AS size FROM @interaction
WHERE cassette = $1 AND index = $2 FOR UPDATE
"""

Numbered = tuple[int, Held, str]
"""An interaction with its index and its document."""


def numbered(items: Iterable[tuple[Held, str]], index: int) -> list[Numbered]:
    """Interactions and their documents from this index on."""
    return [(at, item, row.numbered(text, at)) for at, (item, text) in enumerate(items, index)]


def brought_in(items: Iterable[Held]) -> list[tuple[Held, str]]:
    """Interactions with their documents. Raises StoreError for one that could not be read again."""
    return [(item, row.brought_in(item)) for item in items]


async def add(
    session: Session, number: int, own: Rules, items: Sequence[Numbered], place: int
) -> None:
    """Interactions with places from this one on, counted."""
    change = Change()
    made = [(index, row.row_of(item, text, own)) for index, item, text in items]
    await session.each(
        rows.ADD,
        [rows.values(each, number, index, place + at, 0) for at, (index, each) in enumerate(made)],
    )
    await add_keys(session, number, made)
    for index, each in made:
        await use_bodies(session, number, index, each)
        change.add(rows.source(each), len(each.text.encode()))
    await change.write(session, number)


async def add_keys(session: Session, number: int, made: Iterable[tuple[int, row.Row]]) -> None:
    """Find interactions under their keys from now on."""
    keyed = {(number, rows.short(key), index) for index, each in made for key in each.keys}
    if len(keyed) == 1:
        await session.run(_KEY, *keyed.pop())
    elif keyed:
        await session.each(_KEY, sorted(keyed))


async def use_bodies(session: Session, number: int, index: int, made: row.Row) -> None:
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
    for table in ("interaction", "tally"):
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
        rows.FIND + f"WHERE cassette = $1 AND index > $2 ORDER BY index LIMIT {_BATCH}",
        *(number, after),
    ):
        held = [each.item for each in rows.found(lines, where)]
        await add_keys(session, number, [(each.index, row.row_of(each, "", own)) for each in held])
        after = held[-1].index


async def edit(session: Session, name: str, index: int, changed: Held | None) -> bool:
    """Put another interaction in the place of one, or remove it; False where there is none."""
    found = await cassettes.held(session, name)
    if found is None or (old := await session.row(_EDITED, found[0], index)) is None:
        return False
    (number, own), change = found, Change()
    change.remove(rows.Source(old["http"], old["route"], old["base"]), old["size"])
    for table in ("interaction",) if changed is None else ("key", "body_use"):
        sql = f"DELETE FROM @{table} WHERE cassette = $1 AND index = $2"  # noqa: S608
        await session.run(sql, number, index)
    if changed is not None:
        ((_, _, text),) = numbered(brought_in([changed]), index)
        made = row.row_of(changed, text, own)
        await session.run(rows.CHANGE, *rows.values(made, number, index, old["place"], old["take"]))
        await add_keys(session, number, [(index, made)])
        await use_bodies(session, number, index, made)
        change.add(rows.source(made), len(text.encode()))
    await change.write(session, number)
    return True
