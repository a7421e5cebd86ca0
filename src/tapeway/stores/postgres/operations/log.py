"""The log of a cassette: what an index in memory follows, without the documents.

Revisions are dense, and become visible in order: whoever raises the revision of a cassette holds the
cassette's row until the commit. So a reader that has seen a revision misses nothing before it.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from tapeway.errors import CassetteCorrupt
from tapeway.stores.postgres.pool import Session

PAGE = 1000
"""Rows of the log that are read at once: some milliseconds for whoever waits for the event loop."""

_SINCE = """
SELECT c.token, c.revision, l.revision, l.number, l.place, l.take, l.key, l.marks, l.live
FROM @cassette c LEFT JOIN @log l ON l.cassette = c.id AND l.revision > $2
WHERE c.name = $1 ORDER BY l.revision LIMIT $3
"""


class LogRow(NamedTuple):
    """A change of one recording."""

    revision: int
    number: int
    place: int
    take: int
    key: bytes | None
    marks: int
    live: bool
    """False where the recording was removed, now or by a later row."""


class LogPage(NamedTuple):
    """The rows after a revision."""

    token: str
    """Another one means that the rows do not tell what happened: the index is loaded anew."""
    revision: int
    """The last one of the cassette."""
    rows: Sequence[LogRow]

    @property
    def seen(self) -> int:
        """The revision that a reader of these rows has seen."""
        return self.rows[-1].revision if len(self.rows) == PAGE else self.revision


async def since(name: str, seen: int, session: Session) -> LogPage | None:
    """The first rows after a revision, None where there is no cassette. Raises CassetteCorrupt."""
    found = await session.rows(_SINCE, name, seen, PAGE)
    if not found:
        return None
    token, revision = found[0][0], found[0][1]
    entries = [LogRow(*row[2:]) for row in map(tuple, found) if row[2] is not None]
    page = LogPage(token, revision, entries)
    check_dense(name, seen, page)
    return page


def check_dense(name: str, seen: int, page: LogPage) -> None:
    """Raise CassetteCorrupt where a row is missing."""
    revisions = [seen, *[row.revision for row in page.rows], page.seen]
    if any(after - before > 1 for before, after in pairwise(revisions)):
        raise CassetteCorrupt(
            f"cassette '{name}': its log lacks rows after revision {seen}: save the cassette anew"
        )
