"""Recordings, lists and conversations that were read of cassettes, kept while these are unchanged."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar
from weakref import WeakValueDictionary

from tapeway.core.model.interaction import AnyInteraction, Interaction

MOST_BYTES = 128 * 1024 * 1024

MOST_HELD = 96 * 1024 * 1024
"""Bytes of one cassette. Of a larger one nothing is kept, and each look reads the file."""

_OVERHEAD = 1024
"""What a recording takes in memory beside its bodies, roughly."""


class ReadOnce(Protocol):
    """A reading of a whole cassette."""

    @property
    def size(self) -> int:
        """Its bytes in memory."""


T = TypeVar("T", bound=ReadOnce)


class KnownCassettes:
    """Readings of cassettes; those used last are kept."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._known: dict[tuple[type[ReadOnce], str], tuple[object, ReadOnce]] = {}
        self._reading: WeakValueDictionary[tuple[type[ReadOnce], str], asyncio.Lock] = (
            WeakValueDictionary()
        )

    async def of(
        self, kind: type[T], name: str, version: object, read: Callable[[], Awaitable[T]]
    ) -> T:
        """A reading of this kind, read unless known for this version. Raises the errors of `read`."""
        key = kind, name
        # A list that is scrolled asks for several pages at once.
        lock = self._reading.setdefault(key, asyncio.Lock())
        async with lock:
            known = self._known.pop(key, None)
            found = known[1] if known is not None and known[0] == version else None
            if not isinstance(found, kind):
                found = await read()
            self._known[key] = version, found
            self._forget()
        return found

    def _forget(self) -> None:
        size = sum(found.size for _, found in self._known.values())
        while size > self._most_bytes:
            size -= self._known.pop(next(iter(self._known)))[1].size


class HeldRecordings:
    """The recordings of one version of a cassette by index."""

    def __init__(self, items: Iterable[AnyInteraction], most: int = MOST_HELD) -> None:
        self.size = 0
        self._items: dict[int, AnyInteraction] = {}
        for each in items:
            self.size += _size_of(each)
            if self.size > most:
                self.size, self._items = 0, {}
                return
            self._items[each.index] = each

    def get(self, index: int) -> AnyInteraction | None:
        """A recording; None for one that is not there, or not kept."""
        return self._items.get(index)


def _size_of(item: AnyInteraction) -> int:
    if not isinstance(item, Interaction):
        return 4 * _OVERHEAD
    return _OVERHEAD + len(item.request.body) + len(item.response.body)
