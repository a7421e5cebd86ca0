"""Pages, single recordings and their changes, for stores that read and write cassettes whole.

A store for one process derives from `WholeCassettes`. The store itself implements the abstract
methods, and `open`, `close` and `release`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from tapeway.core.model.cassette import (
    CassetteHead,
    CassetteStat,
    Outline,
    Recording,
    StoredCassette,
    TakenRecording,
    items_after,
    sources_of,
)
from tapeway.core.model.condition import Unchanged
from tapeway.core.model.interaction import AnyInteraction
from tapeway.core.model.messages import LARGE_BODY, BodyFile
from tapeway.errors import StoreError
from tapeway.ports import SharedStore, StoreFacts


class WholeCassettes(ABC):
    """A store for one process; `CassetteStore` says what its abstract methods promise.

    The other members of `CassetteStore` are made of the abstract ones.
    """

    url: str
    facts: StoreFacts

    @abstractmethod
    async def names(self) -> Sequence[str]: ...

    @abstractmethod
    async def stat(self, name: str) -> CassetteStat | None: ...

    @abstractmethod
    async def load(self, name: str, *, writable: bool) -> StoredCassette | None: ...

    @abstractmethod
    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None: ...

    @abstractmethod
    async def put(self, name: str, cassette: StoredCassette) -> None:
        """`save` without a condition."""

    @abstractmethod
    async def delete(self, name: str) -> bool:
        """`remove` without a condition."""

    @property
    def shared(self) -> SharedStore | None:
        """None: one process uses the store at a time."""
        return None

    @property
    def trouble(self) -> StoreError | None:
        """None: nothing is known that makes requests fail."""
        return None

    async def check_reads(self) -> None:
        await self.stat("default")

    async def check_writes(self, name: str | None = None) -> None:
        """Nothing is known that would keep a recording from being stored."""
        return

    async def check(self) -> Sequence[str]:
        """Nothing: the store has no data structures beside the cassettes."""
        return ()

    async def erase(self) -> Sequence[str]:
        """Nothing: what was removed is nowhere any more."""
        return ()

    async def stats(self, names: Sequence[str]) -> Sequence[CassetteStat | None]:
        return [await self.stat(name) for name in names]

    async def outline(self, name: str) -> Outline | None:
        if (stored := await self.load(name, writable=False)) is None:
            return None
        return Outline(stored.head, len(stored.interactions), sources_of(stored.interactions))

    async def page(self, name: str, *, after: int | None, limit: int) -> Sequence[TakenRecording]:
        stored = await self.load(name, writable=False)
        items = () if stored is None else stored.interactions
        following = items_after(name, items, after)[:limit]
        return [TakenRecording(item, 0, item.index) for item in following]

    async def documents(self, name: str, indexes: Sequence[int]) -> Sequence[TakenRecording]:
        stored = await self.load(name, writable=False)
        items = () if stored is None else stored.interactions
        return [TakenRecording(item, 0, item.index) for item in items if item.index in indexes]

    async def extend(self, name: str, head: CassetteHead, items: Sequence[AnyInteraction]) -> None:
        # All at once: a store may sync the disk once for all.
        await asyncio.gather(*[self.append(name, head, Recording(item)) for item in items])

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        """Refuse it: the store has no place for large bodies."""
        raise StoreError(
            f"the store {self.url} cannot keep a body of more than {LARGE_BODY} bytes: "
            "use a folder, or a smaller --max-body"
        )

    async def replace_head(self, name: str, head: CassetteHead) -> None:
        stored = await self.load(name, writable=True)
        if stored is not None and stored.head != head:
            await self.save(name, StoredCassette(head, stored.interactions))

    async def save(
        self, name: str, cassette: StoredCassette, only: Unchanged | None = None
    ) -> bool:
        if fits := await self._fits(name, only):
            await self.put(name, cassette)
        return fits

    async def remove(self, name: str, only: Unchanged | None = None) -> bool:
        return await self._fits(name, only) and await self.delete(name)

    async def _fits(self, name: str, only: Unchanged | None) -> bool:
        if only is None:
            return True
        stat = await self.stat(name)
        return only.version == (None if stat is None else stat.version)
