"""Large bodies in a SQLite file: in pieces, a copy per digest, as long as a recording refers to it.

A body is whole and durable before a recording refers to it. A body without a recording stays while
its cassette is in use, since it may be recorded next.
"""

from collections.abc import Collection, Iterator, Sequence

import apsw

from tapeway.stores.sqlite.connection import rows
from tapeway.stores.sqlite.recordings import Change
from tapeway.stores.support.large_bodies import PIECES_AT_ONCE, BodyUpload

_PIECES = """
SELECT p.number, p.data FROM pieces p JOIN bodies b ON b.id = p.body
WHERE b.digest = ? AND p.number >= ? ORDER BY p.number LIMIT ?
"""
_UNUSED = """
SELECT id, digest FROM bodies b WHERE NOT EXISTS (SELECT 1 FROM uses u WHERE u.body = b.id)
"""


def add_block(change: Change, upload: BodyUpload, block: Sequence[bytes]) -> None:
    """Write a block of a body; the first one begins the body."""
    execute = change.connection.execute
    if upload.id is None:
        upload.id = execute("INSERT INTO bodies (size) VALUES (0) RETURNING id").get
    pieces = [(upload.id, number, piece) for number, piece in enumerate(block, upload.count)]
    change.connection.executemany("INSERT INTO pieces VALUES (?, ?, ?)", pieces)
    upload.count += len(block)


def finish(change: Change, upload: BodyUpload) -> None:
    """Give a body its digest, in place of an equal one, which may be damaged."""
    execute, whole = change.connection.execute, (upload.digest, upload.size, upload.id)
    for (before,) in rows(
        change.connection, "SELECT id FROM bodies WHERE digest = ?", (upload.digest,)
    ):
        execute("UPDATE uses SET body = ? WHERE body = ?", (upload.id, before))
        remove(change, before)
    execute("UPDATE bodies SET digest = ?, size = ? WHERE id = ?", whole)


def remove(change: Change, body: int) -> None:
    """Remove a body that no recording refers to."""
    change.note_removal()
    change.connection.execute("DELETE FROM pieces WHERE body = ?", (body,))
    change.connection.execute("DELETE FROM bodies WHERE id = ?", (body,))


def unused(
    connection: apsw.Connection, spared: Collection[bytes], under_way: Collection[int]
) -> list[int]:
    """The bodies that nothing refers to, without those of some digests and those being written."""
    return [
        id_
        for id_, digest in rows(connection, _UNUSED)
        if digest not in spared and id_ not in under_way
    ]


def pieces_of(connection: apsw.Connection, digest: str) -> Iterator[bytes]:
    """The pieces of a body in order, nothing where it is gone."""
    number = 0
    while block := rows(connection, _PIECES, (bytes.fromhex(digest), number, PIECES_AT_ONCE)):
        yield from [data for _, data in block]
        number = block[-1][0] + 1
