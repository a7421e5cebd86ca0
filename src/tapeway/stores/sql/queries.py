"""Queries on recordings, and the check whether the tables of a store agree with each other."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter

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
from tapeway.core.model.control import CursorState
from tapeway.errors import interaction_gone
from tapeway.ports import FoundUnused, Issuer
from tapeway.stores.sql import cursors
from tapeway.stores.sql.cassette_rows import version_of
from tapeway.stores.sql.rows import RECORDING, TITLE, hexes, method_path, numbers, titles_of
from tapeway.stores.sql.statements import Op, Row, computed, quick_row, quick_rows, row, rows
from tapeway.stores.support import columns

ROWS_AT_ONCE = 256
_GROUP = 500
_OF = "cassette = (SELECT id FROM @cassette WHERE name = $1)"
_IN_FORCE = f"{_OF} AND generation = (SELECT generation FROM @cassette WHERE name = $1)"  # noqa: S608
_IN_ORDER = "ORDER BY place, number"
_FEW_IN_ORDER = "ORDER BY +place, +number"
"""For a few recordings found by index. Without the sums SQLite would walk through all places."""

# Only names of columns and tables are put in: no value of anybody's.
_SELECT = f"SELECT {RECORDING} FROM @interaction WHERE {_OF}"  # noqa: S608
_TITLES = f"SELECT {TITLE} FROM @interaction i WHERE {_OF}"  # noqa: S608

_OUTLINE = """
SELECT c.created_at, c.run_id, c.meta, s.exchange, s.route, s.base, CAST(sum(s.count) AS :int)
FROM @cassette c LEFT JOIN @source s ON s.cassette = c.id
WHERE c.name = $1 GROUP BY c.id, s.exchange, s.route, s.base
"""
_STAT = """
SELECT c.modified_at, max(s.modified_at), CAST(coalesce(sum(s.size), 0) AS :int),
  c.token || '.' || c.revision || '.' || coalesce(sum(s.changes), 0)
FROM @cassette c LEFT JOIN @source s ON s.cassette = c.id WHERE c.name = $1 GROUP BY c.id
"""
_GET = f"{_SELECT} AND number = $2"
# By lists and not by a join: without statistics, as in a new database, PostgreSQL plans that as a
# scan of the whole cassette.
_FIND = f"""
{_SELECT} AND number :any (SELECT number FROM @key WHERE {_IN_FORCE} AND digest :keys($2)):end
{_FEW_IN_ORDER}
"""  # noqa: S608
_ALIKE = f"""
SELECT number, weight FROM @interaction WHERE {_OF} AND weight IS NOT NULL AND number :any (
  SELECT number FROM @key WHERE {_IN_FORCE} AND digest = $2 ORDER BY number DESC LIMIT {MOST_ALIKE}
):end ORDER BY +number DESC
"""  # noqa: S608
_ISSUERS = f"""
SELECT digest, min(number) FROM @key WHERE {_IN_FORCE} AND digest :keys($2) GROUP BY digest
"""  # noqa: S608
_TAKES = f"SELECT number, take FROM @interaction WHERE {_OF} AND number :numbers($2)"  # noqa: S608
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
_UNUSED = f"""
{_TITLES} AND exchange AND NOT EXISTS (
  SELECT 1 FROM @touched t WHERE t.name = $1 AND t.take :numbers($2) AND t.number = i.number)
{_IN_ORDER} LIMIT $3
"""  # noqa: S608
# A recording that was removed while a request replayed it may count as used until the take ends.
UNUSED_COUNT = f"""
SELECT CAST(:greatest(0,
  coalesce((SELECT sum(count) FROM @source WHERE exchange AND {_OF}), 0) -
  coalesce((SELECT sum(count) FROM @used WHERE name = $1 AND take :numbers($2)), 0)) AS :int)
"""  # noqa: S608
_DUPLICATES = f"""
SELECT k.digest, i.route FROM @key k
JOIN @interaction i ON i.cassette = k.cassette AND i.number = k.number
WHERE k.{_OF} AND k.generation = (SELECT generation FROM @cassette WHERE name = $1)
AND i.exchange AND length(k.digest) = 32
GROUP BY k.digest, i.route HAVING count(*) > 1 ORDER BY min(i.place), min(i.number) LIMIT $2
"""  # noqa: S608
_SAME_KEY = f"""
{_TITLES} AND route = $3
AND number :any (SELECT number FROM @key WHERE {_IN_FORCE} AND digest = $2):end
{_FEW_IN_ORDER} LIMIT {_GROUP}
"""  # noqa: S608
_UNROUTED = f"""
SELECT DISTINCT {{}} FROM @interaction WHERE {_OF} AND exchange AND route = $2 AND base = $3
"""  # noqa: S608

_MISCOUNTED = """
SELECT c.name, coalesce(s.count, 0), coalesce(i.count, 0) FROM @cassette c
LEFT JOIN (SELECT cassette, CAST(sum(count) AS :int) AS count FROM @source GROUP BY cassette) s
  ON s.cassette = c.id
LEFT JOIN (SELECT cassette, count(*) AS count FROM @interaction GROUP BY cassette) i
  ON i.cassette = c.id
WHERE c.name IS NOT NULL AND coalesce(s.count, 0) <> coalesce(i.count, 0) ORDER BY c.name
"""
_UNFINDABLE = """
SELECT c.name, i.number FROM @interaction i JOIN @cassette c ON c.id = i.cassette
WHERE c.name IS NOT NULL AND i.exchange AND NOT EXISTS (
  SELECT 1 FROM @key k WHERE k.cassette = i.cassette AND k.generation = c.generation
  AND k.number = i.number)
ORDER BY c.name, i.number
"""
_CHANGED = """
SELECT c.name, i.number FROM @interaction i JOIN @cassette c ON c.id = i.cassette
WHERE c.name IS NOT NULL AND sha256(i.document) <> i.sha256 ORDER BY c.name, i.number
"""
_CUT = """
SELECT b.digest, b.size, coalesce(p.size, 0) FROM @body b
LEFT JOIN (SELECT body, CAST(sum(length(data)) AS :int) AS size FROM @piece GROUP BY body) p
  ON p.body = b.id
WHERE b.digest IS NOT NULL AND b.size <> coalesce(p.size, 0) ORDER BY b.digest
"""

Decode = Callable[[Sequence[Row]], list[TakenRecording]]


def names() -> Op[list[str]]:
    """The names of all cassettes, sorted."""
    sql = "SELECT name FROM @cassette WHERE name IS NOT NULL ORDER BY name"
    return [name for (name,) in (yield from rows(sql))]


def outline(name: str, place: str) -> Op[Outline | None]:
    """A cassette without its recordings."""
    outline_rows = yield from rows(_OUTLINE, name)
    if not outline_rows:
        return None
    created_at, run_id, meta, *_ = outline_rows[0]
    counted = [source[3:] for source in outline_rows if source[-1]]
    sources = [(r.decode(), base.decode()) for exchange, r, base, _ in counted if exchange]
    head = columns.head_of(created_at.decode(), run_id.decode(), meta, place)
    return Outline(head, sum([count for *_, count in counted]), frozenset(sources))


def stat(name: str) -> Op[CassetteStat | None]:
    """A cassette's size, time of change and version."""
    stat_row = yield from row(_STAT, name)
    if stat_row is None:
        return None
    changed, last, size, version = stat_row
    at = datetime.fromtimestamp(max(changed, last or 0), UTC)
    return CassetteStat(size, at.isoformat(timespec="microseconds"), version)


def load(name: str, place: str, decode: Decode) -> Op[StoredCassette | None]:
    """A whole cassette, as of one moment where the transaction is."""
    if (outlined := (yield from outline(name, place))) is None:
        return None
    items = []
    at, index = -1, -1
    while page := (yield from rows(_PAGE, name, at, index, ROWS_AT_ONCE)):
        items += [recording.item for recording in (yield from computed(partial(decode, page)))]
        at, index = page[-1][0], page[-1][1]
    return StoredCassette(outlined.head, tuple(items))


def find(name: str, keys: Sequence[bytes]) -> Op[Sequence[Row]]:
    """The recordings under any of these keys, in order."""
    return (yield from rows(_FIND, name, hexes(keys))) if keys else []


def look(
    name: str, take: int, keys: Sequence[bytes], digests: Sequence[bytes]
) -> Op[tuple[Mapping[bytes, CursorState], Sequence[Row], str | None]]:
    """Version, then cursors, then recordings: a recording made in between moved its cursor."""
    version = (yield from version_of(name)) if keys else None
    stored = yield from cursors.read(name, take, keys)
    return stored, (yield from find(name, digests)), version


def get(name: str, index: int) -> Op[Sequence[Row]]:
    return (yield from rows(_GET, name, index))


def page(name: str, after: int | None, limit: int) -> Op[Sequence[Row]]:
    """The next recordings in order after index `after`, or the first. Raises CassetteEdited."""
    place, index = -1, -1
    if after is not None:
        last_row = yield from row(
            f"SELECT place FROM @interaction WHERE {_OF} AND number = $2",  # noqa: S608
            *(name, after),
        )
        if last_row is None:
            raise interaction_gone(name, after)
        place, index = last_row[0], after
    return (yield from rows(_PAGE, name, place, index, limit))


def near(name: str, method: str, path: str, limit: int) -> Op[Sequence[Row]]:
    """The newest of a method and path, then the newest of others, as far as their bodies fit the budget."""
    wanted = method_path(columns.column_text(method), columns.column_text(path))
    sql = f"{_WEIGHTS} AND method_path {{}} $3 {_NEWEST}"
    weighed = [*(yield from rows(sql.format("="), name, limit, wanted))]
    if (missing := limit - len(weighed)) > 0:
        weighed += yield from rows(sql.format("<>"), name, missing, wanted)
    return (yield from _within_budget(name, weighed))


def neighbours(name: str, asked: SoughtRequest) -> Op[Sequence[Row]]:
    """The recordings that may be nearest to a request, as `core.misses.neighbours` chooses them."""
    weighed: list[Row] = []
    for endpoint in asked.endpoints:
        sql = f"{_WEIGHTS} AND method_path = $3 {_NEWEST}"
        weighed += yield from rows(sql, name, MOST_NEWEST, method_path(*endpoint))
    weighed = sorted(weighed, key=itemgetter(0), reverse=True)[:MOST_NEWEST]
    if weighed:
        weighed = [*(yield from _beside(name, asked)), *weighed]
    else:
        weighed = yield from _similar(name, asked)
    return (yield from _within_budget(name, weighed))


def _beside(name: str, asked: SoughtRequest) -> Op[list[Row]]:
    weighed: list[Row] = []
    for place in asked.places:
        for key, (behind, before) in zip(place, _BESIDE, strict=True):
            first, last = bounds(key)
            weighed += yield from rows(behind, name, key, last)
            weighed += yield from rows(before, name, key, first)
    return weighed


def _similar(name: str, asked: SoughtRequest) -> Op[list[Row]]:
    newest = yield from rows(_SEARCHED.format(_NEWEST), name, SEARCHED_PATHS)
    similar: list[Row] = [
        (number, weight)
        for number, weight, method, path in newest
        if asked.is_similar(MethodAndPath(method.decode(), path.decode()))
    ]
    return similar[:MOST_SIMILAR]


def alike(name: str, key: bytes) -> Op[Sequence[Row]]:
    """The newest recordings under a digest that recordings share which differ in identifiers."""
    return (yield from _within_budget(name, (yield from rows(_ALIKE, name, key))))


def issuers(name: str, keys: Sequence[bytes]) -> Op[dict[bytes, Issuer]]:
    """The first recordings whose answers issued identifiers, given as digests."""
    issuer_of = {
        bytes(key): number for key, number in (yield from rows(_ISSUERS, name, hexes(keys)))
    }
    if not issuer_of:
        return {}
    taken = yield from rows(_TAKES, name, numbers(sorted({*issuer_of.values()})))
    issuer_with = {index: Issuer(index, take) for index, take in taken}
    return {key: issuer_with[index] for key, index in issuer_of.items() if index in issuer_with}


def _within_budget(name: str, weighed: Sequence[Row]) -> Op[Sequence[Row]]:
    """The first of some weighed recordings, as far as the bodies fit the budget, in order."""
    chosen = within_budget((number, weight) for number, weight in weighed)
    if not chosen:
        return []
    sql = f"{_SELECT} AND number :numbers($2) {_FEW_IN_ORDER}"
    return (yield from rows(sql, name, numbers(chosen)))


def unused(name: str, takes: Sequence[int], limit: int) -> Op[FoundUnused]:
    """The exchanges that no given take has touched: their number, and the first few."""
    counted = yield from quick_row(UNUSED_COUNT, name, numbers(takes))
    count = 0 if counted is None else int(counted[0])
    if limit == 0:
        return FoundUnused(count, ())
    return FoundUnused(
        count, titles_of((yield from quick_rows(_UNUSED, name, numbers(takes), limit)))
    )


def duplicates(name: str, limit: int) -> Op[list[list[RecordingTitle]]]:
    """Groups of recordings with the same key and route."""
    groups = yield from rows(_DUPLICATES, name, limit)
    titles = []
    for digest, route in groups:
        titles.append(titles_of((yield from rows(_SAME_KEY, name, digest, route))))
    return titles


def unrouted_prefixes(name: str, base: str, prefixes: Sequence[str]) -> Op[list[str]]:
    """Under which path prefixes recordings without a route are."""
    given = [f"{prefix}/".encode() for prefix in prefixes]
    cases = " ".join(
        [
            f"WHEN substr(path, 1, {len(prefix)}) = ${at} THEN {at - 4}"
            for at, prefix in enumerate(given, 4)
        ]
    )
    column = f"CASE {cases} ELSE -1 END" if cases else "-1"
    positions = yield from rows(_UNROUTED.format(column), name, b"", base.encode(), *given)
    return [prefixes[at] if at >= 0 else "" for (at,) in positions]


def check() -> Op[list[str]]:
    """The damage found, one sentence each."""
    miscounted = yield from rows(_MISCOUNTED)
    unfindable = yield from rows(_UNFINDABLE)
    changed = yield from rows(_CHANGED)
    cut = yield from rows(_CUT)
    return [
        *[
            f"cassette '{name}' counts {counted} interactions and has {there}: save it anew"
            for name, counted, there in miscounted
        ],
        *[
            f"cassette '{name}', interaction {number}: no key finds it"
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
