"""The last requests, and why each hit or missed.

The journal as it grows, as server-sent events.

A miss that is to be a hit from now on: the rule for it becomes one of its cassette's.
"""

import asyncio
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from itertools import dropwhile, islice
from typing import cast

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.models.journal import (
    Acceptance,
    Accepted,
    Cleared,
    JournalEntry,
    JournalPage,
    JournalQuery,
    NearRecording,
)
from tapeway.admin.models.schema import Nothing, moment
from tapeway.admin.operation import OperationCall, Plain
from tapeway.core.json_text import Json
from tapeway.core.matching.rules import NO_RULES, Rules, RulesFault, parse_rules, rules_document
from tapeway.core.misses.suggestion import rules_text
from tapeway.core.text import escape_surrogates
from tapeway.engine.journal import Feed, ServedRequest
from tapeway.errors import AdminError

_OPENING = b": what is journalled from now on\n\n"
_HEARTBEAT = b": still here\n\n"


async def get_journal(
    console: HandlerContext, call: OperationCall[JournalQuery, Nothing]
) -> JournalPage:
    """The last requests, newest first, by outcome and cassette if asked for."""
    limit = call.query.limit
    found = list(islice(_matching(console, call.query), limit + 1))
    return JournalPage(
        entries=[entered(each) for each in found[:limit]],
        next=found[limit - 1].id if len(found) > limit else None,
    )


async def delete_journal(console: HandlerContext, call: Plain) -> Cleared:
    """Forget all of them; counters stay."""
    removed = len(console.journal)
    console.journal.clear()
    return Cleared(removed=removed)


def entered(entry: ServedRequest) -> JournalEntry:
    """An entry as it is shown."""
    return JournalEntry(
        id=entry.id,
        at=moment(entry.at),
        cassette=escape_surrogates(entry.cassette),
        route=entry.route,
        method=escape_surrogates(entry.method),
        path=escape_surrogates(entry.path),
        outcome=entry.outcome,
        status=entry.status,
        interaction=entry.interaction,
        duration_ms=round(entry.duration_ms, 3),
        attempt=entry.attempt,
        match_key=entry.match_key,
        message=None if entry.message is None else escape_surrogates(entry.message),
        nearest=[
            NearRecording(index=each.index, differences=list(each.differences), more=each.more)
            for each in entry.nearest
        ],
        suggestion=None if entry.suggestion is None else escape_surrogates(entry.suggestion),
    )


def _matching(console: HandlerContext, query: JournalQuery) -> Iterator[ServedRequest]:
    entries = iter(console.journal)
    if query.after is not None:
        # One that has left the journal had nothing older behind it.
        entries = islice(dropwhile(lambda entry: entry.id != query.after, entries), 1, None)
    for entry in entries:
        if query.outcome in (None, entry.outcome) and query.cassette in (None, entry.cassette):
            yield entry


async def events(console: HandlerContext, call: Plain) -> web.StreamResponse:
    """The journal live, as server-sent events named `request`; it ends when tapeway stops."""
    # Proxies in between must not hold events back.
    headers = {"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}
    response = web.StreamResponse(headers=headers)
    with console.journal.follow() as feed:
        await response.prepare(call.request)
        if call.request.method != "HEAD":
            # A follower leaves when it likes.
            with suppress(ConnectionError):
                await _tell(response, feed, console.heartbeat_s)
    return response


async def _tell(response: web.StreamResponse, feed: Feed, heartbeat_s: float) -> None:
    piece: bytes | None = _OPENING
    while piece is not None:
        await response.write(piece)
        piece = await _next(feed, heartbeat_s)


async def _next(feed: Feed, heartbeat_s: float) -> bytes | None:
    try:
        async with asyncio.timeout(heartbeat_s):
            entry = await feed.get()
    except TimeoutError:
        return _HEARTBEAT
    if entry is None:
        return None
    return b"event: request\ndata: %b\n\n" % entered(entry).model_dump_json().encode()


async def accept(console: HandlerContext, call: OperationCall[Nothing, Acceptance]) -> Accepted:
    """Add what a missed request was suggested, or the rule given, to its cassette's rules.

    The rule is in force, and kept, when this answers. To accept it again changes nothing.
    """
    entry = _entry(console, call.request.match_info["id"])
    added = _suggested(entry) if call.body.rule is None else _given(call.body.rule)
    name = entry.cassette
    if not console.broker.is_in(name):
        raise AdminError(
            f"cassette '{name}' is not in: insert it, or ask for something in it, and accept again",
            status=409,
            code="not_inserted",
        )
    rules = await console.broker.add_rules(name, added)
    return Accepted(cassette=name, rules=rules_document(rules), suggestion=rules_text(added))


def _entry(console: HandlerContext, id: str) -> ServedRequest:
    for entry in console.journal:
        if entry.id == id:
            return entry
    raise AdminError(
        "the journal has no such entry: /api/v1/journal lists those it has",
        status=404,
        code="no_entry",
    )


def _suggested(entry: ServedRequest) -> Rules:
    if entry.suggestion is None:
        raise AdminError(
            "nothing is suggested for this request: give a rule of your own in 'rule'",
            status=409,
            code="no_suggestion",
        )
    return parse_rules(tomllib.loads(entry.suggestion))


def _given(rule: dict[str, object]) -> Rules:
    try:
        found = parse_rules(cast("Json", rule))
    except RulesFault as fault:
        raise AdminError(str(fault), code="bad_rule") from None
    if found == NO_RULES:
        raise AdminError("'rule' states no rule: it is like the suggestion", code="bad_rule")
    return found
