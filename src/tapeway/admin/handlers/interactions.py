"""The interactions of a cassette, as its document shows them.

Interactions added to a cassette, edited, and removed, one by one or a few at a time.

The recorded calls of LLMs as what was said.
"""

import asyncio
import hashlib
import re
from collections.abc import Sequence
from contextlib import aclosing
from typing import cast

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.errors import unreadable
from tapeway.admin.etags import condition, tag
from tapeway.admin.handlers.cassettes import head_of, read_cassette, refuse_large
from tapeway.admin.models.cassettes import ChangeQuery, Claimed, Released
from tapeway.admin.models.interactions import (
    Added,
    Additions,
    Edited,
    InteractionQuery,
    MessageQuery,
    Placed,
    Superseded,
)
from tapeway.admin.models.schema import MAX_INDEX, Nothing
from tapeway.admin.operation import OperationCall, Plain
from tapeway.admin.request_body import media_type, model_of, parsed, whole_body
from tapeway.conversations.model import ConversationMessage, document
from tapeway.conversations.transcript import LeftOut, read_transcript
from tapeway.core.json_text import Json, dump, parse
from tapeway.core.model.interaction import AnyInteraction
from tapeway.engine.editing.changes import Addition, Reference
from tapeway.engine.editing.lookup import no_cassette, no_interaction
from tapeway.errors import AdminError, CassetteCorrupt
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document
from tapeway.formats.native.document import decode, document_digest, encode
from tapeway.paging import PAGE_BYTES, bytes_in_memory

JSON = frozenset({"application/json"})
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_MOST_LEFT_OUT = 1000


async def list_interactions(
    console: HandlerContext, call: OperationCall[InteractionQuery, Nothing]
) -> web.Response:
    """A cassette's interactions, in order; a page of large ones ends before its limit."""
    query = call.query
    page, following = await _page(console, call.cassette, query.after, query.limit)
    body = await asyncio.to_thread(_listed, call.cassette, page, following)
    return web.Response(body=body, content_type="application/json")


async def get_interaction(console: HandlerContext, call: Plain) -> web.Response:
    """One interaction."""
    name, index = call.cassette, call.index
    broker = console.broker
    found = await broker.interaction(name, index)
    if found is None:
        if not broker.is_in(name) and await broker.store.stat(name) is None:
            raise no_cassette(name)
        raise no_interaction(name, index)
    document = _document(name, found)
    body = await asyncio.to_thread(dump, document)
    etag = {"ETag": tag(document_digest(document))}
    return web.Response(body=body, content_type="application/json", headers=etag)


async def _page(
    console: HandlerContext, name: str, after: int | None, limit: int
) -> tuple[list[AnyInteraction], int | None]:
    """Some interactions, and the index after which there are more."""
    if console.broker.store.capabilities.shared is None:
        stored = await read_cassette(console, name)
        held = sorted(stored.interactions, key=lambda each: each.index)
        later = [each for each in held if after is None or each.index > after]
        return later[:limit], later[limit - 1].index if len(later) > limit else None
    if (found := await console.broker.editor.walk(name, after)) is None:
        raise no_cassette(name)
    page, heavy = list[AnyInteraction](), 0
    async with aclosing(found.items) as items:
        async for item in items:
            if len(page) == limit or heavy > PAGE_BYTES:
                return page, page[-1].index
            page.append(item)
            heavy += bytes_in_memory(item)
    return page, None


def _listed(name: str, page: Sequence[AnyInteraction], following: int | None) -> bytes:
    documents: list[Json] = [_document(name, each) for each in page]
    return dump({"interactions": documents, "next": following})


def _document(name: str, held: AnyInteraction) -> dict[str, Json]:
    try:
        document = encode(held)
    except FormatFault as fault:
        raise CassetteCorrupt(
            f"interaction {held.index} of cassette '{name}' cannot be written: {fault}"
        ) from fault
    # The index by which this API knows it: a copied or unnumbered one was given another.
    return {"index": held.index, **document, **{"index": held.index}}


async def append_interactions(
    console: HandlerContext, call: OperationCall[ChangeQuery, Nothing]
) -> Added:
    """Append interactions, durable when this answers; with an Idempotency-Key once and no more."""
    name, key = call.cassette, _idempotency_key(call.request)
    media_type(call.request, JSON)
    text = await whole_body(call.request)
    sent = await model_of(text, Additions)
    additions = await asyncio.to_thread(_additions, sent)
    head = None
    if sent.head is not None:
        head = head_of(sent.head)
    added = await console.broker.editor.append(
        name,
        additions,
        head=head,
        key=key,
        sent=hashlib.sha256(text).hexdigest(),
        secrets=call.query.secrets,
        again=call.request.headers.get("Tapeway-Attempt", "1") != "1",
    )
    placed = [Placed(index=each.index, sha256=each.sha256) for each in added.items]
    return Added(cassette=name, head=added.head, interactions=placed)


async def put_interaction(
    console: HandlerContext, call: OperationCall[ChangeQuery, Nothing]
) -> Edited:
    """Put another interaction in the place of one."""
    index = call.index
    media_type(call.request, JSON)
    text = await whole_body(call.request)
    item = await parsed(lambda: _edited(text, index), Additions)
    return await _edit(console, call, item)


async def delete_interaction(
    console: HandlerContext, call: OperationCall[ChangeQuery, Nothing]
) -> Edited:
    """Remove one interaction."""
    return await _edit(console, call, None)


async def claim(console: HandlerContext, call: Plain) -> Claimed:
    """See that a cassette can be appended to, and let no other process record into it."""
    await console.broker.editor.claim(call.cassette)
    return Claimed(cassette=call.cassette, durability=console.broker.store.durability)


async def release(console: HandlerContext, call: Plain) -> Released:
    """Write the final form of a cassette that was claimed or appended to, and let it go."""
    released = await console.broker.editor.release(call.cassette)
    return Released(cassette=call.cassette, released=released)


async def _edit(
    console: HandlerContext, call: OperationCall[ChangeQuery, Nothing], item: AnyInteraction | None
) -> Edited:
    name = call.cassette
    told = await console.broker.editor.edit(
        name, call.index, item, condition(call.request), call.query.secrets
    )
    placed = None if told is None else Placed(index=told.index, sha256=told.sha256)
    return Edited(cassette=name, interaction=placed)


def _additions(sent: Additions) -> list[Addition]:
    supersedes: list[list[Superseded]] = [[] for _ in sent.interactions]
    if sent.supersedes is not None:
        supersedes = sent.supersedes
    if len(supersedes) != len(sent.interactions):
        raise AdminError("'supersedes' must say for each of the interactions what it supersedes")
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
    return Addition(item, wanted, tuple([Reference(at.index, at.sha256) for at in references]))


def _edited(text: bytes, index: int) -> AnyInteraction:
    document = parse(text)
    if not isinstance(document, dict):
        raise AdminError("the body must be an interaction as the cassette's document has it")
    if document.get("index", index) != index:
        raise AdminError(f"the interaction says that it is another one than {index}")
    return _decoded(document, index, ())


def _decoded(document: Document, index: int, at: tuple[str | int, ...]) -> AnyInteraction:
    try:
        return decode(document, index, at)
    except FormatFault as fault:
        raise unreadable(fault) from fault


def _idempotency_key(request: web.Request) -> str | None:
    values = request.headers.getall("Idempotency-Key", [])
    if not values:
        return None
    if len(values) != 1 or not _KEY.fullmatch(values[0]):
        raise AdminError(
            "an Idempotency-Key has 1 to 255 visible ASCII characters", code="bad_idempotency_key"
        )
    return values[0]


async def list_messages(
    console: HandlerContext, call: OperationCall[MessageQuery, Nothing]
) -> web.Response:
    """The recorded LLM calls as conversations, each message once."""
    query = call.query
    await refuse_large(console, call.cassette)
    found = await read_transcript(await read_cassette(console, call.cassette))
    later = [
        (number, each)
        for number, each in enumerate(found.messages)
        if (query.after is None or number > query.after)
        and query.conversation in (None, each.conversation)
    ]
    body = await asyncio.to_thread(_message_page, later, query.limit, found.left_out)
    return web.Response(body=body, content_type="application/json")


def _message_page(
    later: Sequence[tuple[int, ConversationMessage]], limit: int, left_out: Sequence[LeftOut]
) -> bytes:
    messages: list[Json] = [{"number": at, **document(each)} for at, each in later[:limit]]
    unread: list[Json] = [
        {"interaction": each.interaction, "reason": each.reason}
        for each in left_out[:_MOST_LEFT_OUT]
    ]
    following = later[limit - 1][0] if len(later) > limit else None
    return dump({"messages": messages, "left_out": unread, "next": following})
