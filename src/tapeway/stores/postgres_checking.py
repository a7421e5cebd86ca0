"""Whether the tables of a store agree with each other."""

from collections.abc import Sequence

from tapeway.stores.postgres_pool import Session

_MISCOUNTED = """
SELECT c.name, coalesce(t.count, 0) AS counted, coalesce(i.count, 0) AS there
FROM @cassette c
LEFT JOIN (SELECT cassette, sum(count)::bigint AS count FROM @tally GROUP BY cassette) t
  ON t.cassette = c.id
LEFT JOIN (SELECT cassette, count(*) AS count FROM @interaction GROUP BY cassette) i
  ON i.cassette = c.id
WHERE coalesce(t.count, 0) <> coalesce(i.count, 0) ORDER BY c.name
"""
_UNFINDABLE = """
SELECT c.name, i.index FROM @interaction i JOIN @cassette c ON c.id = i.cassette
WHERE i.http AND NOT EXISTS (
  SELECT 1 FROM @key k WHERE k.cassette = i.cassette AND k.index = i.index)
ORDER BY c.name, i.index
"""
_CHANGED = """
SELECT c.name, i.index FROM @interaction i JOIN @cassette c ON c.id = i.cassette
WHERE sha256(i.document) <> i.sha256 ORDER BY c.name, i.index
"""
_CUT = """
SELECT encode(b.digest, 'hex') AS digest, b.size,
  coalesce((SELECT sum(length(data)) FROM @piece p WHERE p.upload = b.upload), 0)::bigint AS there
FROM @body b WHERE b.size <> coalesce(
  (SELECT sum(length(data)) FROM @piece p WHERE p.upload = b.upload), 0)
ORDER BY b.digest
"""


async def check(session: Session) -> Sequence[str]:
    """What is wrong, a sentence each."""
    return [
        *[
            f"cassette '{line['name']}' counts {line['counted']} interactions and has "
            f"{line['there']}: save it anew"
            for line in await session.rows(_MISCOUNTED)
        ],
        *[
            f"cassette '{line['name']}', interaction {line['index']}: no key finds it"
            for line in await session.rows(_UNFINDABLE)
        ],
        *[
            f"cassette '{line['name']}', interaction {line['index']}: it is not what was recorded"
            for line in await session.rows(_CHANGED)
        ],
        *[
            f"the large body sha256-{line['digest']} has {line['there']} of {line['size']} bytes"
            for line in await session.rows(_CUT)
        ],
    ]
