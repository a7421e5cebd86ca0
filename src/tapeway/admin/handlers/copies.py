"""Cassettes as another tapeway reads and writes them: line by line, large bodies aside.

The first line is what the cassette says of itself, each further one an interaction with its index,
the last one counts them and gives the digest of the whole. What has no such end is not all of it.
"""

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.errors import unreadable
from tapeway.admin.etags import condition
from tapeway.admin.handlers.import_export import answered
from tapeway.admin.models.cassettes import ChangeQuery, CopyQuery, Imported
from tapeway.admin.models.schema import Nothing
from tapeway.admin.operation import OperationCall
from tapeway.admin.request_body import MIB, media_type, pieces
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import AnyInteraction
from tapeway.engine.editing.changes import CassetteContents
from tapeway.engine.editing.lookup import no_cassette
from tapeway.errors import AdminError, TapewayError
from tapeway.formats import jsonl
from tapeway.formats.errors import FormatFault
from tapeway.formats.jsonl import CopyReader, CopyWriter
from tapeway.paging import bytes_in_memory

MOST_COPIED = 4096 * MIB
TYPES = frozenset({jsonl.MEDIA_TYPE})
_BATCH = 64


async def get_copy(
    console: HandlerContext, call: OperationCall[CopyQuery, Nothing]
) -> web.StreamResponse:
    """The cassette line by line, as another tapeway takes it: in any size."""
    found = await console.broker.editor.walk(call.cassette, call.query.after)
    if found is None:
        raise no_cassette(call.cassette)
    batches = _batches(found)
    # What cannot be read at all is still told by a status.
    batch: list[AnyInteraction] = await anext(batches, [])
    response = web.StreamResponse(headers={"Content-Type": jsonl.MEDIA_TYPE})
    await response.prepare(call.request)
    if call.request.method == "HEAD":
        return response
    try:
        writer = CopyWriter(found.head)
        await response.write(writer.first())
        while batch:
            await response.write(await asyncio.to_thread(writer.lines, batch))
            batch = await anext(batches, [])
        await response.write(writer.last())
    except (TapewayError, FormatFault):
        # The head is out: what can be told now is only that this is not all of it.
        if call.request.transport is not None:
            call.request.transport.abort()
        raise ConnectionAbortedError from None
    await response.write_eof()
    return response


async def put_copy(
    console: HandlerContext, call: OperationCall[ChangeQuery, Nothing]
) -> web.Response:
    """Put a cassette there that another tapeway sends line by line; all of it or nothing."""
    name, wanted = call.cassette, condition(call.request)
    media_type(call.request, TYPES)
    reader, items = CopyReader(), list[AnyInteraction]()
    try:
        async for piece in pieces(call.request, MOST_COPIED):
            items += await asyncio.to_thread(reader.feed, piece)
        end = reader.finish()
    except FormatFault as fault:
        raise unreadable(fault) from fault
    except jsonl.IncompleteCopy as cut:
        raise AdminError(f"{cut}: nothing was kept", status=422, code="cut_copy") from None
    cassette = StoredCassette(end.head, tuple(items))
    changed = await console.broker.editor.put(
        name, cassette, wanted, call.query.secrets, as_sent=True
    )
    said = Imported(
        cassette=name,
        interactions=len(items),
        sha256=changed.digest,
        replaced=changed.replaced,
        losses=[],
    )
    return answered(said, changed.digest)


async def _batches(found: CassetteContents) -> AsyncIterator[list[AnyInteraction]]:
    batch, heavy = list[AnyInteraction](), 0
    async for item in found.items:
        batch.append(item)
        heavy += bytes_in_memory(item)
        if len(batch) >= _BATCH or heavy >= MIB:
            yield batch
            batch, heavy = [], 0
    if batch:
        yield batch
