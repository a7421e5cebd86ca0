"""Large bodies in a SQLite store: in pieces, one copy per digest.

A body is whole and durable before a recording refers to it. One that no recording has referred to
yet stays for some minutes, since its writer may be about to record it. One whose last recording was
removed goes with the next sweep.
"""

import hashlib
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Protocol, TypeVar

import apsw

from tapeway.body_files import TemporaryFile
from tapeway.core.model.interaction import AnyInteraction, replace_large_bodies
from tapeway.core.model.messages import BodyFile
from tapeway.errors import CassetteCorrupt, StoreError
from tapeway.stores.shared.large_bodies import (
    FetchedBody,
    TemporaryFileCache,
    damaged,
    equal_pieces,
)
from tapeway.stores.sqlite.connection import store_error
from tapeway.stores.sqlite.transaction import GRACE_S, WriteTransaction

T = TypeVar("T")


class Write(Protocol):
    """Runs work in a transaction, and waits for it."""

    def __call__(self, work: Callable[[WriteTransaction], T], /) -> T: ...


_PIECES_AT_ONCE = 16
_ACTION = "read a large body"
_IDLE = """
SELECT id FROM body WHERE idle_since < ?
AND NOT EXISTS (SELECT 1 FROM usage WHERE usage.body = body.id) LIMIT 1
"""
_OF_CASSETTE = """
SELECT size FROM body WHERE digest = ? AND EXISTS (
    SELECT 1 FROM usage u JOIN interaction i ON i.id = u.interaction
    WHERE u.body = body.id AND i.cassette = (SELECT id FROM cassette WHERE name = ?))
"""


def keep(write: Write, pieces: Iterable[bytes]) -> BodyFile:
    """A body, durable on return, written in blocks so that recordings go in between.

    Raises StoreError, and what `pieces` raises; then nothing of it stays.
    """
    draft = _SqliteDraft(write)
    digest = hashlib.sha256()
    try:
        source = equal_pieces(pieces)
        while block := list(islice(source, _PIECES_AT_ONCE)):
            for piece in block:
                digest.update(piece)
            write(partial(draft.add, block))
        before = write(partial(draft.finish, digest.hexdigest()))
        while before is not None and write(partial(_remove_block, before)):
            pass
    except BaseException:
        # On a full disk this fails; `sweep` removes it later.
        with suppress(StoreError):
            write(draft.discard)
        raise
    return BodyFile("", draft.size, digest.hexdigest())


def sweep(transaction: WriteTransaction, grace_s: int = GRACE_S) -> bool:
    """Remove a block of a long unreferenced body; whether there may be more."""
    connection = transaction.connection
    found = connection.execute(_IDLE, (transaction.seconds - grace_s,)).get
    if found is None:
        return False
    _remove_block(found, transaction)
    return True


def _remove_block(body: int, transaction: WriteTransaction) -> bool:
    """Remove a block of a body, and in the end its row; whether there is more."""
    transaction.note_removal()
    connection = transaction.connection
    connection.execute(
        "DELETE FROM piece WHERE rowid IN (SELECT rowid FROM piece WHERE body = ? LIMIT ?)",
        (body, _PIECES_AT_ONCE),
    )
    if connection.changes() == _PIECES_AT_ONCE:
        return True
    connection.execute("DELETE FROM body WHERE id = ?", (body,))
    return False


class BodyCache:
    """Bodies as temporary files; those read lately stay open."""

    def __init__(
        self, path: str, connect: Callable[[], apsw.Connection], scratch: Callable[[], str | None]
    ) -> None:
        self._path = path
        self._connect = connect
        self._scratch = scratch
        self._cached = TemporaryFileCache()

    def with_bodies(self, item: AnyInteraction) -> AnyInteraction:
        """The interaction with large bodies that are read when they are opened."""
        return replace_large_bodies(item, self.with_handle)

    def fetch(self, digest: str) -> TemporaryFile:
        """A body's file. Raises CassetteCorrupt where it is gone, StoreError."""
        if (found := self._cached.get(digest)) is not None:
            return found
        file, size = self._read(digest)
        self._cached.add(digest, file, size)
        return file

    def find(self, name: str, digest: str, connection: apsw.Connection) -> BodyFile | None:
        """A body that a recording of this cassette refers to."""
        size = connection.execute(_OF_CASSETTE, (digest, name)).get
        return None if size is None else self.with_handle(BodyFile("", size, digest))

    def close(self) -> None:
        """Drop all files."""
        self._cached.clear()

    def with_handle(self, file: BodyFile) -> BodyFile:
        """The body, to be read when it is opened."""
        return replace(file, handle=FetchedBody(partial(self.fetch, file.digest)))

    def _read(self, digest: str) -> tuple[TemporaryFile, int]:
        file, size, found = TemporaryFile(self._scratch()), 0, hashlib.sha256()
        try:
            with closing(self._connect()) as connection:
                for (data,) in connection.execute(
                    "SELECT data FROM piece JOIN body ON body.id = piece.body "
                    "WHERE digest = ? ORDER BY number",
                    (digest,),
                ):
                    file.write(data)
                    found.update(data)
                    size += len(data)
        except apsw.Error as exc:
            raise store_error(exc, self._path, _ACTION) from exc
        if not size:
            raise CassetteCorrupt(
                f"{self._path}: the large body {digest} is gone, its recording was removed or "
                "replaced meanwhile"
            )
        if found.hexdigest() != digest:
            raise damaged(self._path, digest)
        return file, size


@dataclass
class _SqliteDraft:
    """A body being written, in a row of its own without a digest."""

    write: Write
    id: int | None = None
    size: int = 0
    count: int = 0

    def add(self, block: list[bytes], transaction: WriteTransaction) -> None:
        connection, count, size = transaction.connection, self.count, self.size
        size += sum(map(len, block))
        id_ = connection.execute(
            "INSERT INTO body (id, size, idle_since) VALUES (?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET size = excluded.size, idle_since = excluded.idle_since "
            "RETURNING id",
            (self.id, size, transaction.seconds),
        ).get
        for number, piece in enumerate(block, count):
            connection.execute("INSERT INTO piece VALUES (?, ?, ?)", (id_, number, piece))
        self.id, self.size, self.count = id_, size, count + len(block)

    def finish(self, digest: str, transaction: WriteTransaction) -> int | None:
        """Give it its digest. Returns the row of an earlier body with this one, to be removed.

        That may be damaged, and only reading it would show it: this one is used in its place.
        """
        connection = transaction.connection
        if self.id is None:
            self.add([], transaction)
        before: int | None = connection.execute(
            "UPDATE body SET digest = NULL, idle_since = 0 WHERE digest = ? RETURNING id", (digest,)
        ).get
        connection.execute("UPDATE body SET digest = ? WHERE id = ?", (digest, self.id))
        if before is not None:
            moved = (self.id, before)
            connection.execute("UPDATE usage SET body = ? WHERE body = ?", moved)
        return before

    def discard(self, transaction: WriteTransaction) -> None:
        transaction.note_removal()
        transaction.connection.execute("DELETE FROM piece WHERE body = ?", (self.id,))
        transaction.connection.execute(
            "DELETE FROM body WHERE id = ? AND digest IS NULL", (self.id,)
        )
