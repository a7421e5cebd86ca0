"""The report on the cassettes of a run: hits, misses, unused recordings and tokens saved.

It is written as plain text, as Markdown, or as JUnit XML for build servers.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from xml.etree import ElementTree

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.model.interaction import Interaction, fingerprint
from tapeway.core.text import escape_surrogates
from tapeway.engine.journal import Tally

_MOST_NAMED = 20
"""Misses and unused recordings in the text and Markdown forms; JSON and JUnit have them all."""
_NOT_XML = {each: "\ufffd" for each in range(0x20) if each not in (0x9, 0xA, 0xD)} | {
    0xFFFE: "\ufffd",
    0xFFFF: "\ufffd",
}
"""Characters that XML 1.0 (section 2.2) does not allow, replaced in every form."""


@dataclass(frozen=True, slots=True)
class RecordingSummary:
    """A recording as a report names it.

    `fingerprint` finds it again when its index has changed; empty where indexes are permanent.
    """

    index: int
    method: str
    path: str
    fingerprint: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class CassetteReport:
    """One cassette's part of the report; `unused` and `duplicates` are those of the current take.

    `unmarked` are the recordings, made or replayed in this run, that are streams without their
    protocol's end mark: they may be incomplete.
    After an eject, `laggards` are the instances that have not left the take that ended.
    """

    name: str
    replayed: int
    recorded: int
    live: int
    retries: int
    misses: tuple[str, ...]
    unused: tuple[RecordingSummary, ...]
    duplicates: tuple[tuple[RecordingSummary, ...], ...]
    usage: dict[str, int]
    unmarked: tuple[RecordingSummary, ...] = ()
    laggards: tuple[str, ...] = ()


def report_of_index(cassette: CassetteIndex, tally: Tally) -> CassetteReport:
    """The report of a cassette in memory."""
    unused = [
        RecordingSummary(each.index, each.request.method, each.request.target, fingerprint(each))
        for each in _interactions(cassette, cassette.unused())
    ]
    duplicates = [
        [
            RecordingSummary(each.index, each.request.method, each.request.target)
            for each in _interactions(cassette, group)
        ]
        for group in cassette.duplicates()
    ]
    return report_of_counts(cassette.name, tally, unused, duplicates)


def report_of_counts(
    name: str,
    tally: Tally,
    unused: Iterable[RecordingSummary],
    duplicates: Iterable[Iterable[RecordingSummary]],
) -> CassetteReport:
    """The report of a cassette whose unused and duplicate recordings are known."""
    return CassetteReport(
        name=name,
        replayed=tally.outcomes["replayed"],
        recorded=tally.outcomes["recorded"],
        live=tally.outcomes["live"],
        retries=tally.retries,
        misses=tuple(tally.misses),
        unused=tuple(unused),
        duplicates=tuple(tuple(group) for group in duplicates),
        usage=dict(tally.tokens),
        unmarked=tuple(
            RecordingSummary(index, *which) for index, which in sorted(tally.unmarked.items())
        ),
    )


def text_report(reports: Sequence[CassetteReport]) -> str:
    """A few lines for a terminal."""
    lines = [line for each in reports for line in _text_lines(each)]
    return "\n".join(lines or ["No cassette was used."]) + "\n"


def markdown_report(reports: Sequence[CassetteReport]) -> str:
    """A table, and the misses below it."""
    lines = [
        "| cassette | replayed | recorded | live | missed | retries | unused | tokens saved |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(f"| {' | '.join(map(str, _table_row(each)))} |" for each in reports),
    ]
    for each in reports:
        if each.misses:
            lines += ["", f"Missed in {each.name}:", ""]
            lines += [f"- {_code_span(miss)}" for miss in each.misses[:_MOST_NAMED]]
            lines += [f"- {more}" for more in _more(each.misses)]
        if each.unmarked:
            lines += ["", f"Streams without their protocol's end mark in {each.name}:", ""]
            lines += [f"- {_code_span(_title(item))}" for item in each.unmarked[:_MOST_NAMED]]
            lines += [f"- {more}" for more in _more(each.unmarked)]
    return "\n".join(lines) + "\n"


def junit_report(reports: Sequence[CassetteReport]) -> str:
    """JUnit XML: a test suite for each cassette, and a failed test for each miss."""
    root = ElementTree.Element("testsuites", name="tapeway")
    for each in reports:
        _add_suite(root, each)
    ElementTree.indent(root)
    document = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{document}\n'


def _interactions(cassette: CassetteIndex, indexes: Iterable[int]) -> Iterator[Interaction]:
    found = (cassette.get(index) for index in indexes)
    return (each for each in found if isinstance(each, Interaction))


def _text_lines(report: CassetteReport) -> Iterator[str]:
    counts = [
        (report.replayed, "replayed"),
        (report.recorded, "recorded"),
        (report.live, "passed on"),
        (len(report.misses), "missed"),
        (report.retries, "retried"),
        (len(report.unused), "unused"),
    ]
    named = ", ".join(f"{count} {what}" for count, what in counts if count)
    yield f"{report.name}: {named or 'no requests'}"
    if tokens := report.usage["total_tokens"]:
        yield f"  {tokens} tokens saved"
    yield from (f"  missed: {_printable(miss)}" for miss in report.misses[:_MOST_NAMED])
    yield from (f"  missed: {more}" for more in _more(report.misses))
    for each in report.unused[:_MOST_NAMED]:
        yield f"  unused: {_printable(_title(each))}"
    for each in report.unmarked[:_MOST_NAMED]:
        yield f"  without its protocol's end mark: {_printable(_title(each))}"
    yield from (f"  without its protocol's end mark: {more}" for more in _more(report.unmarked))


def _table_row(report: CassetteReport) -> tuple[str | int, ...]:
    return (
        report.name,
        report.replayed,
        report.recorded,
        report.live,
        len(report.misses),
        report.retries,
        len(report.unused),
        report.usage["total_tokens"],
    )


def _add_suite(root: ElementTree.Element, report: CassetteReport) -> None:
    name = f"tapeway.{report.name}"
    served = report.replayed + report.recorded + report.live
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name=name,
        tests=str(1 + len(report.misses)),
        failures=str(len(report.misses)),
        errors="0",
        skipped="0",
    )
    ElementTree.SubElement(suite, "testcase", classname=name, name=f"{served} calls answered")
    for miss in map(_printable, report.misses):
        case = ElementTree.SubElement(suite, "testcase", classname=name, name=miss)
        ElementTree.SubElement(case, "failure", type="replay_miss", message=miss)
    if report.unmarked:
        lines = [f"without its protocol's end mark: {_title(each)}" for each in report.unmarked]
        ElementTree.SubElement(suite, "system-out").text = _printable("\n".join(lines))


def _title(item: RecordingSummary) -> str:
    return f"#{item.index} {item.method} {item.path}"


def _more(listed: Sequence[object]) -> Iterator[str]:
    if (count := len(listed) - _MOST_NAMED) > 0:
        yield f"{count} more"


def _code_span(miss: str) -> str:
    # A back-tick would end the code that a back-tick began.
    return f"`{_printable(miss).replace('`', '%60')}`"


def _printable(value: str) -> str:
    return escape_surrogates(value).translate(_NOT_XML)
