"""Reads the documents of a cassette, and changes a cassette in its place, on every store.

A change decides for each interaction: the interaction stays, becomes another interaction, or goes.
Where all interactions stay, nothing is written.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction
from tapeway.formats.fields import Document
from tapeway.formats.native.secret_scan import decode_changed
from tapeway.paging import CassetteRef, each_of
from tapeway.ports import SharedStore
from tapeway.stores.file import offline
from tapeway.stores.file.offline import ClaimedCassette, OfflineCassette
from tapeway.stores.support.serialize import document_of

Change = Callable[[AnyInteraction, Document], Document | None]
"""Takes an interaction and its document, perhaps several times.

Returns the given document if the interaction stays, a new document to change the interaction, and
None to remove the interaction.
"""

Found = AsyncIterator[tuple[AnyInteraction, Document]]


@dataclass(frozen=True, slots=True)
class CassetteContents:
    """A cassette as stored; people may have written the documents of a file by hand."""

    head: CassetteHead
    found: Callable[[], Found]
    """Begins to iterate over the interactions with their documents. Raises StoreError."""


@dataclass(frozen=True, slots=True)
class ChangeableCassette(CassetteContents):
    """A cassette, claimed for a change unless its store is shared."""

    change: Callable[[Change, CassetteHead], Awaitable[None]]
    """Makes a change, and replaces the head. Raises StoreError.

    A claimed cassette is changed as a whole or not at all. In a shared store others go on recording,
    and interactions are changed one by one: an interruption leaves the rest unchanged.
    """


async def read(cassette: CassetteRef) -> CassetteContents:
    """A cassette of an open store. Raises ConfigError, StoreError."""
    await cassette.check_exists()
    if (folder := cassette.store.facts.folder) is not None:
        filed = offline.read(folder, cassette.name)
        return CassetteContents(filed.head, partial(_found_in_file, filed))
    return await _walked(cassette)


@asynccontextmanager
async def claimed(cassette: CassetteRef) -> AsyncIterator[ChangeableCassette]:
    """A cassette of an open store, to be changed. Raises ConfigError, StoreError, CassetteLocked."""
    await cassette.check_exists()
    if (folder := cassette.store.facts.folder) is not None:
        with offline.claimed(folder, cassette.name) as claim:
            found = partial(_found_in_file, claim.cassette)
            yield ChangeableCassette(claim.cassette.head, found, partial(_change_file, claim))
    elif (shared := cassette.store.shared) is not None:
        rows = await _walked(cassette)
        change = partial(_change_rows, shared, cassette.name, rows)
        yield ChangeableCassette(rows.head, rows.found, change)
    else:
        stored = await cassette.load(writable=True)
        found = partial(_found_in_memory, stored)
        yield ChangeableCassette(stored.head, found, partial(_change_whole, cassette, stored))


async def _walked(cassette: CassetteRef) -> CassetteContents:
    async def found() -> Found:
        async for item in (await cassette.walk()).items:
            yield item, document_of(item)

    return CassetteContents((await cassette.walk()).head, found)


async def _found_in_memory(stored: StoredCassette) -> Found:
    async for item in each_of(stored.interactions):
        yield item, document_of(item)


async def _found_in_file(cassette: OfflineCassette) -> Found:
    for interaction in cassette.interactions:
        yield interaction.item, interaction.document


async def _change_file(claim: ClaimedCassette, make: Change, head: CassetteHead) -> None:
    # The second reading keeps a large cassette out of memory.
    before = claim.cassette
    made = ((make(found.item, found.document), found.document) for found in before.interactions)
    if head != before.head or any(after is not document for after, document in made):
        after = (make(found.item, found.document) for found in before.interactions)
        claim.replace(head, filter(None, after))


async def _change_rows(
    store: SharedStore, name: str, rows: CassetteContents, make: Change, head: CassetteHead
) -> None:
    # The walk goes on from the last interaction, which must still exist.
    changed = [
        item.index async for item, document in rows.found() if make(item, document) is not document
    ]
    for index in changed:
        for recording in await store.documents(name, [index]):
            after = make(recording.item, document_of(recording.item))
            item = None if after is None else decode_changed(recording.item, after)
            await store.edit(name, index, item)
    if head != rows.head:
        await store.replace_head(name, head)


async def _change_whole(
    cassette: CassetteRef, stored: StoredCassette, make: Change, head: CassetteHead
) -> None:
    left: list[AnyInteraction] = []
    held, is_changed = iter(stored.interactions), head != stored.head
    async for item, document in _found_in_memory(stored):
        after, unchanged = make(item, document), next(held)
        is_changed |= after is not document
        if after is not None:
            # An unchanged interaction may stay in the file of the store.
            left.append(unchanged if after is document else decode_changed(item, after))
    if is_changed:
        await cassette.store.save(cassette.name, StoredCassette(head, tuple(left)))
