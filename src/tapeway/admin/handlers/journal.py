"""The journal of the last requests: listed, cleared, followed live, and its suggestions accepted."""

import asyncio
import tomllib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import dropwhile, islice, takewhile
from typing import cast

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.handlers.inspection.search import EntryReader, Searchable, search
from tapeway.admin.models.journal import (
    Acceptance,
    Accepted,
    Cleared,
    EventsQuery,
    JournalEntry,
    JournalPage,
    JournalQuery,
)
from tapeway.admin.models.schema import NearRecording, Nothing, iso_time
from tapeway.admin.operation import OperationCall, PlainCall
from tapeway.conversations.gist import MOST, last_question
from tapeway.conversations.gist import gist as gist_of
from tapeway.core.json_text import Json
from tapeway.core.matching.rules import (
    NO_RULES,
    Rules,
    RulesFault,
    parse_rules,
    rules_document,
    rules_of_meta,
)
from tapeway.core.misses.miss import (
    ABSENT_NOTE,
    RECORD_NOTE,
    RULE_NOTE,
    MissedRequest,
    changed_value,
)
from tapeway.core.misses.suggestion import confused_recordings, refusal_text, rules_text
from tapeway.core.model.interaction import exchange_of
from tapeway.engine.journal import EntryQueue, MissedCall, ServedRequest
from tapeway.engine.report.lines import miss_lines
from tapeway.errors import AdminError
from tapeway.inspection.summary import first_byte_ms, model_and_tokens
from tapeway.providers.api_call import describe_call

_OPENING = b": new journal entries follow\n\n"
_GAP = b"event: gap\ndata: {}\n\n"
"""The journal no longer has the entry to go on from: some may be missing."""
_HEARTBEAT = b": heartbeat\n\n"
_BATCH_S = 0.025
"""Events within this time are written together: a write costs far more than an event, and replays
come by the thousand a second.
"""
_AROUND_DIFFERENCE = 28
_MOST_IN_BATCH = 200
"""The number of entries that are serialised before other tasks run."""


async def get_journal(
    context: HandlerContext, call: OperationCall[JournalQuery, Nothing]
) -> JournalPage:
    """The last requests, newest first, and why each hit or missed."""
    query, limit = call.query, call.query.limit
    if query.text is not None:
        return await _searched(context, query, query.text)
    entries = list(islice(_matching(context, query), limit + 1))
    return JournalPage(
        entries=await _entries(context, entries[:limit], gist=query.gist),
        next=entries[limit - 1].id if len(entries) > limit else None,
    )


async def delete_journal(context: HandlerContext, call: PlainCall) -> Cleared:
    """Clear the journal; counters stay."""
    removed = len(context.journal)
    context.journal.clear()
    return Cleared(removed=removed)


async def events(
    context: HandlerContext, call: OperationCall[EventsQuery, Nothing]
) -> web.StreamResponse:
    """New journal entries as server-sent events named `request`, until tapeway stops."""
    # Proxies in between must not hold events back.
    headers = {"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}
    response = web.StreamResponse(headers=headers)
    after = call.query.after or call.request.headers.get("Last-Event-ID")
    with context.journal.follow() as entries:
        # What is added from here on is in the queue, and nothing of that in the list.
        missed = [] if after is None else await _missed_since(context, after, gist=call.query.gist)
        await response.prepare(call.request)
        if call.request.method != "HEAD":
            # The client may disconnect at any time.
            with suppress(ConnectionError):
                for event in (_OPENING, *missed):
                    await response.write(event)
                async for batch in _batches(context, entries, gist=call.query.gist):
                    await response.write(batch)
    return response


async def _missed_since(context: HandlerContext, id: str, *, gist: bool) -> list[bytes]:
    """Events for the entries after this entry, oldest first; for all entries if `id` is gone."""
    newer = list(takewhile(lambda entry: entry.id != id, context.journal))
    is_gone = len(newer) == len(context.journal)
    new_events = [_event(entry) for entry in await _entries(context, newer[::-1], gist=gist)]
    return [_GAP, *new_events] if is_gone else new_events


async def accept(context: HandlerContext, call: OperationCall[Nothing, Acceptance]) -> Accepted:
    """Add a missed request's suggested rule, or the given one, to its cassette's rules.

    The rule is in force and stored when this returns. Accepting it again changes nothing. A
    suggestion that would make recordings equal that differ is refused (409).
    """
    entry = the_entry(context, call.request.match_info["id"])
    added = _suggested_rule(entry) if call.body.rule is None else given_rules(call.body.rule)
    name = entry.cassette
    if not context.broker.is_loaded(name):
        raise AdminError(
            f"cassette '{name}' is not loaded: insert it or send a request to it, then accept again",
            status=409,
            code="not_inserted",
        )
    if call.body.rule is None:
        await _check_suggestion(context, name, added)
    rules = await context.broker.add_rules(name, added)
    return Accepted(cassette=name, rules=rules_document(rules), suggestion=rules_text(added))


async def _searched(context: HandlerContext, query: JournalQuery, text: str) -> JournalPage:
    """A page of the entries with a text; an empty page may have a next page."""
    entries = list(_entries_after(context, query.after))
    numbered = ((entry, _passes(entry, query)) for entry in entries)
    searched = await search(context, numbered, text, negate=query.negate, limit=query.limit)
    left = len(entries) - searched.passed
    return JournalPage(
        entries=await _entries(context, searched.found, gist=query.gist),
        next=searched.last if left else None,
        searched=searched.passed,
        left=left,
    )


def _matching(context: HandlerContext, query: JournalQuery) -> Iterator[ServedRequest]:
    return (entry for entry in _entries_after(context, query.after) if _passes(entry, query))


def _entries_after(context: HandlerContext, id: str | None) -> Iterator[ServedRequest]:
    entries = iter(context.journal)
    if id is None:
        return entries
    # If the entry has left the journal, all older entries have left too.
    return islice(dropwhile(lambda entry: entry.id != id, entries), 1, None)


def _passes(entry: ServedRequest, query: JournalQuery) -> bool:
    return (
        query.outcome in (None, entry.outcome)
        and query.cassette in (None, entry.cassette)
        and query.route in (None, entry.route)
        and query.slot in (None, entry.slot)
        and query.take in (None, entry.take)
        and (query.since is None or (entry.take or 0) >= query.since)
    )


@dataclass(frozen=True, slots=True)
class _CallGist:
    """The gist of an entry: question, outcome, model and tokens."""

    asked: str
    answered: str
    model: str | None = None
    tokens: int | None = None
    first_byte_ms: float | None = None
    recorded_ms: float | None = None


def journal_entry(entry: ServedRequest, gist: _CallGist | None = None) -> JournalEntry:
    """A request as the API returns it."""
    entry = entry.written()
    return JournalEntry(
        id=entry.id,
        at=iso_time(entry.at),
        cassette=entry.cassette,
        route=entry.route,
        method=entry.method,
        path=entry.path,
        outcome=entry.outcome,
        status=entry.status,
        interaction=entry.interaction,
        base=entry.base,
        duration_ms=round(entry.duration_ms, 3),
        attempt=entry.attempt,
        match_key=entry.match_key,
        message=entry.message,
        nearest=[
            NearRecording.model_validate(near, from_attributes=True) for near in entry.nearest
        ],
        suggestion=entry.suggestion,
        record_command=entry.record_command,
        details=_details(entry),
        faulted=None if entry.fault is None else entry.fault.name,
        slot=entry.slot,
        take=entry.take,
        client_address=entry.client_address,
        request_id=entry.request_id,
        trace_id=entry.trace_id,
        asked=None if gist is None else gist.asked,
        answered=None if gist is None else gist.answered,
        model=None if gist is None else gist.model,
        tokens=None if gist is None else gist.tokens,
        first_byte_ms=None if gist is None else gist.first_byte_ms,
        recorded_ms=None if gist is None else gist.recorded_ms,
    )


def _details(entry: ServedRequest) -> list[str]:
    if entry.outcome != "miss" or entry.message is None:
        return []
    missed = MissedCall(
        entry.method, entry.path, entry.message, tuple(entry.nearest), entry.suggestion, 1
    )
    return miss_lines(missed, rule=RULE_NOTE not in entry.message)[1:]


async def _entries(
    context: HandlerContext, entries: Sequence[ServedRequest], *, gist: bool
) -> list[JournalEntry]:
    """The entries as the API returns them, with the gist of each if it is wanted."""
    if not gist:
        return [journal_entry(entry) for entry in entries]
    reader = EntryReader(context)
    items = [await reader.read(entry) for entry in entries]
    gists = await asyncio.to_thread(lambda: [*map(_described, entries, items)])
    return [
        journal_entry(entry, gist_of_entry)
        for entry, gist_of_entry in zip(entries, gists, strict=True)
    ]


def _described(entry: ServedRequest, item: Searchable) -> _CallGist:
    if isinstance(item, MissedRequest):
        call = describe_call(item.request.route, item.request)
        model = None if call is None else call.model
        return _CallGist(last_question(item.request), _why_missed(entry), model)
    message = (entry.message or "")[:MOST]
    if item is None:
        return _CallGist("", message)
    call_gist = gist_of(item)
    # The message says what failed; the answer is the same in the words of the API.
    answered = message if entry.outcome == "error" else call_gist.answered
    exchange = exchange_of(item)
    return _CallGist(
        call_gist.asked,
        answered or call_gist.answered,
        *model_and_tokens(item),
        None if exchange is None else first_byte_ms(exchange),
        None if exchange is None or entry.outcome != "replayed" else exchange.latency_ms,
    )


def _why_missed(entry: ServedRequest) -> str:
    """The first difference to the nearest recording, or why none was compared."""
    for near in entry.nearest[:1]:
        for difference in near.differences[:1]:
            path = str(difference["path"]).rpartition("body.")[2]
            more = len(near.differences) - 1 + near.more
            others = f", and {more} more" if more else ""
            return f"{path}: {changed_value(difference, around=_AROUND_DIFFERENCE)}{others}"
    message = entry.message or ""
    # The row has method, path and cassette already.
    after = message.partition(f"cassette '{entry.cassette}'")[2]
    why = after.partition(RECORD_NOTE)[0]
    return f"no such cassette{why}" if ABSENT_NOTE in message else why.lstrip(";, ") or message


async def _batches(
    context: HandlerContext, entries: EntryQueue, *, gist: bool
) -> AsyncIterator[bytes]:
    """The events of what came since the last ones, until the journal closes."""
    while True:
        try:
            async with asyncio.timeout(context.heartbeat_s):
                batch = [await entries.get()]
        except TimeoutError:
            yield _HEARTBEAT
            continue
        while len(batch) < _MOST_IN_BATCH and not entries.empty():
            batch.append(entries.get_nowait())
        served = [entry for entry in batch if entry is not None]
        if events := b"".join(map(_event, await _entries(context, served, gist=gist))):
            yield events
        if batch[-1] is None:
            return
        await asyncio.sleep(_BATCH_S)


def _event(entry: JournalEntry) -> bytes:
    data = entry.model_dump_json().encode()
    return b"event: request\nid: %b\ndata: %b\n\n" % (entry.id.encode(), data)


def the_entry(context: HandlerContext, id: str) -> ServedRequest:
    """The entry with this id. Raises AdminError (404)."""
    for entry in context.journal:
        if entry.id == id:
            return entry
    raise AdminError(
        "the journal has no such entry: /api/v1/journal lists its entries",
        status=404,
        code="no_entry",
    )


def _suggested_rule(entry: ServedRequest) -> Rules:
    if entry.suggestion is None:
        raise AdminError(
            "there is no suggestion for this request: give a rule of your own in 'rule'",
            status=409,
            code="no_suggestion",
        )
    return parse_rules(tomllib.loads(entry.suggestion))


async def _check_suggestion(context: HandlerContext, name: str, added: Rules) -> None:
    """Raise AdminError (409) if recordings that differ would be equal: some may be new since the miss."""
    broker = context.broker
    if (cassette := broker.cassette(name)) is not None:
        rules, recordings = cassette.rules, cassette.snapshot()
    elif (stored := await broker.source.read(name)) is not None:
        rules, recordings = rules_of_meta(stored.head.meta), list(stored.interactions)
    else:
        return
    confused = await asyncio.to_thread(confused_recordings, recordings, rules, added)
    if confused is not None:
        raise AdminError(
            f"{refusal_text(added, confused)}; to have it all the same, send it as 'rule'",
            status=409,
            code="unsafe_rule",
        )


def given_rules(rule: dict[str, object]) -> Rules:
    """The rules in a body. Raises AdminError for what is none."""
    try:
        rules = parse_rules(cast("Json", rule))
    except RulesFault as fault:
        raise AdminError(str(fault), code="bad_rule") from None
    if rules == NO_RULES:
        raise AdminError(
            "'rule' has no rule in it: give keys and values as a suggestion has them",
            code="bad_rule",
        )
    return rules
