"""The last requests, and why each hit or missed."""

from collections.abc import Iterator
from itertools import dropwhile, islice

from tapeway.admin.console import Console
from tapeway.admin.legible import legible, moment
from tapeway.admin.payloads import (
    Cleared,
    JournalEntry,
    JournalPage,
    JournalQuery,
    NearRecording,
    Nothing,
)
from tapeway.admin.route import Call, Plain
from tapeway.engine.journal import ServedRequest


async def get_journal(console: Console, call: Call[JournalQuery, Nothing]) -> JournalPage:
    """The last requests, newest first, by outcome and cassette if asked for."""
    limit = call.query.limit
    found = list(islice(_matching(console, call.query), limit + 1))
    return JournalPage(
        entries=[entered(each) for each in found[:limit]],
        next=found[limit - 1].id if len(found) > limit else None,
    )


async def delete_journal(console: Console, call: Plain) -> Cleared:
    """Forget all of them; counters stay."""
    removed = len(console.journal)
    console.journal.clear()
    return Cleared(removed=removed)


def entered(entry: ServedRequest) -> JournalEntry:
    """An entry as it is shown."""
    return JournalEntry(
        id=entry.id,
        at=moment(entry.at),
        cassette=legible(entry.cassette),
        route=entry.route,
        method=legible(entry.method),
        path=legible(entry.path),
        outcome=entry.outcome,
        status=entry.status,
        interaction=entry.interaction,
        duration_ms=round(entry.duration_ms, 3),
        attempt=entry.attempt,
        match_key=entry.match_key,
        message=None if entry.message is None else legible(entry.message),
        nearest=[
            NearRecording(index=each.index, differences=list(each.differences), more=each.more)
            for each in entry.nearest
        ],
        suggestion=None if entry.suggestion is None else legible(entry.suggestion),
    )


def _matching(console: Console, query: JournalQuery) -> Iterator[ServedRequest]:
    entries = iter(console.journal)
    if query.after is not None:
        # One that has left the journal had nothing older behind it.
        entries = islice(dropwhile(lambda entry: entry.id != query.after, entries), 1, None)
    for entry in entries:
        if query.outcome in (None, entry.outcome) and query.cassette in (None, entry.cassette):
            yield entry
