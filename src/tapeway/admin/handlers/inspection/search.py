"""The journal searched for a text, a bounded part of it at a call."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tapeway.admin.context import HandlerContext
from tapeway.body_files import in_memory
from tapeway.core.misses.miss import MissedRequest
from tapeway.core.model.interaction import AnyInteraction, large_bodies
from tapeway.engine.journal import ServedRequest
from tapeway.engine.kept_calls import KeptCall
from tapeway.errors import StoreError
from tapeway.inspection.reading import MOST_READ
from tapeway.inspection.search import TextFilter
from tapeway.paging import bytes_of_bodies

MOST_ENTRIES = 5000
"""The number of entries whose texts are searched in one call."""

MOST_BYTES = 8 * 1024 * 1024
"""Of their bodies."""

BATCH = 50
"""Entries that are searched in a thread at a time."""

Searchable = AnyInteraction | MissedRequest | None
"""What an entry's request and answer are read from, beside the entry itself."""


@dataclass(slots=True)
class FoundEntries:
    """The entries that were found, how many were passed, and the last of these."""

    found: list[ServedRequest] = field(default_factory=list)
    passed: int = 0
    last: str | None = None


async def search(
    context: HandlerContext,
    entries: Iterator[tuple[ServedRequest, bool]],
    text: str,
    *,
    negate: bool,
    limit: int,
) -> FoundEntries:
    """Search entries for a text, until enough are found or the work of a call is done.

    Each found entry comes with whether it passes the other filters. `last` is None at the end.
    """
    searched = FoundEntries()
    reader, wanted = EntryReader(context), TextFilter(text)
    looked_at, more = 0, True
    while more and len(searched.found) < limit:
        if looked_at >= MOST_ENTRIES or reader.bytes > MOST_BYTES:
            return searched
        batch, passing = [], 0
        more = False
        for entry, passes in entries:
            batch.append((entry, passes, await reader.read(entry) if passes else None))
            passing += passes
            if passing >= BATCH or reader.bytes > MOST_BYTES:
                more = True
                break
        looked_at += passing
        said = await asyncio.to_thread(_said, wanted, batch)
        for (entry, passes, _), says in zip(batch, said, strict=True):
            searched.passed += 1
            searched.last = entry.id
            if passes and says != negate:
                searched.found.append(entry)
                if len(searched.found) == limit:
                    return searched
    if not more:
        searched.last = None
    return searched


def _said(
    wanted: TextFilter, batch: Sequence[tuple[ServedRequest, bool, Searchable]]
) -> list[bool]:
    # An entry is often one of many of the same recording.
    known: dict[int, bool] = {}
    found: list[bool] = []
    for entry, passes, item in batch:
        says = passes and _says(wanted, entry)
        if passes and not says and item is not None:
            if id(item) not in known:
                known[id(item)] = _item_says(wanted, item)
            says = known[id(item)]
        found.append(says)
    return found


def _says(wanted: TextFilter, entry: ServedRequest) -> bool:
    texts = (entry.method, entry.path, entry.cassette, entry.message or "")
    return any(map(wanted.is_in, texts))


def _item_says(wanted: TextFilter, item: AnyInteraction | MissedRequest) -> bool:
    if isinstance(item, MissedRequest):
        return wanted.is_in_request(item.request)
    return wanted.is_in_item(item)


async def kept_call(context: HandlerContext, entry: ServedRequest) -> KeptCall | None:
    """What the journal keeps of a call that no recording holds, redacted; None for nothing."""
    kept = context.journal.kept.get(entry.id)
    if kept is None or kept.redact is None:
        return kept
    redacted = await asyncio.to_thread(kept.redacted)
    # It is looked at more than once: in the list, and when somebody opens it.
    context.journal.kept.replace(entry.id, redacted)
    return redacted


class EntryReader:
    """Finds what entries were about; counts the bytes of it, each recording once."""

    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        self._found: dict[tuple[str, int], AnyInteraction | None] = {}
        self._read: dict[str, dict[int, AnyInteraction]] = {}
        self.bytes = 0

    async def read(self, entry: ServedRequest) -> Searchable:
        """A missed request, a kept call, or a recording; None where there is none any more."""
        if entry.interaction is None:
            kept = await kept_call(self._context, entry)
            self.bytes += 0 if kept is None else kept.size
            return kept and (kept.missed or kept.exchange)
        place = entry.cassette, entry.interaction
        if place not in self._found:
            try:
                item = await self._recording(*place)
                if item is not None:
                    item = await self._in_memory(item)
            except StoreError:
                item = None
            self._found[place] = item
        return self._found[place]

    async def _recording(self, name: str, index: int) -> AnyInteraction | None:
        broker = self._context.broker
        if broker.cassette(name) is not None or broker.store.shared is not None:
            return await broker.interaction(name, index)
        if name not in self._read:
            # A cassette that is not loaded is read as a whole, and once.
            stored = await broker.read(name)
            items = () if stored is None else stored.interactions
            self._read[name] = {item.index: item for item in items}
        return self._read[name].get(index)

    async def _in_memory(self, item: AnyInteraction) -> AnyInteraction:
        self.bytes += bytes_of_bodies(item)
        files = large_bodies(item)
        if files and all(file.size <= MOST_READ for file in files):
            return await in_memory(item)
        return item
