"""Cassettes brought in whole, and removed."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from uuid import uuid4

from aiohttp import web
from pydantic import BaseModel

from tapeway.admin.changes import Imported, ImportQuery, Removed
from tapeway.admin.console import Console
from tapeway.admin.octets import media_type, whole
from tapeway.admin.payloads import Nothing
from tapeway.admin.route import Call, Plain
from tapeway.admin.tags import condition, tag
from tapeway.core.model.cassette import CassetteHead
from tapeway.engine.editing.lookup import no_cassette
from tapeway.errors import AdminError
from tapeway.formats import registry
from tapeway.formats.cassette_file import YAML
from tapeway.formats.conversion_loss import ImportedCassette
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


async def put_cassette(console: Console, call: Call[ImportQuery, Nothing]) -> web.Response:
    """Put a whole cassette there, in the place of the one there is; all of it or nothing."""
    name, wanted = call.cassette, condition(call.request)
    declared = ACCEPTED[media_type(call.request, ACCEPTED)]
    text = await whole(call.request)
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


async def delete_cassette(console: Console, call: Plain) -> Removed:
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


def unreadable(fault: FormatFault) -> AdminError:
    """The error for a document that is no cassette, or none of an interaction."""
    line = "" if fault.line is None else f"line {fault.line}: "
    return AdminError(
        f"this cannot be read, so nothing was kept: {line}{fault}", status=422, code="bad_cassette"
    )


def _loaded(form: str, text: bytes) -> ImportedCassette:
    fresh = CassetteHead(datetime.now(UTC).isoformat(), str(uuid4()))
    try:
        return _LOAD[form](text, fresh)
    except FormatFault as fault:
        raise unreadable(fault) from fault


def _of_kind(name: str) -> Callable[[bytes, CassetteHead], ImportedCassette]:
    kind = registry.named(name)
    if kind is None:
        raise ValueError(f"there is no format {name}")
    return kind.load


_LOAD: Mapping[str, Callable[[bytes, CassetteHead], ImportedCassette]] = {
    "json": _of_kind(registry.TAPEWAY.name),
    "yaml": lambda text, fresh: ImportedCassette(YAML.load(text)),
    "jsonl": _of_kind("jsonl"),
    "har": _of_kind("har"),
}
