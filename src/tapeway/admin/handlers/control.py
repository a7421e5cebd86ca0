"""Control of a running tapeway: mode, insert, eject, rewind, and the report."""

import asyncio
from collections.abc import Sequence

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.models.control import (
    Ejected,
    Ejection,
    EjectPreview,
    EjectQuery,
    FaultList,
    Inserted,
    Insertion,
    ModeChange,
    ModeInForce,
    ModeQuery,
    OwnMode,
    Report,
    ReportedCassette,
    ReportQuery,
    Rewinding,
    Takes,
)
from tapeway.admin.models.schema import Nothing
from tapeway.admin.operation import OperationCall, PlainCall
from tapeway.admin.responses import json_response
from tapeway.core.model.faults import Fault, FaultRefused, faults_document, parse_faults
from tapeway.engine.broker import Broker
from tapeway.engine.report.forms import TEXT_FORMS
from tapeway.engine.report.summary import CassetteReport
from tapeway.errors import AdminError

_FORMS = {
    "junit": (".xml", "application/xml"),
    "text": (".txt", "text/plain"),
}


async def get_mode(context: HandlerContext, call: OperationCall[ModeQuery, Nothing]) -> ModeInForce:
    """The mode for all cassettes, or with `cassette` for one cassette; and modes of single ones."""
    return _in_force(context.broker, call.query.cassette)


async def put_mode(
    context: HandlerContext, call: OperationCall[Nothing, ModeChange]
) -> ModeInForce:
    """Set the mode, for all cassettes or for one; a change starts a new take."""
    change, broker = call.body, context.broker
    if change.all and change.cassette is not None:
        raise AdminError("field 'all': it is for all cassettes, so send no 'cassette' with it")
    if change.mode is not None:
        await broker.set_mode(change.mode, change.cassette, everywhere=change.all)
    elif change.cassette is not None:
        await broker.end_own_mode(change.cassette)
    else:
        raise AdminError(
            "field 'mode': null ends the mode of one cassette, which 'cassette' names; a mode with "
            "'all' true ends those of all"
        )
    return _in_force(broker, change.cassette)


def _in_force(broker: Broker, name: str | None) -> ModeInForce:
    return ModeInForce(
        mode=broker.mode if name is None else broker.mode_of(name),
        cassette=name,
        cassettes=own_modes(broker),
    )


def own_modes(broker: Broker) -> list[OwnMode]:
    """The cassettes with a mode of their own, by name."""
    modes = broker.source.control.modes
    return [OwnMode(name=name, mode=modes[name]) for name in sorted(modes)]


async def get_faults(context: HandlerContext, call: PlainCall) -> FaultList:
    """The faults that are laid over all replays."""
    return FaultList.model_validate(
        {"faults": faults_document(context.broker.source.control.faults)}
    )


async def put_faults(context: HandlerContext, call: OperationCall[Nothing, FaultList]) -> FaultList:
    """Lay these faults over all replays, in place of all before; each counts from the beginning."""
    await context.broker.set_faults(given_faults(call.body.faults))
    return call.body


def given_faults(documents: Sequence[object]) -> tuple[Fault, ...]:
    """The faults in a body. Raises AdminError for what is none."""
    try:
        return parse_faults(documents)
    except FaultRefused as refused:
        raise AdminError(str(refused), code="bad_fault") from None


async def insert(context: HandlerContext, call: OperationCall[Nothing, Insertion]) -> Inserted:
    """Load a cassette and make it active, in a new take; its first recording creates it."""
    name, broker = call.body.cassette, context.broker
    await broker.insert(name, call.body.mode)
    return Inserted(
        cassette=name,
        mode=broker.mode_of(name),
        warning=await broker.only_misses(name),
    )


async def get_eject(
    context: HandlerContext, call: OperationCall[EjectQuery, Nothing]
) -> EjectPreview:
    """The effects of an eject: recordings to wait for, recordings that `prune` would drop."""
    broker = context.broker
    name = call.query.cassette or broker.active
    loaded = next((count for count in await broker.source.counts() if count.name == name), None)
    slots = broker.source.control.slots
    recorded = broker.journal.tallies[name].outcomes["recorded"] if loaded is not None else 0
    return EjectPreview(
        cassette=name,
        loaded=loaded is not None,
        in_flight=broker.recordings_in_flight(name),
        interactions=0 if loaded is None else loaded.interactions,
        recorded=recorded,
        unused=0 if loaded is None else loaded.unused,
        slots=sorted(slot for slot, pointed in slots.items() if pointed.cassette == name),
        instances=list(await broker.instances()),
    )


async def eject(context: HandlerContext, call: OperationCall[Nothing, Ejection]) -> Ejected:
    """Wait for recordings in flight, write the cassette's final file, unload it, and report."""
    name = call.body.cassette or context.broker.active
    report = await context.broker.eject(name, prune=call.body.prune)
    return Ejected(
        cassettes=[await asyncio.to_thread(reported_cassette, report)],
        upstream_connections=context.broker.recorder.responder.connections,
        left_over=await context.broker.store.erase(),
    )


async def rewind(context: HandlerContext, call: OperationCall[Nothing, Rewinding]) -> Takes:
    """Start a new take: replay starts over from the first recording of each request."""
    await context.broker.rewind(call.body.cassette)
    return Takes(takes=context.broker.takes)


async def report(
    context: HandlerContext, call: OperationCall[ReportQuery, Nothing]
) -> Report | web.Response:
    """Hits, misses, live calls, unused recordings and tokens saved, by loaded cassette."""
    reports = await context.broker.reports()
    connections = context.broker.recorder.responder.connections
    if (form := _FORMS.get(call.query.format)) is not None:
        suffix, content_type = form
        text = await asyncio.to_thread(TEXT_FORMS[suffix], reports)
        return web.Response(text=text, content_type=content_type)

    def body() -> bytes:
        cassettes = [reported_cassette(cassette_report) for cassette_report in reports]
        made = Report(cassettes=cassettes, upstream_connections=connections)
        return made.model_dump_json().encode()

    return json_response(await asyncio.to_thread(body))


def reported_cassette(report: CassetteReport) -> ReportedCassette:
    """One cassette's part of the report in the API's form."""
    fields = {name: getattr(report, name) for name in ReportedCassette.model_fields}
    fields["unused"] = [
        {
            "index": unused.index,
            "method": unused.method,
            "path": unused.path,
            "mark": unused.fingerprint or None,
        }
        for unused in report.unused
    ]
    fields["saved"] = {
        "calls": report.replayed,
        "tokens": report.usage["total_tokens"],
        "usd": report.saved.usd,
        "unpriced": report.saved.unpriced,
        "prices": report.saved.prices,
    }
    return ReportedCassette.model_validate(fields, from_attributes=True)
