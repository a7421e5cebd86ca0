"""Control of a running tapeway: mode, insert, eject, rewind, and the report."""

import asyncio
from typing import Any

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.models.control import (
    Dated,
    Ejected,
    Ejection,
    EjectPreview,
    EjectQuery,
    Inserted,
    Insertion,
    Missed,
    ModeChange,
    ModeInForce,
    ModeQuery,
    Recorded,
    Report,
    ReportedCassette,
    ReportQuery,
    Rewinding,
    Saved,
    Stale,
    Takes,
    Tokens,
    Unpriced,
    Unreached,
    Unrecorded,
    Unused,
)
from tapeway.admin.models.schema import Nothing, near_recordings
from tapeway.admin.operation import OperationCall
from tapeway.admin.processes import SingleProcess
from tapeway.admin.responses import json_response
from tapeway.core.text import escape_surrogates
from tapeway.engine.journal import MissedCall
from tapeway.engine.report.forms import TEXT_FORMS
from tapeway.engine.report.summary import CassetteReport, RecordingSummary, Savings

_FORMS = {
    "junit": (".xml", "application/xml"),
    "text": (".txt", "text/plain"),
}


async def get_mode(context: HandlerContext, call: OperationCall[ModeQuery, Nothing]) -> ModeInForce:
    """The mode for all cassettes, or with `cassette` that of one cassette."""
    name = call.query.cassette
    mode = context.broker.mode if name is None else context.broker.mode_of(name)
    return ModeInForce(mode=mode, cassette=name)


async def put_mode(
    context: HandlerContext, call: OperationCall[Nothing, ModeChange]
) -> ModeInForce:
    """Set the mode, for all cassettes or for one; a change starts a new take."""
    change = call.body
    laggards = await context.broker.set_mode(change.mode, change.cassette)
    return ModeInForce(mode=change.mode, cassette=change.cassette, laggards=list(laggards))


async def insert(context: HandlerContext, call: OperationCall[Nothing, Insertion]) -> Inserted:
    """Load a cassette and make it active, in a new take; its first recording creates it."""
    name = call.body.cassette
    laggards = await context.broker.insert(name, call.body.mode)
    return Inserted(cassette=name, mode=context.broker.mode_of(name), laggards=list(laggards))


async def get_eject(
    context: HandlerContext, call: OperationCall[EjectQuery, Nothing]
) -> EjectPreview:
    """What ejecting a cassette would do: what it waits for, and what pruning would drop."""
    broker = context.broker
    name = call.query.cassette or broker.active
    found = next((each for each in await broker.loaded() if each.name == name), None)
    instances, lagging = await broker.instances()
    slots = broker.source.control.slots
    recorded = broker.journal.tallies[name].outcomes["recorded"] if found is not None else 0
    single = isinstance(context.processes, SingleProcess)
    return EjectPreview(
        cassette=name,
        loaded=found is not None,
        in_flight=broker.recordings_in_flight(name) if single else context.processes.in_flight,
        interactions=0 if found is None else found.interactions,
        recorded=recorded,
        unused=0 if found is None else found.unused,
        slots=sorted(slot for slot, each in slots.items() if each.cassette == name),
        instances=list(instances),
        lagging=list(lagging),
    )


async def eject(context: HandlerContext, call: OperationCall[Nothing, Ejection]) -> Ejected:
    """Wait for recordings in flight, write the cassette's final file, unload it, and report."""
    name = call.body.cassette or context.broker.active
    await context.processes.wait_for_recordings(name)
    report = await context.broker.eject(name, prune=call.body.prune)
    return Ejected(
        cassettes=[await asyncio.to_thread(reported_cassette, report)],
        upstream_connections=context.processes.connections,
        laggards=list(report.laggards),
        left_over=await context.broker.erase(),
    )


async def rewind(context: HandlerContext, call: OperationCall[Nothing, Rewinding]) -> Takes:
    """Start a new take: replay starts over from the first recording of each request."""
    laggards = await context.broker.rewind(call.body.cassette)
    return Takes(takes=context.broker.takes, laggards=list(laggards))


async def report(
    context: HandlerContext, call: OperationCall[ReportQuery, Nothing]
) -> Report | web.Response:
    """Hits, misses, live calls, unused recordings and tokens saved, by loaded cassette."""
    found = await context.broker.reports()
    connections = context.processes.connections
    if (form := _FORMS.get(call.query.format)) is not None:
        suffix, content_type = form
        text = await asyncio.to_thread(TEXT_FORMS[suffix], found)
        return web.Response(text=text, content_type=content_type)

    def body() -> bytes:
        cassettes = [reported_cassette(each) for each in found]
        made = Report(cassettes=cassettes, upstream_connections=connections)
        return made.model_dump_json().encode()

    return json_response(await asyncio.to_thread(body))


def reported_cassette(found: CassetteReport) -> ReportedCassette:
    """One cassette's part of the report, as the API returns it."""
    return ReportedCassette(
        name=found.name,
        replayed=found.replayed,
        recorded=found.recorded,
        live=found.live,
        failed=dict(found.failed),
        retries=found.retries,
        misses=[_missed(each) for each in found.misses],
        unused=[_unused(each) for each in found.unused],
        duplicates=[[_recorded(each) for each in group] for group in found.duplicates],
        unmarked=[_recorded(each) for each in found.unmarked],
        usage=Tokens.model_validate(found.usage),
        stale=[Stale(**_fields(each), day=each.day) for each in found.stale],
        dated=[
            Dated(
                index=each.index,
                method=escape_surrogates(each.method),
                path=escape_surrogates(each.path),
                kind=each.kind,
                advice=escape_surrogates(each.advice),
            )
            for each in found.dated
        ],
        unrecorded=[
            Unrecorded(
                method=escape_surrogates(each.method),
                path=escape_surrogates(each.path),
                status=each.status,
                reason=escape_surrogates(each.reason),
                times=each.times,
            )
            for each in found.unrecorded
        ],
        repeated=[_recorded(each) for each in found.repeated],
        unreached=[
            Unreached(
                index=each.index,
                method=escape_surrogates(each.method),
                path=escape_surrogates(each.path),
                first=each.first,
                count=each.count,
                message=escape_surrogates(each.message),
            )
            for each in found.unreached
        ],
        redacted=found.redacted,
        elsewhere=list(found.elsewhere),
        saved=_saved(found.saved, found.replayed, found.usage["total_tokens"]),
    )


def _saved(saved: Savings, calls: int, tokens: int) -> Saved:
    unpriced = [
        Unpriced(
            model=escape_surrogates(each.model),
            calls=each.calls,
            prompt_tokens=each.prompt_tokens,
            completion_tokens=each.completion_tokens,
        )
        for each in saved.unpriced
    ]
    return Saved(calls=calls, tokens=tokens, usd=saved.usd, unpriced=unpriced, prices=saved.prices)


def _missed(miss: MissedCall) -> Missed:
    return Missed(
        method=escape_surrogates(miss.method),
        path=escape_surrogates(miss.path),
        message=escape_surrogates(miss.message),
        nearest=near_recordings(miss.nearest),
        suggestion=None if miss.suggestion is None else escape_surrogates(miss.suggestion),
        times=miss.times,
    )


def _unused(item: RecordingSummary) -> Unused:
    return Unused(**_fields(item), mark=item.fingerprint or None)


def _recorded(item: RecordingSummary) -> Recorded:
    return Recorded(**_fields(item))


def _fields(item: RecordingSummary) -> dict[str, Any]:
    path = escape_surrogates(item.path)
    return {"index": item.index, "method": item.method, "path": path}
