"""A write transaction on the recordings: add and remove single ones, and keep the counts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import apsw

from tapeway.core.cassette.recording_keys import index_keys
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import AnyInteraction, exchange_of, large_bodies
from tapeway.errors import CassetteCorrupt
from tapeway.stores.shared.columns import columns_of, head_text, rules_of, text_with_index
from tapeway.stores.sqlite.connection import immediate_transaction

GRACE_S = 600
"""How long an unreferenced body or half-written cassette stays: its writer may still be at work."""

_CASSETTE = """
SELECT id, meta, generation, coming_meta, coming_generation, next FROM cassette WHERE name = ?
"""
_INSERT = """
INSERT INTO interaction (cassette, number, place, take, exchange, route, base, method, path, query,
    weight, size, document)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id
"""
_COUNT = """
UPDATE cassette SET count = count + ?, exchanges = exchanges + ?, size = size + ?,
    next = max(next, ?), changed = ?, modified_at = ? WHERE id = ?
"""
_SOURCE = """
INSERT INTO source (cassette, route, base, count) VALUES (?, ?, ?, 1)
ON CONFLICT DO UPDATE SET count = count + 1
"""
_UNUSED_BODIES = """
UPDATE body SET idle_since = coalesce(idle_since, 0)
    WHERE id IN (SELECT body FROM usage WHERE interaction = ?)
    AND NOT EXISTS (SELECT 1 FROM usage WHERE body = body.id AND interaction <> ?)
"""


@dataclass(frozen=True, slots=True)
class CassetteRow:
    """The columns of a cassette that a write needs."""

    id: int
    meta: str
    generation: int
    coming_meta: str | None
    coming_generation: int | None
    next: int


@dataclass(frozen=True, slots=True)
class Position:
    """An interaction's index (`number`), its place in the order, and the take it was recorded in."""

    number: int
    place: int
    take: int


@dataclass(frozen=True, slots=True)
class WriteTransaction:
    """An open transaction; `change` is its number among all there ever were."""

    connection: apsw.Connection
    path: str
    change: int
    at: datetime

    @property
    def seconds(self) -> int:
        """The time in whole seconds."""
        return int(self.at.timestamp())

    @property
    def timestamp(self) -> str:
        """The time in the form of `modified_at`."""
        return self.at.isoformat(timespec="microseconds")

    def timestamp_before(self, seconds: int) -> str:
        """The time so many seconds ago, in the same form."""
        return (self.at - timedelta(seconds=seconds)).isoformat(timespec="microseconds")

    def cassette(self, name: str) -> CassetteRow | None:
        found = self.connection.execute(_CASSETTE, (name,)).fetchone()
        return None if found is None else CassetteRow(*found)

    def add_cassette(self, name: str | None, head: CassetteHead) -> CassetteRow:
        """Add an empty cassette; one without a name is not visible yet."""
        meta = head_text(head)
        self.connection.execute(
            "INSERT INTO cassette (name, created_at, run_id, meta, changed, modified_at) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (name, head.created_at, head.run_id, meta, self.change, self.timestamp),
        )
        return CassetteRow(self.connection.last_insert_rowid(), meta, 0, None, None, 0)

    def put(
        self, cassette: CassetteRow, position: Position, item: AnyInteraction, text: str
    ) -> None:
        """Add an interaction with its keys, by the rules in force and by those being introduced."""
        columns = columns_of(item, text, rules_of(cassette.meta))
        placed = (cassette.id, position.number, position.place, position.take, columns.exchange)
        asked = (columns.route, columns.base, columns.method, columns.path, columns.query)
        size = len(text) + sum([file.size for file in large_bodies(item)])
        values = (*placed, *asked, columns.weight, size, text)
        id_ = self.connection.execute(_INSERT, values).get
        self._add_keys(cassette.id, cassette.generation, columns.keys, id_)
        if (exchange := exchange_of(item)) is not None:
            if cassette.coming_meta is not None and cassette.coming_generation is not None:
                coming = index_keys(exchange, rules_of(cassette.coming_meta))
                self._add_keys(cassette.id, cassette.coming_generation, coming, id_)
            self.connection.execute(_SOURCE, (cassette.id, columns.route, columns.base))
        for digest in columns.bodies:
            self._use(id_, digest)
        self._count(cassette.id, 1, columns.exchange, size, position)

    def remove(self, cassette_id: int, number: int) -> Position | None:
        """Remove an interaction; its position, None where there is none."""
        found = self.connection.execute(
            "SELECT id, place, take, exchange, route, base, size FROM interaction "
            "WHERE cassette = ? AND number = ?",
            (cassette_id, number),
        ).fetchone()
        if found is None:
            return None
        self.note_removal()
        id_, place, take, exchange, route, base, size = found
        self.release_bodies(id_)
        self.connection.execute("DELETE FROM interaction WHERE id = ?", (id_,))
        if exchange:
            source = (cassette_id, route, base)
            self.connection.execute(
                "UPDATE source SET count = count - 1 WHERE cassette = ? AND route = ? AND base = ?",
                source,
            )
            self.connection.execute(
                "DELETE FROM source WHERE cassette = ? AND route = ? AND base = ? AND count = 0",
                source,
            )
        position = Position(number, place, take)
        self._count(cassette_id, -1, -exchange, -size, position)
        return position

    def release_bodies(self, id_: int) -> None:
        """Mark the bodies as idle that only this interaction refers to.

        Each goes with the next sweep, unless somebody has just stored the same one for a recording.
        """
        self.connection.execute(_UNUSED_BODIES, (id_, id_))

    def note_removal(self) -> None:
        """Have the file wiped: something is removed from it that must not stay readable."""
        self.connection.execute("UPDATE state SET removed = ?", (self.change,))

    def free_number(self, cassette: CassetteRow, wanted: int, text: str) -> tuple[int, str]:
        """The wanted number, or the next free one if it is taken, and the document with that
        number.
        """
        taken = self.connection.execute(
            "SELECT 1 FROM interaction WHERE cassette = ? AND number = ?", (cassette.id, wanted)
        ).fetchone()
        if taken is None:
            return wanted, text
        return cassette.next, text_with_index(text, cassette.next)

    def touch(self, cassette_id: int) -> None:
        """Mark a cassette as changed."""
        self.connection.execute(
            "UPDATE cassette SET changed = ?, modified_at = ? WHERE id = ?",
            (self.change, self.timestamp, cassette_id),
        )

    def _add_keys(
        self, cassette_id: int, generation: int, keys: tuple[bytes, ...], id_: int
    ) -> None:
        for each in keys:
            self.connection.execute(
                "INSERT OR IGNORE INTO key VALUES (?, ?, ?, ?)",
                (cassette_id, generation, each, id_),
            )

    def _use(self, id_: int, digest: str) -> None:
        body = self.connection.execute(
            "UPDATE body SET idle_since = NULL WHERE digest = ? RETURNING id", (digest,)
        ).get
        if body is None:
            raise CassetteCorrupt(
                f"{self.path} does not hold the large body {digest} that the recording refers to; "
                "nothing was recorded"
            )
        self.connection.execute("INSERT OR IGNORE INTO usage VALUES (?, ?)", (id_, body))

    def _count(
        self, cassette_id: int, count: int, exchanges: int, size: int, position: Position
    ) -> None:
        rest = (position.number + 1, self.change, self.timestamp, cassette_id)
        self.connection.execute(_COUNT, (count, exchanges, size, *rest))


@contextmanager
def writing(connection: apsw.Connection, path: str) -> Iterator[WriteTransaction]:
    """A transaction: durable when this ends without an exception, else rolled back."""
    with immediate_transaction(connection):
        change = connection.execute("UPDATE state SET changes = changes + 1 RETURNING changes").get
        yield WriteTransaction(connection, path, change, datetime.now(UTC))
