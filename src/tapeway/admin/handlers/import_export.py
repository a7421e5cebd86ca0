"""Whole cassettes as documents: imported, exported in several formats, and deleted."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.etags import etag_header, precondition
from tapeway.admin.handlers.cassettes import check_exists, read_cassette, refuse_large
from tapeway.admin.models.cassettes import ExportQuery, Imported, ImportQuery, Removed
from tapeway.admin.models.schema import Nothing
from tapeway.admin.operation import OperationCall, PlainCall
from tapeway.admin.request_body import MIB, check_content_type, whole_body
from tapeway.admin.responses import bad_cassette, json_response, stream_response
from tapeway.body_files import in_memory
from tapeway.cooperative import free_later
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.engine.editing.changes import digest_of
from tapeway.errors import AdminError, CassetteCorrupt
from tapeway.formats.cassette_file import YAML
from tapeway.formats.conversion_loss import ExportedCassette, ImportedCassette, Loss
from tapeway.formats.errors import FormatFault

if TYPE_CHECKING:
    from tapeway.formats.registry import Format

IMPORT_FORMATS: Mapping[str, str] = {
    "application/json": "json",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
    "application/jsonl": "jsonl",
    "application/x-ndjson": "jsonl",
    "application/har+json": "har",
}
"""Accepted content types, and the format each stands for if the query names none."""
_EXPORT_TYPES: Mapping[str, str] = {
    "json": "application/json",
    "yaml": "application/yaml",
    "jsonl": "application/jsonl",
    "har": "application/json",
}

MAX_INLINED = 32 * MIB
"""An export is built in memory, where bodies take several times the size."""
_PIECE = 256 * 1024
"""A large export sent at once would keep all clients waiting during the copy."""
_MAX_LOSSES = 1000
_MAX_LOSSES_IN_HEADER = 20
_MAX_LOSSES_HEADER = 4096


async def put_cassette(
    context: HandlerContext, call: OperationCall[ImportQuery, Nothing]
) -> web.Response:
    """Create or replace a whole cassette, all or nothing."""
    name, condition = call.cassette, precondition(call.request)
    declared = IMPORT_FORMATS[check_content_type(call.request, IMPORT_FORMATS)]
    text = await whole_body(call.request)
    loaded = await asyncio.to_thread(_load, call.query.format or declared, text)
    cassette = loaded.cassette
    changed = await context.broker.editor.put(name, cassette, condition, call.query.secrets)
    imported = Imported(
        cassette=name,
        interactions=len(cassette.interactions),
        sha256=changed.digest,
        replaced=changed.replaced,
        losses=[str(loss) for loss in loaded.losses[:_MAX_LOSSES]],
        left_over=await context.broker.store.erase(),
    )
    free_later(list(cassette.interactions))
    return json_response(imported, headers=etag_header(changed.digest))


async def get_cassette(
    context: HandlerContext, call: OperationCall[ExportQuery, Nothing]
) -> web.StreamResponse:
    """The whole cassette as one document, including large bodies; 413 if it is too large."""
    name, form = call.cassette, call.query.format
    await refuse_large(context, name)
    stored = await context.broker.editor.stored(name)
    digest = await digest_of(stored)
    if stored is None:
        # It may be loaded with nothing recorded yet.
        stored = await read_cassette(context, name)
    exported = await asyncio.to_thread(_save, name, form, await _inlined(name, stored))
    left_out = [loss for loss in exported.losses if loss.left_out]
    if left_out and call.query.losses == "refuse":
        raise AdminError(
            f"{form} cannot hold {len(left_out)} of {len(stored.interactions)} interactions of "
            f"cassette '{name}' ({_summary(left_out)}): leave them out with ?losses=allow, or use "
            "json",
            status=422,
            code="lossy_format",
        )
    headers = {} if digest is None else etag_header(digest)
    if losses := exported.losses:
        headers |= {"Tapeway-Losses": str(len(losses)), "Tapeway-Lost": _summary(losses)}
    headers |= {
        "Content-Type": _EXPORT_TYPES[form],
        "Content-Length": str(len(exported.text)),
    }
    try:
        return await stream_response(call.request, headers, _pieces(exported.text))
    finally:
        free_later(list(stored.interactions))


async def _pieces(text: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE]


async def delete_cassette(context: HandlerContext, call: PlainCall) -> Removed:
    """Delete a cassette and all its files; a loaded one is unloaded first."""
    name = call.cassette
    await check_exists(context, name)
    await context.broker.editor.remove(name, precondition(call.request))
    return Removed(cassette=name, left_over=await context.broker.store.erase())


def _load(form: str, text: bytes) -> ImportedCassette:
    new_head = CassetteHead(datetime.now(UTC).isoformat(), str(uuid4()))
    try:
        if form == "yaml":
            return ImportedCassette(YAML.load(text))
        return _format(form).load(text, new_head)
    except FormatFault as fault:
        raise bad_cassette(fault) from fault


def _save(name: str, form: str, stored: StoredCassette) -> ExportedCassette:
    try:
        if form == "yaml":
            return ExportedCassette(YAML.save(stored))
        if (save := _format(form).save) is None:
            raise ValueError(f"no cassette can be written as {form}")
        return save(stored)
    except FormatFault as fault:
        raise CassetteCorrupt(f"cassette '{name}' cannot be written as {form}: {fault}") from fault


def _format(form: str) -> "Format":
    # Imported only here: the module imports the formats of all other tools.
    from tapeway.formats import registry

    known = registry.by_name(registry.TAPEWAY.name if form == "json" else form)
    if known is None:
        raise ValueError(f"there is no format {form}")
    return known


async def _inlined(name: str, stored: StoredCassette) -> StoredCassette:
    """The cassette with all bodies in it. Raises AdminError (413) if those in files are too large."""
    exchanges = [
        interaction for interaction in stored.interactions if isinstance(interaction, Interaction)
    ]
    files = [
        file
        for exchange in exchanges
        for file in (exchange.request.file, exchange.response.file)
        if file
    ]
    if not files:
        return stored
    if (size := sum(file.size for file in files)) > MAX_INLINED:
        raise AdminError(
            f"cassette '{name}' has {size} bytes of bodies in files, more than the {MAX_INLINED} "
            f"that fit into one document: copy {name}.json and {name}.assets from the store's "
            "folder",
            status=413,
            code="cassette_too_large",
        )
    return replace(
        stored,
        interactions=tuple([await in_memory(interaction) for interaction in stored.interactions]),
    )


def _summary(losses: Sequence[Loss]) -> str:
    """The first losses, as a header can hold them."""
    rest = len(losses) - _MAX_LOSSES_IN_HEADER
    more = f"; and {rest} more" if rest > 0 else ""
    text = "; ".join([str(loss) for loss in losses[:_MAX_LOSSES_IN_HEADER]])
    return text.encode("ascii", "backslashreplace").decode()[:_MAX_LOSSES_HEADER] + more
