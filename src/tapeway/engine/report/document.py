"""Reads reports from the documents in which the admin API returns them."""

from collections.abc import Mapping
from typing import Any

from tapeway.core.misses.miss import NearestRecording
from tapeway.engine.journal import MissedCall, UnreachedRecording, UnrecordedAnswer
from tapeway.engine.report.dated import DatedRecording
from tapeway.engine.report.summary import CassetteReport, ModelTokens, RecordingSummary, Savings

Document = Mapping[str, Any]


def cassette_report(document: Document) -> CassetteReport:
    """The report of one cassette."""
    return CassetteReport(
        name=document["name"],
        replayed=document["replayed"],
        recorded=document["recorded"],
        live=document["live"],
        retries=document["retries"],
        misses=tuple(missed_call(each) for each in document["misses"]),
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
        failed=document["failed"],
        unreached=tuple(UnreachedRecording(**each) for each in document["unreached"]),
    )


def _saved(saved: Document) -> Savings:
    unpriced = tuple(ModelTokens(**each) for each in saved["unpriced"])
    return Savings(saved["usd"], unpriced, saved["prices"])


def missed_call(miss: Document) -> MissedCall:
    """A miss of a report, or a journal entry of one."""
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
