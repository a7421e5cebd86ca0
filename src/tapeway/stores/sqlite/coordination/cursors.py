"""Where keys stand in a take, and which recordings it touched: kept in the shared file.

Turns that the shared file has no room for: known to this process alone until it has.

A replay needs no room, so a full disk does not end it. What other processes are given meanwhile may
be the same recordings.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence

import apsw

from tapeway.core.model.cassette import CursorStep
from tapeway.core.model.control import Control, CursorState
from tapeway.errors import StoreFull
from tapeway.stores.sqlite.connection import rows

_KEYS = 500
_READ = "SELECT state, version FROM turn WHERE name = ? AND take = ? AND key = ?"
log = logging.getLogger(__name__)

MOST = 10_000
"""Keys; then a replay is refused."""
_Key = tuple[str, int, bytes]


def read(
    name: str, take: int, keys: Sequence[bytes], connection: apsw.Connection
) -> Mapping[bytes, CursorState]:
    """The turns of those keys that were advanced at all."""
    found: dict[bytes, CursorState] = {}
    for start in range(0, len(keys), _KEYS):
        some = keys[start : start + _KEYS]
        marks = ", ".join("?" * len(some))
        rows = connection.execute(
            "SELECT key, state, version FROM turn "  # noqa: S608 - question marks
            f"WHERE name = ? AND take = ? AND key IN ({marks})",
            (name, take, *some),
        )
        found |= {key: CursorState(state, version) for key, state, version in rows}
    return found


def advance(
    name: str,
    take: int,
    key: bytes,
    before: CursorState | None,
    state: bytes,
    touched: int,
    connection: apsw.Connection,
) -> bool:
    """Put a state in the place of the one that was seen; False where it is another by now."""
    connection.execute("BEGIN IMMEDIATE")
    now = connection.execute(_READ, (name, take, key)).fetchone()
    if now != (None if before is None else (before.state, before.version)):
        connection.execute("ROLLBACK")
        return False
    _put(connection, name, take, key, state)
    _touch(connection, name, take, touched)
    connection.execute("COMMIT")
    return True


def step(done: Iterable[tuple[str, int, CursorStep]], connection: apsw.Connection) -> None:
    """Move on the turns of what was recorded under these indexes, whatever they are by now."""
    connection.execute("BEGIN IMMEDIATE")
    for name, index, each in done:
        now = connection.execute(_READ, (name, each.take, each.key)).fetchone()
        _put(connection, name, each.take, each.key, each.advance(None if now is None else now[0]))
        _touch(connection, name, each.take, index)
    connection.execute("COMMIT")


def forget(name: str, connection: apsw.Connection) -> None:
    """Nothing of a cassette was used yet: it was removed, or is another one."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM turn WHERE name = ?", (name,))
    connection.execute("DELETE FROM touched WHERE name = ?", (name,))
    connection.execute("COMMIT")


def forget_before(control: Control, connection: apsw.Connection) -> None:
    """Remove what takes left that ended before the last change; inside a transaction."""
    for table in ("turn", "touched"):
        found = rows(connection, f"SELECT DISTINCT name, take FROM {table}")  # noqa: S608
        for name, take in found:
            if take < control.take_of(name):
                connection.execute(
                    f"DELETE FROM {table} WHERE name = ? AND take = ?",  # noqa: S608
                    (name, take),
                )


def reserve(name: str, above: int, count: int, connection: apsw.Connection) -> int:
    """The first of so many indexes nobody else gets, none of them below `above`."""
    behind = connection.execute(
        "INSERT INTO numbering VALUES (?1, ?2 + ?3) "
        "ON CONFLICT DO UPDATE SET next = max(next, ?2) + ?3 RETURNING next",
        (name, above, count),
    ).get
    return int(behind) - count


def _put(connection: apsw.Connection, name: str, take: int, key: bytes, state: bytes) -> None:
    # Never a number again: a turn that was forgotten and came back is another one.
    version = connection.execute("UPDATE counter SET version = version + 1 RETURNING version").get
    connection.execute(
        "INSERT INTO turn VALUES (?1, ?2, ?3, ?4, ?5) "
        "ON CONFLICT DO UPDATE SET state = ?4, version = ?5",
        (name, take, key, state, version),
    )


def _touch(connection: apsw.Connection, name: str, take: int, index: int) -> None:
    connection.execute("INSERT OR IGNORE INTO touched VALUES (?, ?, ?)", (name, take, index))


class DiskFullCursors:
    """Used on the event loop; `write_touched` is work for the shared file."""

    def __init__(self) -> None:
        self._kept: dict[_Key, tuple[CursorState | None, CursorState]] = {}
        self._touched: dict[tuple[str, int, int], None] = {}
        self._versions = 0

    def __bool__(self) -> bool:
        return bool(self._kept or self._touched)

    def over(
        self, name: str, take: int, keys: Sequence[bytes], found: Mapping[bytes, CursorState]
    ) -> Mapping[bytes, CursorState]:
        """What the file says of these keys, and of some of them what it had no room for."""
        now = dict(found)
        for key in keys:
            kept = self._kept.get((name, take, key))
            if kept is None:
                continue
            if kept[0] == found.get(key):
                now[key] = kept[1]
            else:
                # Another process has moved it on.
                del self._kept[name, take, key]
        return now

    def knows_better(self, place: _Key, seen: CursorState | None) -> bool:
        """Whether this is not where a key stands, for all this process knows."""
        kept = self._kept.get(place)
        return kept is not None and kept[1] != seen

    def stored(self, place: _Key, seen: CursorState | None) -> CursorState | None:
        """What the file says where this was seen."""
        kept = self._kept.get(place)
        return seen if kept is None else kept[0]

    def keep(
        self, place: _Key, stored: CursorState | None, state: bytes, touched: int, full: StoreFull
    ) -> None:
        """Remember a turn. Raises the error where there are too many."""
        if len(self._kept) >= MOST:
            raise full
        if not self:
            log.warning("%s; replays go on, and count for this process alone", full.message)
        # No version of the file's is below zero.
        self._versions -= 1
        self._kept[place] = stored, CursorState(state, self._versions)
        self._touched[(*place[:2], touched)] = None

    def drop(self, place: _Key) -> None:
        """The file says it by now."""
        self._kept.pop(place, None)

    def used(self) -> list[tuple[str, int, int]]:
        """Recordings that were used without the file saying so: cassette, take, index."""
        return list(self._touched)

    def used_in(self, name: str, take: int) -> set[int]:
        """The indexes of those of one take."""
        return {index for of, at, index in self._touched if (of, at) == (name, take)}

    def written(self, used: Sequence[tuple[str, int, int]]) -> None:
        """The file says so of these."""
        for each in used:
            self._touched.pop(each, None)


def write_touched(used: Sequence[tuple[str, int, int]], connection: apsw.Connection) -> None:
    """Let the file say which recordings were used."""
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT OR IGNORE INTO touched VALUES (?, ?, ?)", used)
    connection.execute("COMMIT")
