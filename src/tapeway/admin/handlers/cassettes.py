"""The list of cassettes, and the metadata of one."""

from bisect import bisect_right
from typing import cast

from tapeway.admin.context import HandlerContext
from tapeway.admin.models.cassettes import (
    CassetteItem,
    CassettePage,
    CassetteQuery,
    Head,
)
from tapeway.admin.models.schema import Nothing
from tapeway.admin.operation import OperationCall
from tapeway.admin.request_body import MIB
from tapeway.admin.responses import bad_cassette
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, CassetteStat, StoredCassette
from tapeway.engine.editing.changes import no_cassette
from tapeway.errors import AdminError, StoreError
from tapeway.formats.errors import FormatFault
from tapeway.formats.native import document

MAX_COUNTED_BYTES = 64 * MIB
"""The most bytes that a call reads in order to count interactions."""
MAX_WHOLE_BYTES = 64 * MIB
"""A larger cassette is not read whole: in memory it would take about ten times the size."""
_READ_AT_ONCE = (
    "read at once: page through its /interactions, take it line by line from its /copy, or convert "
    "it with 'tapeway cassette convert'"
)


async def list_cassettes(
    context: HandlerContext, call: OperationCall[CassetteQuery, Nothing]
) -> CassettePage:
    """Names, sizes, numbers of interactions and times, ordered by name."""
    broker, limit = context.broker, call.query.limit
    # A loaded cassette may have nothing stored yet.
    if (wanted := call.query.name) is None:
        loaded = {count.name: count.interactions for count in await broker.source.counts()}
        names = sorted({*await broker.store.names(), *loaded})
    else:
        loaded = await _loaded(context, wanted)
        there = wanted in loaded or await broker.store.stat(wanted) is not None
        names = [wanted] if there else []
    start = 0 if call.query.after is None else bisect_right(names, call.query.after)
    page = names[start : start + limit]
    budget, items = MAX_COUNTED_BYTES if call.query.counts else 0, []
    for name in page:
        item, read = await _item(context, name, loaded.get(name), budget)
        budget -= read
        items.append(item)
    return CassettePage(cassettes=items, next=page[-1] if len(names) > start + limit else None)


async def check_exists(context: HandlerContext, name: str) -> None:
    """Raise AdminError (404) if the cassette is neither loaded nor stored."""
    if not context.broker.is_loaded(name) and await context.broker.store.stat(name) is None:
        raise no_cassette(name)


async def read_cassette(context: HandlerContext, name: str) -> StoredCassette:
    """The cassette, without loading it. Raises AdminError (404), StoreError."""
    stored = await context.broker.source.read(name)
    if stored is not None:
        return stored
    # A cassette that is loaded may have nothing stored yet.
    await check_exists(context, name)
    return StoredCassette(CassetteHead("", ""))


async def version_of(context: HandlerContext, name: str) -> object:
    """What differs after every change of a cassette. Raises AdminError (404), StoreError."""
    if (cassette := context.broker.cassette(name)) is not None:
        return cassette.version
    if (stat := await context.broker.store.stat(name)) is None:
        await check_exists(context, name)
    return stat


async def refuse_large(
    context: HandlerContext, name: str, advice: str = _READ_AT_ONCE, *, files: bool = False
) -> None:
    """Raise AdminError (413) for a cassette that is too large to read whole, `files` included."""
    store = context.broker.store
    stat = await store.stat(name) if files or store.facts.paged else None
    if stat is not None and stat.size_bytes > MAX_WHOLE_BYTES:
        raise AdminError(
            f"cassette '{name}' has {stat.size_bytes} bytes, more than the {MAX_WHOLE_BYTES} that "
            f"are {advice}",
            status=413,
            code="cassette_too_large",
        )


def read_head(sent: Head) -> CassetteHead:
    """The metadata that was sent. Raises AdminError (422) if no store could read it back."""
    head = CassetteHead(sent.created_at, sent.run_id, cast("dict[str, Json]", sent.meta))
    try:
        return document.parse_root({**document.root_fields(head), "interactions": []}).head
    except FormatFault as fault:
        raise bad_cassette(fault) from fault


async def _loaded(context: HandlerContext, name: str) -> dict[str, int]:
    """The number of interactions of a loaded cassette; looks at no further cassette."""
    broker = context.broker
    if (cassette := broker.cassette(name)) is not None:
        return {name: len(cassette)}
    if not broker.is_loaded(name) or not broker.store.facts.paged:
        return {}
    outline = await broker.store.outline(name)
    return {name: 0 if outline is None else outline.count}


async def _item(
    context: HandlerContext, name: str, loaded: int | None, budget: int
) -> tuple[CassetteItem, int]:
    """The item, and how many bytes were read to count its interactions."""
    broker = context.broker
    stat = await broker.store.stat(name)
    count, error, read = loaded, None, 0
    if count is None and broker.store.facts.paged:
        outline = await broker.store.outline(name)
        count = None if outline is None else outline.count
    elif count is None and stat is not None:
        count = context.counts.cached(name, stat)
        if count is None and stat.size_bytes <= budget:
            read = stat.size_bytes
            count, error = await _count(context, name, stat)
    item = CassetteItem(
        name=name,
        active=name == broker.active,
        loaded=loaded is not None,
        mode=broker.mode_of(name),
        interactions=count,
        size_bytes=None if stat is None else stat.size_bytes,
        modified_at=None if stat is None else stat.modified_at,
        mark=None if stat is None else stat.version,
        error=error,
    )
    return item, read


async def _count(
    context: HandlerContext, name: str, stat: CassetteStat
) -> tuple[int | None, str | None]:
    try:
        return await context.counts.count(context.broker, name, stat), None
    except StoreError as exc:
        return None, exc.message
