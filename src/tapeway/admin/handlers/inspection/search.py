"""The journal searched for a text, a bounded part of it at a call."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from tapeway.admin.context import HandlerContext
from tapeway.admin.handlers.cassettes import version_of
from tapeway.body_files import in_memory
from tapeway.core.misses.miss import MissedRequest
from tapeway.core.model.interaction import AnyInteraction, large_bodies
from tapeway.engine.journal import ServedRequest
from tapeway.engine.kept_calls import KeptCall
from tapeway.errors import AdminError, StoreError
from tapeway.inspection.reading import MOST_READ
from tapeway.inspection.search import RecordedTexts, TextFilter
from tapeway.paging import bytes_of_bodies

MOST_ENTRIES = 5000
"""How many entries a single call searches."""

MOST_BYTES = 8 * 1024 * 1024
"""Of their bodies."""

BATCH = 50
"""Entries that are searched in a thread at a time."""

Searchable = AnyInteraction | MissedRequest | None
"""What an entry's request and answer are read from, beside the entry itself."""

_Batch = list[tuple[ServedRequest, bool, Searchable | str]]
"""Entries, whether each passes the other filters, and what to search: read now, or a kept text."""


@dataclass(slots=True)
class FoundEntries:
    """The found entries, the number of searched entries, and the last searched entry."""

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

    `entries` yields each entry with the result of the other filters. `last` is None at the end.
    """
    searched = FoundEntries()
    texts = _TextsOfCassettes(context)
    reader, wanted = EntryReader(context), TextFilter(text)
    looked_at, more = 0, True
    while more and len(searched.found) < limit:
        if looked_at >= MOST_ENTRIES or reader.bytes > MOST_BYTES:
            return searched
        batch: _Batch = []
        passing = 0
        more = False
        for entry, passes in entries:
            said_before = await texts.of(entry) if passes else None
            item = await reader.read(entry) if passes and said_before is None else said_before
            batch.append((entry, passes, item))
            passing += passes
            if passing >= BATCH or reader.bytes > MOST_BYTES:
                more = True
                break
        looked_at += passing
        verdicts = await asyncio.to_thread(_matches, wanted, batch, texts)
        for (entry, passes, _), says in zip(batch, verdicts, strict=True):
            searched.passed += 1
            searched.last = entry.id
            if passes and says != negate:
                searched.found.append(entry)
                if len(searched.found) == limit:
                    return searched
    if not more:
        searched.last = None
    return searched


def _matches(wanted: TextFilter, batch: _Batch, texts: "_TextsOfCassettes") -> list[bool]:
    # Many entries often belong to the same recording.
    known: dict[int, bool] = {}
    verdicts: list[bool] = []
    for entry, passes, item in batch:
        says = passes and _entry_matches(wanted, entry)
        if passes and not says and item is not None:
            if id(item) not in known:
                known[id(item)] = _item_says(wanted, entry, item, texts)
            says = known[id(item)]
        verdicts.append(says)
    return verdicts


def _entry_matches(wanted: TextFilter, entry: ServedRequest) -> bool:
    texts = (entry.method, entry.path, entry.cassette, entry.message or "")
    return any(map(wanted.is_in, texts))


def _item_says(
    wanted: TextFilter,
    entry: ServedRequest,
    item: AnyInteraction | MissedRequest | str,
    texts: "_TextsOfCassettes",
) -> bool:
    if isinstance(item, str):
        return wanted.is_in_folded(item)
    if isinstance(item, MissedRequest):
        return wanted.is_in_request(item.request)
    if (known := texts.known.get(entry.holder)) is None or entry.interaction is None:
        return wanted.is_in_item(item)
    return wanted.is_in_folded(known.add(item))


class _TextsOfCassettes:
    """The texts of recordings, as far as earlier searches have read them."""

    def __init__(self, context: HandlerContext) -> None:
        self._context = context
        self.known: dict[str, RecordedTexts | None] = {}
        """None for a cassette that is gone, or cannot be read."""

    async def of(self, entry: ServedRequest) -> str | None:
        """The text of an entry's recording; None if no earlier search has read the recording."""
        if entry.interaction is None:
            return None
        name = entry.holder
        if name not in self.known:
            # Before a recording is read: what is read later may only be newer than the version.
            self.known[name] = await self._read(name)
        known = self.known[name]
        return None if known is None else known.get(entry.interaction)

    async def _read(self, name: str) -> RecordedTexts | None:
        async def read() -> RecordedTexts:
            return RecordedTexts()

        try:
            version = await version_of(self._context, name)
        except (AdminError, StoreError):
            return None
        return await self._context.known.of(RecordedTexts, name, version, read)


async def kept_call(context: HandlerContext, entry: ServedRequest) -> KeptCall | None:
    """The journal's redacted copy of a call without a recording; None without a copy."""
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
        key = entry.holder, entry.interaction
        if key not in self._found:
            try:
                item = await self._recording(*key)
                if item is not None:
                    item = await self._in_memory(item)
            except StoreError:
                item = None
            self._found[key] = item
        return self._found[key]

    async def _recording(self, name: str, index: int) -> AnyInteraction | None:
        broker = self._context.broker
        if broker.cassette(name) is not None or broker.store.shared is not None:
            return await broker.source.interaction(name, index)
        if name not in self._read:
            # A cassette that is not loaded is read as a whole, and once.
            stored = await broker.source.read(name)
            items = () if stored is None else stored.interactions
            self._read[name] = {item.index: item for item in items}
        return self._read[name].get(index)

    async def _in_memory(self, item: AnyInteraction) -> AnyInteraction:
        self.bytes += bytes_of_bodies(item)
        files = large_bodies(item)
        if files and all(file.size <= MOST_READ for file in files):
            return await in_memory(item)
        return item
