"""Iterates over a cassette in order, a page at a time if its store has pages."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from dataclasses import dataclass

from tapeway.core.json_text import dump
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction, large_bodies
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.ports import CassetteStore

PAGE_BYTES = 8 * 1024 * 1024
"""How many bytes of bodies a page should have at most."""

BATCH_BYTES = 1024 * 1024
"""How many bytes of bodies are written at once: memory holds them several times, as text and values."""

_FIRST, LARGEST = 8, 256
"""Recordings in the first page, and the most in any page."""


@dataclass(frozen=True, slots=True)
class CassetteWalk:
    """The head of a cassette, the number of interactions, and an iterator to use once."""

    head: CassetteHead
    count: int
    items: AsyncIterator[AnyInteraction]


async def walk_cassette(store: CassetteStore, name: str) -> CassetteWalk | None:
    """A walk over the cassette, or None without a cassette. Raises StoreError, CassetteCorrupt.

    A store without pages loads the whole cassette at once.
    """
    if store.facts.paged:
        outline = await store.outline(name)
        if outline is None:
            return None
        return CassetteWalk(outline.head, outline.count, pages_after(store, name, None))
    stored = await store.load(name, writable=False)
    return None if stored is None else walk_over(stored)


def walk_over(stored: StoredCassette) -> CassetteWalk:
    """A walk over a cassette that is already loaded."""
    return CassetteWalk(stored.head, len(stored.interactions), each_of(stored.interactions))


async def each_of(items: Iterable[AnyInteraction]) -> AsyncGenerator[AnyInteraction]:
    """The items of a loaded cassette, as a walk gives them."""
    for item in items:
        # A walk must not gather a large file in memory.
        yield item.load() if isinstance(item, LazyInteraction) else item


async def pages_after(
    store: CassetteStore, name: str, after: int | None
) -> AsyncGenerator[AnyInteraction]:
    """The interactions after that index, or all. Raises StoreError, CassetteEdited."""
    limit = _FIRST
    while page := await store.page(name, after=after, limit=limit):
        size = 0
        for recording in page:
            # Bodies in files count: a store may have to fetch them.
            size += bytes_of_bodies(recording.item)
            yield recording.item
        after = page[-1].item.index
        # Recordings of one cassette are alike, so this page tells how many the next may have.
        if size > PAGE_BYTES:
            limit = max(1, limit // 4)
        elif size < PAGE_BYTES // 4:
            limit = min(LARGEST, limit * 2)


def batch_from(items: Sequence[AnyInteraction], start: int, most: int) -> list[AnyInteraction]:
    """At most `most` next items, of BATCH_BYTES in memory at most, or a single larger item.

    The items may come from the disk: call this in a thread.
    """
    batch: list[AnyInteraction] = []
    size = 0
    for at in range(start, min(start + most, len(items))):
        batch.append(item := items[at])
        # Other items are small, and the store may be unable to write them.
        size += bytes_in_memory(item) if isinstance(item, Interaction) else 0
        if size >= BATCH_BYTES:
            break
    return batch


def bytes_of_bodies(item: AnyInteraction) -> int:
    """How many bytes the bodies of an interaction have, in memory or in files."""
    return bytes_in_memory(item) + sum([file.size for file in large_bodies(item)])


def bytes_in_memory(item: AnyInteraction) -> int:
    """How many bytes of bodies an interaction has in memory."""
    if not isinstance(item, Interaction):
        return len(dump(dict(item.document)))
    return len(item.request.body) + len(item.response.body)
