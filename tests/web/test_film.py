"""The recording of the first screen, and the report beside it: what is in the repository, and its script."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.web.animation import chunks
from tests.web.film import HOME, made

DOCS = Path(__file__).parents[2] / "docs"
RECORDING = DOCS / "images" / "red-to-green.png"
REPORT = DOCS / "last.html"


def outcomes(report: str) -> set[str]:
    """The outcomes of the requests that a report holds."""
    (data,) = re.findall(r'id="recorded">(.*?)</script>', report, re.DOTALL)
    return {entry["outcome"] for entry in json.loads(data)["entries"]}


def test_the_recording_of_the_first_screen_is_an_animation_of_at_most_two_megabytes() -> None:
    kinds = [kind for kind, _ in chunks(RECORDING.read_bytes())]

    assert RECORDING.stat().st_size <= 2_000_000
    assert kinds.count(b"fcTL") > 10


def test_the_report_on_the_site_has_misses_and_replays_and_names_no_folder_of_its_maker() -> None:
    report = REPORT.read_text("utf-8")

    assert REPORT.stat().st_size <= 1_000_000
    assert outcomes(report) == {"replayed", "miss"}
    assert {*re.findall(r"file://(/[^\"\\]*)/\.tapeway", report)} == {HOME}


@pytest.mark.slow
def test_the_script_films_a_red_test_and_makes_it_green(chromium: Browser, tmp_path: Path) -> None:
    recording, report = made(chromium, tmp_path)

    assert len(recording) <= 2_000_000
    assert [kind for kind, _ in chunks(recording)].count(b"fcTL") > 10
    assert outcomes(report) == {"replayed", "miss"}
    assert str(tmp_path) not in report
