"""Interactions added to a cassette, edited, and removed, one by one or a few at a time."""

import asyncio
import hashlib
import re
from typing import cast

from aiohttp import web

from tapeway.admin.changes import (
    Added,
    Additions,
    ChangeQuery,
    Claimed,
    Edited,
    Placed,
    Released,
    Superseded,
)
from tapeway.admin.console import Console
from tapeway.admin.heads import head_of
from tapeway.admin.imports import unreadable
from tapeway.admin.octets import media_type, model_of, parsed, whole
from tapeway.admin.payloads import MAX_INDEX, Nothing
from tapeway.admin.route import Call, Plain
from tapeway.admin.tags import condition
from tapeway.core.json_text import parse
from tapeway.core.model.cassette import Held
from tapeway.engine.editing.changes import Addition, Reference
from tapeway.errors import AdminError
from tapeway.formats.errors import FormatFault
from tapeway.formats.native.document import Document, decode

JSON = frozenset({"application/json"})
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


async def append_interactions(console: Console, call: Call[ChangeQuery, Nothing]) -> Added:
    """Append interactions, durable when this answers; with an Idempotency-Key once and no more."""
    name, key = call.cassette, _idempotency_key(call.request)
    media_type(call.request, JSON)
    text = await whole(call.request)
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


async def put_interaction(console: Console, call: Call[ChangeQuery, Nothing]) -> Edited:
    """Put another interaction in the place of one."""
    index = call.index
    media_type(call.request, JSON)
    text = await whole(call.request)
    item = await parsed(lambda: _edited(text, index), Additions)
    return await _edit(console, call, item)


async def delete_interaction(console: Console, call: Call[ChangeQuery, Nothing]) -> Edited:
    """Remove one interaction."""
    return await _edit(console, call, None)


async def claim(console: Console, call: Plain) -> Claimed:
    """See that a cassette can be appended to, and let no other process record into it."""
    await console.broker.editor.claim(call.cassette)
    return Claimed(cassette=call.cassette, durability=console.broker.store.durability)


async def release(console: Console, call: Plain) -> Released:
    """Write the final form of a cassette that was claimed or appended to, and let it go."""
    released = await console.broker.editor.release(call.cassette)
    return Released(cassette=call.cassette, released=released)


async def _edit(console: Console, call: Call[ChangeQuery, Nothing], item: Held | None) -> Edited:
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


def _edited(text: bytes, index: int) -> Held:
    document = parse(text)
    if not isinstance(document, dict):
        raise AdminError("the body must be an interaction as the cassette's document has it")
    if document.get("index", index) != index:
        raise AdminError(f"the interaction says that it is another one than {index}")
    return _decoded(document, index, ())


def _decoded(document: Document, index: int, at: tuple[str | int, ...]) -> Held:
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
