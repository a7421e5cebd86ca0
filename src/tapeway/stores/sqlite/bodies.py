"""Large bodies in a SQLite file: in pieces, a copy per digest, as long as a recording refers to it.

A body is whole and durable before a recording refers to it. A body without a recording stays while
its cassette is in use, since it may be recorded next.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

import apsw

from tapeway.stores.sqlite.connection import rows
from tapeway.stores.sqlite.recordings import Change
from tapeway.stores.support.large_bodies import equal_pieces

PIECES_AT_ONCE = 8
"""2 MiB: recordings wait meanwhile."""

_PIECES = """
SELECT p.number, p.data FROM pieces p JOIN bodies b ON b.id = p.body
WHERE b.digest = ? AND p.number >= ? ORDER BY p.number LIMIT ?
"""
_UNUSED = """
SELECT id, digest FROM bodies b WHERE NOT EXISTS (SELECT 1 FROM uses u WHERE u.body = b.id)
"""


class BodyUpload:
    """A body on its way into the file."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._source = equal_pieces(pieces)
        self._digest = hashlib.sha256()
        self.id: int | None = None
        self.size = self.count = 0

    def take(self) -> list[bytes]:
        """The next block; empty after the last one. Raises what the source raises."""
        block = list(islice(self._source, PIECES_AT_ONCE))
        for piece in block:
            self._digest.update(piece)
            self.size += len(piece)
        return block

    @property
    def digest(self) -> bytes:
        return self._digest.digest()

    def add(self, change: Change, block: Sequence[bytes]) -> None:
        """Write a block; the first one begins the body."""
        execute = change.connection.execute
        if self.id is None:
            self.id = execute("INSERT INTO bodies (size) VALUES (0) RETURNING id").get
        pieces = [(self.id, number, piece) for number, piece in enumerate(block, self.count)]
        change.connection.executemany("INSERT INTO pieces VALUES (?, ?, ?)", pieces)
        self.count += len(block)

    def finish(self, change: Change) -> None:
        """Give the body its digest, in place of an equal one, which may be damaged."""
        execute, id_ = change.connection.execute, self.id
        for (before,) in rows(
            change.connection, "SELECT id FROM bodies WHERE digest = ?", (self.digest,)
        ):
            execute("UPDATE uses SET body = ? WHERE body = ?", (id_, before))
            remove(change, before)
        execute(
            "UPDATE bodies SET digest = ?, size = ? WHERE id = ?", (self.digest, self.size, id_)
        )


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
