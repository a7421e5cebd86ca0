"""A report as people and build servers read it: plain text, Markdown, JUnit's XML."""

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import quoteattr

from tapeway.core.json_text import legible
from tapeway.report import CassetteReport, Item

_MOST_NAMED = 20
"""Misses and unused recordings that a person is shown; the JSON has them all."""

_NO_XML = {each: "\ufffd" for each in range(0x20) if each not in (0x9, 0xA, 0xD)} | {
    0xFFFE: "\ufffd",
    0xFFFF: "\ufffd",
}


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
    return legible(value).translate(_NO_XML)
