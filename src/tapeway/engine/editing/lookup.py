"""Finds the interaction that an index or a digest names, and makes the errors where there is none."""

import asyncio
from collections.abc import Sequence

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.recording_keys import index_keys
from tapeway.core.matching import rules
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.engine.editing.changes import Appended, Reference
from tapeway.errors import AdminError, CassetteEdited
from tapeway.formats.native import document
from tapeway.ports import SharedStore


def no_cassette(name: str) -> AdminError:
    """The error for a cassette that does not exist."""
    return AdminError(
        f"there is no cassette '{name}': /api/v1/cassettes lists those there are",
        status=404,
        code="no_cassette",
    )


def no_interaction(name: str, index: int) -> AdminError:
    """The error for an interaction that a cassette does not have."""
    return AdminError(
        f"cassette '{name}' has no interaction {index}", status=404, code="no_interaction"
    )


def position_of(name: str, items: Sequence[AnyInteraction], index: int) -> int:
    """The position of the interaction with this index. Raises AdminError (404)."""
    for place, each in enumerate(items):
        if each.index == index:
            return place
    raise no_interaction(name, index)


def after_index(name: str, items: Sequence[AnyInteraction], index: int) -> Sequence[AnyInteraction]:
    """The interactions after this index. Raises CassetteEdited where it is gone."""
    for place, each in enumerate(items):
        if each.index == index:
            return items[place + 1 :]
    raise CassetteEdited(
        f"cassette '{name}' was changed while it was gone through, and interaction {index} is "
        "gone: begin again"
    )


def identical_at(
    cassette: CassetteIndex, index: int | None, item: AnyInteraction
) -> Appended | None:
    """The interaction of this index if it is identical to `item`."""
    held = None if index is None else cassette.get(index)
    if held is None or (digest := document.interaction_digest(held)) != document.interaction_digest(
        item
    ):
        return None
    return Appended(held.index, digest)


async def find_identical(
    store: SharedStore, name: str, head: CassetteHead, items: Sequence[AnyInteraction]
) -> dict[int, Appended]:
    """The items that are in the cassette already, identical to the last byte, by their number."""
    found: dict[int, Appended] = {}
    used: set[int] = set()
    for number, item in enumerate(items):
        if not isinstance(item, Interaction):
            continue
        digest = document.interaction_digest(item)
        keys = index_keys(item, rules.rules_of_meta(head.meta))
        for each in (await store.look(name, 0, (), keys)).recordings:
            if each.item.index not in used and document.interaction_digest(each.item) == digest:
                used.add(each.item.index)
                found[number] = Appended(each.item.index, digest)
                break
    return found


async def find_superseded(cassette: CassetteIndex, wanted: Sequence[Reference]) -> tuple[int, ...]:
    """The present indexes of wanted interactions that still exist."""
    found: list[int] = []
    moved: list[str] = []
    for each in wanted:
        held = cassette.get(each.index)
        if held is not None and each.sha256 == document.interaction_digest(held):
            found.append(each.index)
        else:
            moved.append(each.sha256)
    if moved:
        held_now = sorted(cassette.snapshot(), key=lambda held: held.index)
        found += await asyncio.to_thread(_find_moved, held_now, moved, frozenset(found))
    return tuple(found)


def _find_moved(
    held: Sequence[AnyInteraction], digests: list[str], used: frozenset[int]
) -> list[int]:
    found: list[int] = []
    for each in held:
        if each.index not in used and (digest := document.interaction_digest(each)) in digests:
            digests.remove(digest)
            found.append(each.index)
            if not digests:
                break
    return found
