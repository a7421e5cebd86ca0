"""Queries on recordings, and the check whether the tables of a store agree with each other."""

from collections.abc import Sequence

from tapeway.core.model.cassette import RecordingTitle
from tapeway.errors import CassetteEdited
from tapeway.stores.postgres import rows
from tapeway.stores.postgres.pool import DriverRow, Session

NEAR_BYTES = 8 * 1024 * 1024
_OF_CASSETTE = "cassette = (SELECT id FROM @cassette WHERE name = $1)"
_IN_ORDER = "ORDER BY place, number"

# By arrays and not by a join: without statistics, as in a new database, that is planned as a scan
# of the whole cassette.
_FIND = f"""
{rows.SELECT_RECORDING} WHERE {_OF_CASSETTE} AND number = ANY(ARRAY(
  SELECT number FROM @key WHERE {_OF_CASSETTE} AND digest {rows.IN_HEX_ARRAY.format("$2")}))
{_IN_ORDER}
"""  # noqa: S608

_PAGE = f"""
{rows.SELECT_RECORDING} WHERE {_OF_CASSETTE} AND (place, number) > ($2, $3) {_IN_ORDER} LIMIT $4
"""
_WEIGHTS = f"SELECT number, weight FROM @interaction WHERE {_OF_CASSETTE} AND weight IS NOT NULL"  # noqa: S608
_NEWEST = "ORDER BY number DESC LIMIT $2"
_SOME = f"{rows.SELECT_RECORDING} WHERE {_OF_CASSETTE} AND number = ANY($2::text[]::bigint[]) {_IN_ORDER}"

_UNTOUCHED = f"""
FROM @interaction i WHERE {_OF_CASSETTE} AND exchange AND NOT EXISTS (
  SELECT 1 FROM @touched t WHERE t.name = $1 AND t.take = ANY($2::text[]::bigint[]) AND t.number = i.number)
"""  # noqa: S608
_UNUSED = f"SELECT number, method, path, query {_UNTOUCHED} {_IN_ORDER} LIMIT $3"

# A recording that was removed while a request replayed it may count as used until the take ends.
_UNUSED_COUNT = f"""
SELECT greatest(0,
  coalesce((SELECT sum(count) FROM @source WHERE exchange AND {_OF_CASSETTE}), 0) -
  coalesce((SELECT sum(count) FROM @used
    WHERE name = $1 AND take = ANY($2::text[]::bigint[])), 0))::bigint AS count
"""  # noqa: S608

_DUPLICATES = f"""
SELECT array_to_string(array_agg(number::text ORDER BY place, number), ' ') AS numbers
FROM @key k JOIN @interaction i USING (cassette, number)
WHERE {_OF_CASSETTE} AND exchange AND octet_length(k.digest) = 32 GROUP BY k.digest, i.route HAVING count(*) > 1
ORDER BY min(place), min(number) LIMIT $2
"""  # noqa: S608
_UNROUTED_PREFIXES = f"""
SELECT DISTINCT coalesce((
  SELECT prefix FROM unnest($3::text[]) WITH ORDINALITY AS given (prefix, rank)
  WHERE position(convert_to(prefix || '/', 'UTF8') IN path) = 1 ORDER BY rank LIMIT 1
), '') AS prefix FROM @interaction
WHERE {_OF_CASSETTE} AND exchange AND route = '' AND base = convert_to($2, 'UTF8')
"""  # noqa: S608
_TITLES = (
    f"{rows.SELECT_TITLE} WHERE {_OF_CASSETTE} AND number = ANY($2::text[]::bigint[]) {_IN_ORDER}"
)

_MISCOUNTED = """
SELECT c.name, coalesce(t.count, 0) AS counted, coalesce(i.count, 0) AS there
FROM @cassette c
LEFT JOIN (SELECT cassette, sum(count)::bigint AS count FROM @source GROUP BY cassette) t
  ON t.cassette = c.id
LEFT JOIN (SELECT cassette, count(*) AS count FROM @interaction GROUP BY cassette) i
  ON i.cassette = c.id
WHERE coalesce(t.count, 0) <> coalesce(i.count, 0) ORDER BY c.name
"""

_UNFINDABLE = """
SELECT c.name, i.number FROM @interaction i JOIN @cassette c ON c.id = i.cassette
WHERE i.exchange AND NOT EXISTS (
  SELECT 1 FROM @key k WHERE k.cassette = i.cassette AND k.number = i.number)
ORDER BY c.name, i.number
"""

_CHANGED = """
SELECT c.name, i.number FROM @interaction i JOIN @cassette c ON c.id = i.cassette
WHERE sha256(i.document) <> i.sha256 ORDER BY c.name, i.number
"""

_CUT = """
SELECT encode(b.digest, 'hex') AS digest, b.size,
  coalesce((SELECT sum(length(data)) FROM @piece p WHERE p.upload = b.upload), 0)::bigint AS there
FROM @body b WHERE b.size <> coalesce(
  (SELECT sum(length(data)) FROM @piece p WHERE p.upload = b.upload), 0)
ORDER BY b.digest
"""


async def load(session: Session, name: str) -> Sequence[DriverRow]:
    """All recordings, in order."""
    return await session.rows(f"{rows.SELECT_RECORDING} WHERE {_OF_CASSETTE} {_IN_ORDER}", name)


async def find(session: Session, name: str, keys: Sequence[bytes]) -> Sequence[DriverRow]:
    return await session.rows(_FIND, name, rows.hex_array(keys)) if keys else []


async def get(session: Session, name: str, index: int) -> Sequence[DriverRow]:
    return await session.rows(
        f"{rows.SELECT_RECORDING} WHERE {_OF_CASSETTE} AND number = $2", name, index
    )


async def page(session: Session, name: str, after: int | None, limit: int) -> Sequence[DriverRow]:
    """The next recordings after index `after`, or the first. Raises CassetteEdited."""
    place, index = -1, -1
    if after is not None:
        found = await session.row(
            f"SELECT place FROM @interaction WHERE {_OF_CASSETTE} AND number = $2",  # noqa: S608
            *(name, after),
        )
        if found is None:
            raise CassetteEdited(
                f"interaction {after} of cassette '{name}' is gone since it was read: read it again"
            )
        place, index = found["place"], after
    return await session.rows(_PAGE, name, place, index, limit)


async def near(
    session: Session, name: str, method: str, path: str, limit: int
) -> Sequence[DriverRow]:
    """The newest of a method and path, then the newest of others, up to NEAR_BYTES."""
    wanted = rows.method_path(method, path)
    weighed = await session.rows(f"{_WEIGHTS} AND method_path = $3 {_NEWEST}", name, limit, wanted)
    if (missing := limit - len(weighed)) > 0:
        others = f"{_WEIGHTS} AND method_path <> $3 {_NEWEST}"
        weighed = [*weighed, *await session.rows(others, name, missing, wanted)]
    left, chosen = NEAR_BYTES, []
    for row in weighed:
        if row["weight"] <= left:
            left -= row["weight"]
            chosen.append(str(row["number"]))
    return await session.rows(_SOME, name, chosen) if chosen else []


async def unused(
    session: Session, name: str, takes: Sequence[int], limit: int
) -> Sequence[RecordingTitle]:
    return rows.titles_of(await session.rows(_UNUSED, name, list(map(str, takes)), limit))


async def unused_count(session: Session, name: str, takes: Sequence[int]) -> int:
    found = await session.row(_UNUSED_COUNT, name, list(map(str, takes)))
    return 0 if found is None else found["count"]


async def duplicates(session: Session, name: str, limit: int) -> Sequence[Sequence[RecordingTitle]]:
    groups = await session.rows(_DUPLICATES, name, limit)
    indexes = [row["numbers"].split(" ") for row in groups]
    return [rows.titles_of(await session.rows(_TITLES, name, each)) for each in indexes]


async def unrouted_prefixes(
    session: Session, name: str, base: str, prefixes: Sequence[str]
) -> Sequence[str]:
    found = await session.rows(_UNROUTED_PREFIXES, name, base, list(prefixes))
    return [row["prefix"] for row in found]


async def check(session: Session) -> Sequence[str]:
    """The damage found, one sentence each."""
    return [
        *[
            f"cassette '{row['name']}' counts {row['counted']} interactions and has "
            f"{row['there']}: save it anew"
            for row in await session.rows(_MISCOUNTED)
        ],
        *[
            f"cassette '{row['name']}', interaction {row['number']}: no key finds it"
            for row in await session.rows(_UNFINDABLE)
        ],
        *[
            f"cassette '{row['name']}', interaction {row['number']}: it is not what was recorded"
            for row in await session.rows(_CHANGED)
        ],
        *[
            f"the large body sha256-{row['digest']} has {row['there']} of {row['size']} bytes"
            for row in await session.rows(_CUT)
        ],
    ]
