"""How many recordings a cassette has and where they came from, counted with every change."""

import secrets
from collections import Counter

from tapeway.stores.postgres_pool import Session
from tapeway.stores.postgres_rows import Source

_SHARDS = 16

_ADD = """
INSERT INTO @tally AS tally (cassette, shard, http, route, base, count, bytes, changes, changed)
VALUES ($1, $2, $3, $4, $5, $6, $7, 1, clock_timestamp())
ON CONFLICT (cassette, shard, http, route, base) DO UPDATE SET
  count = tally.count + excluded.count, bytes = tally.bytes + excluded.bytes,
  changes = tally.changes + 1, changed = excluded.changed
"""


class Change:
    """What one transaction makes of the counts of a cassette."""

    def __init__(self) -> None:
        self._counts: Counter[Source] = Counter()
        self._bytes: Counter[Source] = Counter()

    def add(self, source: Source, size: int) -> None:
        self._counts[source] += 1
        self._bytes[source] += size

    def remove(self, source: Source, size: int) -> None:
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
                *(cassette, shard, source.http, source.route, source.base),
                *(self._counts[source], self._bytes[source]),
            )
