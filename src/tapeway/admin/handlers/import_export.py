"""Cassettes brought in whole, and removed.

Cassettes as documents, in each of the formats that can hold one.

Large bodies put back where they belong, for a document that stands alone.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

from aiohttp import web
from pydantic import BaseModel

from tapeway.admin.context import HandlerContext
from tapeway.admin.errors import unreadable
from tapeway.admin.etags import condition, tag
from tapeway.admin.handlers.cassettes import read_cassette, refuse_large
from tapeway.admin.models.cassettes import ExportQuery, Imported, ImportQuery, Removed
from tapeway.admin.models.schema import Nothing
from tapeway.admin.operation import OperationCall, Plain
from tapeway.admin.request_body import media_type, whole_body
from tapeway.body_files import recalled, whole
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import BodyFile, Request
from tapeway.engine.editing.changes import digest_of
from tapeway.engine.editing.lookup import no_cassette
from tapeway.errors import AdminError, CassetteCorrupt
from tapeway.formats import registry
from tapeway.formats.cassette_file import YAML
from tapeway.formats.conversion_loss import ExportedCassette, ImportedCassette, Loss
from tapeway.formats.errors import FormatFault

_MOST_LOSSES = 1000

ACCEPTED: Mapping[str, str] = {
    "application/json": "json",
    "application/yaml": "yaml",
    "application/x-yaml": "yaml",
    "text/yaml": "yaml",
    "application/jsonl": "jsonl",
    "application/x-ndjson": "jsonl",
    "application/har+json": "har",
}
"""Content types, and the format each means where none is named."""
MIB = 1024 * 1024

MOST = 32 * MIB
"""A document is made in memory, where its bodies take several times their size."""
_TOLD = 20
_LONGEST = 4096
TYPES: Mapping[str, str] = {
    "json": "application/json",
    "yaml": "application/yaml",
    "jsonl": "application/jsonl",
    "har": "application/json",
}


async def put_cassette(
    console: HandlerContext, call: OperationCall[ImportQuery, Nothing]
) -> web.Response:
    """Put a whole cassette there, in the place of the one there is; all of it or nothing."""
    name, wanted = call.cassette, condition(call.request)
    declared = ACCEPTED[media_type(call.request, ACCEPTED)]
    text = await whole_body(call.request)
    loaded = await asyncio.to_thread(_loaded, call.query.format or declared, text)
    cassette, secrets = loaded.cassette, call.query.secrets
    changed = await console.broker.editor.put(name, cassette, wanted, secrets)
    said = Imported(
        cassette=name,
        interactions=len(cassette.interactions),
        sha256=changed.digest,
        replaced=changed.replaced,
        losses=[str(each) for each in loaded.losses[:_MOST_LOSSES]],
    )
    return answered(said, changed.digest)


async def delete_cassette(console: HandlerContext, call: Plain) -> Removed:
    """Delete a cassette and all that belongs to it; one that is in is taken out first."""
    name = call.cassette
    if not console.broker.is_in(name) and await console.broker.store.stat(name) is None:
        raise no_cassette(name)
    await console.broker.editor.remove(name, condition(call.request))
    return Removed(cassette=name)


def answered(said: BaseModel, digest: str) -> web.Response:
    """The answer to a change, with the ETag of what is there now."""
    return web.Response(
        body=said.model_dump_json().encode(),
        content_type="application/json",
        headers={"ETag": tag(digest)},
    )


def _loaded(form: str, text: bytes) -> ImportedCassette:
    fresh = CassetteHead(datetime.now(UTC).isoformat(), str(uuid4()))
    try:
        return _LOAD[form](text, fresh)
    except FormatFault as fault:
        raise unreadable(fault) from fault


def _importer(name: str) -> Callable[[bytes, CassetteHead], ImportedCassette]:
    kind = registry.by_name(name)
    if kind is None:
        raise ValueError(f"there is no format {name}")
    return kind.load


_LOAD: Mapping[str, Callable[[bytes, CassetteHead], ImportedCassette]] = {
    "json": _importer(registry.TAPEWAY.name),
    "yaml": lambda text, fresh: ImportedCassette(YAML.load(text)),
    "jsonl": _importer("jsonl"),
    "har": _importer("har"),
}


async def inlined(name: str, stored: StoredCassette) -> StoredCassette:
    """The cassette with no body in a file. Raises AdminError (413) where they are too large."""
    found = [each for each in stored.interactions if isinstance(each, Interaction)]
    files = [file for each in found for file in (each.request.file, each.response.file) if file]
    if not files:
        return stored
    if (size := sum(file.size for file in files)) > MOST:
        raise AdminError(
            f"cassette '{name}' holds {size} bytes in files beside it, more than the {MOST} that "
            f"go into one document: copy {name}.json and {name}.assets from the store's folder",
            status=413,
            code="cassette_too_large",
        )
    return replace(
        stored, interactions=tuple([await _inlined(each) for each in stored.interactions])
    )


async def _inlined(item: AnyInteraction) -> AnyInteraction:
    if isinstance(item, ForeignInteraction):
        return item
    request, response = item.request, item.response
    if request.file is not None:
        request = await _asked(request, request.file)
    return replace(item, request=request, response=await recalled(response))


async def _asked(request: Request, file: BodyFile) -> Request:
    return replace(request, body=await whole(file), file=None)


async def get_cassette(
    console: HandlerContext, call: OperationCall[ExportQuery, Nothing]
) -> web.Response:
    """The whole cassette as one document, large bodies in it; 413 where they are too large."""
    name, form = call.cassette, call.query.format
    await refuse_large(console, name)
    stored = await console.broker.editor.stored(name)
    digest = await digest_of(stored)
    if stored is None:
        # It may be in with nothing recorded yet.
        stored = await read_cassette(console, name)
    whole = await inlined(name, stored)
    saved = await asyncio.to_thread(_saved, name, form, whole)
    if (lost := [each for each in saved.losses if each.left_out]) and call.query.losses == "refuse":
        raise AdminError(
            f"{len(lost)} of {len(stored.interactions)} interactions of cassette '{name}' have no "
            f"place in {form} ({_told(lost)}): leave them out with ?losses=allow, or take json",
            status=422,
            code="lossy_format",
        )
    headers = {} if digest is None else {"ETag": tag(digest)}
    if saved.losses:
        headers |= {"Tapeway-Losses": str(len(saved.losses)), "Tapeway-Lost": _told(saved.losses)}
    return web.Response(body=saved.text, content_type=TYPES[form], headers=headers)


def _saved(name: str, form: str, stored: StoredCassette) -> ExportedCassette:
    try:
        return _SAVE[form](stored)
    except FormatFault as fault:
        raise CassetteCorrupt(f"cassette '{name}' cannot be written as {form}: {fault}") from fault


def _yaml(stored: StoredCassette) -> ExportedCassette:
    return ExportedCassette(YAML.save(stored))


def _exporter(name: str) -> Callable[[StoredCassette], ExportedCassette]:
    kind = registry.by_name(name)
    if kind is None or kind.save is None:
        raise ValueError(f"no cassette can be written as {name}")
    return kind.save


_SAVE: Mapping[str, Callable[[StoredCassette], ExportedCassette]] = {
    "json": _exporter(registry.TAPEWAY.name),
    "yaml": _yaml,
    "jsonl": _exporter("jsonl"),
    "har": _exporter("har"),
}


def _told(losses: "list[Loss] | tuple[Loss, ...]") -> str:
    """The first ones, as a header can hold them."""
    more = f"; and {len(losses) - _TOLD} more" if len(losses) > _TOLD else ""
    text = "; ".join([str(each) for each in losses[:_TOLD]])
    return text.encode("ascii", "backslashreplace").decode()[:_LONGEST] + more
