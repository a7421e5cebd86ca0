"""Interactions for reading: one of them, and the list without their bodies."""

import asyncio

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.handlers.cassettes import check_exists, read_cassette
from tapeway.admin.handlers.interactions import interaction_document, page_of
from tapeway.admin.models.interactions import InteractionQuery
from tapeway.admin.models.schema import Nothing
from tapeway.admin.operation import OperationCall, PlainCall
from tapeway.admin.responses import json_response
from tapeway.core.json_text import Json, dump
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction
from tapeway.engine.editing.lookup import no_cassette, no_interaction
from tapeway.inspection.exchange import ForeignView, ReadableExchange
from tapeway.inspection.summary import title


async def get_view(context: HandlerContext, call: PlainCall) -> web.Response:
    """One interaction for reading: texts, assembled answers, chunks and events with their times."""
    return await view_of(context, call.cassette, call.index)


async def view_of(context: HandlerContext, name: str, index: int) -> web.Response:
    """One interaction of a cassette for reading."""
    found = await the_interaction(context, name, index)
    if isinstance(found, ForeignInteraction):
        shown: ForeignView | ReadableExchange = ForeignView(
            found, interaction_document(name, found)
        )
    else:
        shown = await ReadableExchange.of(found)
    return json_response(await asyncio.to_thread(lambda: dump(shown.document)))


async def list_titles(
    context: HandlerContext, call: OperationCall[InteractionQuery, Nothing]
) -> web.Response:
    """A cassette's interactions in a line each, without their bodies."""
    name, broker = call.cassette, context.broker
    if broker.cassette(name) is None and broker.store.shared is None:
        return await _titles_of_stored(context, name, call.query)
    page, following = await page_of(context, name, call.query.after, call.query.limit)
    cassette = broker.cassette(name)
    unused = None if cassette is None else {*cassette.unused()}
    total = await _count(context, name)

    def text() -> bytes:
        titles: list[Json] = [
            title(each) | {"unused": None if unused is None else each.index in unused}
            for each in page
        ]
        return dump({"titles": titles, "total": total, "next": following})

    return json_response(await asyncio.to_thread(text))


async def _titles_of_stored(
    context: HandlerContext, name: str, query: InteractionQuery
) -> web.Response:
    """The same of a cassette that is not loaded, and that its store only reads whole."""
    if (stat := await context.broker.store.stat(name)) is None:
        raise no_cassette(name)
    titles = await context.titles.of(name, stat, lambda: read_cassette(context, name))
    return json_response(titles.page(query.after, query.limit))


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
    found = await context.broker.interaction(name, index)
    if found is None:
        await check_exists(context, name)
        raise no_interaction(name, index)
    return found
