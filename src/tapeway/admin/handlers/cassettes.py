"""The cassettes there are, and what they hold.

What a cassette says of itself: read without its interactions, and put anew.
"""

from bisect import bisect_right
from typing import cast

from tapeway.admin.context import BUDGET, HandlerContext
from tapeway.admin.errors import unreadable
from tapeway.admin.models.cassettes import (
    CassetteItem,
    CassettePage,
    CassetteQuery,
    ChangeQuery,
    Head,
    Headed,
    Outlined,
    SourceOf,
)
from tapeway.admin.models.schema import Nothing
from tapeway.admin.operation import OperationCall, Plain
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, CassetteStat, StoredCassette
from tapeway.engine.editing.lookup import no_cassette
from tapeway.errors import AdminError, StoreError
from tapeway.formats.errors import FormatFault
from tapeway.formats.native import document

MOST_AT_ONCE = 64 * 1024 * 1024
"""A larger one, read whole, takes about ten times its size."""


async def list_cassettes(
    console: HandlerContext, call: OperationCall[CassetteQuery, Nothing]
) -> CassettePage:
    """Names, sizes, interactions and times, in order of the names."""
    broker, limit = console.broker, call.query.limit
    # A cassette that is in may have nothing stored yet.
    held = {each.name: each.interactions for each in await broker.loaded()}
    names = sorted({*await broker.store.names(), *held})
    if call.query.name is not None:
        names = [name for name in names if name == call.query.name]
    start = 0 if call.query.after is None else bisect_right(names, call.query.after)
    page = names[start : start + limit]
    budget, items = BUDGET if call.query.counts else 0, []
    for name in page:
        item, read = await _item(console, name, held.get(name), budget)
        budget -= read
        items.append(item)
    return CassettePage(cassettes=items, next=page[-1] if len(names) > start + limit else None)


async def read_cassette(console: HandlerContext, name: str) -> StoredCassette:
    """The cassette, without bringing it in. Raises AdminError (404), StoreError."""
    stored = await console.broker.read(name)
    if stored is None:
        raise no_cassette(name)
    return stored


async def refuse_large(console: HandlerContext, name: str) -> None:
    """Raise AdminError (413) for one that a store holds and that would not fit into memory whole."""
    store = console.broker.store
    stat = await store.stat(name) if store.capabilities.paged is not None else None
    if stat is not None and stat.size_bytes > MOST_AT_ONCE:
        raise AdminError(
            f"cassette '{name}' has {stat.size_bytes} bytes, more than the {MOST_AT_ONCE} that are "
            f"read at once: page through its /interactions, take it line by line from its "
            "/copy, or convert it with 'tapeway cassette convert'",
            status=413,
            code="cassette_too_large",
        )


async def _item(
    console: HandlerContext, name: str, held: int | None, budget: int
) -> tuple[CassetteItem, int]:
    """The item, and how many bytes were read to count its interactions."""
    broker = console.broker
    stat = await broker.store.stat(name)
    count, error, read = held, None, 0
    paged = broker.store.capabilities.paged
    if count is None and paged is not None:
        outline = await paged.outline(name)
        count = None if outline is None else outline.count
    elif count is None and stat is not None:
        count = console.census.known(name, stat)
        if count is None and stat.size_bytes <= budget:
            read = stat.size_bytes
            count, error = await _count(console, name, stat)
    item = CassetteItem(
        name=name,
        active=name == broker.active,
        loaded=held is not None,
        mode=broker.mode_of(name),
        interactions=count,
        size_bytes=None if stat is None else stat.size_bytes,
        modified_at=None if stat is None else stat.modified_at,
        mark=None if stat is None else stat.mark,
        error=error,
    )
    return item, read


async def _count(
    console: HandlerContext, name: str, stat: CassetteStat
) -> tuple[int | None, str | None]:
    try:
        return await console.census.take(console.broker, name, stat), None
    except StoreError as exc:
        return None, exc.message


async def get_outline(console: HandlerContext, call: Plain) -> Outlined:
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


async def put_head(console: HandlerContext, call: OperationCall[ChangeQuery, Head]) -> Headed:
    """Let a cassette say something else of itself, its matching rules among it."""
    name = call.cassette
    changed = await console.broker.editor.restate(name, head_of(call.body), call.query.secrets)
    return Headed(cassette=name, head=changed.digest, replaced=changed.replaced)


def head_of(sent: Head) -> CassetteHead:
    """What was sent, as a cassette has it. Raises AdminError (422) for what no store could read."""
    head = CassetteHead(sent.created_at, sent.run_id, cast("dict[str, Json]", sent.meta))
    try:
        return document.parse_root({**document.root_fields(head), "interactions": []}).head
    except FormatFault as fault:
        raise unreadable(fault) from fault
