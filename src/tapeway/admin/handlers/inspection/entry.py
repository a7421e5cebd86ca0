"""One journal entry as a whole: the request, the nearest recording, and the rule for a match."""

import asyncio
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.handlers.inspection.exchange import view_of
from tapeway.admin.handlers.inspection.search import kept_call
from tapeway.admin.handlers.journal import journal_entry, the_entry
from tapeway.admin.models.inspection import AnsweringRecording, FoundBy
from tapeway.admin.operation import PlainCall
from tapeway.admin.responses import json_response
from tapeway.core.http.routing import assign_route
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.rules import NO_RULES, Rules, merged_rules, parse_rules, rules_of_meta
from tapeway.core.misses.miss import MissedRequest
from tapeway.core.misses.nearest import path_of
from tapeway.core.misses.suggestion import confused_recordings, refusal_text, rules_text
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import AnyInteraction, exchange_of
from tapeway.engine.cassettes.followed import MOST_NEAR
from tapeway.engine.correlation import FOUND_BY_IDENTIFIERS
from tapeway.engine.decision import FOUND_BY_ALIAS
from tapeway.engine.journal import ServedRequest
from tapeway.errors import AdminError, StoreError
from tapeway.inspection import missed
from tapeway.inspection.exchange import ReadableExchange
from tapeway.inspection.summary import described
from tapeway.ports import SharedStore

_MOST_CHECKED = 5000
"""Recordings among which a suggestion is checked again when somebody looks at it."""


@dataclass(frozen=True, slots=True)
class _Searched:
    """The recordings of the cassette that may be near to a missed request."""

    salt: str
    rules: Rules
    recordings: Sequence[AnyInteraction] = ()


async def get_entry(context: HandlerContext, call: PlainCall) -> web.Response:
    """One request: the reason of the hit, or of the miss with the recordings that would answer."""
    entry = the_entry(context, call.request.match_info["id"])
    members: dict[str, Json] = {
        "entry": journal_entry(entry).model_dump(mode="json"),
        "request": None,
        "nearest": None,
        "verdicts": [],
        "suggestion": entry.suggestion,
        "unsafe": None,
        "preview": None,
        "recording": None,
        **_neighbouring_entries(context, entry),
    }
    if entry.outcome == "miss":
        searched = await _searched(context, entry)
        kept = context.journal.kept.get(entry.id)
        if kept is not None and kept.missed is not None:
            members |= await asyncio.to_thread(_of_miss, context, entry, kept.missed, searched)
    elif entry.interaction is not None:
        searched = await _searched(context, entry, recordings=False)
        by, reason = _found_by(entry, searched.rules)
        members["recording"] = AnsweringRecording(
            cassette=entry.holder, index=entry.interaction, by=by, reason=reason
        ).model_dump()
    return json_response(await asyncio.to_thread(dump, members))


async def get_call(context: HandlerContext, call: PlainCall) -> web.Response:
    """One request and the answer, as recorded or as kept in the journal.

    The journal keeps calls without a recording in memory, without secrets: for as many as it has
    entries, in 64 MiB, with bodies up to 1 MiB.
    """
    entry = the_entry(context, call.request.match_info["id"])
    if entry.interaction is not None:
        return await view_of(context, entry.holder, entry.interaction)
    if (kept := await kept_call(context, entry)) is None:
        raise AdminError(
            "the journal keeps nothing of this request: newer calls took its room",
            status=404,
            code="not_kept",
        )
    view = await ReadableExchange.of(await asyncio.to_thread(described, kept.exchange))
    return json_response(await asyncio.to_thread(lambda: dump(view.document)))


def _neighbouring_entries(context: HandlerContext, entry: ServedRequest) -> dict[str, Json]:
    """The entries of the cassette before and after an entry."""
    ids = [logged.id for logged in context.journal if logged.cassette == entry.cassette]
    at = ids.index(entry.id)
    return {
        "previous": ids[at + 1] if at + 1 < len(ids) else None,
        "next": ids[at - 1] if at > 0 else None,
    }


async def _searched(
    context: HandlerContext, entry: ServedRequest, *, recordings: bool = True
) -> _Searched:
    """The cassette as it is now; empty where it is gone or cannot be read."""
    broker, name = context.broker, _of_nearest(entry)
    if (cassette := broker.cassette(name)) is not None:
        return _Searched(cassette.head.run_id, cassette.rules, cassette.snapshot())
    try:
        if (shared := broker.store.shared) is not None:
            return await _searched_in(shared, context, entry, recordings=recordings)
        stored = await broker.source.read(name)
    except StoreError:
        return _Searched("", NO_RULES)
    if stored is None:
        return _Searched("", NO_RULES)
    items = [assign_route(interaction, broker.routes) for interaction in stored.interactions]
    return _Searched(stored.head.run_id, _rules_of(stored.head), items)


async def _searched_in(
    store: SharedStore, context: HandlerContext, entry: ServedRequest, *, recordings: bool
) -> _Searched:
    name = _of_nearest(entry)
    outline = await store.outline(name)
    if outline is None:
        return _Searched("", NO_RULES)
    rules = _rules_of(outline.head)
    kept = context.journal.kept.get(entry.id)
    if kept is None or kept.missed is None or not recordings:
        return _Searched(outline.head.run_id, rules)
    request = kept.missed.request
    path = path_of(request, rules)
    near = [*await store.near(name, request.method, path, MOST_NEAR)]
    known = {compared.item.index for compared in near}
    # The nearest recordings may be older than the newest ones of the path.
    older = {nearest.index for nearest in entry.nearest} - known
    near += await store.documents(name, sorted(older)) if older else ()
    items = [assign_route(compared.item, context.broker.routes) for compared in near]
    return _Searched(outline.head.run_id, rules, items)


def _of_nearest(entry: ServedRequest) -> str:
    """The cassette that holds the recording nearest to a missed request: perhaps a base."""
    return (entry.nearest[0].base if entry.nearest else "") or entry.cassette


def _rules_of(head: CassetteHead) -> Rules:
    """The rules in a head that was loaded before: faults were reported at the load."""
    try:
        return rules_of_meta(head.meta)
    except ValueError:
        return NO_RULES


def _of_miss(
    context: HandlerContext, entry: ServedRequest, kept: MissedRequest, searched: _Searched
) -> dict[str, Json]:
    rules = searched.rules
    index = entry.nearest[0].index if entry.nearest else None
    held = next((recording for recording in searched.recordings if recording.index == index), None)
    item = None if held is None else exchange_of(held)
    if item is not None:
        item = missed.redacted(
            item, lambda request: context.broker.redaction.redact(searched.salt, request, rules)
        )
    members: dict[str, Json] = {
        "request": _members(missed.request_part(kept, rules)),
        "nearest": None if item is None else _members(missed.nearest_part(kept, item, rules)),
        "verdicts": [*map(_members, missed.verdicts(kept, item, searched.recordings, rules))],
    }
    if entry.suggestion is not None:
        added = parse_rules(tomllib.loads(entry.suggestion))
        under = merged_rules(rules, added)
        members["preview"] = _members(missed.preview(kept, searched.recordings, under))
        # Of a large cassette that takes too long for a look; accepting it tells.
        if len(searched.recordings) <= _MOST_CHECKED:
            confused = confused_recordings(searched.recordings, rules, added)
            members["unsafe"] = None if confused is None else refusal_text(added, confused)
    return members


def _members(
    part: missed.ComparedRequest | missed.NearestCompared | missed.PartVerdict | missed.Preview,
) -> dict[str, Any]:
    """The fields of a part. `asdict` would copy its documents."""
    return {field.name: getattr(part, field.name) for field in fields(part)}


def _found_by(entry: ServedRequest, rules: Rules) -> tuple[FoundBy, str]:
    """How the recording that answered was found, or made, in a word and in a sentence."""
    message = entry.message or ""
    if entry.outcome == "recorded":
        return "live", "the upstream answered, and the answer was recorded"
    if FOUND_BY_ALIAS in message:
        return "alias", message[message.index(FOUND_BY_ALIAS) :]
    if FOUND_BY_IDENTIFIERS in message:
        return "identifiers", message[message.index(FOUND_BY_IDENTIFIERS) :]
    if rules:
        return "rules", f"its match key is equal under the cassette's rules: {rules_text(rules)}"
    return "key", "its match key is equal"
