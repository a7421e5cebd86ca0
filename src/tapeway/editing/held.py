"""Which interaction of a cassette is meant by an index and what it says."""

import asyncio
from collections.abc import Sequence

from tapeway.core.cassette import Cassette
from tapeway.core.shared import Held
from tapeway.editing.additions import Reference
from tapeway.editing.receipts import Appended
from tapeway.formats import fingerprint


def same(cassette: Cassette, index: int | None, item: Held) -> Appended | None:
    """The interaction of this index, where it says just the same."""
    held = None if index is None else cassette.get(index)
    if held is None or (digest := fingerprint.of_item(held)) != fingerprint.of_item(item):
        return None
    return Appended(held.index, digest)


async def superseded_by(cassette: Cassette, wanted: Sequence[Reference]) -> tuple[int, ...]:
    """The indexes of those wanted that are still there, wherever they are now."""
    found: list[int] = []
    moved: list[str] = []
    for each in wanted:
        held = cassette.get(each.index)
        if held is not None and each.sha256 == fingerprint.of_item(held):
            found.append(each.index)
        else:
            moved.append(each.sha256)
    if moved:
        held_now = sorted(cassette.snapshot(), key=lambda held: held.index)
        found += await asyncio.to_thread(_sought, held_now, moved, frozenset(found))
    return tuple(found)


def _sought(held: Sequence[Held], digests: list[str], used: frozenset[int]) -> list[int]:
    found: list[int] = []
    for each in held:
        if each.index not in used and (digest := fingerprint.of_item(each)) in digests:
            digests.remove(digest)
            found.append(each.index)
            if not digests:
                break
    return found
