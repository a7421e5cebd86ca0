"""A cassette gone through in order, in memory for a few of its recordings where its store allows it."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from tapeway.core.json_text import dump
from tapeway.core.model.cassette import CassetteHead, Held, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import BodyFile
from tapeway.ports import CassetteStore, Paged

MOST = 16 * 1024 * 1024
"""Bytes that a page is meant to hold at most, bodies in files among them: those lie somewhere too."""

_FIRST, _LARGEST = 8, 256


@dataclass(frozen=True, slots=True)
class Walk:
    """What a cassette says of itself, how many interactions it has, and those, to be taken once."""

    head: CassetteHead
    count: int
    items: AsyncIterator[Held]


async def walk(store: CassetteStore, name: str) -> Walk | None:
    """The cassette, or None where there is none. Raises StoreError, CassetteCorrupt.

    A store that is not `Paged` gives all of it at once.
    """
    if isinstance(store, Paged):
        outline = await store.outline(name)
        if outline is None:
            return None
        return Walk(outline.head, outline.count, _pages(store, name))
    stored = await store.load(name, writable=False)
    return None if stored is None else over(stored)


def over(stored: StoredCassette) -> Walk:
    """A cassette that is in memory already."""
    return Walk(stored.head, len(stored.interactions), _each(stored.interactions))


async def count(store: CassetteStore, name: str) -> int | None:
    """How many interactions a cassette has, or None where there is none. Raises StoreError."""
    found = await walk(store, name)
    return None if found is None else found.count


def weight(item: Held) -> int:
    """How many bytes its bodies have, wherever they lie."""
    if not isinstance(item, Interaction):
        return len(dump(dict(item.document)))
    request, response = item.request, item.response
    inside = len(request.body) + sum([len(chunk.data) for chunk in response.chunks])
    return inside + sum([file.size for file in large_bodies(item)])


def large_bodies(item: Held) -> list[BodyFile]:
    """The bodies of an interaction that lie in files."""
    if not isinstance(item, Interaction):
        return []
    return [file for file in (item.request.file, item.response.file) if file is not None]


async def _pages(store: Paged, name: str) -> AsyncIterator[Held]:
    after, limit = None, _FIRST
    while found := await store.page(name, after=after, limit=limit):
        heavy = 0
        for each in found:
            heavy += weight(each.item)
            yield each.item
        after = found[-1].item.index
        # What the next ones weigh nobody knows, but recordings of one cassette are alike.
        if heavy > MOST:
            limit = max(1, limit // 4)
        elif heavy < MOST // 4:
            limit = min(_LARGEST, limit * 2)


async def _each(items: Iterable[Held]) -> AsyncIterator[Held]:
    for item in items:
        yield item
