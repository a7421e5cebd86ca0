"""Large bodies in a SQLite store: in pieces, by digest, each once however many recordings have it.

A body is whole and durable before a recording refers to it. One that nothing refers to stays for
some minutes: somebody may be about to record it, or be reading it just now.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial

import apsw

from tapeway.body_files import PIECE, Temporary
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import BodyFile
from tapeway.errors import CassetteCorrupt, StoreError
from tapeway.stores.sqlite.connection import store_error
from tapeway.stores.sqlite.transaction import SPARED_S, WriteTransaction

Write = Callable[[Callable[[WriteTransaction], object]], object]
"""Carries out a transaction, and waits for it."""

_TOGETHER = 16
_AT_HAND = 256 * 1024 * 1024
_DEED = "read a large body"
_OF_CASSETTE = """
SELECT size FROM body WHERE digest = ? AND EXISTS (
    SELECT 1 FROM usage u JOIN interaction i ON i.id = u.interaction
    WHERE u.body = body.id AND i.cassette = (SELECT id FROM cassette WHERE name = ?))
"""


def keep(write: Write, pieces: Iterable[bytes]) -> BodyFile:
    """A body, durable on return, written bit by bit between the recordings of others.

    Raises StoreError, and whatever `pieces` raises; then nothing of it is kept.
    """
    draft = _SqliteDraft(write)
    digest = hashlib.sha256()
    try:
        for block in _blocks(pieces):
            for piece in block:
                digest.update(piece)
            write(partial(draft.add, block))
        write(partial(draft.finish, digest.hexdigest()))
    except BaseException:
        # Where there is no room to do so now, it is swept later.
        with suppress(StoreError):
            write(draft.discard)
        raise
    return BodyFile("", draft.size, digest.hexdigest())


def sweep(pen: WriteTransaction, spared_s: int = SPARED_S) -> bool:
    """Remove a part of what nothing has referred to for long; whether there may be more."""
    connection = pen.connection
    found = connection.execute(
        "SELECT id FROM body WHERE idle_since < ? LIMIT 1", (pen.seconds - spared_s,)
    ).get
    if found is None:
        return False
    connection.execute(
        "DELETE FROM piece WHERE rowid IN (SELECT rowid FROM piece WHERE body = ? LIMIT ?)",
        (found, _TOGETHER),
    )
    if connection.changes() < _TOGETHER:
        connection.execute("DELETE FROM body WHERE id = ?", (found,))
    return True


class Library:
    """Hands out bodies as files, those lately asked for without reading them again."""

    def __init__(
        self, place: str, connect: Callable[[], apsw.Connection], scratch: Callable[[], str | None]
    ) -> None:
        self._place = place
        self._connect = connect
        self._scratch = scratch
        self._guard = threading.Lock()
        self._at_hand: OrderedDict[str, tuple[Temporary, int]] = OrderedDict()

    def lend(self, item: AnyInteraction) -> AnyInteraction:
        """The interaction with its large bodies within reach."""
        if not isinstance(item, Interaction):
            return item
        request, response = item.request, item.response
        if request.file is not None:
            request = replace(request, file=self._lent(request.file))
        if response.file is not None:
            response = replace(response, file=self._lent(response.file))
        if request is item.request and response is item.response:
            return item
        return replace(item, request=request, response=response)

    def fetch(self, digest: str) -> Temporary:
        """A body's file. Raises CassetteCorrupt where it is gone, StoreError."""
        with self._guard:
            if (found := self._at_hand.get(digest)) is not None:
                self._at_hand.move_to_end(digest)
                return found[0]
        file, size = self._read(digest)
        with self._guard:
            self._at_hand[digest] = (file, size)
            while sum(each for _, each in self._at_hand.values()) > _AT_HAND:
                self._at_hand.popitem(last=False)
        return file

    def find(self, name: str, digest: str, connection: apsw.Connection) -> BodyFile | None:
        """A body that a recording of this cassette refers to."""
        size = connection.execute(_OF_CASSETTE, (digest, name)).get
        return None if size is None else self._lent(BodyFile("", size, digest))

    def close(self) -> None:
        """Let go of what is at hand."""
        with self._guard:
            self._at_hand.clear()

    def _lent(self, file: BodyFile) -> BodyFile:
        return replace(file, hold=SqliteBodyFile(self, file.digest))

    def _read(self, digest: str) -> tuple[Temporary, int]:
        file, size = Temporary(self._scratch()), 0
        try:
            with closing(self._connect()) as connection:
                for (data,) in connection.execute(
                    "SELECT data FROM piece JOIN body ON body.id = piece.body "
                    "WHERE digest = ? ORDER BY number",
                    (digest,),
                ):
                    file.write(data)
                    size += len(data)
        except apsw.Error as exc:
            raise store_error(exc, self._place, _DEED) from exc
        if not size:
            raise CassetteCorrupt(
                f"{self._place}: the large body {digest} is gone, its recording was removed or "
                "replaced meanwhile"
            )
        return file, size


class SqliteBodyFile(Temporary):
    """A body that is read from its store when it is opened."""

    def __init__(self, library: Library, digest: str) -> None:
        self._library = library
        self._digest = digest

    def open(self) -> int:
        return self._library.fetch(self._digest).open()


@dataclass
class _SqliteDraft:
    """A body on its way in, in its own row."""

    write: Write
    id: int | None = None
    size: int = 0
    count: int = 0

    def add(self, block: list[bytes], pen: WriteTransaction) -> None:
        connection, count, size = pen.connection, self.count, self.size
        size += sum(map(len, block))
        id_ = connection.execute(
            "INSERT INTO body (id, size, idle_since) VALUES (?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET size = excluded.size, idle_since = excluded.idle_since "
            "RETURNING id",
            (self.id, size, pen.seconds),
        ).get
        for number, piece in enumerate(block, count):
            connection.execute("INSERT INTO piece VALUES (?, ?, ?)", (id_, number, piece))
        self.id, self.size, self.count = id_, size, count + len(block)

    def finish(self, digest: str, pen: WriteTransaction) -> None:
        connection = pen.connection
        there = connection.execute(
            "UPDATE body SET idle_since = CASE WHEN idle_since IS NULL THEN NULL ELSE ? END "
            "WHERE digest = ? RETURNING id",
            (pen.seconds, digest),
        ).get
        if there is not None:
            self.discard(pen)
        elif self.id is None:
            connection.execute(
                "INSERT INTO body (digest, size, idle_since) VALUES (?, 0, ?)",
                (digest, pen.seconds),
            )
        else:
            connection.execute("UPDATE body SET digest = ? WHERE id = ?", (digest, self.id))

    def discard(self, pen: WriteTransaction) -> None:
        pen.connection.execute("DELETE FROM piece WHERE body = ?", (self.id,))
        pen.connection.execute("DELETE FROM body WHERE id = ? AND digest IS NULL", (self.id,))


def _blocks(pieces: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The same bytes in pieces of one size, some at once."""
    waiting, block = bytearray(), list[bytes]()
    for piece in pieces:
        waiting += piece
        while len(waiting) >= PIECE:
            block.append(bytes(waiting[:PIECE]))
            del waiting[:PIECE]
            if len(block) == _TOGETHER:
                yield block
                block = []
    if waiting:
        block.append(bytes(waiting))
    if block:
        yield block
