"""The row of a cassette: found and locked by its name, or made."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from tapeway.core.model.cassette import CassetteHead
from tapeway.stores.sql import rows
from tapeway.stores.sql.statements import Op, Row, row
from tapeway.stores.sql.statements import rows as rows_of

FIRST_GENERATION = 1 << 20
"""The generation of a new cassette's keys.

Keys of generations below were computed by an earlier tapeway, for which the names of JSON-RPC's calls
counted: they are computed anew. Should keys be computed otherwise once more, this number grows.
"""

_INSERT = """
INSERT INTO @cassette (name, token, created_at, run_id, meta, modified_at, generation)
VALUES ($1, $2, $3, $4, $5, :now, $6) ON CONFLICT (name) DO NOTHING RETURNING id
"""
_SELECT = """
SELECT id, meta, generation, coming_meta, coming_generation FROM @cassette WHERE name = $1
"""
_LOCKED = {lock: f"{_SELECT} {lock}" for lock in (":share", ":lock")}
CASSETTE_VERSION = """
SELECT c.token || '.' || c.revision || '.'
  || coalesce((SELECT sum(s.changes) FROM @source s WHERE s.cassette = c.id), 0)
FROM @cassette c WHERE c.name = {}
"""
"""What differs after every change of a cassette."""

_VERSION = CASSETTE_VERSION.format("$1")


@dataclass(frozen=True, slots=True)
class CassetteRow:
    """The columns of a cassette that a change needs."""

    id: int
    meta: bytes
    generation: int = FIRST_GENERATION
    coming_meta: bytes | None = None
    coming_generation: int | None = None


def cassette(name: str, lock: str) -> Op[CassetteRow | None]:
    """A cassette, locked until the transaction ends.

    `:share` keeps other transactions from removing, renaming and re-indexing the cassette. `:lock`
    also keeps them from recording, once present recordings have ended.
    """
    columns = yield from row(_LOCKED[lock], name)
    return None if columns is None else CassetteRow(*columns)


def cassette_or_new(name: str, head: CassetteHead) -> Op[CassetteRow]:
    """A cassette with a `:share` lock; created if there is none."""
    while (cassette_row := (yield from cassette(name, ":share"))) is None:
        yield from lock_name(name)
        yield from insert(name, head)
    return cassette_row


def insert(name: str | None, head: CassetteHead) -> Op[Sequence[Row]]:
    """Add an empty cassette; returns the id, or nothing if the name exists."""
    values = (name, secrets.token_hex(8), *rows.head_values(head), FIRST_GENERATION)
    return (yield from rows_of(_INSERT, *values))


def lock_name(name: str) -> Op[None]:
    """Let nobody else give this name to a cassette until the end.

    A missing row proves nothing where transactions commit at the same time.
    """
    yield from rows_of(":lock_name", name)


def version_of(name: str) -> Op[str | None]:
    """What differs after every change of a cassette, None where there is none."""
    columns = yield from row(_VERSION, name)
    return None if columns is None else str(columns[0])
