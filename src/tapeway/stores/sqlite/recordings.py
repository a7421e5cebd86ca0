"""Reads and changes the cassettes of a SQLite file; a change runs in a transaction of the caller.

A recording's document never changes: what is edited becomes another recording. So a cassette that
was loaded can read its documents later, by their ids.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import apsw

from tapeway.cooperative import Yielding
from tapeway.core.digests import sha256
from tapeway.core.json_text import dump
from tapeway.core.matching.key import key_of_read, request_key
from tapeway.core.matching.rules import Rules
from tapeway.core.model.cassette import (
    NOT_READ,
    CassetteHead,
    CassetteStat,
    Outline,
    ReadBodies,
    StoredCassette,
    TakenRecording,
)
from tapeway.core.model.interaction import (
    AnyInteraction,
    Interaction,
    large_bodies,
    replace_large_bodies,
)
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.core.model.messages import BodyFile
from tapeway.errors import CassetteCorrupt, interaction_gone
from tapeway.stores.sqlite.connection import rows
from tapeway.stores.sqlite.resident import (
    StoredRecordings,
    refuse_changed,
)
from tapeway.stores.support import columns

_CASSETTE = "SELECT id, created_at, run_id, meta FROM cassettes WHERE name = ?"
_NEW_CASSETTE = """
INSERT INTO cassettes (name, created_at, run_id, meta, change, modified_at)
VALUES (?, ?, ?, ?, 0, 0) RETURNING id
"""
_STAT = """
SELECT f.id || '.' || c.change, c.modified_at, coalesce((
  SELECT sum(size) FROM sources WHERE cassette = c.id), 0)
FROM cassettes c, file f WHERE c.name = ?
"""
_SOURCE = """
INSERT INTO sources (cassette, exchange, route, base, count, size) VALUES (?, ?, ?, ?, 1, ?)
ON CONFLICT DO UPDATE SET count = count + 1, size = size + excluded.size RETURNING id
"""
_RECORDING = """
INSERT INTO recordings (cassette, source, number, place, key, marks, size)
VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id
"""
_IN_ORDER = "ORDER BY r.place, r.number, r.id"
_LOAD = f"""
SELECT r.id, r.number, r.key, r.marks FROM recordings r WHERE r.cassette = ? {_IN_ORDER}
"""  # noqa: S608
_DOCUMENTS = f"""
SELECT r.id, r.number, d.text, d.sha256 FROM recordings r JOIN documents d ON d.id = r.id
WHERE r.cassette = ? AND {{}} {_IN_ORDER}
"""  # noqa: S608
_PAGE = _DOCUMENTS.format("(r.place, r.number, r.id) > (?, ?, ?)") + " LIMIT ?"
_WITHOUT_KEY = _DOCUMENTS.format("r.key IS NULL")
_SOME = _DOCUMENTS.format("r.number IN (SELECT value FROM json_each(?))")
_DOCUMENT = "SELECT text, sha256 FROM documents WHERE id = ?"
_FOUND = "SELECT id, place FROM recordings WHERE cassette = ? AND number = ? ORDER BY id"
_SETTLE = "UPDATE recordings SET number = ?1, place = ?1 WHERE id = ?2"


@dataclass(frozen=True, slots=True)
class Row:
    """What the tables hold of an interaction."""

    text: bytes
    digest: bytes
    size: int
    exchange: bool = False
    route: bytes = b""
    base: bytes = b""
    key: bytes | None = None
    marks: int = 0
    bodies: tuple[str, ...] = ()


def row_of(item: AnyInteraction, text: bytes, under: Rules, read: ReadBodies = NOT_READ) -> Row:
    """The row of an interaction with this document, under the rules of its cassette."""
    if not isinstance(item, Interaction):
        return Row(text, sha256(text).digest(), len(text))
    request, files = item.request, large_bodies(item)
    key, marks = None, 0
    if columns.may_be_filed(item):
        parsed = None if under else read.request
        key = request_key(request, under) if parsed is None else key_of_read(request, parsed)
        marks = columns.marks_of(request, under, parsed)
    return Row(
        text,
        sha256(text).digest(),
        len(text) + sum([file.size for file in files]),
        exchange=True,
        route=columns.column_text(request.route).encode(),
        base=columns.column_text(request.base).encode(),
        key=key,
        marks=marks,
        bodies=tuple(dict.fromkeys([file.digest for file in files])),
    )


# Reading.


def names(connection: apsw.Connection) -> list[str]:
    """All cassettes, sorted."""
    return sorted([str(name) for (name,) in connection.execute("SELECT name FROM cassettes")])


def needs_wiping(connection: apsw.Connection) -> bool:
    """Whether something was removed since the file was wiped."""
    return rows(connection, "SELECT removed FROM file") != [(0,)]


def stat(connection: apsw.Connection, name: str) -> CassetteStat | None:
    """Size, time and version of a cassette."""
    for version, modified_at, size in connection.execute(_STAT, (name,)):
        at = datetime.fromtimestamp(modified_at, UTC).isoformat(timespec="microseconds")
        return CassetteStat(size, at, version)
    return None


def outline(connection: apsw.Connection, name: str, place: str) -> Outline | None:
    """Head, count and origins of a cassette."""
    if (found := _find(connection, name)) is None:
        return None
    id_, head = found[0], _head(found, place)
    sources = rows(
        connection, "SELECT exchange, route, base, count FROM sources WHERE cassette = ?", (id_,)
    )
    origins = [(route.decode(), base.decode()) for exchange, route, base, _ in sources if exchange]
    return Outline(head, sum([count for *_, count in sources]), frozenset(origins))


class DocumentDecoder:
    """Makes interactions of documents, with their large bodies to be read when they are opened."""

    def __init__(self, place: str, with_handle: Callable[[BodyFile], BodyFile]) -> None:
        self.place = place
        self._with_handle = with_handle

    def item(self, number: int, text: bytes, digest: bytes) -> AnyInteraction:
        """Raises CassetteCorrupt where it is not what was recorded."""
        refuse_changed(text, digest, f"{self.place}, interaction {number}")
        item = columns.interaction_of(text, number, self.place)
        return replace_large_bodies(item, self._with_handle)


def load(
    connection: apsw.Connection, name: str, decoder: DocumentDecoder, filed: StoredRecordings
) -> StoredCassette | None:
    """A whole cassette of one moment, in a transaction of the caller.

    What has a key stays in the file, and is read by `filed`.
    """
    if (found := _find(connection, name)) is None:
        return None
    step, cassette = Yielding().step, found[0]
    in_memory: dict[int, AnyInteraction] = {}
    for id_, number, text, digest in connection.execute(_WITHOUT_KEY, (cassette,)):
        in_memory[id_] = decoder.item(number, text, digest)
        step()
    items: list[AnyInteraction] = []
    for id_, number, key, marks in connection.execute(_LOAD, (cassette,)):
        items.append(in_memory[id_] if key is None else filed.add(id_, number, key, marks))
        step()
    return StoredCassette(_head(found, decoder.place), tuple(items), filed.end())


def page(
    connection: apsw.Connection, name: str, after: int | None, limit: int, decoder: DocumentDecoder
) -> list[TakenRecording]:
    """Recordings in order, those after an index. Raises CassetteEdited where it is gone."""
    if (found := _find(connection, name)) is None:
        if after is not None:
            raise interaction_gone(name, after)
        return []
    start = (-1, -1, -1)
    if after is not None:
        known = rows(connection, _FOUND, (found[0], after))
        if not known:
            raise interaction_gone(name, after)
        id_, place = known[-1]
        start = place, after, id_
    following = rows(connection, _PAGE, (found[0], *start, limit))
    return [
        TakenRecording(decoder.item(number, text, digest), 0, number)
        for _, number, text, digest in following
    ]


def documents(
    connection: apsw.Connection, name: str, indexes: Sequence[int], decoder: DocumentDecoder
) -> list[TakenRecording]:
    """Those of some recordings that are there, in order."""
    if (found := _find(connection, name)) is None:
        return []
    read = rows(connection, _SOME, (found[0], dump(list(indexes)).decode()))
    return [
        TakenRecording(decoder.item(number, text, digest), 0, number)
        for _, number, text, digest in read
    ]


def has_gaps(connection: apsw.Connection, name: str) -> bool:
    """Whether a cassette is not in its final form, as after a process that was killed."""
    if (found := _find(connection, name)) is None:
        return False
    count, highest = rows(
        connection,
        "SELECT (SELECT coalesce(sum(count), 0) FROM sources WHERE cassette = ?1), "
        "(SELECT coalesce(max(number), -1) FROM recordings WHERE cassette = ?1)",
        (found[0],),
    )[0]
    return bool(highest + 1 != count)


# Changes.


class Change:
    """The changes of one transaction, which has one number."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.number: int = connection.execute(
            "UPDATE file SET changes = changes + 1 RETURNING changes"
        ).get
        self.superseded: list[tuple[str, int, bytes, bytes]] = []
        """The cassette, id, document and digest of each recording that another one replaced."""
        self._changed: set[int] = set()
        self._removed = False

    def end(self) -> None:
        """Note which cassettes were changed, and whether anything was removed."""
        at = datetime.now(UTC).timestamp()
        for cassette in self._changed:
            self.connection.execute(
                "UPDATE cassettes SET change = ?, modified_at = ? WHERE id = ?",
                (self.number, at, cassette),
            )
        if self._removed:
            self.connection.execute("UPDATE file SET removed = 1 WHERE NOT removed")

    def note_removal(self) -> None:
        """The file has something in it that must not stay readable."""
        self._removed = True

    def append(
        self,
        name: str,
        head: CassetteHead,
        item: AnyInteraction,
        text: bytes,
        *,
        supersedes: Iterable[int] = (),
        read: ReadBodies = NOT_READ,
    ) -> None:
        """Add an interaction, in the place of the first one that it supersedes.

        Raises CassetteCorrupt, before anything is changed, where a large body is not there.
        """
        found = _find(self.connection, name)
        meta = columns.head_text(head) if found is None else found[3]
        row = row_of(item, text, columns.rules_of(meta), read)
        bodies = [self._body(digest) for digest in row.bodies]
        cassette = self.new_cassette(name, *_head_values(head)) if found is None else found[0]
        self._changed.add(cassette)
        gone = [
            superseded
            for number in set(supersedes)
            for superseded in rows(self.connection, _FOUND, (cassette, number))[-1:]
        ]
        for id_, _ in gone:
            for text, digest in rows(self.connection, _DOCUMENT, (id_,)):
                self.superseded.append((name, id_, text, digest))
            self._remove(id_)
        number = self._free_number(cassette, item.index)
        place = min([place for _, place in gone], default=number)
        self.insert(cassette, number, place, row, bodies)

    def replace(self, name: str, head: CassetteHead, items: Sequence[AnyInteraction]) -> None:
        """Put a whole cassette in the place of what there is; recordings in the file stay there."""
        connection, found = self.connection, _find(self.connection, name)
        if found is None:
            cassette = self.new_cassette(name, *_head_values(head))
        else:
            cassette = found[0]
            self._replace_head(name, found, head)
        self._changed.add(cassette)
        under, file_id, step = (
            columns.rules_of(columns.head_text(head)),
            self._file_id,
            Yielding().step,
        )
        ids = rows(connection, "SELECT id FROM recordings WHERE cassette = ?", (cassette,))
        gone = {id_ for (id_,) in ids}
        moved: list[tuple[int, int]] = []
        for at, item in enumerate(items):
            step()
            id_ = _id_in_file(item, file_id)
            if id_ is not None and id_ in gone:
                gone.remove(id_)
                moved.append((at, id_))
                continue
            whole = item.load() if isinstance(item, LazyInteraction) else item
            row = row_of(whole, columns.imported_text(whole), under)
            self.insert(cassette, at, at, row, [self._body(digest) for digest in row.bodies])
        connection.executemany(_SETTLE, moved)
        for id_ in gone:
            self._remove(id_)

    def replace_head(self, name: str, head: CassetteHead) -> None:
        """Replace the head of a cassette, and with other rules all keys."""
        if (found := _find(self.connection, name)) is not None:
            self._changed.add(found[0])
            self._replace_head(name, found, head)

    def remove(self, name: str) -> bool:
        """Delete a cassette; False if there was none."""
        if (found := _find(self.connection, name)) is None:
            return False
        for (id_,) in rows(
            self.connection, "SELECT id FROM recordings WHERE cassette = ?", (found[0],)
        ):
            self._remove(id_)
        self.connection.execute("DELETE FROM sources WHERE cassette = ?", (found[0],))
        self.connection.execute("DELETE FROM cassettes WHERE id = ?", (found[0],))
        self._removed = True
        return True

    def settle(self, name: str) -> None:
        """Number the recordings by position: the final form of a cassette."""
        if (found := _find(self.connection, name)) is None:
            return
        ordered = self.connection.execute(
            f"SELECT r.id, r.number, r.place FROM recordings r WHERE r.cassette = ? {_IN_ORDER}",  # noqa: S608
            (found[0],),
        )
        moved = [
            (at, id_)
            for at, (id_, number, place) in enumerate(ordered)
            if number != at or place != at
        ]
        if moved:
            self._changed.add(found[0])
            self.connection.executemany(_SETTLE, moved)

    @property
    def _file_id(self) -> str:
        return str(self.connection.execute("SELECT id FROM file").get)

    def new_cassette(self, name: str, created_at: bytes, run_id: bytes, meta: bytes) -> int:
        """Add an empty cassette; its id."""
        id_: int = self.connection.execute(_NEW_CASSETTE, (name, created_at, run_id, meta)).get
        self._changed.add(id_)
        return id_

    def _replace_head(
        self, name: str, found: tuple[int, bytes, bytes, bytes], head: CassetteHead
    ) -> None:
        if (values := _head_values(head)) == found[1:]:
            return
        self.connection.execute(
            "UPDATE cassettes SET created_at = ?, run_id = ?, meta = ? WHERE id = ?",
            (*values, found[0]),
        )
        self._removed = True
        under = columns.rules_of(values[2])
        if under != columns.rules_of(found[3]):
            self._key_anew(name, found[0], under)

    def _key_anew(self, name: str, cassette: int, under: Rules) -> None:
        """Give the recordings their keys under other rules, by their documents."""
        place, step = f"cassette '{name}'", Yielding().step
        ids = rows(
            self.connection,
            "SELECT id, number FROM recordings WHERE cassette = ? AND key IS NOT NULL",
            (cassette,),
        )
        for id_, number in ids:
            ((text, digest),) = rows(self.connection, _DOCUMENT, (id_,))
            refuse_changed(text, digest, f"{place}, interaction {number}")
            row = row_of(columns.interaction_of(text, number, place), text, under)
            self.connection.execute(
                "UPDATE recordings SET key = ?, marks = ? WHERE id = ?", (row.key, row.marks, id_)
            )
            step()

    def _free_number(self, cassette: int, wanted: int) -> int:
        if not rows(self.connection, _FOUND, (cassette, wanted)):
            return wanted
        highest: int = self.connection.execute(
            "SELECT max(number) FROM recordings WHERE cassette = ?", (cassette,)
        ).get
        return highest + 1

    def insert(
        self, cassette: int, number: int, place: int, row: Row, bodies: Iterable[int]
    ) -> None:
        """Add a row that no other has the number of."""
        execute = self.connection.execute
        origin = row.exchange, row.route, row.base, row.size
        source = execute(_SOURCE, (cassette, *origin)).get
        placed = cassette, source, number, place, row.key, row.marks, row.size
        id_ = execute(_RECORDING, placed).get
        execute("INSERT INTO documents VALUES (?, ?, ?)", (id_, row.text, row.digest))
        for body in bodies:
            execute("INSERT INTO uses VALUES (?, ?)", (id_, body))

    def _remove(self, id_: int) -> None:
        self._removed = True
        self.connection.execute("DELETE FROM documents WHERE id = ?", (id_,))
        self.connection.execute("DELETE FROM uses WHERE recording = ?", (id_,))
        for source, size in rows(
            self.connection, "DELETE FROM recordings WHERE id = ? RETURNING source, size", (id_,)
        ):
            self.connection.execute(
                "UPDATE sources SET count = count - 1, size = size - ? WHERE id = ?", (size, source)
            )
            self.connection.execute("DELETE FROM sources WHERE id = ? AND NOT count", (source,))

    def _body(self, digest: str) -> int:
        found = rows(
            self.connection, "SELECT id FROM bodies WHERE digest = ?", (bytes.fromhex(digest),)
        )
        if not found:
            raise CassetteCorrupt(
                f"the large body sha256-{digest} that the recording refers to is not there: keep it "
                "first; nothing was recorded"
            )
        return int(found[0][0])


def _id_in_file(item: AnyInteraction, file_id: str) -> int | None:
    """The id of a recording that stays in the file with this identity."""
    if not isinstance(item, LazyInteraction) or not isinstance(item.file, StoredRecordings):
        return None
    return item.file.id_of(item.index) if item.file.file_id == file_id else None


def _find(connection: apsw.Connection, name: str) -> tuple[int, bytes, bytes, bytes] | None:
    found = connection.execute(_CASSETTE, (name,)).fetchone()
    return None if found is None else (found[0], found[1], found[2], found[3])


def _head(found: tuple[int, bytes, bytes, bytes], place: str) -> CassetteHead:
    _, created_at, run_id, meta = found
    return columns.head_of(created_at.decode(), run_id.decode(), meta, place)


def _head_values(head: CassetteHead) -> tuple[bytes, bytes, bytes]:
    return (
        columns.column_text(head.created_at).encode(),
        columns.column_text(head.run_id).encode(),
        columns.head_text(head),
    )
