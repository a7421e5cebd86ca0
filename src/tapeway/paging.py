"""Iterates over a cassette in order, a page at a time if its store has pages."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace

from tapeway.core.json_text import dump
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.filed import FiledInteraction
from tapeway.core.model.interaction import AnyInteraction, Interaction, large_bodies
from tapeway.ports import CassetteStore

PAGE_BYTES = 8 * 1024 * 1024
"""How many bytes of bodies a page should have at most."""

BATCH_BYTES = 1024 * 1024
"""The same of what is written at once: it is in memory several times, as text and as values."""

_FIRST, LARGEST = 8, 256
"""Recordings in the first page, and in any."""


@dataclass(frozen=True, slots=True)
class CassetteWalk:
    """A cassette's head, its number of interactions, and an iterator over them, to be used once."""

    head: CassetteHead
    count: int
    items: AsyncIterator[AnyInteraction]


async def walk_cassette(store: CassetteStore, name: str) -> CassetteWalk | None:
    """The cassette, or None where there is none. Raises StoreError, CassetteCorrupt.

    A store without pages gives all of it at once.
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
    """The items of a cassette that is loaded, as a walk gives them."""
    for item in items:
        if isinstance(item, FiledInteraction):
            # A copy: a walk through a large file does not gather it in memory.
            copy = replace(item)
            item.forget()
            yield copy
        else:
            yield item


async def pages_after(
    store: CassetteStore, name: str, after: int | None
) -> AsyncGenerator[AnyInteraction]:
    """The interactions after that index, or all. Raises StoreError, CassetteEdited."""
    limit = _FIRST
    while page := await store.page(name, after=after, limit=limit):
        size = 0
        for recording in page:
            # Bodies in files too: a store may have to fetch them.
            size += bytes_of_bodies(recording.item)
            yield recording.item
        after = page[-1].item.index
        # The next page is sized by this one: recordings of one cassette are alike.
        if size > PAGE_BYTES:
            limit = max(1, limit // 4)
        elif size < PAGE_BYTES // 4:
            limit = min(LARGEST, limit * 2)


def batch_from(items: Sequence[AnyInteraction], start: int, most: int) -> list[AnyInteraction]:
    """The next items, at most so many, and no more than BATCH_BYTES in memory unless one has.

    They may have to be read from the disk: call it in a thread.
    """
    batch: list[AnyInteraction] = []
    size = 0
    for at in range(start, min(start + most, len(items))):
        batch.append(item := items[at])
        # What else there is is small, and may be what cannot be written.
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
