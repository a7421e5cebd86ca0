"""A cassette in a store without files: looked at for secrets, and mended where it lies."""

from collections.abc import AsyncIterator
from dataclasses import replace

from tapeway.cli.cleansing import in_files
from tapeway.cli.examination import Examination
from tapeway.cli.places import Place
from tapeway.core.model.cassette import CassetteHead, Held, StoredCassette
from tapeway.core.redaction.known_values import KnownValues
from tapeway.formats.native.secret_scan import Inspected, Inspector, mended_as
from tapeway.paging import CassetteWalk, walk_over
from tapeway.ports import Editable
from tapeway.stores.shared.serialize import document_of


async def examine(found: Place, known: KnownValues) -> Examination:
    """Look at all of it. Raises ConfigError where there is none, StoreError."""
    through = await found.walk()
    result = Examination(through.head)
    async for _ in _mended(through, known, result):
        pass
    return result


async def mend(found: Place, known: KnownValues) -> Examination:
    """The same, and put in the place of each interaction that shows something what shows nothing.

    Where the store changes single ones, others may go on recording meanwhile, and what breaks off
    has mended some of them.
    """
    store = found.store
    if not isinstance(store, Editable):
        return await _mend_at_once(found, known)
    through = await found.walk()
    result = Examination(through.head)
    async for item, mended in _mended(through, known, result):
        if mended is not item:
            await store.edit(found.name, item.index, mended)
    if result.head != through.head:
        await store.restate(found.name, result.head)
    return result


async def _mend_at_once(found: Place, known: KnownValues) -> Examination:
    stored = await found.load(writable=True)
    result = Examination(stored.head)
    items = [mended async for _, mended in _mended(walk_over(stored), known, result)]
    if result.replaced:
        await found.store.save(found.name, StoredCassette(result.head, tuple(items)))
    return result


async def _mended(
    through: CassetteWalk, known: KnownValues, result: Examination
) -> AsyncIterator[tuple[Held, Held]]:
    inspector = Inspector(through.head.run_id, known)
    result.head = _head(through.head, inspector, result)
    position = 0
    async for item in through.items:
        at = ("interactions", position)
        document = document_of(item)
        seen = inspector.interaction(item, document)
        result.add(seen, at)
        result.add(Inspected(document, (), tuple(in_files(inspector, item))), at)
        yield item, item if seen.document is document else mended_as(item, seen.document)
        position += 1


def _head(head: CassetteHead, inspector: Inspector, result: Examination) -> CassetteHead:
    meta = inspector.document(dict(head.meta))
    result.add(meta, ("meta",))
    return replace(head, meta=meta.document)
