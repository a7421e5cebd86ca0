"""Whether a SQLite file is whole: its pages, and what the tables say of each other."""

import hashlib
from collections.abc import Iterator, Sequence

import apsw

from tapeway.cooperative import Yielding
from tapeway.core.digests import sha256
from tapeway.core.model.interaction import AnyInteraction
from tapeway.errors import StoreError
from tapeway.stores.sqlite import recordings
from tapeway.stores.sqlite.connection import rows, snapshot
from tapeway.stores.support import columns

_ALL = """
SELECT c.name, c.meta, r.id, r.number, r.key, r.marks, r.size, d.text, d.sha256,
  (SELECT count(*) FROM uses u WHERE u.recording = r.id)
FROM cassettes c JOIN recordings r ON r.cassette = c.id LEFT JOIN documents d ON d.id = r.id
ORDER BY c.name, r.place, r.number, r.id
"""
_COUNTS = """
SELECT * FROM (
  SELECT name, (SELECT coalesce(sum(count), 0) FROM sources WHERE cassette = c.id) AS counted,
    (SELECT count(*) FROM recordings WHERE cassette = c.id) AS there FROM cassettes c)
WHERE counted <> there
"""
_BODIES = "SELECT id, digest, size FROM bodies WHERE digest IS NOT NULL"


def damage(connection: apsw.Connection, place: str) -> Sequence[str]:
    """The damage found, one sentence each: of the pages, and only where there is none, of the rows."""
    try:
        problems = [str(problem) for (problem,) in connection.execute("PRAGMA integrity_check")]
        if problems == ["ok"]:
            lost = connection.execute("PRAGMA foreign_key_check").fetchall()
            problems = [f"a row of '{table}' refers to what is gone" for table, *_ in lost]
        with snapshot(connection):
            problems = problems or list(_of_rows(connection))
    except apsw.CorruptError as exc:
        problems = [str(exc)]
    return [f"{place}: {problem}" for problem in problems]


def _of_rows(connection: apsw.Connection) -> Iterator[str]:
    step = Yielding().step
    for name, meta, _, number, key, marks, size, text, digest, uses in connection.execute(_ALL):
        shown = f"cassette '{name}', interaction {number}"
        if text is None or sha256(text).digest() != digest:
            yield f"{shown}: it is not what was recorded"
            continue
        try:
            item: AnyInteraction = columns.interaction_of(text, number, shown)
            row = recordings.row_of(item, text, columns.rules_of(meta))
        except StoreError as exc:
            yield exc.message
            continue
        if (row.key, row.marks, row.size, len(row.bodies)) != (key, marks, size, uses):
            yield f"{shown}: its row says something else than its document"
        step()
    for name, counted, there in rows(connection, _COUNTS):
        yield f"cassette '{name}' counts {counted} interactions and has {there}: save it anew"
    for id_, digest, size in rows(connection, _BODIES):
        found, length = hashlib.sha256(), 0
        for (data,) in connection.execute(
            "SELECT data FROM pieces WHERE body = ? ORDER BY number", (id_,)
        ):
            found.update(data)
            length += len(data)
            step()
        if (found.digest(), length) != (digest, size):
            yield f"the large body sha256-{digest.hex()} is not what was recorded"
