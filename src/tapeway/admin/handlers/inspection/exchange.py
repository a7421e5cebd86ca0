"""Interactions for reading: a single interaction, and the list without bodies."""

import asyncio
from collections.abc import Sequence, Set

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.handlers.cassettes import check_exists, read_cassette, version_of
from tapeway.admin.handlers.interactions import interaction_document, page_of
from tapeway.admin.models.inspection import TitlesQuery
from tapeway.admin.models.schema import Nothing
from tapeway.admin.operation import OperationCall, PlainCall
from tapeway.admin.responses import json_response
from tapeway.core.json_text import Json, dump
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction
from tapeway.engine.editing.changes import no_interaction
from tapeway.inspection.exchange import ForeignView, ReadableExchange
from tapeway.inspection.known import MOST_HELD, HeldRecordings
from tapeway.inspection.summary import title
from tapeway.inspection.titles import TitleQuery, Titles

_TITLES_AT_ONCE = 1000


async def get_view(context: HandlerContext, call: PlainCall) -> web.Response:
    """One interaction for reading: texts, assembled answers, chunks and events with their times."""
    return await view_of(context, call.cassette, call.index)


async def view_of(context: HandlerContext, name: str, index: int) -> web.Response:
    """One interaction of a cassette for reading."""
    item = await the_interaction(context, name, index)
    if isinstance(item, ForeignInteraction):
        shown: ForeignView | ReadableExchange = ForeignView(item, interaction_document(name, item))
    else:
        shown = await ReadableExchange.of(item)
    return json_response(await asyncio.to_thread(lambda: dump(shown.document)))


async def list_titles(
    context: HandlerContext, call: OperationCall[TitlesQuery, Nothing]
) -> web.Response:
    """A cassette's interactions in a line each, without their bodies."""
    name, broker, query = call.cassette, context.broker, call.query
    wanted = TitleQuery(query.text or "", query.show, query.order)
    cassette = broker.cassette(name)
    unused = None if cassette is None else {*cassette.unused()}
    if wanted.is_plain and (cassette is not None or broker.store.shared is not None):
        page, following = await page_of(context, name, query.after, query.limit)
        total = await _count(context, name)
        return await _page_of_titles(page, following, total, unused)
    if wanted.is_plain and (held := await unloaded_recordings(context, name)) is not None:
        return await _page_of_titles(*held.page(query.after, query.limit), len(held), unused)
    titles = await context.known.of(
        Titles, name, await version_of(context, name), lambda: _read_titles(context, name)
    )
    return json_response(
        await asyncio.to_thread(titles.page, wanted, query.after, query.limit, unused)
    )


async def _page_of_titles(
    page: Sequence[AnyInteraction],
    following: int | None,
    total: int | None,
    unused: Set[int] | None,
) -> web.Response:
    """A page of a cassette that can be read from any place."""
    rest: dict[str, Json] = {"total": total, "found": None, "unsearched": 0, "next": following}

    def text() -> bytes:
        titles: list[Json] = [
            title(item) | {"unused": None if unused is None else item.index in unused}
            for item in page
        ]
        return dump({"titles": titles, **rest})

    return json_response(await asyncio.to_thread(text))


async def _read_titles(context: HandlerContext, name: str) -> Titles:
    """All titles of a cassette; of a paged store a part of the cassette is in memory at a time."""
    titles = Titles()
    if context.broker.store.shared is None:
        held = await unloaded_recordings(context, name)
        stored = (await read_cassette(context, name)).interactions if held is None else held.all
        items = [*stored]
        del stored
        await asyncio.to_thread(titles.add, items)
        return titles
    after: int | None = None
    while True:
        items, after = await page_of(context, name, after, _TITLES_AT_ONCE)
        await asyncio.to_thread(titles.add, items)
        if after is None:
            return titles


async def _count(context: HandlerContext, name: str) -> int | None:
    """How many interactions a cassette has; None where only reading it would tell."""
    if (cassette := context.broker.cassette(name)) is not None:
        return len(cassette)
    store = context.broker.store
    if store.facts.paged:
        outline = await store.outline(name)
        return None if outline is None else outline.count
    stat = await store.stat(name)
    return None if stat is None else context.counts.cached(name, stat)


async def the_interaction(context: HandlerContext, name: str, index: int) -> AnyInteraction:
    """An interaction. Raises AdminError (404), StoreError."""
    held = await unloaded_recordings(context, name)
    item = None if held is None else held.get(index)
    item = item or await context.broker.source.interaction(name, index)
    if item is None:
        await check_exists(context, name)
        raise no_interaction(name, index)
    return item


async def unloaded_recordings(context: HandlerContext, name: str) -> HeldRecordings | None:
    """The recordings of a file that is not loaded: the file is read for the first look alone.

    None for a loaded cassette, for a shared store, and for a file too large to keep in memory.
    """
    broker = context.broker
    if broker.store.shared is not None or broker.cassette(name) is not None:
        return None
    stat = await broker.store.stat(name)
    size = 0 if stat is None else stat.size_bytes
    if size > MOST_HELD:
        return None

    async def read() -> HeldRecordings:
        return HeldRecordings(await read_cassette(context, name), size)

    return await context.known.of(HeldRecordings, name, await version_of(context, name), read)
