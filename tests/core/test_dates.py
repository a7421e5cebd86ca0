"""Dates and times of day are replaced whole, in the forms that people and programs write."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json
from tapeway.core.matching.normalisers import NormaliserSet

DATES = NormaliserSet(["date"])


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("Today's date is 2026-11-25", "Today's date is <date>"),
        ("Wed Nov 25 2026", "<date>"),
        ("Wednesday, November 25, 2026", "<date>"),
        ("November 25, 2026", "<date>"),
        ("11/25/2026, 4:05:06 PM", "<date>"),
        ("11/25/2026, 4:05:06\u202fPM", "<date>"),
        ("Wed, 25 Nov 2026 16:05:06 GMT", "<date>"),
        ("25/11/2026 16:05", "<date>"),
        ("25. November 2026", "<date>"),
        ("Time is 16:05 UTC", "Time is <date>"),
        ("Mittwoch, den 25. November 2026", "<date>"),
        ("mercredi 25 novembre 2026", "<date>"),
        ("le 1er novembre 2026 à 16h05", "le <date>"),
        ("miércoles, 25 de noviembre de 2026", "<date>"),
        ("25 de noviembre del 2026", "<date>"),
        ("25-11-2026", "<date>"),
        ("11-25-2026", "<date>"),
        ("25.11.2026", "<date>"),
        ("25.11.2026 um 16:05 Uhr", "<date>"),
        ("Wed Nov 25 16:05:06 2026", "<date>"),
        ("Wed Nov 25 16:05:06 UTC 2026", "<date>"),
        ("Wed Nov 25 2026 16:05:06 GMT+0000 (Coordinated Universal Time)", "<date>"),
        ("November 25th, 2026", "<date>"),
        ("the 25th of November, 2026", "the <date>"),
        ("4:05 PM", "<date>"),
        ("4:05 p.m. EST", "<date>"),
        ("16:05:06 CET", "<date>"),
        ("Current time: 16:05", "Current time: <date>"),
        ("now is 16:05", "now is <date>"),
        ("11/25/26", "<date>"),
        ("25-Nov-2026", "<date>"),
        ("2026/11/25 16:05", "<date>"),
        ("Wednesday, November 25", "<date>"),
        ("Thu, 26 Nov", "<date>"),
        ("domingo 25 de mayo", "<date>"),
        ("16:05, 25 November 2026", "<date>"),
        ("Nov 25, 2026 at 4:05 PM", "<date>"),
        ("2026-11-25 16:05:06", "<date>"),
        ("Sept. 5, 2026", "<date>"),
        ("Mi., 25.11.2026", "<date>"),
        ("(25.11.2026)", "(<date>)"),
        ("date=2026-11-25", "date=<date>"),
        ("Date:25.11.2026.", "Date:<date>."),
        ('"time":"16:05"', '"time":"<date>"'),
        ("25 November 2026, 16.05 Uhr", "<date>"),
        ("memory/2026-11-25.md", "memory/<date>.md"),
        ("20 août 2026", "<date>"),
        ("25/Nov/2026:16:05:06 +0000", "<date>"),
        ("current_time: 16:05", "current_time: <date>"),
        ("Time: 4:05 PM", "Time: <date>"),
        ("2026-11-25 16:05:06-05:00", "<date>"),
        ("16:05+02:00", "<date>"),
    ],
)
def test_a_date_or_a_time_of_day_is_replaced_whole(text: str, becomes: str) -> None:
    assert DATES.text(text) == becomes
    assert DATES.text(f"before ({text}), after") == f"before ({becomes}), after"


@pytest.mark.parametrize(
    "text",
    [
        "gpt-4o-2024-08-06",
        "api-version 2024-09-01-preview",
        "version 25.11.2026",
        "v25.11.2026",
        "1.25.11.2026",
        "25.11.2026.1",
        "2026.11.25",
        "1.2.3",
        "10.12.2026-beta",
        "$11/25/2026",
        "1,234.50",
        "$19.99",
        "John 3:16",
        "16:9",
        "the ratio 16:05",
        "3/4/5",
        "he sat, may 25 people",
        "so, may 25 people come",
        "example.com/2026/11/25/post",
        "99.11.2026",
        "25/13/2026",
        "31.12.1999 €",
        "claude-3-5-sonnet-20241022",
        "node 11.12.2026",
        "==1.12.2026",
        "11/25",
        "marker 25 2026",
        "anthropic-version: 2023-06-01",
        "192.168.1.20",
        "call 555-12-2026",
        "12-25-2026-x",
        "2.11.2024-rc1",
        "USD 25.11",
        "1.299,00 €",
        "5.12.2026%",
        "book 10:30-11:30",
        "book 10:30 PM-11:30 PM",
    ],
)
def test_what_is_no_date_or_only_a_part_of_something_else_is_left(text: str) -> None:
    assert DATES.text(text) == text


@given(st.dates(date(1990, 1, 1), date(2090, 1, 1)), st.integers(1, 400))
def test_two_days_are_equal_in_each_form_of_strftime(day: date, later: int) -> None:
    other = day + timedelta(later)
    forms = (
        *("%Y-%m-%d", "%a %b %d %Y", "%A, %B %d, %Y", "%d. %B %Y", "%d %b %Y", "%m/%d/%Y"),
        *("%d.%m.%Y", "%d-%m-%Y", "%d-%b-%Y", "%A, %B %d", "%d de %B de %Y", "%m/%d/%y"),
        *("%a, %d %b %Y %H:%M:%S GMT", "%c", "%x, %I:%M %p", "%Y/%m/%d", "%b %d, %Y"),
    )
    for form in forms:
        assert DATES.text(f"Today: {day:{form}}.") == DATES.text(f"Today: {other:{form}}."), form


def test_the_date_of_a_version_counts() -> None:
    value: Json = {"api-version": ["2024-09-01"], "at": ["2024-09-01"]}

    assert DATES.value(value) == {"api-version": ["2024-09-01"], "at": ["<date>"]}
