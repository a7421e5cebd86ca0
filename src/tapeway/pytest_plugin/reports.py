"""Misses in the report of a test, and the files of `--tapeway-report`: as `tapeway run` shows them."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tapeway.core.misses.miss import RULE_NOTE, NearestRecording
from tapeway.engine.journal import MissedCall, UnrecordedAnswer
from tapeway.engine.report.annotations import SourcePlace, annotations
from tapeway.engine.report.dated import DatedRecording, dated_notices
from tapeway.engine.report.forms import TEXT_FORMS, check_report_file
from tapeway.engine.report.lines import (
    gains,
    miss_lines,
    repeated_notices,
    unrecorded_title,
)
from tapeway.engine.report.summary import CassetteReport, ModelTokens, RecordingSummary, Savings
from tapeway.errors import ConfigError

Document = Mapping[str, Any]
_MOST_MISSES = 10


def miss_section(misses: Sequence[Document]) -> str:
    """The misses of one test, as the journal has them: message, difference and suggestion of each."""
    lines: list[str] = []
    for miss in misses[:_MOST_MISSES]:
        message = str(miss["message"])
        details = miss_lines(_missed(miss), rule=RULE_NOTE not in message)[1:]
        lines += [message, *[f"  {line}" for line in details]]
    if (more := len(misses) - _MOST_MISSES) > 0:
        lines.append(f"{more} more misses")
    return "\n".join(lines)


def check_report(file: str) -> None:
    """Raises UsageError for a file that could not be written at the end."""
    try:
        check_report_file(Path(file), "--tapeway-report")
    except ConfigError as exc:
        raise pytest.UsageError(exc.message) from exc


def write_report(file: str, reports: Sequence[Document], upstream_connections: int) -> None:
    """Write reports, as the admin API returns them, in the form of the file's suffix."""
    ordered = sorted(reports, key=lambda each: str(each["name"]))
    path = Path(file)
    if path.suffix == ".json":
        document = {
            "cassettes": ordered,
            "upstream_connections": upstream_connections,
            "bypassed": [],
            "offline": None,
        }
        text = json.dumps(document) + "\n"
    else:
        text = TEXT_FORMS[path.suffix]([_cassette_report(each) for each in ordered])
    path.write_text(text, encoding="utf-8")


def gain_lines(reports: Sequence[Document]) -> list[str]:
    """What the replays of a run saved, and how many secrets were replaced in new recordings."""
    models: dict[str, list[int]] = {}
    for each in (model for report in reports for model in report["saved"]["unpriced"]):
        counts = models.setdefault(each["model"], [0, 0, 0])
        for at, field in enumerate(("calls", "prompt_tokens", "completion_tokens")):
            counts[at] += each[field]
    usd = [found for each in reports if (found := each["saved"]["usd"]) is not None]
    whole = CassetteReport(
        *("", 0, 0, 0, 0, (), (), ()),
        usage={"total_tokens": sum(each["usage"]["total_tokens"] for each in reports)},
        saved=Savings(
            sum(usd) if any(usd) or not models else None,
            tuple(ModelTokens(model, *counts) for model, counts in models.items()),
            next((each["saved"]["prices"] for each in reports), ""),
        ),
        redacted=sum(each["redacted"] for each in reports),
    )
    return [*gains(whole)]


def dated_lines(reports: Sequence[Document]) -> list[str]:
    """What there is to say of recordings of a run that say when they were made."""
    return [
        *dated_notices([DatedRecording(**each) for report in reports for each in report["dated"]])
    ]


def repeated_lines(reports: Sequence[Document]) -> list[str]:
    """What there is to say of recordings of a run that answered equal calls in their own take."""
    return [*repeated_notices([each for report in reports for each in report["repeated"]])]


def unrecorded_lines(reports: Sequence[Document]) -> list[str]:
    """The live answers of a run that were not stored, a line each."""
    return [
        f"{unrecorded_title(UnrecordedAnswer(**each))} (cassette {report['name']})"
        for report in reports
        for each in report["unrecorded"]
    ]


def annotation_lines(
    reports: Sequence[Document], places: Mapping[str, tuple[str, int]], root: Path
) -> list[str]:
    """Annotations at the tests; `places` has the file of each cassette's test, from the root."""
    repository = os.environ.get("GITHUB_WORKSPACE", ".")

    def locate(cassette: str) -> SourcePlace | None:
        if (place := places.get(cassette)) is None:
            return None
        file, line = place
        return SourcePlace(Path(os.path.relpath(root / file, repository)).as_posix(), line)

    return annotations([_cassette_report(each) for each in reports], locate)


def _cassette_report(document: Document) -> CassetteReport:
    return CassetteReport(
        name=document["name"],
        replayed=document["replayed"],
        recorded=document["recorded"],
        live=document["live"],
        retries=document["retries"],
        misses=tuple(_missed(each) for each in document["misses"]),
        unused=tuple(_summary(each) for each in document["unused"]),
        duplicates=tuple(tuple(map(_summary, group)) for group in document["duplicates"]),
        usage=document["usage"],
        unmarked=tuple(_summary(each) for each in document["unmarked"]),
        stale=tuple(_summary(each) for each in document["stale"]),
        saved=_saved(document["saved"]),
        redacted=document["redacted"],
        dated=tuple(DatedRecording(**each) for each in document["dated"]),
        elsewhere=tuple(document["elsewhere"]),
        unrecorded=tuple(UnrecordedAnswer(**each) for each in document["unrecorded"]),
        repeated=tuple(_summary(each) for each in document["repeated"]),
    )


def _saved(saved: Document) -> Savings:
    unpriced = tuple(ModelTokens(**each) for each in saved["unpriced"])
    return Savings(saved["usd"], unpriced, saved["prices"])


def _missed(miss: Document) -> MissedCall:
    nearest = tuple(
        NearestRecording(each["index"], tuple(each["differences"]), each["more"])
        for each in miss["nearest"]
    )
    times = miss.get("times", 1)
    return MissedCall(
        miss["method"], miss["path"], miss["message"], nearest, miss["suggestion"], times
    )


def _summary(item: Document) -> RecordingSummary:
    return RecordingSummary(item["index"], item["method"], item["path"], day=item.get("day", ""))
