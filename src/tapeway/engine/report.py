"""The report on the cassettes of a run: hits, misses, unused recordings and tokens saved.

It is written as plain text, as Markdown, or as JUnit XML for build servers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.misses.miss import difference_text
from tapeway.core.model.control import Control
from tapeway.core.model.interaction import Interaction, fingerprint
from tapeway.core.text import escape_surrogates
from tapeway.engine.journal import MissedCall, Tally
from tapeway.errors import ConfigError
from tapeway.ports import SharedStore

MOST_LISTED = 10_000
"""Further unused recordings and duplicates of a shared store are counted, not listed."""

_MOST_NAMED = 20
"""Misses and unused recordings in the text and Markdown forms; JSON and JUnit have them all."""
_MOST_DIFFERENCES = 5
_Item = TypeVar("_Item")
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
    misses: tuple[MissedCall, ...]
    unused: tuple[RecordingSummary, ...]
    duplicates: tuple[tuple[RecordingSummary, ...], ...]
    usage: dict[str, int]
    unmarked: tuple[RecordingSummary, ...] = ()
    laggards: tuple[str, ...] = ()

    @property
    def missed(self) -> int:
        """How many requests were missed."""
        return sum(each.times for each in self.misses)

    @property
    def requests(self) -> int:
        """How many calls were made; one that its SDK retried is one call."""
        return self.replayed + self.recorded + self.live + self.missed


@dataclass(frozen=True, slots=True)
class Isolation:
    """How a command was kept off the network, and who it asked for all the same."""

    network_namespace: bool
    bypassed: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What held, in a sentence."""
        if self.network_namespace:
            return "offline: in a network namespace of its own"
        return "offline: by proxy variables alone; what ignores them could reach the network"


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
        misses=tuple(tally.misses.values()),
        unused=tuple(unused),
        duplicates=tuple(tuple(group) for group in duplicates),
        usage=dict(tally.tokens),
        unmarked=tuple(
            RecordingSummary(index, *which) for index, which in sorted(tally.unmarked.items())
        ),
    )


async def report_of_store(
    store: SharedStore, control: Control, name: str, tally: Tally
) -> CassetteReport:
    """The counts of this instance, and what no instance has used."""
    unused = await store.unused(name, control.takes_of(name), MOST_LISTED)
    duplicates = await store.duplicates(name, MOST_LISTED)
    return report_of_counts(
        name,
        tally,
        [RecordingSummary(each.index, each.method, each.target) for each in unused],
        [
            [RecordingSummary(each.index, each.method, each.target) for each in group]
            for group in duplicates
        ],
    )


def text_report(reports: Sequence[CassetteReport], isolation: Isolation | None = None) -> str:
    """Some lines for a terminal."""
    lines = [line for each in reports for line in _text_lines(each)]
    lines = lines or ["No cassette was used."]
    if isolation is not None:
        lines += [isolation.text, *(f"  bypassed: {each}" for each in isolation.bypassed)]
    return _printable("\n".join(lines)) + "\n"


def markdown_report(reports: Sequence[CassetteReport], isolation: Isolation | None = None) -> str:
    """A table, and what needs attention below it."""
    lines = [
        "| cassette | replayed | recorded | live | missed | retries | unused | tokens saved |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(f"| {' | '.join(map(str, _table_row(each)))} |" for each in reports),
    ]
    for each in reports:
        lines += _list(f"Missed in {each.name}:", each.misses, _markdown_miss)
        lines += _list(f"Not used in {each.name}:", each.unused, _markdown_recording)
        marks = f"Streams without their protocol's end mark in {each.name}:"
        lines += _list(marks, each.unmarked, _markdown_recording)
    if isolation is not None:
        lines += ["", f"{isolation.text}."]
        lines += _list("Bypassed the proxy:", isolation.bypassed, lambda host: [_code_span(host)])
    return "\n".join(lines) + "\n"


def junit_report(reports: Sequence[CassetteReport], isolation: Isolation | None = None) -> str:
    """JUnit XML: a test suite for each cassette, and a failed test for each miss."""
    root = ElementTree.Element("testsuites", name="tapeway")
    for each in reports:
        _add_suite(root, each)
    if isolation is not None:
        suite = _suite(root, "tapeway.offline", 1, len(isolation.bypassed))
        ElementTree.SubElement(
            suite, "testcase", classname="tapeway.offline", name=_printable(isolation.text)
        )
        for host in isolation.bypassed:
            _add_failure(suite, "bypassed", host, f"{host} was asked for past the proxy", ())
    ElementTree.indent(root)
    document = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{document}\n'


TEXT_FORMS: Mapping[str, Callable[..., str]] = {
    ".xml": junit_report,
    ".md": markdown_report,
    ".txt": text_report,
}
"""The forms of a report that people and build servers read, by the suffix of its file."""


def check_report_file(path: Path, option: str) -> None:
    """Raises ConfigError for a suffix that is no form, or a folder that is not there."""
    suffixes = (".json", *TEXT_FORMS)
    if path.suffix not in suffixes:
        raise ConfigError(f"{option}: {path} does not end in {', '.join(suffixes)}")
    if not path.parent.is_dir():
        raise ConfigError(f"{option}: there is no folder {path.parent}")


def miss_lines(miss: MissedCall) -> list[str]:
    """A miss for people: its message, the first differences and the suggestion, a line each."""
    often = f" ({miss.times} times)" if miss.times > 1 else ""
    lines = [f"{miss.message.removeprefix('replay miss: ')}{often}"]
    for nearest in miss.nearest[:1]:
        shown = nearest.differences[:_MOST_DIFFERENCES]
        lines += [difference_text(each) for each in shown]
        if more := len(nearest.differences) - len(shown) + nearest.more:
            lines.append(f"{more} more differences")
    if miss.suggestion is not None:
        lines += [f"rule that would match: {line}" for line in miss.suggestion.splitlines()]
    return lines


def _interactions(cassette: CassetteIndex, indexes: Iterable[int]) -> Iterator[Interaction]:
    found = (cassette.get(index) for index in indexes)
    return (each for each in found if isinstance(each, Interaction))


def _text_lines(report: CassetteReport) -> Iterator[str]:
    counts = [
        (report.replayed, "replayed"),
        (report.recorded, "recorded"),
        (report.live, "passed on"),
        (report.missed, "missed"),
        (report.retries, "retried"),
        (len(report.unused), "unused"),
    ]
    named = ", ".join(f"{count} {what}" for count, what in counts if count)
    yield f"{report.name}: {named or 'no requests'}"
    if tokens := report.usage["total_tokens"]:
        yield f"  {tokens} tokens saved"
    for miss in report.misses[:_MOST_NAMED]:
        first, *rest = miss_lines(miss)
        yield f"  missed: {first}"
        yield from (f"    {line}" for line in rest)
    yield from (f"  missed: {more}" for more in _more(report.misses))
    for each in report.unused[:_MOST_NAMED]:
        yield f"  unused: {_title(each)}"
    yield from (f"  unused: {more}" for more in _more(report.unused))
    for each in report.unmarked[:_MOST_NAMED]:
        yield f"  without its protocol's end mark: {_title(each)}"
    yield from (f"  without its protocol's end mark: {more}" for more in _more(report.unmarked))


def _list(title: str, items: Sequence[_Item], lines: Callable[[_Item], list[str]]) -> Iterator[str]:
    """A Markdown list below its title; nothing without items."""
    if not items:
        return
    yield from ("", title, "")
    for each in items[:_MOST_NAMED]:
        first, *rest = lines(each)
        yield f"- {first}"
        yield from (f"  - {line}" for line in rest)
    yield from (f"- {more}" for more in _more(items))


def _markdown_miss(miss: MissedCall) -> list[str]:
    return [_code_span(line) for line in miss_lines(miss)]


def _markdown_recording(item: RecordingSummary) -> list[str]:
    return [_code_span(_title(item))]


def _table_row(report: CassetteReport) -> tuple[str | int, ...]:
    return (
        report.name,
        report.replayed,
        report.recorded,
        report.live,
        report.missed,
        report.retries,
        len(report.unused),
        report.usage["total_tokens"],
    )


def _add_suite(root: ElementTree.Element, report: CassetteReport) -> None:
    name = f"tapeway.{report.name}"
    served = report.replayed + report.recorded + report.live
    suite = _suite(root, name, 1 + len(report.misses), len(report.misses))
    ElementTree.SubElement(suite, "testcase", classname=name, name=f"{served} calls answered")
    for miss in report.misses:
        title = f"{miss.method} {miss.path}"
        _add_failure(suite, "replay_miss", title, miss.message, miss_lines(miss)[1:])
    if report.unmarked:
        lines = [f"without its protocol's end mark: {_title(each)}" for each in report.unmarked]
        ElementTree.SubElement(suite, "system-out").text = _printable("\n".join(lines))


def _suite(root: ElementTree.Element, name: str, tests: int, failures: int) -> ElementTree.Element:
    counts = {"tests": str(tests), "failures": str(failures), "errors": "0", "skipped": "0"}
    return ElementTree.SubElement(root, "testsuite", {"name": name, **counts})


def _add_failure(
    suite: ElementTree.Element, kind: str, title: str, message: str, details: Iterable[str]
) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=suite.get("name", ""), name=_printable(title)
    )
    failure = ElementTree.SubElement(case, "failure", type=kind, message=_printable(message))
    failure.text = _printable("\n".join(details)) or None


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
