"""One write transaction on the recordings, and how single ones are put in and taken out."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import apsw

from tapeway.core.cassette.index import index_keys
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import AnyInteraction, exchange_of
from tapeway.errors import CassetteCorrupt
from tapeway.paging import large_bodies
from tapeway.stores.shared.columns import head_text, numbered, row_of, rules_of
from tapeway.stores.sqlite.connection import immediate_transaction

SPARED_S = 600
"""How long something stays that nothing refers to: somebody may be about to."""

_SHELF = """
SELECT id, meta, generation, coming_meta, coming_generation, next, last_place
FROM cassette WHERE name = ?
"""
_INSERT = """
INSERT INTO interaction (cassette, number, place, take, exchange, route, base, method, path, query,
    weight, size, document)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING id
"""
_COUNT = """
UPDATE cassette SET count = count + ?, exchanges = exchanges + ?, size = size + ?,
    next = max(next, ?), last_place = max(last_place, ?), changed = ?, modified_at = ? WHERE id = ?
"""
_SOURCE = """
INSERT INTO source (cassette, route, base, count) VALUES (?, ?, ?, 1)
ON CONFLICT DO UPDATE SET count = count + 1
"""
_UNUSED_BODIES = """
UPDATE body SET idle_since = ? WHERE id IN (SELECT body FROM usage WHERE interaction = ?)
    AND NOT EXISTS (SELECT 1 FROM usage WHERE body = body.id AND interaction <> ?)
"""


@dataclass(frozen=True, slots=True)
class CassetteRow:
    """A cassette's row: what has to be known to put something into it."""

    id: int
    meta: str
    generation: int
    coming_meta: str | None
    coming_generation: int | None
    next: int
    last_place: int


@dataclass(frozen=True, slots=True)
class Position:
    """Where an interaction stands: its index, its place in the order, the take it was made in."""

    number: int
    place: int
    take: int


@dataclass(frozen=True, slots=True)
class WriteTransaction:
    """A transaction under way; `change` is its number among all there ever were."""

    connection: apsw.Connection
    place: str
    change: int
    at: datetime

    @property
    def seconds(self) -> int:
        """The time in whole seconds."""
        return int(self.at.timestamp())

    @property
    def written(self) -> str:
        """The time as a list of cassettes shows it."""
        return self.at.isoformat(timespec="microseconds")

    def written_before(self, seconds: int) -> str:
        """The time so many seconds ago, in the same form."""
        return (self.at - timedelta(seconds=seconds)).isoformat(timespec="microseconds")

    def shelf(self, name: str) -> CassetteRow | None:
        """A cassette."""
        found = self.connection.execute(_SHELF, (name,)).fetchone()
        return None if found is None else CassetteRow(*found)

    def new_shelf(self, name: str | None, head: CassetteHead) -> CassetteRow:
        """A cassette that was not there; without a name it is not to be seen yet."""
        meta = head_text(head)
        self.connection.execute(
            "INSERT INTO cassette (name, created_at, run_id, meta, changed, modified_at) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (name, head.created_at, head.run_id, meta, self.change, self.written),
        )
        return CassetteRow(self.connection.last_insert_rowid(), meta, 0, None, None, 0, 0)

    def put(self, shelf: CassetteRow, slot: Position, item: AnyInteraction, text: str) -> None:
        """An interaction in its slot, found under the cassette's rules and those to come."""
        row = row_of(item, text, rules_of(shelf.meta))
        inside = (shelf.id, slot.number, slot.place, slot.take, row.exchange)
        asked = (row.route, row.base, row.method, row.path, row.query)
        size = len(text) + sum([file.size for file in large_bodies(item)])
        values = (*inside, *asked, row.weight, size, text)
        id_ = self.connection.execute(_INSERT, values).get
        self._find_under(shelf.id, shelf.generation, row.keys, id_)
        if (exchange := exchange_of(item)) is not None:
            if shelf.coming_meta is not None and shelf.coming_generation is not None:
                coming = index_keys(exchange, rules_of(shelf.coming_meta))
                self._find_under(shelf.id, shelf.coming_generation, coming, id_)
            self.connection.execute(_SOURCE, (shelf.id, row.route, row.base))
        for digest in row.bodies:
            self._use(id_, digest)
        self._count(shelf.id, 1, row.exchange, size, slot)

    def take_out(self, shelf_id: int, number: int) -> Position | None:
        """Where an interaction stood that is gone now, or None where there was none."""
        found = self.connection.execute(
            "SELECT id, place, take, exchange, route, base, size FROM interaction "
            "WHERE cassette = ? AND number = ?",
            (shelf_id, number),
        ).fetchone()
        if found is None:
            return None
        id_, place, take, exchange, route, base, size = found
        self.leave_bodies(id_)
        self.connection.execute("DELETE FROM interaction WHERE id = ?", (id_,))
        if exchange:
            source = (shelf_id, route, base)
            self.connection.execute(
                "UPDATE source SET count = count - 1 WHERE cassette = ? AND route = ? AND base = ?",
                source,
            )
            self.connection.execute(
                "DELETE FROM source WHERE cassette = ? AND route = ? AND base = ? AND count = 0",
                source,
            )
        slot = Position(number, place, take)
        self._count(shelf_id, -1, -exchange, -size, slot)
        return slot

    def leave_bodies(self, id_: int) -> None:
        """Note that an interaction that goes refers to its bodies no more."""
        self.connection.execute(_UNUSED_BODIES, (self.seconds, id_, id_))

    def free_number(self, shelf: CassetteRow, wanted: int, text: str) -> tuple[int, str]:
        """The number asked for, or where it is taken the next free one, and the text with it."""
        taken = self.connection.execute(
            "SELECT 1 FROM interaction WHERE cassette = ? AND number = ?", (shelf.id, wanted)
        ).fetchone()
        if taken is None:
            return wanted, text
        return shelf.next, numbered(text, shelf.next)

    def touch(self, shelf_id: int) -> None:
        """Note that a cassette was changed."""
        self.connection.execute(
            "UPDATE cassette SET changed = ?, modified_at = ? WHERE id = ?",
            (self.change, self.written, shelf_id),
        )

    def _find_under(
        self, shelf_id: int, generation: int, keys: tuple[bytes, ...], id_: int
    ) -> None:
        for each in keys:
            self.connection.execute(
                "INSERT OR IGNORE INTO key VALUES (?, ?, ?, ?)", (shelf_id, generation, each, id_)
            )

    def _use(self, id_: int, digest: str) -> None:
        body = self.connection.execute(
            "UPDATE body SET idle_since = NULL WHERE digest = ? RETURNING id", (digest,)
        ).get
        if body is None:
            raise CassetteCorrupt(
                f"{self.place} does not hold the large body {digest} that the recording refers to; "
                "nothing was recorded"
            )
        self.connection.execute("INSERT OR IGNORE INTO usage VALUES (?, ?)", (id_, body))

    def _count(self, shelf_id: int, count: int, exchanges: int, size: int, slot: Position) -> None:
        behind = (slot.number + 1, slot.place, self.change, self.written, shelf_id)
        self.connection.execute(_COUNT, (count, exchanges, size, *behind))


@contextmanager
def writing(connection: apsw.Connection, place: str) -> Iterator[WriteTransaction]:
    """A transaction; durable when this ends without an exception, and else nothing of it."""
    with immediate_transaction(connection):
        change = connection.execute("UPDATE state SET changes = changes + 1 RETURNING changes").get
        yield WriteTransaction(connection, place, change, datetime.now(UTC))
