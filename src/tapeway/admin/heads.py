"""What a cassette says of itself: read without its interactions, and put anew."""

from typing import cast

from tapeway.admin.changes import (
    ChangeQuery,
    Head,
    Headed,
    Outlined,
    SourceOf,
)
from tapeway.admin.console import Console
from tapeway.admin.imports import unreadable
from tapeway.admin.route import Call, Plain
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead
from tapeway.engine.editing.lookup import no_cassette
from tapeway.formats.errors import FormatFault
from tapeway.formats.native import document


async def get_outline(console: Console, call: Plain) -> Outlined:
    """What a cassette says of itself, and how many interactions it has, without reading them."""
    name = call.cassette
    found = await console.broker.editor.outline(name)
    if found is None:
        raise no_cassette(name)
    meta = cast("dict[str, object]", dict(found.head.meta))
    return Outlined(
        cassette=name,
        head=Head(created_at=found.head.created_at, run_id=found.head.run_id, meta=meta),
        interactions=found.count,
        sources=[SourceOf(route=route, base=base) for route, base in sorted(found.sources)],
    )


async def put_head(console: Console, call: Call[ChangeQuery, Head]) -> Headed:
    """Let a cassette say something else of itself, its matching rules among it."""
    name = call.cassette
    changed = await console.broker.editor.restate(name, head_of(call.body), call.query.secrets)
    return Headed(cassette=name, head=changed.digest, replaced=changed.replaced)


def head_of(sent: Head) -> CassetteHead:
    """What was sent, as a cassette has it. Raises AdminError (422) for what no store could read."""
    head = CassetteHead(sent.created_at, sent.run_id, cast("dict[str, Json]", sent.meta))
    try:
        return document.sheet_of({**document.root_of(head), "interactions": []}).head
    except FormatFault as fault:
        raise unreadable(fault) from fault
