"""The life of the active cassette: put in, rewound, taken out.

What is done with the requests to come.

What a run got out of its cassettes.
"""

from collections.abc import Iterable

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.models.control import (
    Ejected,
    Ejection,
    Inserted,
    Insertion,
    ModeChange,
    ModeInForce,
    ModeQuery,
    Recorded,
    Report,
    ReportedCassette,
    ReportQuery,
    Rewinding,
    Saved,
    Takes,
    Tokens,
    Unused,
)
from tapeway.admin.models.schema import Nothing
from tapeway.admin.operation import OperationCall
from tapeway.core.text import escape_surrogates
from tapeway.engine.report import CassetteReport, Item, junit, text


async def get_mode(console: HandlerContext, call: OperationCall[ModeQuery, Nothing]) -> ModeInForce:
    """The mode in force, or with `cassette` the one of that cassette."""
    name = call.query.cassette
    mode = console.broker.mode if name is None else console.broker.mode_of(name)
    return ModeInForce(mode=mode, cassette=name)


async def put_mode(
    console: HandlerContext, call: OperationCall[Nothing, ModeChange]
) -> ModeInForce:
    """Put a mode in force, for all cassettes or for one alone; a change starts a new take."""
    change = call.body
    laggards = await console.broker.set_mode(change.mode, change.cassette)
    return ModeInForce(mode=change.mode, cassette=change.cassette, laggards=list(laggards))


async def report(
    console: HandlerContext, call: OperationCall[ReportQuery, Nothing]
) -> Report | web.Response:
    """Hits, misses, live calls, unused recordings and tokens saved, by cassette that is in."""
    found = await console.broker.reports()
    match call.query.format:
        case "junit":
            return web.Response(text=junit(found), content_type="application/xml")
        case "text":
            return web.Response(text=text(found), content_type="text/plain")
    return Report(
        cassettes=[reported(each) for each in found],
        upstream_connections=console.instances.connections,
    )


def reported(found: CassetteReport) -> ReportedCassette:
    """One cassette's part of the report."""
    return ReportedCassette(
        name=found.name,
        replayed=found.replayed,
        recorded=found.recorded,
        live=found.live,
        retries=found.retries,
        misses=[escape_surrogates(each) for each in found.misses],
        unused=[_unused(each) for each in found.unused],
        duplicates=[_recorded(group) for group in found.duplicates],
        usage=Tokens.model_validate(found.usage),
        saved=Saved(calls=found.replayed, tokens=found.usage["total_tokens"], usd=None),
    )


def _unused(item: Item) -> Unused:
    path = escape_surrogates(item.path)
    return Unused(index=item.index, method=item.method, path=path, mark=item.mark or None)


def _recorded(items: Iterable[Item]) -> list[Recorded]:
    return [
        Recorded(index=each.index, method=each.method, path=escape_surrogates(each.path))
        for each in items
    ]


async def insert(console: HandlerContext, call: OperationCall[Nothing, Insertion]) -> Inserted:
    """Make a cassette the active one, in a new take; it is created at its first recording."""
    name = call.body.cassette
    laggards = await console.broker.insert(name, call.body.mode)
    return Inserted(cassette=name, mode=console.broker.mode_of(name), laggards=list(laggards))


async def eject(console: HandlerContext, call: OperationCall[Nothing, Ejection]) -> Ejected:
    """Wait for recordings in flight, write the cassette's final file, take it out, and report."""
    name = call.body.cassette or console.broker.active
    await console.instances.quiet(name)
    report = await console.broker.eject(name, prune=call.body.prune)
    return Ejected(
        cassettes=[reported(report)],
        upstream_connections=console.instances.connections,
        laggards=list(report.laggards),
    )


async def rewind(console: HandlerContext, call: OperationCall[Nothing, Rewinding]) -> Takes:
    """Start a new take: every recording is to be replayed from the first on, nothing is used."""
    laggards = await console.broker.rewind(call.body.cassette)
    return Takes(takes=console.broker.takes, laggards=list(laggards))
