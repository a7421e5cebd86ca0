"""The titles of cassettes that would have to be read whole for each page of them."""

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import cast

from tapeway.core.json_text import Json, dump
from tapeway.core.model.cassette import CassetteStat, StoredCassette
from tapeway.core.model.interaction import AnyInteraction
from tapeway.inspection.summary import title
from tapeway.long_work import free_in_steps

MOST_BYTES = 64 * 1024 * 1024
"""Of titles that are kept; those of 100,000 interactions are some 50 MB."""


@dataclass(frozen=True, slots=True)
class Titles:
    """The titles of a cassette that nobody serves, as JSON texts by index."""

    indexes: list[int]
    texts: list[bytes]
    size: int

    @classmethod
    def of(cls, items: list[AnyInteraction]) -> "Titles":
        """Those of these interactions, which are freed; call it in a thread."""
        unused: dict[str, Json] = {"unused": None}
        items.sort(key=lambda each: each.index)
        texts = [dump(title(each) | unused) for each in items]
        indexes = [each.index for each in items]
        free_in_steps(cast("list[object]", items))
        return cls(indexes, texts, sum(map(len, texts)))

    def page(self, after: int | None, limit: int) -> bytes:
        """A page as the API returns it."""
        start = 0 if after is None else bisect_right(self.indexes, after)
        end = start + limit
        following = self.indexes[end - 1] if end < len(self.indexes) else None
        rest: dict[str, Json] = {"total": len(self.indexes), "next": following}
        return b'{"titles":[%b],%b' % (b",".join(self.texts[start:end]), dump(rest)[1:])


class KnownTitles:
    """Titles that were read, as long as their cassettes are unchanged; those used last are kept."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._known: dict[str, tuple[CassetteStat, Titles]] = {}
        self._reading = asyncio.Lock()

    async def of(
        self, name: str, stat: CassetteStat, read: Callable[[], Awaitable[StoredCassette]]
    ) -> Titles:
        """The titles of a cassette, which is read unless they are known. Raises what reading raises."""
        # A list that is scrolled asks for several pages at once.
        async with self._reading:
            known = self._known.pop(name, None)
            if known is None or known[0] != stat:
                items = list((await read()).interactions)
                known = stat, await asyncio.to_thread(Titles.of, items)
            self._known[name] = known
            self._forget()
        return known[1]

    def _forget(self) -> None:
        size = sum(titles.size for _, titles in self._known.values())
        while size > self._most_bytes:
            name = next(iter(self._known))
            size -= self._known.pop(name)[1].size
