"""Collects what the page asks the admin API for, up to a size: misses whole, hits cut to a head."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import quote

from tapeway.core.json_text import Json, dump
from tapeway.errors import TapewayError
from tapeway.html_report.summary import summary

_PAGE = 1000
_MOST_CHARACTERS = 2000
"""Of each text of a hit, in its view."""
_MOST_ITEMS = 50
"""Of its chunks and events."""
_WHOLE = ("status", "cassettes")


@dataclass(frozen=True, slots=True)
class ReportLimits:
    """How much of a run a report holds: bytes of recorded data, entries, and entries with details."""

    size: int
    entries: int = sys.maxsize
    details: int = sys.maxsize


LAST_LIMITS = ReportLimits(5 * 1024 * 1024, 1000, 100)
"""Of the report that every run leaves."""

Call = Callable[[str, dict[str, object]], Json]
"""GETs a path below `/api/v1/` with a query. Raises TapewayError."""


@dataclass(slots=True)
class CollectedRun:
    """The answers by their path, the journal's entries, and how many requests have no details."""

    answers: dict[str, Json] = field(default_factory=dict)
    entries: list[Json] = field(default_factory=list)
    left_out: int = 0
    size: int = 0

    def add(self, path: str, answer: Json, most: int | None = None) -> bool:
        """Keep an answer, unless there would be more than `most` bytes then."""
        size = len(path) + len(dump(answer))
        if most is not None and self.size + size > most:
            return False
        self.answers[path] = answer
        self.size += size
        return True


def collect(
    call: Call, limits: ReportLimits, reports: Sequence[Mapping[str, Any]] | None = None
) -> CollectedRun:
    """The facts about the requests so far, within limits. Raises TapewayError.

    Without `reports` the admin API is asked for the reports of the presently loaded cassettes.
    """
    run = CollectedRun()
    for path in _WHOLE:
        run.add(path, call(path, {}))
    run.add("report", _report(call, reports))
    run.entries = list(islice(_entries(call), limits.entries))
    run.size += len(dump(run.entries))
    run.add("recordings", {"recordings": []})
    # What is left out first are the details of hits.
    for number, entry in enumerate(sorted(run.entries, key=_is_hit)):
        if isinstance(entry, dict):
            whole = number < limits.details and _add(run, call, entry, limits.size)
            run.left_out += not whole
    run.answers["summary"] = {**_summary(run)}
    return run


def _report(call: Call, reports: Sequence[Mapping[str, Any]] | None) -> Json:
    if reports is None:
        return call("report", {})
    return {"cassettes": [dict(report) for report in reports], "upstream_connections": 0}


def _summary(run: CollectedRun) -> dict[str, Json]:
    status, report = run.answers["status"], run.answers["report"]
    served: Any = status.get("counts") if isinstance(status, dict) else None
    reports: Any = report.get("cassettes") if isinstance(report, dict) else None
    entries: Any = run.entries
    return summary(reports or [], entries, served=served or {}, left_out=run.left_out)


def _is_hit(entry: Json) -> bool:
    return isinstance(entry, dict) and entry.get("outcome") != "miss"


def _entries(call: Call) -> Iterator[Json]:
    after: Json = None
    while True:
        page = call("journal", {"limit": _PAGE, "after": after, "gist": True})
        if not isinstance(page, dict) or not isinstance(page["entries"], list):
            return
        yield from page["entries"]
        if (after := page["next"]) is None:
            return


def _add(run: CollectedRun, call: Call, entry: dict[str, Json], most: int) -> bool:
    """Add the details of a request; False if there is no room for them."""
    try:
        path = f"journal/{quote(str(entry['id']), safe='')}"
        whole = call(path, {})
        if not run.add(path, whole, most):
            return False
        index = entry.get("interaction")
        if isinstance(whole, dict) and isinstance(nearest := whole.get("nearest"), dict):
            index = nearest["index"]
        if entry.get("interaction") is None:
            called = f"{path}/call"
            run.add(called, cut(call(called, {})), most)
        if index is None:
            return True
        view = f"cassettes/{quote(str(entry['cassette']), safe='')}/interactions/{index}/view"
        return view in run.answers or run.add(view, cut(call(view, {})), most)
    except TapewayError:
        # The entry has left the journal, or the cassette has been deleted.
        return False


def cut(value: Json) -> Json:
    """An answer with its long texts and lists cut to a head; bodies say so in `cut`."""
    if isinstance(value, str):
        return value[:_MOST_CHARACTERS]
    if isinstance(value, list):
        return [cut(item) for item in value[:_MOST_ITEMS]]
    if not isinstance(value, dict):
        return value
    members = {name: cut(member) for name, member in value.items()}
    text = value.get("text")
    if "cut" in value and isinstance(text, str) and len(text) > _MOST_CHARACTERS:
        members |= {"cut": True, "kind": "text"}
    for name in ("chunks", "events"):
        items, left = value.get(name), value.get(f"{name}_left_out")
        if isinstance(items, list) and isinstance(left, int):
            members[f"{name}_left_out"] = left + max(0, len(items) - _MOST_ITEMS)
    return members
