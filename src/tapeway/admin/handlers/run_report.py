"""The report of a whole test run, made of the reports of the cassettes that its runner ejected."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, TypeVar
from urllib.parse import urlunsplit

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.models.run_report import EndedRun, RunForm, RunNotes, RunReport, RunReportQuery
from tapeway.admin.models.schema import Nothing
from tapeway.admin.operation import OperationCall
from tapeway.admin.request_body import JSON_TYPES, check_content_type, parse_model, whole_body
from tapeway.core.matching.key import key_text, request_key
from tapeway.core.matching.rules import RulesFault, merged_rules, rules_of_meta
from tapeway.core.model.interaction import exchange_of
from tapeway.engine.report.documents import cassette_report
from tapeway.engine.report.forms import TEXT_FORMS, SourcePlace, annotations
from tapeway.engine.report.lines import (
    causes,
    failure_titles,
    faulted_notices,
    gains_of_all,
    repeated_notices,
    unrecorded_title,
)
from tapeway.engine.report.summary import CassetteReport, dated_notices
from tapeway.errors import AdminError, TapewayError

FORMS: Mapping[RunForm, tuple[str, str]] = {
    "junit": (".xml", "application/xml"),
    "markdown": (".md", "text/markdown"),
    "text": (".txt", "text/plain"),
    "html": (".html", "text/html"),
}
"""Suffix and media type of each form."""

Sent = TypeVar("Sent", bound=RunReport)

_HTML_SIZE = 20 * 1024 * 1024
_MOST_READ = 200
"""The most unclaimed cassettes read for a missing one; the most similar names come first."""


async def report_of_run(
    context: HandlerContext, call: OperationCall[RunReportQuery, Nothing]
) -> web.Response:
    """The report of cassettes that were ejected before, in a form for people or build servers."""
    sent = await _sent(call.request, RunReport)
    form = call.query.format
    suffix, content_type = FORMS[form]
    if form == "html":
        text = await asyncio.to_thread(_page, context, call, _documents(sent))
    else:
        text = await asyncio.to_thread(
            lambda: TEXT_FORMS[suffix]([cassette_report(document) for document in _documents(sent)])
        )
    return web.Response(text=text, content_type=content_type)


async def notes_of_run(context: HandlerContext, call: OperationCall[Nothing, Nothing]) -> RunNotes:
    """The notes of a test runner, at the end of a run, on the ejected cassettes."""
    sent = await _sent(call.request, EndedRun)
    renamed = await _renamed(context, sent.missing, sent.unclaimed)
    return await asyncio.to_thread(_notes, sent, renamed)


async def _sent(request: web.Request, model: type[Sent]) -> Sent:
    # The report of thousands of tests is larger than other bodies.
    check_content_type(request, JSON_TYPES)
    text = await whole_body(request)
    return await asyncio.to_thread(parse_model, text, model)


def _documents(sent: RunReport) -> list[Mapping[str, Any]]:
    """The reports as values. Raises AdminError (400) for a difference that is at no place."""
    documents: list[Mapping[str, Any]] = [
        cassette.model_dump(mode="json") for cassette in sent.cassettes
    ]
    for document in documents:
        for near in (near for miss in document["misses"] for near in miss["nearest"]):
            if not all(
                isinstance(difference.get("path"), str) for difference in near["differences"]
            ):
                raise AdminError("each difference of a recording needs a 'path'")
    return documents


def _page(
    context: HandlerContext,
    call: OperationCall[RunReportQuery, Nothing],
    documents: Sequence[Mapping[str, Any]],
) -> str:
    """The page, made of answers of this admin API."""
    # Here, since only this needs the files of the page.
    from tapeway.embedded.admin_client import AdminClient
    from tapeway.html_report.collection import LAST_LIMITS, ReportLimits
    from tapeway.html_report.page import collected_page

    transport = call.request.transport
    if transport is None:
        raise ConnectionResetError("the caller has left")
    host, port, *_ = transport.get_extra_info("sockname")
    host_and_port = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    token = call.request.headers.get("Authorization", "").partition(" ")[2]
    client = AdminClient(
        urlunsplit((call.request.scheme, host_and_port, "", "", "")),
        token or None,
        certificate=context.certificate,
    )
    limits = LAST_LIMITS if call.query.brief else ReportLimits(_HTML_SIZE)
    return collected_page(client, limits, documents)


def _notes(sent: EndedRun, renamed: Mapping[str, str]) -> RunNotes:
    reports = [cassette_report(document) for document in _documents(sent)]
    places = {name: SourcePlace(place.file, place.line) for name, place in sent.places.items()}
    return RunNotes(
        causes=[
            cause.line for cause in causes([miss for report in reports for miss in report.misses])
        ],
        gains=[*gains_of_all(reports)],
        notices=[
            *dated_notices(recording for report in reports for recording in report.dated),
            *repeated_notices([recording for report in reports for recording in report.repeated]),
            *faulted_notices([call for report in reports for call in report.faulted]),
        ],
        unreached=_titles(reports, lambda report: [tail.title for tail in report.unreached]),
        failed=_titles(reports, lambda report: failure_titles(report.failed)),
        unrecorded=_titles(reports, lambda report: map(unrecorded_title, report.unrecorded)),
        annotations=annotations(reports, places.get),
        renamed=dict(renamed),
    )


def _titles(
    reports: Iterable[CassetteReport], titles_of: Callable[[CassetteReport], Iterable[str]]
) -> list[str]:
    """Titles from each cassette's report, with the name of the cassette."""
    return [
        f"{title} (cassette {report.name})" for report in reports for title in titles_of(report)
    ]


async def _renamed(
    context: HandlerContext, missing: Mapping[str, Collection[str]], unclaimed: Sequence[str]
) -> dict[str, str]:
    """For each missing cassette the unclaimed cassette with the missed requests, each once."""
    keys: dict[str, frozenset[str]] = {}
    nearest_of: dict[str, str] = {}
    for name, missed in missing.items():
        nearest = await asyncio.to_thread(_nearest, name, unclaimed)
        for candidate in nearest[:_MOST_READ]:
            if candidate in nearest_of.values():
                continue
            if candidate not in keys:
                keys[candidate] = await _keys(context, candidate)
            if not keys[candidate].isdisjoint(missed):
                nearest_of[name] = candidate
                break
    return nearest_of


def _nearest(name: str, others: Sequence[str]) -> list[str]:
    """The names, in the order of likeness to `name`."""
    return sorted(
        others, key=lambda other: -SequenceMatcher(None, name, other, autojunk=False).ratio()
    )


async def _keys(context: HandlerContext, name: str) -> frozenset[str]:
    """The match keys of a cassette's recordings; none of a cassette that cannot be read."""
    try:
        stored = await context.broker.source.read(name)
        if stored is None:
            return frozenset()
        rules = merged_rules(rules_of_meta(stored.head.meta), context.broker.rules)
    except (TapewayError, RulesFault):
        return frozenset()
    exchanges = filter(None, map(exchange_of, stored.interactions))
    return await asyncio.to_thread(
        lambda: frozenset(key_text(request_key(exchange.request, rules)) for exchange in exchanges)
    )
