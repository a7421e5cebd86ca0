"""Turns that the shared file has no room for: known to this process alone until it has.

A replay needs no room, so a full disk does not end it. What other processes are given meanwhile may
be the same recordings.
"""

import logging
from collections.abc import Mapping, Sequence

import apsw

from tapeway.core.model.control import CursorState
from tapeway.errors import StoreFull

log = logging.getLogger(__name__)

MOST = 10_000
"""Keys; then a replay is refused."""

_Key = tuple[str, int, bytes]


class Overflow:
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
