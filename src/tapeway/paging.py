"""A cassette gone through in order, in memory for a few of its recordings where its store allows it.

A cassette gone through in the order its store keeps, with few of its recordings in memory.

The order of a cassette's interactions while recordings come in.

A recording takes the place of the first one it supersedes, so that recording anew changes a file
only where an answer changed; one that supersedes nothing goes to the end.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tapeway.core.json_text import dump
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import BodyFile
from tapeway.ports import CassetteStore, Paged

_WALK_BYTES = 16 * 1024 * 1024
"""Bytes that a page is meant to hold at most, bodies in files among them: those lie somewhere too."""
_FIRST, _LARGEST = 8, 256

PAGE_BYTES = 8 * 1024 * 1024
"""Bytes of bodies that a page is meant to hold at most."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CassetteWalk:
    """What a cassette says of itself, how many interactions it has, and those, to be taken once."""

    head: CassetteHead
    count: int
    items: AsyncIterator[AnyInteraction]


async def walk_cassette(store: CassetteStore, name: str) -> CassetteWalk | None:
    """The cassette, or None where there is none. Raises StoreError, CassetteCorrupt.

    A store without pages gives all of it at once.
    """
    if (paged := store.capabilities.paged) is not None:
        outline = await paged.outline(name)
        if outline is None:
            return None
        return CassetteWalk(outline.head, outline.count, _pages(paged, name))
    stored = await store.load(name, writable=False)
    return None if stored is None else walk_over(stored)


def walk_over(stored: StoredCassette) -> CassetteWalk:
    """A cassette that is in memory already."""
    return CassetteWalk(stored.head, len(stored.interactions), _each(stored.interactions))


async def count_of(store: CassetteStore, name: str) -> int | None:
    """How many interactions a cassette has, or None where there is none. Raises StoreError."""
    found = await walk_cassette(store, name)
    return None if found is None else found.count


def weight(item: AnyInteraction) -> int:
    """How many bytes its bodies have, wherever they lie."""
    if not isinstance(item, Interaction):
        return len(dump(dict(item.document)))
    request, response = item.request, item.response
    inside = len(request.body) + sum([len(chunk.data) for chunk in response.chunks])
    return inside + sum([file.size for file in large_bodies(item)])


def large_bodies(item: AnyInteraction) -> list[BodyFile]:
    """The bodies of an interaction that lie in files."""
    if not isinstance(item, Interaction):
        return []
    return [file for file in (item.request.file, item.response.file) if file is not None]


async def _pages(store: Paged, name: str) -> AsyncIterator[AnyInteraction]:
    after, limit = None, _FIRST
    while found := await store.page(name, after=after, limit=limit):
        heavy = 0
        for each in found:
            heavy += weight(each.item)
            yield each.item
        after = found[-1].item.index
        # What the next ones weigh nobody knows, but recordings of one cassette are alike.
        if heavy > _WALK_BYTES:
            limit = max(1, limit // 4)
        elif heavy < _WALK_BYTES // 4:
            limit = min(_LARGEST, limit * 2)


async def _each(items: Iterable[AnyInteraction]) -> AsyncIterator[AnyInteraction]:
    for item in items:
        yield item


async def pages_after(store: Paged, name: str, after: int | None) -> AsyncGenerator[AnyInteraction]:
    """Those behind the one of that index, or all. Raises StoreError, CassetteEdited."""
    limit = _FIRST
    while found := await store.page(name, after=after, limit=limit):
        heavy = 0
        for each in found:
            heavy += bytes_in_memory(each.item)
            yield each.item
        after = found[-1].item.index
        # What the next ones weigh nobody knows, but recordings of one cassette are alike.
        if heavy > PAGE_BYTES:
            limit = max(1, limit // 4)
        elif heavy < PAGE_BYTES // 4:
            limit = min(_LARGEST, limit * 2)


def bytes_in_memory(item: AnyInteraction) -> int:
    """How many bytes of bodies it holds in memory."""
    if not isinstance(item, Interaction):
        return len(dump(dict(item.document)))
    return len(item.request.body) + sum([len(chunk.data) for chunk in item.response.chunks])


class Placement(Generic[T]):
    """Items by index, in order; `next_free` is an index none ever had.

    Adding one costs the same however many there are.
    """

    def __init__(self, items: Iterable[tuple[int, T]] = ()) -> None:
        self._slots: list[tuple[int, T] | None] = []
        self._slot_of: dict[int, int] = {}
        self.next_free = 0
        for index, item in items:
            self.add(index, item)

    def __contains__(self, index: int) -> bool:
        return index in self._slot_of

    def get(self, index: int) -> T | None:
        slot = self._slot_of.get(index)
        found = None if slot is None else self._slots[slot]
        return None if found is None else found[1]

    def add(self, index: int, item: T, supersedes: Iterable[int] = ()) -> None:
        freed = [self._slot_of.pop(each) for each in supersedes if each in self._slot_of]
        for slot in freed:
            self._slots[slot] = None
        slot = min(freed, default=len(self._slots))
        if slot == len(self._slots):
            self._slots.append(None)
        self._slots[slot] = (index, item)
        self._slot_of[index] = slot
        self.next_free = max(self.next_free, index + 1)

    def items(self) -> list[tuple[int, T]]:
        return [slot for slot in self._slots if slot is not None]
