"""Copies of whole cassettes between tapeways, line by line, large bodies apart.

The first line is the cassette's metadata, each further line an interaction with the index. The last
line counts them and has the digest of the whole: a copy without it is incomplete.
"""

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.etags import etag_header, precondition
from tapeway.admin.models.cassettes import ChangeQuery, Imported
from tapeway.admin.models.schema import Nothing
from tapeway.admin.operation import OperationCall, PlainCall
from tapeway.admin.request_body import MIB, body_chunks, check_content_type
from tapeway.admin.responses import bad_cassette, json_response, stream_response
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import AnyInteraction
from tapeway.engine.editing.changes import CassetteContents, SpooledInteractions, no_cassette
from tapeway.errors import AdminError
from tapeway.formats import jsonl
from tapeway.formats.errors import FormatFault
from tapeway.formats.jsonl import CopyReader, CopyWriter
from tapeway.paging import bytes_in_memory

COPY_TYPES = frozenset({jsonl.MEDIA_TYPE})
MAX_COPY = 4096 * MIB
_BATCH = 64


async def get_copy(context: HandlerContext, call: PlainCall) -> web.StreamResponse:
    """The cassette line by line, in any size, in the form that PUT of the path takes."""
    walk = await context.broker.editor.walk(call.cassette)
    if walk is None:
        raise no_cassette(call.cassette)
    batches = _batches(walk)
    # Read before the status is sent: an unreadable cassette is an error.
    first: list[AnyInteraction] = await anext(batches, [])
    lines = _lines(CopyWriter(walk.head), first, batches)
    return await stream_response(call.request, {"Content-Type": jsonl.MEDIA_TYPE}, lines)


async def put_copy(
    context: HandlerContext, call: OperationCall[ChangeQuery, Nothing]
) -> web.Response:
    """Create or replace a cassette from such lines, all or nothing."""
    name, condition = call.cassette, precondition(call.request)
    check_content_type(call.request, COPY_TYPES)
    editor, secrets = context.broker.editor, call.query.secrets
    reader = CopyReader()
    # Written to the disk as it comes: a cassette takes many times its size in memory.
    spooled = await asyncio.to_thread(SpooledInteractions, context.broker.scratch)
    try:
        async for batch in _received(reader, body_chunks(call.request, MAX_COPY)):
            await editor.spool(name, reader.head, batch, secrets, spooled)
        end = reader.finish()
    except FormatFault as fault:
        raise bad_cassette(fault) from fault
    except jsonl.IncompleteCopy as cut:
        raise AdminError(f"{cut}: nothing was stored", status=422, code="cut_copy") from None
    cassette = StoredCassette(end.head, spooled)
    changed = await editor.put(name, cassette, condition, secrets, as_sent=True)
    imported = Imported(
        cassette=name,
        interactions=len(spooled),
        sha256=changed.digest,
        replaced=changed.replaced,
        losses=[],
        left_over=await context.broker.store.erase(),
    )
    return json_response(imported, headers=etag_header(changed.digest))


async def _received(
    reader: CopyReader, chunks: AsyncIterator[bytes]
) -> AsyncIterator[list[AnyInteraction]]:
    batch, size = list[AnyInteraction](), 0
    async for chunk in chunks:
        batch += await asyncio.to_thread(reader.feed, chunk)
        size += len(chunk)
        if batch and (len(batch) >= _BATCH or size >= MIB):
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


async def _lines(
    writer: CopyWriter, batch: list[AnyInteraction], further: AsyncIterator[list[AnyInteraction]]
) -> AsyncIterator[bytes]:
    yield writer.first()
    while batch:
        yield await asyncio.to_thread(writer.lines, batch)
        batch = await anext(further, [])
    yield writer.last()


async def _batches(contents: CassetteContents) -> AsyncIterator[list[AnyInteraction]]:
    batch, size = list[AnyInteraction](), 0
    async for item in contents.items:
        batch.append(item)
        size += bytes_in_memory(item)
        if len(batch) >= _BATCH or size >= MIB:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
