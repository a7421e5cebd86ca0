"""The summary at the top of a report: the outcome of the run, and the open problems."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tapeway.core.json_text import Json
from tapeway.engine.journal import MissedCall
from tapeway.engine.report.documents import cassette_report
from tapeway.engine.report.lines import Cause, causes, gains_of_all, remarks
from tapeway.engine.report.summary import CassetteReport

_OUTCOMES = ("replayed", "recorded", "live", "miss", "error")
_MOST_CAUSES = 50
_MOST_ITEMS = 50
_MOST_REQUESTS = 10
_MOST_SLOW = 5


def summary(
    reports: Iterable[Mapping[str, Any]],
    entries: Sequence[Mapping[str, Any]],
    latencies: Mapping[tuple[str, int], float] = MappingProxyType({}),
    *,
    served: Mapping[str, int],
    left_out: int,
) -> dict[str, Json]:
    """The summary of reports and journal entries, as the admin API returns them.

    `latencies` are those of recorded calls, by cassette and index. `served` counts all requests by outcome, `left_out` those without details in the file.
    """
    read = [cassette_report(report) for report in reports]
    cassettes = {id(miss): report.name for report in read for miss in report.misses}
    all_causes = causes([miss for report in read for miss in report.misses])
    return {
        "counts": {outcome: served.get(outcome, 0) for outcome in _OUTCOMES},
        "causes": [_cause(cause, entries, cassettes) for cause in all_causes[:_MOST_CAUSES]],
        "more_causes": max(0, len(all_causes) - _MOST_CAUSES),
        "remarks": _remarks(read),
        "gains": [*gains_of_all(read)],
        "slowest": _slowest(entries, latencies),
        "notes": [*_notes(sum(served.values()), len(entries), left_out)],
    }


def _cause(
    cause: Cause, entries: Sequence[Mapping[str, Any]], cassettes: Mapping[int, str]
) -> dict[str, Json]:
    """A cause of misses, with the journal entry of the first miss, if kept."""
    first = cause.misses[0]
    shown = [entry["id"] for entry in reversed(entries) if _is_of(entry, first)]
    return {
        "times": cause.times,
        "text": cause.text,
        "rule": cause.rule,
        "requests": [
            _request(miss, entries, cassettes[id(miss)]) for miss in cause.misses[:_MOST_REQUESTS]
        ],
        "more": max(0, len(cause.misses) - _MOST_REQUESTS),
        "entry": shown[0] if shown else None,
    }


def _request(miss: MissedCall, entries: Sequence[Mapping[str, Any]], cassette: str) -> str:
    """A missed request in a line: the words asked, which tell requests of an API apart."""
    words = next((entry.get("asked") for entry in entries if _is_of(entry, miss)), None)
    return f"{f'{words}, ' if words else ''}{miss.method} {miss.path} in {cassette}"


def _is_of(entry: Mapping[str, Any], miss: MissedCall) -> bool:
    return bool(entry.get("outcome") == "miss" and entry.get("message") == miss.message)


def _remarks(reports: Sequence[CassetteReport]) -> list[Json]:
    """What needs attention, each kind once for all cassettes."""
    titles: dict[str, list[str]] = {}
    notices: dict[str, Counter[str]] = {}
    for report in reports:
        for remark in remarks(report):
            titles.setdefault(remark.title, []).extend(
                f"{report.name}: {item}" for item in remark.items
            )
            notices.setdefault(remark.title, Counter()).update(remark.notices)
    return [
        {
            "title": title,
            "count": len(items),
            "notices": [*notices[title]],
            "items": [*items[:_MOST_ITEMS]],
        }
        for title, items in titles.items()
    ]


def _slowest(
    entries: Sequence[Mapping[str, Any]], latencies: Mapping[tuple[str, int], float]
) -> list[Json]:
    """The calls that took the service longest, each recording once: replays are quick."""
    names = ("id", "cassette", "method", "path", "outcome", "asked", "answered")
    slow: dict[object, tuple[float, Mapping[str, Any]]] = {}
    for entry in entries:
        recording = (str(entry.get("cassette")), entry.get("interaction"))
        took = latencies.get(recording, float(entry.get("duration_ms") or 0))  # type: ignore[arg-type]
        if entry.get("outcome") != "miss":
            slow.setdefault(entry["id"] if recording[1] is None else recording, (took, entry))
    slowest = sorted(slow.values(), key=lambda call: -call[0])[:_MOST_SLOW]
    return [
        {"took_ms": took, **{name: entry.get(name) for name in names}} for took, entry in slowest
    ]


def _notes(served: int, kept: int, left_out: int) -> Iterable[str]:
    """What the file does not hold."""
    if served > kept:
        held = "the last" if kept == 1 else f"the last {kept}"
        yield f"Of {served} requests, this file holds {held}."
    if left_out:
        requests = "1 request" if left_out == 1 else f"{left_out} requests"
        yield f"The details of {requests} are not in this file."
