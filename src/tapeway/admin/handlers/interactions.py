"""The interactions of a cassette: listed, appended, edited and removed."""

import asyncio
import re
from collections.abc import Sequence
from contextlib import aclosing
from typing import cast

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.etags import etag_header, precondition
from tapeway.admin.handlers.cassettes import (
    check_exists,
    read_cassette,
    read_head,
)
from tapeway.admin.models.cassettes import ChangeQuery, Released
from tapeway.admin.models.interactions import (
    Added,
    Additions,
    Edited,
    InteractionQuery,
    Placed,
    Superseded,
)
from tapeway.admin.models.schema import MAX_INDEX, Nothing
from tapeway.admin.operation import OperationCall, PlainCall
from tapeway.admin.request_body import (
    JSON_TYPES,
    check_content_type,
    parse_json,
    parse_model,
    whole_body,
)
from tapeway.admin.responses import bad_cassette, json_response
from tapeway.conversations.repeated_answers import RepeatedAnswers
from tapeway.core.digests import sha256
from tapeway.core.json_text import Json, dump
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.engine.editing.changes import Addition, Reference, no_interaction
from tapeway.errors import AdminError, CassetteCorrupt
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document
from tapeway.formats.native.document import decode, document_digest, encode
from tapeway.paging import PAGE_BYTES, bytes_in_memory

_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_MOST_COMPARED = 2000
"""So many interactions are searched for a request that repeats an edited answer."""


async def list_interactions(
    context: HandlerContext, call: OperationCall[InteractionQuery, Nothing]
) -> web.Response:
    """A cassette's interactions by index; a page of large interactions ends before the limit."""
    query = call.query
    page, following = await page_of(context, call.cassette, query.after, query.limit)
    return json_response(await asyncio.to_thread(_listed, call.cassette, page, following))


async def get_interaction(context: HandlerContext, call: PlainCall) -> web.Response:
    """One interaction."""
    name, index = call.cassette, call.index
    interaction = await context.broker.source.interaction(name, index)
    if interaction is None:
        await check_exists(context, name)
        raise no_interaction(name, index)
    document = interaction_document(name, interaction)
    body = await asyncio.to_thread(dump, document)
    return json_response(body, headers=etag_header(document_digest(document)))


async def page_of(
    context: HandlerContext, name: str, after: int | None, limit: int
) -> tuple[list[AnyInteraction], int | None]:
    """Some interactions, and the index after which there are more, if there are."""
    if context.broker.store.shared is None:
        stored = await read_cassette(context, name)
        in_order = sorted(stored.interactions, key=lambda stored_item: stored_item.index)
        later = [item for item in in_order if after is None or item.index > after]
        return later[:limit], later[limit - 1].index if len(later) > limit else None
    if (walk := await context.broker.editor.walk(name, after)) is None:
        await check_exists(context, name)
        return [], None
    page, size = list[AnyInteraction](), 0
    async with aclosing(walk.items) as items:
        async for item in items:
            if len(page) == limit or size > PAGE_BYTES:
                return page, page[-1].index
            page.append(item)
            size += bytes_in_memory(item)
    return page, None


def _listed(name: str, page: Sequence[AnyInteraction], following: int | None) -> bytes:
    documents: list[Json] = [interaction_document(name, item) for item in page]
    return dump({"interactions": documents, "next": following})


def interaction_document(name: str, item: AnyInteraction) -> dict[str, Json]:
    """An interaction as it is stored. Raises CassetteCorrupt."""
    try:
        document = encode(item)
    except FormatFault as fault:
        raise CassetteCorrupt(
            f"interaction {item.index} of cassette '{name}' cannot be written: {fault}"
        ) from fault
    # The document may have no index or a foreign index: callers get the index of this API.
    return {"index": item.index, **document, **{"index": item.index}}


async def append_interactions(
    context: HandlerContext, call: OperationCall[ChangeQuery, Nothing]
) -> Added:
    """Append interactions, once per Idempotency-Key; they are durable when this returns."""
    name, key = call.cassette, _idempotency_key(call.request)
    check_content_type(call.request, JSON_TYPES)
    text = await whole_body(call.request)
    sent = await asyncio.to_thread(parse_model, text, Additions)
    additions = await asyncio.to_thread(_additions, sent)
    head = None if sent.head is None else read_head(sent.head)
    added = await context.broker.editor.append(
        name,
        additions,
        head=head,
        key=key,
        sent=sha256(text).hexdigest(),
        secrets=call.query.secrets,
        expected=sent.expected,
    )
    placed = [Placed(index=item.index, sha256=item.sha256) for item in added.items]
    return Added(cassette=name, head=added.head, count=added.count, interactions=placed)


async def put_interaction(
    context: HandlerContext, call: OperationCall[ChangeQuery, Nothing]
) -> Edited:
    """Replace one interaction."""
    index = call.index
    check_content_type(call.request, JSON_TYPES)
    text = await whole_body(call.request)
    return await _edit(context, call, await asyncio.to_thread(_read_interaction, text, index))


async def delete_interaction(
    context: HandlerContext, call: OperationCall[ChangeQuery, Nothing]
) -> Edited:
    """Remove one interaction."""
    return await _edit(context, call, None)


async def release(context: HandlerContext, call: PlainCall) -> Released:
    """Write the final form of a cassette that was appended to, and unlock it."""
    released = await context.broker.editor.release(call.cassette)
    left_over = await context.broker.store.erase()
    return Released(cassette=call.cassette, released=released, left_over=left_over)


async def _edit(
    context: HandlerContext, call: OperationCall[ChangeQuery, Nothing], item: AnyInteraction | None
) -> Edited:
    name = call.cassette
    edited = await context.broker.editor.edit(
        name, call.index, item, precondition(call.request), call.query.secrets
    )
    placed = None if edited is None else Placed(index=edited.index, sha256=edited.sha256)
    left_over = await context.broker.store.erase()
    repeated = [] if placed is None else await _repeated(context, name, placed.index)
    return Edited(cassette=name, interaction=placed, repeated=repeated, left_over=left_over)


async def _repeated(context: HandlerContext, name: str, index: int) -> list[str]:
    """The notes on requests that repeat an interaction's answer in a changed form."""
    walk = await context.broker.editor.walk(name)
    if walk is None:
        return []
    answers, left = RepeatedAnswers(), _MOST_COMPARED
    async with aclosing(walk.items) as items:
        async for item in items:
            if not (left := left - 1):
                break
            if isinstance(item, Interaction):
                await asyncio.to_thread(answers.add, item)
    return [
        f"#{difference.index}: {difference}"
        for difference in answers.differences
        if difference.of == index
    ]


def _additions(sent: Additions) -> list[Addition]:
    supersedes: list[list[Superseded]] = [[] for _ in sent.interactions]
    if sent.supersedes is not None:
        supersedes = sent.supersedes
    if len(supersedes) != len(sent.interactions):
        raise AdminError("'supersedes' must have one list for each of the interactions")
    return [
        _addition(cast(Document, document), number, references)
        for number, (document, references) in enumerate(
            zip(sent.interactions, supersedes, strict=True)
        )
    ]


def _addition(document: Document, number: int, references: list[Superseded]) -> Addition:
    index = document.get("index")
    if index is not None and not (type(index) is int and 0 <= index <= MAX_INDEX):
        raise AdminError(f"the index of an interaction is a number from 0 to {MAX_INDEX}")
    wanted = index if isinstance(index, int) else None
    item = _decoded(document, wanted or 0, ("interactions", number))
    superseded = [Reference(at.index, at.sha256, at.required) for at in references]
    return Addition(item, wanted, tuple(superseded))


def _read_interaction(text: bytes, index: int) -> AnyInteraction:
    document = parse_json(text)
    if not isinstance(document, dict):
        raise AdminError("the body must be an interaction in the form of the cassette's document")
    if document.get("index", index) != index:
        raise AdminError(f"the index in the interaction is not the {index} of its path")
    return _decoded(document, index, ())


def _decoded(document: Document, index: int, at: tuple[str | int, ...]) -> AnyInteraction:
    try:
        return decode(document, index, at)
    except FormatFault as fault:
        raise bad_cassette(fault) from fault


def _idempotency_key(request: web.Request) -> str | None:
    values = request.headers.getall("Idempotency-Key", [])
    if not values:
        return None
    if len(values) != 1 or not _IDEMPOTENCY_KEY.fullmatch(values[0]):
        raise AdminError(
            "an Idempotency-Key is 1 to 255 visible ASCII characters, given once",
            code="bad_idempotency_key",
        )
    return values[0]
