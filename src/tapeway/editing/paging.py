"""A cassette gone through in the order its store keeps, with few of its recordings in memory."""

from collections.abc import AsyncGenerator

from tapeway.core.json_text import dump
from tapeway.core.model.cassette import Held
from tapeway.core.model.interaction import Interaction
from tapeway.ports import Paged

MOST = 8 * 1024 * 1024
"""Bytes of bodies that a page is meant to hold at most."""

_FIRST, _LARGEST = 8, 256


async def pages(store: Paged, name: str, after: int | None) -> AsyncGenerator[Held]:
    """Those behind the one of that index, or all. Raises StoreError, CassetteEdited."""
    limit = _FIRST
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


def weight(item: Held) -> int:
    """How many bytes of bodies it holds in memory."""
    if not isinstance(item, Interaction):
        return len(dump(dict(item.document)))
    return len(item.request.body) + sum([len(chunk.data) for chunk in item.response.chunks])
