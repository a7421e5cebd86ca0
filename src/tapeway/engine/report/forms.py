"""A report for people and build servers: text, Markdown, JUnit XML, and annotations of a build."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree

from tapeway.engine.journal import MissedCall
from tapeway.engine.report.lines import (
    MOST_NAMED,
    counted,
    dollars,
    gains,
    listed,
    miss_lines,
    more,
    printable,
    record_lines,
    remarks,
    shared_causes,
)
from tapeway.engine.report.summary import CassetteReport, Isolation
from tapeway.errors import ConfigError


def text_report(reports: Sequence[CassetteReport], isolation: Isolation | None = None) -> str:
    """Some lines for a terminal."""
    lines = [line for report in reports for line in _lines(report)]
    lines = lines or ["No cassette was used."]
    if isolation is not None:
        lines += [isolation.text, *(f"  bypassed: {address}" for address in isolation.bypassed)]
    return printable("\n".join(lines)) + "\n"


def _lines(report: CassetteReport) -> Iterator[str]:
    counts = [
        (report.replayed, "replayed"),
        (report.recorded, "recorded"),
        (report.live, "passed on"),
        (report.missed, "missed"),
        (report.failures, "failed"),
        (len(report.faulted), "faulted"),
        (report.retries, "retried"),
        (len(report.unused), "unused"),
        (len(report.stale), "stale"),
    ]
    named = ", ".join(f"{count} {what}" for count, what in counts if count)
    yield f"{report.name}: {named or 'no requests'}"
    yield from (f"  {line}" for line in gains(report))
    shared = shared_causes(report.misses)
    suggestions = {cause.misses[0].suggestion for cause in shared}
    misses = [*listed(report.misses)]
    for miss in misses[:MOST_NAMED]:
        first, *rest = miss_lines(miss, rule=miss.suggestion not in suggestions)
        yield f"  missed: {first}"
        yield from (f"    {line}" for line in rest)
    yield from (f"  missed: {rest}" for rest in more(misses))
    yield from (f"  {cause.line}" for cause in shared)
    yield from (f"  {line}" for line in record_lines(misses)[:MOST_NAMED])
    faulted = [call.message for call in report.faulted]
    yield from (f"  faulted: {line}" for line in [*faulted[:MOST_NAMED], *more(faulted)])
    for remark in remarks(report):
        yield from (f"  {notice}" for notice in remark.notices)
        yield from (f"  {remark.label}: {item}" for item in remark.items[:MOST_NAMED])
        yield from (f"  {remark.label}: {rest}" for rest in more(remark.items))


MOST_BYTES = 1_000_000
"""GitHub shows a step's summary of at most 1 MiB, and nothing of a larger one."""

_LONGEST_LINE = 4000
_COLUMNS = (
    *("cassette", "replayed", "recorded", "live", "missed", "failed", "retries", "unused", "stale"),
    *("tokens saved", "saved", "secrets replaced"),
)
_Item = TypeVar("_Item")


def markdown_report(reports: Sequence[CassetteReport], isolation: Isolation | None = None) -> str:
    """A table, then notices; everything beyond MOST_BYTES is left out."""
    text = _BoundedText()
    text.add([_row(_COLUMNS), _row(["---"] * len(_COLUMNS))])
    if isolation is not None:
        # Above all that may not fit.
        text.tail = [
            *("", f"{isolation.text}."),
            *_list("Bypassed the proxy:", isolation.bypassed, lambda host: [_code_span(host)]),
        ]
    for report in reports:
        text.add([_row(_cells(report))])
    for report in reports:
        text.add([*_attention(report)])
    return text.end()


class _BoundedText:
    """Lines up to MOST_BYTES; blocks that come after are counted."""

    def __init__(self) -> None:
        self.tail: list[str] = []
        self._lines: list[str] = []
        self._left = MOST_BYTES - MOST_BYTES // 10
        self._dropped = 0

    def add(self, block: Sequence[str]) -> None:
        size = sum(len(line.encode()) + 1 for line in block)
        if self._dropped or size > self._left:
            self._dropped += bool(block)
            return
        self._left -= size
        self._lines += block

    def end(self) -> str:
        lines = [*self._lines, *self.tail]
        if self._dropped:
            parts = counted(self._dropped, "more part")
            lines += ["", f"This report is cut: {parts} did not fit."]
        return "\n".join(lines) + "\n"


def _attention(report: CassetteReport) -> Iterator[str]:
    yield from _list(f"Missed in {report.name}:", [*listed(report.misses)], _miss)
    shared = [shared_cause.line for shared_cause in shared_causes(report.misses)]
    yield from _list(f"Causes in {report.name}:", shared, _line)
    commands = record_lines(report.misses)
    yield from _list(f"Recording what was missed in {report.name}:", commands, _line)
    faulted = [call.message for call in report.faulted]
    yield from _list(f"Faults laid in {report.name}:", faulted, _line)
    for remark in remarks(report):
        items = [*remark.notices, *remark.items]
        yield from _list(f"{remark.title} in {report.name}:", items, _line)
    if (saved := [*gains(report)]) and report.saved.unpriced:
        yield from _list(f"Saved in {report.name}:", saved, _line)


def _list(title: str, items: Sequence[_Item], lines: Callable[[_Item], list[str]]) -> Iterator[str]:
    """A list below its title; nothing without items."""
    if not items:
        return
    yield from ("", title, "")
    for item in items[:MOST_NAMED]:
        first, *rest = lines(item)
        yield f"- {first}"
        yield from (f"  - {line}" for line in rest)
    yield from (f"- {rest}" for rest in more(items))


def _cells(report: CassetteReport) -> Sequence[str]:
    usd = report.saved.usd
    counts = (
        *(report.replayed, report.recorded, report.live, report.missed, report.failures),
        *(report.retries, len(report.unused), len(report.stale), report.usage["total_tokens"]),
    )
    money = "unknown" if usd is None else dollars(usd) if usd else "0"
    return (report.name, *map(str, counts), money, str(report.redacted))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _miss(miss: MissedCall) -> list[str]:
    return [_code_span(line) for line in miss_lines(miss)]


def _line(text: str) -> list[str]:
    return [_code_span(text)]


def _code_span(text: str) -> str:
    text = printable(text)
    if len(text) > _LONGEST_LINE:
        text = f"{text[:_LONGEST_LINE]}…"
    # A back-tick would end the code that a back-tick began.
    return f"`{text.replace('`', '%60')}`"


def junit_report(reports: Sequence[CassetteReport], isolation: Isolation | None = None) -> str:
    """JUnit XML: a test suite for each cassette, and a failed test for each miss."""
    root = ElementTree.Element("testsuites", name="tapeway")
    for report in reports:
        _add_suite(root, report)
    if isolation is not None and isolation.kind is not None:
        suite = _suite(
            root, "tapeway.offline", 1 + len(isolation.bypassed), len(isolation.bypassed)
        )
        ElementTree.SubElement(
            suite, "testcase", classname="tapeway.offline", name=printable(isolation.text)
        )
        for host in isolation.bypassed:
            _add_failure(suite, "bypassed", host, f"{host} was asked for past the proxy", ())
    ElementTree.indent(root)
    document = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{document}\n'


def _add_suite(root: ElementTree.Element, report: CassetteReport) -> None:
    name = f"tapeway.{report.name}"
    served = report.replayed + report.recorded + report.live
    suite = _suite(root, name, 1 + len(report.misses), len(report.misses))
    ElementTree.SubElement(
        suite,
        "testcase",
        classname=name,
        name=f"{counted(served, 'call')} answered",
    )
    for miss in report.misses:
        title = f"{miss.method} {miss.path}"
        often = [f"{miss.times} times"] if miss.times > 1 else []
        details = [*often, *miss_lines(miss)[1:], *record_lines([miss])]
        _add_failure(suite, "replay_miss", title, miss.message, details)
    retried = [f"{report.retries} retried"] if report.retries else []
    faulted = [f"faulted: {call.message}" for call in report.faulted]
    noted = [line for remark in remarks(report) for line in remark.lines]
    if lines := [*retried, *gains(report), *faulted, *noted]:
        ElementTree.SubElement(suite, "system-out").text = printable("\n".join(lines))


def _suite(root: ElementTree.Element, name: str, tests: int, failures: int) -> ElementTree.Element:
    counts = {"tests": str(tests), "failures": str(failures), "errors": "0", "skipped": "0"}
    return ElementTree.SubElement(root, "testsuite", {"name": name, **counts})


def _add_failure(
    suite: ElementTree.Element, kind: str, title: str, message: str, details: Iterable[str]
) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=suite.get("name", ""), name=printable(title)
    )
    failure = ElementTree.SubElement(case, "failure", type=kind, message=printable(message))
    failure.text = printable("\n".join(details)) or None


_MOST_ANNOTATIONS = 10
"""GitHub shows so many errors and so many warnings of a step."""


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A file, by its path in the repository, and a line in it counted from 1."""

    file: str
    line: int = 1


Locate = Callable[[str], SourcePlace | None]
"""The place of a cassette: the file, or the test that uses it."""


def annotations(
    reports: Sequence[CassetteReport], locate: Locate, isolation: Isolation | None = None
) -> list[str]:
    """An error for each miss and each host past the proxy, and warnings for other remarks.

    At most ten of a kind are told apart; the last one counts the rest.
    """
    errors = [
        _command("error", locate(report.name), "not recorded", "\n".join(miss_lines(miss)))
        for report in reports
        for miss in report.misses
    ]
    errors += [
        _command("error", None, "bypassed", f"{host} was asked for past the proxy")
        for host in (isolation.violations if isolation is not None else ())
    ]
    warnings = [line for report in reports for line in _warnings(report, locate(report.name))]
    return [*_bounded("error", errors), *_bounded("warning", warnings)]


def _warnings(report: CassetteReport, place: SourcePlace | None) -> Iterator[str]:
    for remark in remarks(report):
        listed = [f"cassette {report.name}", *remark.notices, *remark.items[:_MOST_ANNOTATIONS]]
        if (rest := len(remark.items) - _MOST_ANNOTATIONS) > 0:
            listed.append(f"{rest} more")
        yield _command("warning", place, remark.title.lower(), "\n".join(listed))


def _bounded(kind: str, commands: Sequence[str]) -> Sequence[str]:
    if len(commands) <= _MOST_ANNOTATIONS:
        return commands
    rest = len(commands) - _MOST_ANNOTATIONS + 1
    return [
        *commands[: _MOST_ANNOTATIONS - 1],
        _command(kind, None, "more", f"{rest} more {kind}s"),
    ]


def _command(kind: str, place: SourcePlace | None, title: str, message: str) -> str:
    properties = {"title": f"tapeway: {title}"}
    if place is not None:
        properties = {"file": place.file, "line": str(place.line), **properties}
    given = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{kind} {given}::{_data(message[:_LONGEST_LINE])}"


def _data(text: str) -> str:
    """A message, escaped as by the runner's toolkit: a line break would end it."""
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


TEXT_FORMS: Mapping[str, Callable[..., str]] = {
    ".xml": junit_report,
    ".md": markdown_report,
    ".txt": text_report,
}
"""The forms of a report that people and build servers read, by the suffix of its file."""


def check_report_file(path: Path, option: str, more: tuple[str, ...] = ()) -> None:
    """Raises ConfigError for a suffix that is no form, or a folder that is not there.

    `more` are the suffixes of further forms that the caller writes.
    """
    suffixes = (".json", *TEXT_FORMS, *more)
    if path.suffix not in suffixes:
        raise ConfigError(f"{option}: {path} does not end in {', '.join(suffixes)}")
    if not path.parent.is_dir():
        raise ConfigError(f"{option}: there is no folder {path.parent}")
