"""Queries on the recordings of a SQLite store: each reads one snapshot through an index."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

import apsw

from tapeway.core.json_text import dump
from tapeway.core.model.cassette import (
    CassetteStat,
    Outline,
    RecordingTitle,
    StoredCassette,
    TakenRecording,
)
from tapeway.core.model.interaction import AnyInteraction
from tapeway.errors import CassetteEdited
from tapeway.stores.shared.columns import column_text, head_of, interaction_of
from tapeway.stores.shared.last_decoded import LastDecoded
from tapeway.stores.sqlite.bodies import BodyCache
from tapeway.stores.sqlite.connection import rows, snapshot

NEAR_BYTES = 8 * 1024 * 1024
"""Total size of the bodies that `near` returns, at most."""

CACHED = 256
CACHED_TEXT = 64 * 1024
"""The last recordings found stay in memory, unless their documents are larger: 16 MiB at most."""

_KEYS = 500
_ROWS_AT_ONCE = 32
_OUTLINE = "SELECT id, created_at, run_id, meta, count FROM cassette WHERE name = ?"
_FIND = """
SELECT i.place, i.number, i.take, i.document
FROM cassette c JOIN key k ON k.cassette = c.id AND k.generation = c.generation
JOIN interaction i ON i.id = k.interaction
WHERE c.name = ? AND k.digest IN ({})
"""
_GET = """
SELECT place, number, take, document FROM interaction
WHERE cassette = (SELECT id FROM cassette WHERE name = ?) AND number = ?
"""
_PAGE = """
SELECT place, number, take, document FROM interaction
WHERE cassette = (SELECT id FROM cassette WHERE name = ?) AND place > ? ORDER BY place LIMIT ?
"""
_NEAR = """
SELECT number, weight FROM interaction
WHERE cassette = ? AND method = ? AND path = ? AND weight NOT NULL ORDER BY number DESC LIMIT ?
"""
_NEWEST = """
SELECT number, weight FROM interaction WHERE cassette = ? AND weight NOT NULL
ORDER BY number DESC LIMIT ?
"""
_TITLE = "number, method, path || query"
_UNUSED = f"""
SELECT {_TITLE} FROM interaction
WHERE cassette = (SELECT id FROM cassette WHERE name = ?1) AND exchange
AND NOT EXISTS (SELECT 1 FROM shared.touched t
    WHERE t.name = ?1 AND t.take IN (SELECT value FROM json_each(?2)) AND t.number = interaction.number)
ORDER BY place LIMIT ?3
"""  # noqa: S608 - no value of anybody's
_UNUSED_COUNT = """
SELECT c.exchanges - (
    SELECT coalesce(sum(u.count), 0) FROM shared.used u
    WHERE u.name = ?1 AND u.take IN (SELECT value FROM json_each(?2))
) FROM cassette c WHERE c.name = ?1
"""
_DUPLICATES = """
SELECT k.digest, i.route FROM cassette c
JOIN key k ON k.cassette = c.id AND k.generation = c.generation
JOIN interaction i ON i.id = k.interaction
WHERE c.name = ?1 AND k.digest IN (
    SELECT digest FROM key WHERE cassette = c.id AND generation = c.generation
    AND length(digest) = 32 GROUP BY digest HAVING count(*) > 1
)
GROUP BY k.digest, i.route HAVING count(*) > 1 ORDER BY min(i.place) LIMIT ?2
"""
_UNROUTED_PREFIXES = """
SELECT DISTINCT coalesce((
    SELECT value FROM json_each(?3) WHERE instr(interaction.path, value || '/') = 1
    ORDER BY key LIMIT 1
), '') FROM interaction
WHERE cassette = (SELECT id FROM cassette WHERE name = ?1) AND exchange AND route = '' AND base = ?2
"""
_SAME_KEY = f"""
SELECT {_TITLE} FROM cassette c JOIN key k ON k.cassette = c.id AND k.generation = c.generation
JOIN interaction i ON i.id = k.interaction
WHERE c.name = ? AND k.digest = ? AND i.route = ? ORDER BY i.place LIMIT ?
"""  # noqa: S608 - the same


@dataclass(frozen=True, slots=True)
class CassetteQueries:
    """Queries of one file; large bodies come from its cache."""

    path: str
    body_cache: BodyCache
    last_near: LastDecoded[str] = field(default_factory=LastDecoded)

    def outline(self, name: str, connection: apsw.Connection) -> Outline | None:
        """A cassette without its recordings."""
        with snapshot(connection):
            found = connection.execute(_OUTLINE, (name,)).fetchone()
            if found is None:
                return None
            id_, created_at, run_id, meta, count = found
            sources = rows(connection, "SELECT route, base FROM source WHERE cassette = ?", (id_,))
        head = head_of(created_at, run_id, meta, self._where(name))
        return Outline(head, count, frozenset(sources))

    def find(
        self, name: str, keys: Sequence[bytes], connection: apsw.Connection
    ) -> list[TakenRecording]:
        """The recordings under any of these keys, in order."""
        found: dict[int, tuple[int, int, int, str]] = {}
        for start in range(0, len(keys), _KEYS):
            some = keys[start : start + _KEYS]
            query = _FIND.format(", ".join("?" * len(some)))
            for row in connection.execute(query, (name, *some)):
                found[row[1]] = row
        return [self._found_cached(name, *row) for row in sorted(found.values())]

    def get(self, name: str, index: int, connection: apsw.Connection) -> TakenRecording | None:
        """One recording."""
        row = connection.execute(_GET, (name, index)).fetchone()
        return None if row is None else self._found(name, *row)

    def page(
        self, name: str, after: int | None, limit: int, connection: apsw.Connection
    ) -> list[TakenRecording]:
        """The next recordings in order after index `after`, or the first. Raises CassetteEdited."""
        with snapshot(connection):
            place = 0
            if after is not None:
                place = connection.execute(
                    "SELECT place FROM interaction WHERE number = ? AND cassette = "
                    "(SELECT id FROM cassette WHERE name = ?)",
                    (after, name),
                ).get
                if place is None:
                    raise CassetteEdited(
                        f"{self._where(name)} was changed while it was read, and "
                        f"interaction {after} was removed: begin again"
                    )
            found = rows(connection, _PAGE, (name, place, limit))
        return [self._found(name, *row) for row in found]

    def load(self, name: str, connection: apsw.Connection) -> StoredCassette | None:
        """A whole cassette."""
        with snapshot(connection):
            outline = self.outline(name, connection)
            if outline is None:
                return None
            found, items = connection.execute(_PAGE, (name, 0, -1)), list[AnyInteraction]()
            # Each row lets the interpreter go, and has it back before the event loop is awake: only
            # while several are decoded does it wait long enough to be given its turn.
            while batch := list(islice(found, _ROWS_AT_ONCE)):
                items += [self._found(name, *row).item for row in batch]
        return StoredCassette(outline.head, tuple(items))

    def near(
        self, name: str, method: str, path: str, limit: int, connection: apsw.Connection
    ) -> list[TakenRecording]:
        """The newest exchanges of a method and path, then the newest of others, within bounds."""
        with snapshot(connection):
            id_ = connection.execute("SELECT id FROM cassette WHERE name = ?", (name,)).get
            wanted = (id_, column_text(method), column_text(path), limit)
            newest = dict(rows(connection, _NEAR, wanted))
            for number, weight in rows(connection, _NEWEST, (id_, limit)):
                if len(newest) < limit:
                    newest.setdefault(number, weight)
            found = [
                row
                for number in _within(newest.items())
                for row in rows(
                    connection,
                    "SELECT place, number, take, document FROM interaction "
                    "WHERE cassette = ? AND number = ?",
                    (id_, number),
                )
            ]
        found.sort()
        documents = [(number, text) for _, number, _, text in found]

        def decode(text: str, number: int) -> AnyInteraction:
            return interaction_of(text, number, self._where(name))

        # None of them has a large body.
        items = self.last_near.items(name, documents, decode)
        return [
            TakenRecording(item, take, place)
            for item, (place, _, take, _) in zip(items, found, strict=True)
        ]

    def unused(
        self, name: str, takes: Sequence[int], limit: int, connection: apsw.Connection
    ) -> list[RecordingTitle]:
        """The first exchanges that none of these takes has touched."""
        found = connection.execute(_UNUSED, (name, _json_list(takes), limit))
        return [RecordingTitle(*row) for row in found]

    def unused_count(self, name: str, takes: Sequence[int], connection: apsw.Connection) -> int:
        """The number of exchanges that none of these takes has touched."""
        return connection.execute(_UNUSED_COUNT, (name, _json_list(takes))).get or 0

    def duplicates(
        self, name: str, limit: int, connection: apsw.Connection
    ) -> list[list[RecordingTitle]]:
        """Recordings that share a key on one route, in groups."""
        with snapshot(connection):
            groups = connection.execute(_DUPLICATES, (name, limit)).fetchall()
            return [
                [
                    RecordingTitle(*row)
                    for row in connection.execute(_SAME_KEY, (name, digest, route, _KEYS))
                ]
                for digest, route in groups
            ]

    def next_number(self, name: str, connection: apsw.Connection) -> int:
        """An index above all that the cassette ever had."""
        return connection.execute("SELECT next FROM cassette WHERE name = ?", (name,)).get or 0

    def is_changing(self, name: str, connection: apsw.Connection) -> bool:
        """Whether a change of the rules is under way."""
        found = connection.execute(
            "SELECT coming_generation FROM cassette WHERE name = ?", (name,)
        ).get
        return found is not None

    def names(self, connection: apsw.Connection) -> list[str]:
        """The names of all cassettes, sorted."""
        found = connection.execute("SELECT name FROM cassette WHERE name IS NOT NULL ORDER BY name")
        return [name for (name,) in found]

    def unrouted_prefixes(
        self, name: str, base: str, prefixes: Sequence[str], connection: apsw.Connection
    ) -> list[str]:
        """Under which path prefixes recordings without a route are."""
        given = (name, base, dump(list(prefixes)).decode())
        return [prefix for (prefix,) in rows(connection, _UNROUTED_PREFIXES, given)]

    def stat(self, name: str, connection: apsw.Connection) -> CassetteStat | None:
        """A cassette's size, time of change and version."""
        with snapshot(connection):
            row = connection.execute(
                "SELECT size, modified_at FROM cassette WHERE name = ?", (name,)
            ).fetchone()
            mark = mark_of(connection, name)
        return None if row is None or mark is None else CassetteStat(row[0], row[1], mark)

    def takes(self, connection: apsw.Connection) -> int:
        """How many takes ever began."""
        return connection.execute("SELECT takes FROM state").get or 0

    def highest_fence(self, connection: apsw.Connection) -> int:
        """The highest fence of a lease that was ever taken over."""
        return connection.execute("SELECT max(fence) FROM fence").get or 0

    def check(self, connection: apsw.Connection) -> list[str]:
        """The damage that SQLite finds in the whole file."""
        try:
            found = [str(problem) for (problem,) in connection.execute("PRAGMA integrity_check")]
            if found == ["ok"]:
                lost = connection.execute("PRAGMA foreign_key_check").fetchall()
                found = [f"a row of '{table}' refers to what is gone" for table, *_ in lost]
        except apsw.CorruptError as exc:
            found = [str(exc)]
        return [f"{self.path}: {problem}" for problem in found]

    def _found(self, name: str, place: int, number: int, take: int, text: str) -> TakenRecording:
        item = interaction_of(text, number, self._where(name))
        return TakenRecording(self.body_cache.with_bodies(item), take, place)

    def _found_cached(
        self, name: str, place: int, number: int, take: int, text: str
    ) -> TakenRecording:
        """The same; a recording found recently is the same object, so callers can cache by it."""
        if len(text) > CACHED_TEXT:
            return self._found(name, place, number, take, text)
        item = _held(text, number, self._where(name))
        return TakenRecording(self.body_cache.with_bodies(item), take, place)

    def _where(self, name: str) -> str:
        return f"{self.path}, cassette '{name}'"


def mark_of(connection: apsw.Connection, name: str, schema: str = "main") -> str | None:
    """What differs after every change of a cassette, None where there is none."""
    found = connection.execute(
        f"SELECT state.id, changed FROM {schema}.cassette, {schema}.state WHERE name = ?",  # noqa: S608
        (name,),
    ).fetchone()
    return None if found is None else f"{found[0]}-{found[1]}"


_held = lru_cache(maxsize=CACHED)(interaction_of)


def _json_list(takes: Iterable[int]) -> str:
    return f"[{','.join(map(str, takes))}]"


def _within(newest: Iterable[tuple[int, int]]) -> Iterator[int]:
    left = NEAR_BYTES
    for number, weight in newest:
        if weight <= left:
            left -= weight
            yield number
