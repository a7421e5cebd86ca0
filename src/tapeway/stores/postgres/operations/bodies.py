"""Large bodies in a PostgreSQL store: in pieces, a copy per digest, read at opening.

A body is whole and durable before a recording refers to it. A body without a recording stays for a
while, since the writer may be about to record. A body whose last recording was removed goes with
the next sweep.
"""

from collections.abc import Sequence

from tapeway.stores.postgres.operations.cassette_rows import lock_name
from tapeway.stores.postgres.pool import DriverRow as Row
from tapeway.stores.postgres.pool import Session
from tapeway.stores.support.large_bodies import PIECES_AT_ONCE

_BEGIN = "INSERT INTO @body (size, idle_since) VALUES ($1, :now) RETURNING id"
_GO_ON = "UPDATE @body SET size = $2, idle_since = :now WHERE id = $1"
_PIECE = """
INSERT INTO @piece (body, number, data) VALUES ($1, $2, $3) ON CONFLICT (body, number) DO NOTHING
"""
_OF_CASSETTE = """
SELECT b.size FROM @body b WHERE b.digest = $1 AND EXISTS (
  SELECT 1 FROM @usage u JOIN @cassette c ON c.id = u.cassette WHERE u.body = b.id AND c.name = $2)
"""
_PIECES = """
SELECT p.number, p.data FROM @piece p JOIN @body b ON b.id = p.body
WHERE b.digest = $1 AND p.number >= $2 ORDER BY p.number LIMIT $3
"""
_REMOVE_PIECES = """
DELETE FROM @piece WHERE body = $1
AND number = ANY(ARRAY (SELECT number FROM @piece WHERE body = $1 ORDER BY number LIMIT $2))
"""
_IDLE = """
SELECT id FROM @body AS body WHERE idle_since < :now - $1
AND NOT EXISTS (SELECT 1 FROM @usage u WHERE u.body = body.id) ORDER BY idle_since, id LIMIT 1 FOR UPDATE
"""
# Checked again after the lock: a recording may use the body by now.
_ADRIFT = """
UPDATE @body AS body SET digest = NULL WHERE id = $1
AND NOT EXISTS (SELECT 1 FROM @usage u WHERE u.body = body.id)
"""


async def add_block(
    body: int | None, first: int, block: Sequence[bytes], size: int, session: Session
) -> int:
    """Add pieces to a body, which begins with the first; its id."""
    if body is None:
        row_of_body = await session.row(_BEGIN, size)
        assert row_of_body is not None  # noqa: S101 - an insert returns its row
        body = int(row_of_body[0])
    else:
        await session.run(_GO_ON, body, size)
    await session.each(_PIECE, [(body, number, piece) for number, piece in enumerate(block, first)])
    return body


async def finish(body: int, digest: bytes, session: Session) -> int | None:
    """Give a body its digest. Returns the id of an earlier equal body, to be removed.

    The earlier body may be damaged, which only a read would show: the new body replaces the earlier
    body.
    """
    await lock_name(digest.hex(), session)
    before = await session.row(
        "UPDATE @body SET digest = NULL, idle_since = 0 WHERE digest = $1 AND id <> $2 RETURNING id",
        *(digest, body),
    )
    await session.run("UPDATE @body SET digest = $2 WHERE id = $1", body, digest)
    if before is None:
        return None
    await session.run("UPDATE @usage SET body = $2 WHERE body = $1", before[0], body)
    return int(before[0])


async def remove_block(body: int, session: Session) -> bool:
    """Remove a block of a body, and in the end its row; whether there is more."""
    if (await session.run(_REMOVE_PIECES, body, PIECES_AT_ONCE)) == PIECES_AT_ONCE:
        return True
    await session.run("DELETE FROM @body WHERE id = $1", body)
    return False


async def sweep(grace_s: float, session: Session) -> bool:
    """Remove a block of a body that nothing has referred to for so long; whether there may be more."""
    if (idle := await session.row(_IDLE, grace_s)) is None:
        return False
    if await session.run(_ADRIFT, idle[0]):
        await remove_block(idle[0], session)
    return True


async def size_of(name: str, digest: str, session: Session) -> int | None:
    """The size of a body that a recording of this cassette refers to."""
    body_row = await session.row(_OF_CASSETTE, bytes.fromhex(digest), name)
    return None if body_row is None else int(body_row[0])


async def pieces_from(digest: str, first: int, session: Session) -> Sequence[Row]:
    """Some pieces of a body, by number."""
    return await session.rows(_PIECES, bytes.fromhex(digest), first, PIECES_AT_ONCE)
