"""Lists and conversations that were read of cassettes, kept as long as these are unchanged."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar
from weakref import WeakValueDictionary

MOST_BYTES = 128 * 1024 * 1024


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
