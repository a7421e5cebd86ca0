"""Notices changes of cassettes by other processes, by git, or by a person with an editor."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tapeway.core.model.cassette import CassetteStat
from tapeway.ports import CassetteStore

EVERY_S = 1.0
"""Often enough for a person who edits a file and repeats a request."""


async def watch(
    store: CassetteStore, name: str, since: CassetteStat | None, every_s: float = EVERY_S
) -> AsyncIterator[CassetteStat | None]:
    """Yields the state of a cassette after each change, and None after a removal.

    `since` is the last known state: a change before the first check counts too. Changes within
    `every_s` seconds are one change. Raises StoreError.
    """
    while True:
        now = await store.stat(name)
        if changed(since, now):
            since = now
            yield now
        else:
            await asyncio.sleep(every_s)


def changed(before: CassetteStat | None, now: CassetteStat | None) -> bool:
    """Whether a cassette has changed."""
    if before is None or now is None:
        return before is not now
    return before.version != now.version


@dataclass(slots=True)
class _Known:
    """Two states of a cassette: when tapeway read it, and at the last check."""

    read: CassetteStat | None
    last: CassetteStat | None


class Watched:
    """Finds cassettes that have changed after tapeway loaded them for replay."""

    def __init__(self, store: CassetteStore) -> None:
        self._store = store
        self._known: dict[str, _Known] = {}

    async def note(self, name: str) -> None:
        """Watch a cassette that tapeway reads next; the cassette need not exist. Raises StoreError."""
        stat = await self._store.stat(name)
        self._known[name] = _Known(stat, stat)

    def version(self, name: str) -> str | None:
        """The version of a cassette when tapeway read it; None without a cassette."""
        known = self._known.get(name)
        return None if known is None or known.read is None else known.read.version

    def forget(self, name: str) -> None:
        """Stop watching a cassette."""
        self._known.pop(name, None)

    async def look(self) -> list[str]:
        """The cassettes that have changed, but not since the previous call.

        A half-written file still changes between two calls, so it is not among them. Raises StoreError.
        """
        settled: list[str] = []
        names = list(self._known)
        for name, now in zip(names, await self._store.stats(names), strict=True):
            # `forget` may have been called meanwhile.
            if (known := self._known.get(name)) is None:
                continue
            if changed(known.read, now) and not changed(known.last, now):
                settled.append(name)
            known.last = now
        return settled
