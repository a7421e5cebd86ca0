"""Collects what the page asks the admin API for, up to a size: misses whole, hits cut to a head.

Of each cassette there are the list of its recordings and its conversation, if it is not too large.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import quote, unquote

from tapeway.core.json_text import Json, dump
from tapeway.errors import TapewayError
from tapeway.html_report.summary import summary

_PAGE = 1000
_MOST_CHARACTERS = 2000
"""Of each text of a hit, in its view."""
_MOST_ITEMS = 50
"""Of its chunks and events."""
_MOST_MEDIA = 512 * 1024
"""The characters of a sound or picture that is kept; a cut one would not play."""
_UNCUT = ("messages", "transcript", "turns")
"""Lists in which an entry refers to others by its place."""
_MOST_CASSETTES = 20
_MOST_RECORDINGS = 1000
"""A cassette with more has no list and no conversation in a report: it takes too long to read."""
_MOST_SESSIONS = 3
_WHOLE = ("status", "cassettes")


@dataclass(frozen=True, slots=True)
class ReportLimits:
    """How much of a run a report holds: bytes of recorded data, entries, and entries with details."""

    size: int
    entries: int = sys.maxsize
    details: int = sys.maxsize


LAST_LIMITS = ReportLimits(5 * 1024 * 1024, 1000, 100)
"""Of the report that every run leaves."""

Entry = Mapping[str, Json]
Latencies = dict[tuple[str, int], float]
"""How long the recorded calls took, by cassette and index."""

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
    run.entries = list(islice(_paged(call, "journal", "entries", gist=True), limits.entries))
    run.size += len(dump(run.entries))
    run.add("recordings", {"recordings": []})
    # What is left out first are the details of hits.
    entries = sorted([entry for entry in run.entries if isinstance(entry, dict)], key=_is_hit)
    misses = sum(not _is_hit(entry) for entry in entries)
    _add_details(run, call, limits, entries[:misses], limits.details)
    latencies = _add_cassettes(run, call, limits, entries)
    _add_details(run, call, limits, entries[misses:], limits.details - misses)
    run.answers["summary"] = {**_summary(run, latencies)}
    return run


def _add_details(
    run: CollectedRun, call: Call, limits: ReportLimits, entries: Sequence[Entry], most: int
) -> None:
    for number, entry in enumerate(entries):
        run.left_out += not (number < most and _add(run, call, entry, limits.size))


def _add_cassettes(
    run: CollectedRun, call: Call, limits: ReportLimits, entries: Sequence[Entry]
) -> Latencies:
    """Add what the pages of the cassettes show; returns how long each recorded call took."""
    latencies: Latencies = {}
    names = dict.fromkeys(str(entry.get("cassette")) for entry in entries)
    for name in islice(names, _MOST_CASSETTES):
        at = f"cassettes/{quote(name, safe='')}"
        # It has been deleted, or it is too large to be read.
        with suppress(TapewayError):
            titles = call(f"{at}/titles", {"limit": _MOST_RECORDINGS})
            if isinstance(titles, dict) and titles.get("next") is None:
                latencies |= _latencies(name, titles)
                run.add(f"{at}/titles", titles, limits.size)
                _add_conversation(run, call, limits, at)
    return latencies


def _add_conversation(run: CollectedRun, call: Call, limits: ReportLimits, at: str) -> None:
    turns = call(f"{at}/turns", {"index": True})
    if not isinstance(turns, dict) or not run.add(f"{at}/turns", cut(turns), limits.size):
        return
    messages = [*_paged(call, f"{at}/messages", "messages")]
    whole: Json = {"messages": messages, "left_out": [], "next": None}
    run.add(f"{at}/messages", cut(whole), limits.size // 2)
    sessions = turns.get("sessions")
    for index in sessions[:_MOST_SESSIONS] if isinstance(sessions, list) else ():
        _add_view(run, call, f"{at}/interactions/{index}/view", limits.size)


def _latencies(name: str, titles: Entry) -> Latencies:
    listed = titles.get("titles")
    return {
        (name, int(str(title["index"]))): float(str(title["latency_ms"]))
        for title in (listed if isinstance(listed, list) else ())
        if isinstance(title, dict) and title.get("latency_ms")
    }


def _report(call: Call, reports: Sequence[Mapping[str, Any]] | None) -> Json:
    if reports is None:
        return call("report", {})
    return {"cassettes": [dict(report) for report in reports], "upstream_connections": 0}


def _summary(run: CollectedRun, latencies: Latencies) -> dict[str, Json]:
    status, report = run.answers["status"], run.answers["report"]
    served: Any = status.get("counts") if isinstance(status, dict) else None
    reports: Any = report.get("cassettes") if isinstance(report, dict) else None
    entries: Any = run.entries
    found = summary(reports or [], entries, latencies, served=served or {}, left_out=run.left_out)
    return found | {"runs": [*_conversations(run)]}


def _conversations(run: CollectedRun) -> Iterator[Json]:
    """The cassettes in whose conversations something is said, with the sums of their turns."""
    for path, answer in run.answers.items():
        if not path.endswith("/turns") or not isinstance(answer, dict):
            continue
        if answer.get("turns") or answer.get("sessions"):
            yield {"name": unquote(path.split("/")[1]), "sums": answer.get("sums")}


def _is_hit(entry: Entry) -> bool:
    return entry.get("outcome") != "miss"


def _paged(call: Call, path: str, member: str, **query: object) -> Iterator[Json]:
    """The items of all pages."""
    after: Json = None
    while True:
        page = call(path, {"limit": _PAGE, "after": after, **query})
        items = page.get(member) if isinstance(page, dict) else None
        if not isinstance(page, dict) or not isinstance(items, list):
            return
        yield from items
        if (after := page.get("next")) is None:
            return


def _add(run: CollectedRun, call: Call, entry: Entry, most: int) -> bool:
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
        return _add_view(run, call, view, most)
    except TapewayError:
        # The entry has left the journal, or the cassette has been deleted.
        return False


def _add_view(run: CollectedRun, call: Call, view: str, most: int) -> bool:
    return view in run.answers or run.add(view, cut(call(view, {})), most)


def cut(value: Json) -> Json:
    """An answer with its long texts and lists cut to a head; bodies say so in `cut`."""
    if isinstance(value, str):
        return value[:_MOST_CHARACTERS]
    if isinstance(value, list):
        return [cut(item) for item in value[:_MOST_ITEMS]]
    if not isinstance(value, dict):
        return value
    members = {name: _cut_member(name, member) for name, member in value.items()}
    text = value.get("text")
    octets = value.get("base64")
    if "cut" in value and isinstance(octets, str) and len(octets) > _MOST_MEDIA:
        members |= {"cut": True, "base64": octets[:_MOST_CHARACTERS]}
    if "cut" in value and isinstance(text, str) and len(text) > _MOST_CHARACTERS:
        members |= {"cut": True, "kind": "text"}
    for name in ("chunks", "events"):
        items, left = value.get(name), value.get(f"{name}_left_out")
        if isinstance(items, list) and isinstance(left, int):
            members[f"{name}_left_out"] = left + max(0, len(items) - _MOST_ITEMS)
    return members


def _cut_member(name: str, value: Json) -> Json:
    if name in ("data", "base64") and isinstance(value, str):
        return value if name == "base64" or len(value) <= _MOST_MEDIA else ""
    if name in _UNCUT and isinstance(value, list):
        return [cut(item) for item in value]
    return cut(value)
