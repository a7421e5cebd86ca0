"""Misses in the report of a test, and the files of `--tapeway-report`: as `tapeway run` shows them."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tapeway.core.misses.miss import RULE_NOTE
from tapeway.deck.deck import Deck
from tapeway.engine.journal import UnrecordedAnswer
from tapeway.engine.report.annotations import SourcePlace, annotations
from tapeway.engine.report.causes import causes
from tapeway.engine.report.dated import DatedRecording, dated_notices
from tapeway.engine.report.document import Document, cassette_report, missed_call
from tapeway.engine.report.forms import TEXT_FORMS, check_report_file
from tapeway.engine.report.lines import (
    gains_of_all,
    miss_lines,
    repeated_notices,
    unrecorded_title,
)
from tapeway.errors import ConfigError
from tapeway.html_report.collected_page import collected_page
from tapeway.html_report.collection import LAST_LIMITS, ReportLimits
from tapeway.html_report.last import write_last

_MOST_MISSES = 10
HTML = ".html"
_HTML_LIMITS = ReportLimits(20 * 1024 * 1024)


def miss_section(misses: Sequence[Document], printed: str = "", page: str | None = None) -> str:
    """The misses of one test, as the journal has them: message, difference and suggestion of each.

    What the test's own report has `printed` already is not said again. `page` is the report that the
    run leaves, which shows each.
    """
    lines: list[str] = []
    for miss in misses[:_MOST_MISSES]:
        message = str(miss["message"])
        details = miss_lines(missed_call(miss), rule=RULE_NOTE not in message)[1:]
        if message not in printed:
            lines.append(message)
        lines += [f"  {line}" for line in details]
        if page is not None:
            lines.append(f"look at it in a browser: {page}#/journal/{miss['id']}")
    if (more := len(misses) - _MOST_MISSES) > 0:
        lines.append("1 more miss" if more == 1 else f"{more} more misses")
    return "\n".join(lines)


def check_report(file: str) -> None:
    """Raises UsageError for a file that could not be written at the end."""
    try:
        check_report_file(Path(file), "--tapeway-report", (HTML,))
    except ConfigError as exc:
        raise pytest.UsageError(exc.message) from exc


def write_report(file: str, reports: Sequence[Document], deck: Deck) -> None:
    """Write reports, as the admin API returns them, in the form of the file's suffix.

    Raises OSError and TapewayError.
    """
    ordered = sorted(reports, key=lambda each: str(each["name"]))
    path = Path(file)
    upstream_connections = deck.report()["upstream_connections"]
    if path.suffix == HTML:
        text = collected_page(deck.admin, _HTML_LIMITS, ordered)
    elif path.suffix == ".json":
        document = {
            "cassettes": ordered,
            "upstream_connections": upstream_connections,
            "bypassed": [],
            "offline": None,
        }
        text = json.dumps(document) + "\n"
    else:
        text = TEXT_FORMS[path.suffix]([cassette_report(each) for each in ordered])
    path.write_text(text, encoding="utf-8")


def leave_page(root: Path, reports: Sequence[Document], deck: Deck) -> None:
    """Leave the page of the run. Raises OSError and TapewayError."""
    write_last(root, collected_page(deck.admin, LAST_LIMITS, reports))


def cause_lines(reports: Sequence[Document]) -> list[str]:
    """The causes of a run's misses that several requests share, or that a rule ends."""
    found = causes([missed_call(miss) for each in reports for miss in each["misses"]])
    return [each.line for each in found if each.rule is not None or each.times > 1]


def gain_lines(reports: Sequence[Document]) -> list[str]:
    """What the replays of a run saved, and how many secrets were replaced in new recordings."""
    return [*gains_of_all(map(cassette_report, reports))]


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

    return annotations([cassette_report(each) for each in reports], locate)
