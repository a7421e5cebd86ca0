"""Queries on recordings, and the check whether the tables of a store agree with each other."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from struct import unpack

from tapeway.core.correlation.index import MOST_ALIKE
from tapeway.core.misses.neighbours import (
    MOST_NEWEST,
    MOST_SIMILAR,
    NEIGHBOURS,
    SEARCHED_PATHS,
    MethodAndPath,
    SoughtRequest,
    bounds,
    within_budget,
)
from tapeway.core.model.cassette import (
    CassetteStat,
    Outline,
    RecordingTitle,
    StoredCassette,
    TakenRecording,
)
from tapeway.errors import interaction_gone
from tapeway.ports import Issuer
from tapeway.stores.postgres.operations.rows import (
    RECORDING,
    TITLE,
    hexes,
    method_path,
    numbers,
    titles_of,
)
from tapeway.stores.postgres.pool import DriverRow as Row
from tapeway.stores.postgres.pool import Session
from tapeway.stores.support import columns

ROWS_AT_ONCE = 256
_OF = "cassette = (SELECT id FROM @cassette WHERE name = $1)"
_IN_FORCE = f"{_OF} AND generation = (SELECT generation FROM @cassette WHERE name = $1)"  # noqa: S608
_IN_ORDER = "ORDER BY place, number"
_FEW_IN_ORDER = "ORDER BY +place, +number"
"""For a few recordings found by index. Without the sums a plan may walk through all places."""
# Only names of columns and tables are put in: no value of anybody's.
_SELECT = f"SELECT {RECORDING} FROM @interaction WHERE {_OF}"  # noqa: S608

_OUTLINE = """
SELECT c.created_at, c.run_id, c.meta, s.exchange, s.route, s.base, CAST(sum(s.count) AS bigint)
FROM @cassette c LEFT JOIN @source s ON s.cassette = c.id
WHERE c.name = $1 GROUP BY c.id, s.exchange, s.route, s.base
"""
_STAT = """
SELECT c.modified_at, max(s.modified_at), CAST(coalesce(sum(s.size), 0) AS bigint),
  c.token || '.' || c.revision
FROM @cassette c LEFT JOIN @source s ON s.cassette = c.id WHERE c.name = $1 GROUP BY c.id
"""
_DOCUMENTS = f"{_SELECT} AND number = ANY($2::text[]::bigint[]) {_FEW_IN_ORDER}"
_ALIKE = f"""
SELECT number, weight FROM @interaction WHERE {_OF} AND weight IS NOT NULL AND number = ANY(ARRAY (
  SELECT number FROM @key WHERE {_IN_FORCE} AND digest = $2 ORDER BY number DESC LIMIT {MOST_ALIKE}
)) ORDER BY +number DESC
"""  # noqa: S608
_ISSUERS = f"""
SELECT digest, min(number) FROM @key WHERE {_IN_FORCE} AND digest = ANY(ARRAY(SELECT decode(unnest($2::text[]), 'hex'))) GROUP BY digest
"""  # noqa: S608
_TAKES = f"SELECT number, take FROM @interaction WHERE {_OF} AND number = ANY($2::text[]::bigint[])"  # noqa: S608
_PAGE = f"{_SELECT} AND (place, number) > ($2, $3) {_IN_ORDER} LIMIT $4"
_WEIGHTS = f"SELECT number, weight FROM @interaction WHERE {_OF} AND weight IS NOT NULL"  # noqa: S608
_BESIDE = [
    [
        f"SELECT number, weight FROM @interaction WHERE {_OF} AND {condition} LIMIT {NEIGHBOURS}"  # noqa: S608
        for condition in (
            f"{order} >= $2 AND {order} < $3 ORDER BY {order}, number DESC",
            f"{order} < $2 AND {order} >= $3 ORDER BY {order} DESC, number",
        )
    ]
    for order in ("forward", "backward")
]
"""For each order, the queries for neighbours after and before a key."""

_SEARCHED = f"""
SELECT number, weight, method, path FROM @interaction WHERE {_OF} AND weight IS NOT NULL {{}}
"""  # noqa: S608
_NEWEST = "ORDER BY number DESC LIMIT $2"
# One value, not a row for each: there may be a million.
_USED = """
SELECT coalesce(string_agg(int8send(number), ''), '') FROM @touched
WHERE name = $1 AND take = ANY($2::text[]::bigint[])
"""
_TITLES = f"SELECT {TITLE} FROM @interaction WHERE {_OF} AND number = ANY($2::text[]::bigint[]) {_FEW_IN_ORDER}"  # noqa: S608
_MISCOUNTED = """
SELECT c.name, coalesce(s.count, 0), coalesce(i.count, 0) FROM @cassette c
LEFT JOIN (SELECT cassette, CAST(sum(count) AS bigint) AS count FROM @source GROUP BY cassette) s
  ON s.cassette = c.id
LEFT JOIN (SELECT cassette, count(*) AS count FROM @interaction GROUP BY cassette) i
  ON i.cassette = c.id
WHERE c.name IS NOT NULL AND coalesce(s.count, 0) <> coalesce(i.count, 0) ORDER BY c.name
"""
_UNFINDABLE = """
SELECT c.name, i.number FROM @interaction i JOIN @cassette c ON c.id = i.cassette
WHERE c.name IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM @log l WHERE l.cassette = i.cassette AND l.number = i.number AND l.live)
ORDER BY c.name, i.number
"""
_CHANGED = """
SELECT c.name, i.number FROM @interaction i JOIN @cassette c ON c.id = i.cassette
WHERE c.name IS NOT NULL AND sha256(i.document) <> i.sha256 ORDER BY c.name, i.number
"""
_CUT = """
SELECT b.digest, b.size, coalesce(p.size, 0) FROM @body b
LEFT JOIN (SELECT body, CAST(sum(length(data)) AS bigint) AS size FROM @piece GROUP BY body) p
  ON p.body = b.id
WHERE b.digest IS NOT NULL AND b.size <> coalesce(p.size, 0) ORDER BY b.digest
"""

Decode = Callable[[Sequence[Row]], list[TakenRecording]]


async def names(session: Session) -> list[str]:
    """The names of all cassettes, sorted."""
    sql = "SELECT name FROM @cassette WHERE name IS NOT NULL ORDER BY name"
    return [name for (name,) in (await session.rows(sql))]


async def outline(name: str, place: str, session: Session) -> Outline | None:
    """A cassette without its recordings."""
    outline_rows = await session.rows(_OUTLINE, name)
    if not outline_rows:
        return None
    created_at, run_id, meta, *_ = outline_rows[0]
    counted = [source[3:] for source in outline_rows if source[-1]]
    sources = [(r.decode(), base.decode()) for exchange, r, base, _ in counted if exchange]
    head = columns.head_of(created_at.decode(), run_id.decode(), meta, place)
    return Outline(head, sum([count for *_, count in counted]), frozenset(sources))


async def stat(name: str, session: Session) -> CassetteStat | None:
    """A cassette's size, time of change and version."""
    stat_row = await session.row(_STAT, name)
    if stat_row is None:
        return None
    changed, last, size, version = stat_row
    at = datetime.fromtimestamp(max(changed, last or 0), UTC)
    return CassetteStat(size, at.isoformat(timespec="microseconds"), version)


async def load(name: str, place: str, decode: Decode, session: Session) -> StoredCassette | None:
    """A whole cassette, as of one moment where the transaction is."""
    if (outlined := await outline(name, place, session)) is None:
        return None
    items = []
    at, index = -1, -1
    while page := (await session.rows(_PAGE, name, at, index, ROWS_AT_ONCE)):
        items += [recording.item for recording in (await asyncio.to_thread(partial(decode, page)))]
        at, index = page[-1][0], page[-1][1]
    return StoredCassette(outlined.head, tuple(items))


async def documents(name: str, wanted: Sequence[int], session: Session) -> Sequence[Row]:
    """The recordings with these numbers, in order."""
    return (await session.rows(_DOCUMENTS, name, numbers(wanted))) if wanted else []


async def page(name: str, after: int | None, limit: int, session: Session) -> Sequence[Row]:
    """The next recordings in order after index `after`, or the first. Raises CassetteEdited."""
    place, index = -1, -1
    if after is not None:
        last_row = await session.row(
            f"SELECT place FROM @interaction WHERE {_OF} AND number = $2",  # noqa: S608
            *(name, after),
        )
        if last_row is None:
            raise interaction_gone(name, after)
        place, index = last_row[0], after
    return await session.rows(_PAGE, name, place, index, limit)


async def near(name: str, method: str, path: str, limit: int, session: Session) -> Sequence[Row]:
    """The newest of a method and path, then the newest of others, as far as their bodies fit the budget."""
    wanted = method_path(columns.column_text(method), columns.column_text(path))
    sql = f"{_WEIGHTS} AND method_path {{}} $3 {_NEWEST}"
    weighed = [*(await session.rows(sql.format("="), name, limit, wanted))]
    if (missing := limit - len(weighed)) > 0:
        weighed += await session.rows(sql.format("<>"), name, missing, wanted)
    return await _within_budget(name, weighed, session)


async def neighbours(name: str, asked: SoughtRequest, session: Session) -> Sequence[Row]:
    """The recordings that may be nearest to a request, as `core.misses.neighbours` chooses them."""
    weighed: list[Row] = []
    for endpoint in asked.endpoints:
        sql = f"{_WEIGHTS} AND method_path = $3 {_NEWEST}"
        weighed += await session.rows(sql, name, MOST_NEWEST, method_path(*endpoint))
    weighed = sorted(weighed, key=itemgetter(0), reverse=True)[:MOST_NEWEST]
    if weighed:
        weighed = [*(await _beside(name, asked, session)), *weighed]
    else:
        weighed = await _similar(name, asked, session)
    return await _within_budget(name, weighed, session)


async def _beside(name: str, asked: SoughtRequest, session: Session) -> list[Row]:
    weighed: list[Row] = []
    for place in asked.places:
        for key, (behind, before) in zip(place, _BESIDE, strict=True):
            first, last = bounds(key)
            weighed += await session.rows(behind, name, key, last)
            weighed += await session.rows(before, name, key, first)
    return weighed


async def _similar(name: str, asked: SoughtRequest, session: Session) -> list[Row]:
    newest = await session.rows(_SEARCHED.format(_NEWEST), name, SEARCHED_PATHS)
    similar: list[Row] = [
        (number, weight)
        for number, weight, method, path in newest
        if asked.is_similar(MethodAndPath(method.decode(), path.decode()))
    ]
    return similar[:MOST_SIMILAR]


async def alike(name: str, key: bytes, session: Session) -> Sequence[Row]:
    """The newest recordings under a digest that recordings share which differ in identifiers."""
    return await _within_budget(name, (await session.rows(_ALIKE, name, key)), session)


async def issuers(name: str, keys: Sequence[bytes], session: Session) -> dict[bytes, Issuer]:
    """The first recordings whose answers issued identifiers, given as digests."""
    issuer_of = {
        bytes(key): number for key, number in (await session.rows(_ISSUERS, name, hexes(keys)))
    }
    if not issuer_of:
        return {}
    taken = await session.rows(_TAKES, name, numbers(sorted({*issuer_of.values()})))
    issuer_with = {index: Issuer(index, take) for index, take in taken}
    return {key: issuer_with[index] for key, index in issuer_of.items() if index in issuer_with}


async def _within_budget(name: str, weighed: Sequence[Row], session: Session) -> Sequence[Row]:
    """The first of some weighed recordings, as far as the bodies fit the budget, in order."""
    chosen = within_budget((number, weight) for number, weight in weighed)
    if not chosen:
        return []
    return await documents(name, chosen, session)


async def used(name: str, takes: Sequence[int], session: Session) -> frozenset[int]:
    """The recordings that any of some takes has used."""
    (row,) = await session.rows(_USED, name, numbers(takes))
    return frozenset(unpack(f">{len(row[0]) // 8}q", row[0]))


async def titles(name: str, wanted: Sequence[int], session: Session) -> list[RecordingTitle]:
    """The names of some recordings, in order."""
    return titles_of(await session.rows(_TITLES, name, numbers(wanted))) if wanted else []


async def check(session: Session) -> list[str]:
    """The damage found, one sentence each."""
    miscounted = await session.rows(_MISCOUNTED)
    unfindable = await session.rows(_UNFINDABLE)
    changed = await session.rows(_CHANGED)
    cut = await session.rows(_CUT)
    return [
        *[
            f"cassette '{name}' counts {counted} interactions and has {there}: save it anew"
            for name, counted, there in miscounted
        ],
        *[
            f"cassette '{name}', interaction {number}: its log lacks it"
            for name, number in unfindable
        ],
        *[
            f"cassette '{name}', interaction {number}: it is not what was recorded"
            for name, number in changed
        ],
        *[
            f"the large body sha256-{digest.hex()} has {there} of {size} bytes"
            for digest, size, there in cut
        ],
    ]
