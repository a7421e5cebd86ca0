"""The report as lines for a terminal."""

from collections.abc import Iterator, Sequence

from tapeway.engine.report.causes import listed, shared_causes
from tapeway.engine.report.lines import (
    MOST_NAMED,
    gains,
    miss_lines,
    more,
    printable,
    remarks,
)
from tapeway.engine.report.summary import CassetteReport, Isolation


def text_report(reports: Sequence[CassetteReport], isolation: Isolation | None = None) -> str:
    """Some lines for a terminal."""
    lines = [line for each in reports for line in _lines(each)]
    lines = lines or ["No cassette was used."]
    if isolation is not None:
        lines += [isolation.text, *(f"  bypassed: {each}" for each in isolation.bypassed)]
    return printable("\n".join(lines)) + "\n"


def _lines(report: CassetteReport) -> Iterator[str]:
    counts = [
        (report.replayed, "replayed"),
        (report.recorded, "recorded"),
        (report.live, "passed on"),
        (report.missed, "missed"),
        (report.failures, "failed"),
        (report.retries, "retried"),
        (len(report.unused), "unused"),
        (len(report.stale), "stale"),
    ]
    named = ", ".join(f"{count} {what}" for count, what in counts if count)
    yield f"{report.name}: {named or 'no requests'}"
    yield from (f"  {line}" for line in gains(report))
    shared = shared_causes(report.misses)
    told = {each.misses[0].suggestion for each in shared}
    misses = [*listed(report.misses)]
    for miss in misses[:MOST_NAMED]:
        first, *rest = miss_lines(miss, rule=miss.suggestion not in told)
        yield f"  missed: {first}"
        yield from (f"    {line}" for line in rest)
    yield from (f"  missed: {rest}" for rest in more(misses))
    yield from (f"  {each.line}" for each in shared)
    for each in remarks(report):
        yield from (f"  {notice}" for notice in each.notices)
        yield from (f"  {each.label}: {item}" for item in each.items[:MOST_NAMED])
        yield from (f"  {each.label}: {rest}" for rest in more(each.items))
