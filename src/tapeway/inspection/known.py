"""Recordings, lists and conversations of cassettes, kept while a cassette is unchanged."""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar
from weakref import WeakValueDictionary

from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import AnyInteraction

MOST_BYTES = 192 * 1024 * 1024

MOST_HELD = 96 * 1024 * 1024
"""Bytes of a file whose recordings are kept. Each look at a larger file reads the file."""


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
        """A reading of a kind and a version; `read` makes an unknown reading. Raises the errors of `read`."""
        key = kind, name
        # A list that is scrolled asks for several pages at once.
        lock = self._reading.setdefault(key, asyncio.Lock())
        async with lock:
            known = self._known.pop(key, None)
            value = known[1] if known is not None and known[0] == version else None
            if not isinstance(value, kind):
                value = await read()
            self._known[key] = version, value
            self._forget()
        return value

    def _forget(self) -> None:
        size = sum(value.size for _, value in self._known.values())
        while size > self._most_bytes:
            size -= self._known.pop(next(iter(self._known)))[1].size


class HeldRecordings:
    """The recordings of one version of a file, by index, and its head.

    Bodies are made when they are looked at: a list is shown once the file is read.
    """

    def __init__(self, stored: StoredCassette, size: int) -> None:
        """`size` is that of the file."""
        self.head = stored.head
        self._items = sorted(stored.interactions, key=_index)
        self._indexes = [item.index for item in self._items]
        self.size = size

    def __len__(self) -> int:
        return len(self._items)

    @property
    def all(self) -> Sequence[AnyInteraction]:
        """Every recording, in the order of the indexes."""
        return self._items

    def get(self, index: int) -> AnyInteraction | None:
        """A recording; None for one that is not there."""
        at = bisect_left(self._indexes, index)
        return self._items[at] if self._indexes[at : at + 1] == [index] else None

    def page(self, after: int | None, limit: int) -> tuple[Sequence[AnyInteraction], int | None]:
        """Some recordings, and the index after which there are more, if there are."""
        start = 0 if after is None else bisect_right(self._indexes, after)
        page = self._items[start : start + limit]
        return page, page[-1].index if start + limit < len(self._items) else None


def _index(item: AnyInteraction) -> int:
    return item.index
