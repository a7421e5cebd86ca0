"""The log of a cassette: what an index in memory follows, without the documents.

Revisions are dense, and become visible in order: whoever raises the revision of a cassette holds the
cassette's row until the commit. So a reader that has seen a revision misses nothing before it.
"""

from itertools import pairwise

from tapeway.core.model.cassette import LogPage, LogRow
from tapeway.errors import CassetteCorrupt
from tapeway.stores.postgres.pool import Session

PAGE = 1000
"""Rows of the log that are read at once: some milliseconds for whoever waits for the event loop."""

# The limit stands inside: outside, the server would sort all rows behind the revision for each page.
SINCE = """
SELECT c.token, c.revision, row.* FROM @cassette c LEFT JOIN LATERAL (
  SELECT l.revision, l.number, l.place, l.take, l.key, l.marks, l.live FROM @log l
  WHERE l.cassette = c.id AND l.revision > $2 ORDER BY l.revision LIMIT $3
) AS row ON true WHERE c.name = $1 ORDER BY row.revision
"""


async def since(name: str, seen: int, session: Session) -> LogPage | None:
    """The first rows after a revision, None where there is no cassette. Raises CassetteCorrupt."""
    found = await session.rows(SINCE, name, seen, PAGE)
    if not found:
        return None
    token, revision = found[0][0], found[0][1]
    entries = [LogRow(*row[2:]) for row in map(tuple, found) if row[2] is not None]
    page = LogPage(token, revision, entries)
    check_dense(name, seen, page)
    return page


def check_dense(name: str, seen: int, page: LogPage) -> None:
    """Raise CassetteCorrupt where a row is missing."""
    last = page.revision if len(page.rows) < PAGE else page.seen
    revisions = [seen, *[row.revision for row in page.rows], last]
    if any(after - before > 1 for before, after in pairwise(revisions)):
        raise CassetteCorrupt(
            f"cassette '{name}': its log lacks rows after revision {seen}: save the cassette anew"
        )
