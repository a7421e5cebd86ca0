"""The interactions of a cassette, as its document shows them."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from aiohttp import web

from tapeway.admin.cassettes import read_cassette
from tapeway.admin.console import Console
from tapeway.admin.payloads import InteractionQuery, Nothing
from tapeway.admin.route import Call, Plain
from tapeway.admin.tags import tag
from tapeway.core.json_text import Json, dump
from tapeway.core.model.cassette import Held
from tapeway.engine.editing.lookup import no_cassette, no_interaction
from tapeway.errors import CassetteCorrupt
from tapeway.formats.errors import FormatFault
from tapeway.formats.native.document import encode, of_document
from tapeway.paging import PAGE_BYTES, bytes_in_memory
from tapeway.ports import SharedStore


async def list_interactions(
    console: Console, call: Call[InteractionQuery, Nothing]
) -> web.Response:
    """A cassette's interactions, in order; a page of large ones ends before its limit."""
    query = call.query
    page, following = await _page(console, call.cassette, query.after, query.limit)
    body = await asyncio.to_thread(_listed, call.cassette, page, following)
    return web.Response(body=body, content_type="application/json")


async def get_interaction(console: Console, call: Plain) -> web.Response:
    """One interaction."""
    name, index = call.cassette, call.index
    broker = console.broker
    found = await broker.interaction(name, index)
    if found is None:
        if not broker.is_in(name) and await broker.store.stat(name) is None:
            raise no_cassette(name)
        raise no_interaction(name, index)
    document = _document(name, found)
    body = await asyncio.to_thread(dump, document)
    etag = {"ETag": tag(of_document(document))}
    return web.Response(body=body, content_type="application/json", headers=etag)


async def _page(
    console: Console, name: str, after: int | None, limit: int
) -> tuple[list[Held], int | None]:
    """Some interactions, and the index after which there are more."""
    if not isinstance(console.broker.store, SharedStore):
        stored = await read_cassette(console, name)
        held = sorted(stored.interactions, key=lambda each: each.index)
        later = [each for each in held if after is None or each.index > after]
        return later[:limit], later[limit - 1].index if len(later) > limit else None
    if (found := await console.broker.editor.walk(name, after)) is None:
        raise no_cassette(name)
    page, heavy = list[Held](), 0
    async with aclosing(found.items) as items:
        async for item in items:
            if len(page) == limit or heavy > PAGE_BYTES:
                return page, page[-1].index
            page.append(item)
            heavy += bytes_in_memory(item)
    return page, None


def _listed(name: str, page: Sequence[Held], following: int | None) -> bytes:
    documents: list[Json] = [_document(name, each) for each in page]
    return dump({"interactions": documents, "next": following})


def _document(name: str, held: Held) -> dict[str, Json]:
    try:
        document = encode(held)
    except FormatFault as fault:
        raise CassetteCorrupt(
            f"interaction {held.index} of cassette '{name}' cannot be written: {fault}"
        ) from fault
    # The index by which this API knows it: a copied or unnumbered one was given another.
    return {"index": held.index, **document, **{"index": held.index}}
