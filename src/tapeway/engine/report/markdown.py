"""The report as Markdown, for the job summary of a build server."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from tapeway.engine.journal import MissedCall
from tapeway.engine.report.causes import listed, shared_causes
from tapeway.engine.report.lines import (
    MOST_NAMED,
    counted,
    dollars,
    gains,
    miss_lines,
    more,
    printable,
    remarks,
)
from tapeway.engine.report.summary import CassetteReport, Isolation

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
    for each in reports:
        text.add([_row(_cells(each))])
    for each in reports:
        text.add([*_attention(each)])
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
    shared = [each.line for each in shared_causes(report.misses)]
    yield from _list(f"Causes in {report.name}:", shared, _line)
    for each in remarks(report):
        items = [*each.notices, *each.items]
        yield from _list(f"{each.title} in {report.name}:", items, _line)
    if (saved := [*gains(report)]) and report.saved.unpriced:
        yield from _list(f"Saved in {report.name}:", saved, _line)


def _list(title: str, items: Sequence[_Item], lines: Callable[[_Item], list[str]]) -> Iterator[str]:
    """A list below its title; nothing without items."""
    if not items:
        return
    yield from ("", title, "")
    for each in items[:MOST_NAMED]:
        first, *rest = lines(each)
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
