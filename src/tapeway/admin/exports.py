"""Cassettes as documents, in each of the formats that can hold one."""

import asyncio
from collections.abc import Callable, Mapping

from aiohttp import web

from tapeway.admin.cassettes import read_cassette, refuse_large
from tapeway.admin.changes import ExportQuery
from tapeway.admin.console import Console
from tapeway.admin.inlining import inlined
from tapeway.admin.payloads import Nothing
from tapeway.admin.route import Call
from tapeway.admin.tags import tag
from tapeway.core.model.cassette import StoredCassette
from tapeway.engine.editing.changes import digest_of
from tapeway.errors import AdminError, CassetteCorrupt
from tapeway.formats import registry
from tapeway.formats.cassette_file import YAML
from tapeway.formats.conversion_loss import ExportedCassette, Loss
from tapeway.formats.errors import FormatFault

_TOLD = 20
_LONGEST = 4096

TYPES: Mapping[str, str] = {
    "json": "application/json",
    "yaml": "application/yaml",
    "jsonl": "application/jsonl",
    "har": "application/json",
}


async def get_cassette(console: Console, call: Call[ExportQuery, Nothing]) -> web.Response:
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


def _of_kind(name: str) -> Callable[[StoredCassette], ExportedCassette]:
    kind = registry.named(name)
    if kind is None or kind.save is None:
        raise ValueError(f"no cassette can be written as {name}")
    return kind.save


_SAVE: Mapping[str, Callable[[StoredCassette], ExportedCassette]] = {
    "json": _of_kind(registry.TAPEWAY.name),
    "yaml": _yaml,
    "jsonl": _of_kind("jsonl"),
    "har": _of_kind("har"),
}


def _told(losses: "list[Loss] | tuple[Loss, ...]") -> str:
    """The first ones, as a header can hold them."""
    more = f"; and {len(losses) - _TOLD} more" if len(losses) > _TOLD else ""
    text = "; ".join([str(each) for each in losses[:_TOLD]])
    return text.encode("ascii", "backslashreplace").decode()[:_LONGEST] + more
