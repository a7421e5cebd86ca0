"""What a run got out of a cassette: hits, misses, what went unused, tokens not paid for.

A report as people and build servers read it: plain text, Markdown, JUnit's XML.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import quoteattr

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.model.interaction import Interaction, fingerprint
from tapeway.core.text import escape_surrogates
from tapeway.engine.journal import Tally

_MOST_NAMED = 20
"""Misses and unused recordings that a person is shown; the JSON has them all."""
_NO_XML = {each: "\ufffd" for each in range(0x20) if each not in (0x9, 0xA, 0xD)} | {
    0xFFFE: "\ufffd",
    0xFFFF: "\ufffd",
}


@dataclass(frozen=True, slots=True)
class Item:
    """A recording as a report names it.

    `mark` finds it again under another number; empty where its number is for good.
    """

    index: int
    method: str
    path: str
    mark: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class CassetteReport:
    """One cassette's part of the report; `unused` and `duplicates` speak of the current take.

    At its eject `laggards` are the instances that go on in the take that ended.
    """

    name: str
    replayed: int
    recorded: int
    live: int
    retries: int
    misses: tuple[str, ...]
    unused: tuple[Item, ...]
    duplicates: tuple[tuple[Item, ...], ...]
    usage: dict[str, int]
    laggards: tuple[str, ...] = ()


def of_cassette(cassette: CassetteIndex, tally: Tally) -> CassetteReport:
    """The report of a loaded cassette."""
    duplicates = [_items(cassette, group) for group in cassette.duplicates()]
    unused = _items(cassette, cassette.unused(), mark=fingerprint)
    return of_counts(cassette.name, tally, unused, duplicates)


def of_counts(
    name: str, tally: Tally, unused: Iterable[Item], duplicates: Iterable[Iterable[Item]]
) -> CassetteReport:
    """The report of a cassette of which these recordings went unused, or answer the same."""
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
    )


def _items(
    cassette: CassetteIndex,
    indexes: list[int],
    mark: Callable[[Interaction], str] = lambda item: "",
) -> tuple[Item, ...]:
    found = [cassette.get(index) for index in indexes]
    return tuple(
        Item(each.index, each.request.method, each.request.target, mark(each))
        for each in found
        if isinstance(each, Interaction)
    )


def text(reports: Sequence[CassetteReport]) -> str:
    """A few lines for a terminal."""
    lines = [line for each in reports for line in _lines(each)]
    return "\n".join(lines or ["No cassette was used."]) + "\n"


def markdown(reports: Sequence[CassetteReport]) -> str:
    """A table, and what was missed below it."""
    lines = [
        "| cassette | replayed | recorded | live | missed | retries | unused | tokens saved |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(f"| {' | '.join(map(str, _row(each)))} |" for each in reports),
    ]
    for each in reports:
        if each.misses:
            lines += ["", f"Missed in {each.name}:", ""]
            lines += [f"- {_quoted(miss)}" for miss in each.misses[:_MOST_NAMED]]
            lines += [f"- {more}" for more in _more(each.misses)]
    return "\n".join(lines) + "\n"


def junit(reports: Sequence[CassetteReport]) -> str:
    """One suite a cassette, in which each miss is a failed test."""
    suites = "".join(_suite(each) for each in reports)
    return f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="tapeway">\n{suites}</testsuites>\n'


def _lines(report: CassetteReport) -> Iterator[str]:
    counts = [
        (report.replayed, "replayed"),
        (report.recorded, "recorded"),
        (report.live, "passed on"),
        (len(report.misses), "missed"),
        (report.retries, "retried"),
        (len(report.unused), "unused"),
    ]
    told = ", ".join(f"{count} {what}" for count, what in counts if count)
    yield f"{report.name}: {told or 'nothing asked'}"
    if tokens := report.usage["total_tokens"]:
        yield f"  {tokens} tokens not paid for"
    yield from (f"  missed: {_plain(miss)}" for miss in report.misses[:_MOST_NAMED])
    yield from (f"  missed: {more}" for more in _more(report.misses))
    yield from (f"  unused: {_named(item)}" for item in report.unused[:_MOST_NAMED])


def _row(report: CassetteReport) -> tuple[str | int, ...]:
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


def _suite(report: CassetteReport) -> str:
    name = quoteattr(f"tapeway.{report.name}")
    served = report.replayed + report.recorded + report.live
    cases = [f"<testcase classname={name} name={quoteattr(f'{served} calls answered')}/>"]
    for miss in report.misses:
        shown = quoteattr(_plain(miss))
        cases.append(
            f"<testcase classname={name} name={shown}>"
            f'<failure type="replay_miss" message={shown}/></testcase>'
        )
    counts = f'tests="{len(cases)}" failures="{len(report.misses)}" errors="0" skipped="0"'
    body = "".join(f"    {case}\n" for case in cases)
    return f"  <testsuite name={name} {counts}>\n{body}  </testsuite>\n"


def _more(misses: Sequence[str]) -> Iterator[str]:
    if (count := len(misses) - _MOST_NAMED) > 0:
        yield f"{count} more"


def _quoted(miss: str) -> str:
    # A back-tick would end the code that a back-tick began.
    return f"`{_plain(miss).replace('`', '%60')}`"


def _named(item: Item) -> str:
    return f"#{item.index} {_plain(f'{item.method} {item.path}')}"


def _plain(value: str) -> str:
    return escape_surrogates(value).translate(_NO_XML)
