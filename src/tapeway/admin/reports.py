"""What a run got out of its cassettes."""

from collections.abc import Iterable

from aiohttp import web

from tapeway.admin.console import Console
from tapeway.admin.legible import legible
from tapeway.admin.payloads import (
    Nothing,
    Recorded,
    Report,
    ReportedCassette,
    ReportQuery,
    Saved,
    Tokens,
    Unused,
)
from tapeway.admin.route import Call
from tapeway.engine.report import CassetteReport, Item, junit, text


async def report(console: Console, call: Call[ReportQuery, Nothing]) -> Report | web.Response:
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
        misses=[legible(each) for each in found.misses],
        unused=[_unused(each) for each in found.unused],
        duplicates=[_recorded(group) for group in found.duplicates],
        usage=Tokens.model_validate(found.usage),
        saved=Saved(calls=found.replayed, tokens=found.usage["total_tokens"], usd=None),
    )


def _unused(item: Item) -> Unused:
    path = legible(item.path)
    return Unused(index=item.index, method=item.method, path=path, mark=item.mark or None)


def _recorded(items: Iterable[Item]) -> list[Recorded]:
    return [
        Recorded(index=each.index, method=each.method, path=legible(each.path)) for each in items
    ]
