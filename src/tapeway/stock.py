"""What a shared store says of a cassette as a whole: what is in it, used and unused."""

from tapeway.core.model.control import Control
from tapeway.ports import SharedStore
from tapeway.report import CassetteReport, Item, Tally, of_counts
from tapeway.rulebook import Loaded

MOST_LISTED = 10_000
"""Further unused recordings and duplicates are counted, not named."""


async def report_of(
    store: SharedStore, control: Control, name: str, tally: Tally
) -> CassetteReport:
    """What this instance counted, and what no instance has used."""
    unused = await store.unused(name, control.take_of(name), MOST_LISTED)
    duplicates = await store.duplicates(name, MOST_LISTED)
    return of_counts(
        name,
        tally,
        [Item(each.index, each.method, each.target) for each in unused],
        [[Item(each.index, each.method, each.target) for each in group] for group in duplicates],
    )


async def listed(store: SharedStore, control: Control, name: str) -> Loaded:
    """How many recordings there are, and how many of them no instance has used."""
    if (outline := await store.outline(name)) is None:
        return Loaded(name, 0, 0)
    unused = await store.unused_count(name, control.take_of(name))
    return Loaded(name, outline.count, unused)


async def in_use(store: SharedStore, control: Control, name: str) -> bool:
    """Whether any instance has used it in this take, or records into it now."""
    now = await listed(store, control, name)
    return now.unused < now.interactions or bool(await store.fences(name))
