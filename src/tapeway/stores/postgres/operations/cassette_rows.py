"""The row of a cassette: found and locked by its name, or made."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from tapeway.core.model.cassette import CassetteHead
from tapeway.stores.postgres.operations import rows
from tapeway.stores.postgres.pool import DriverRow as Row
from tapeway.stores.postgres.pool import Session

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
WRITES, CHANGES = "FOR NO KEY UPDATE", "FOR UPDATE"
"""Who adds, removes or edits recordings locks the row; who changes the cassette also keeps out those
who refer to it.
"""

_LOCKED = {lock: f"{_SELECT} {lock}" for lock in (WRITES, CHANGES)}
CASSETTE_VERSION = """
SELECT c.token || '.' || c.revision FROM @cassette c WHERE c.name = {}
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


async def cassette(name: str, lock: str, session: Session) -> CassetteRow | None:
    """A cassette, locked until the transaction ends: with `WRITES` or `CHANGES`."""
    columns = await session.row(_LOCKED[lock], name)
    return None if columns is None else CassetteRow(*columns)


async def cassette_or_new(name: str, head: CassetteHead, session: Session) -> CassetteRow:
    """A cassette, locked to be written to; created if there is none."""
    while (cassette_row := await cassette(name, WRITES, session)) is None:
        await lock_name(name, session)
        await insert(name, head, session)
    return cassette_row


async def insert(name: str | None, head: CassetteHead, session: Session) -> Sequence[Row]:
    """Add an empty cassette; returns the id, or nothing if the name exists."""
    values = (name, new_token(), *rows.head_values(head), FIRST_GENERATION)
    return await session.rows(_INSERT, *values)


def new_token() -> str:
    """A token that no cassette has had."""
    return secrets.token_hex(8)


async def lock_name(name: str, session: Session) -> None:
    """Let nobody else give this name to a cassette until the end.

    A missing row proves nothing where transactions commit at the same time.
    """
    await session.rows("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", name)


async def version_of(name: str, session: Session) -> str | None:
    """What differs after every change of a cassette, None where there is none."""
    columns = await session.row(_VERSION, name)
    return None if columns is None else str(columns[0])
