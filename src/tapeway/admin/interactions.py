"""The interactions of a cassette, as its document shows them."""

import asyncio
from collections.abc import Sequence

from aiohttp import web

from tapeway.admin.cassettes import read_cassette
from tapeway.admin.console import Console
from tapeway.admin.payloads import InteractionQuery, Nothing
from tapeway.admin.route import Call, Plain
from tapeway.admin.tags import tag
from tapeway.core.json_text import Json, dump
from tapeway.core.model import ForeignInteraction, Interaction
from tapeway.editing.absence import no_cassette, no_interaction
from tapeway.errors import CassetteCorrupt
from tapeway.formats import native
from tapeway.formats.fault import FormatFault
from tapeway.formats.fingerprint import of_document

Held = Interaction | ForeignInteraction


async def list_interactions(
    console: Console, call: Call[InteractionQuery, Nothing]
) -> web.Response:
    """A cassette's interactions, in order of their index."""
    query = call.query
    stored = await read_cassette(console, call.cassette)
    held = sorted(stored.interactions, key=lambda each: each.index)
    later = [each for each in held if query.after is None or each.index > query.after]
    body = await asyncio.to_thread(_page, call.cassette, later, query.limit)
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


def _page(name: str, later: Sequence[Held], limit: int) -> bytes:
    documents: list[Json] = [_document(name, each) for each in later[:limit]]
    following = later[limit - 1].index if len(later) > limit else None
    return dump({"interactions": documents, "next": following})


def _document(name: str, held: Held) -> dict[str, Json]:
    try:
        document = native.encode(held)
    except FormatFault as fault:
        raise CassetteCorrupt(
            f"interaction {held.index} of cassette '{name}' cannot be written: {fault}"
        ) from fault
    # The index by which this API knows it: a copied or unnumbered one was given another.
    return {"index": held.index, **document, **{"index": held.index}}
