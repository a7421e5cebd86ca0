"""A request that says when it was made is found in each written form, and no other one is."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.misses.dated_requests import FoundMoment, found_moment
from tests.core.requests import asked, chat

NOW = datetime(2026, 11, 25, 16, 5, 6)
DAY = FoundMoment("date", ("date",))
TIME = FoundMoment("time", ("date",))
PATH = FoundMoment("path", ("tmp_path",))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Today's date is 2026-11-25", DAY),
        ("Wednesday, November 25, 2026", DAY),
        ("Wed Nov 25 2026 16:05:06 GMT+0000 (Coordinated Universal Time)", DAY),
        ("Wed, 25 Nov 2026 09:00:00 GMT", DAY),
        ("mercredi 25 novembre 2026", DAY),
        ("25 de noviembre de 2026", DAY),
        ("Mi., 25.11.2026", DAY),
        ("11/25/2026, 4:05:06 PM", DAY),
        ("25/11/2026 16:05", DAY),
        ("25-Nov-26", DAY),
        ("11/25/26", DAY),
        ("25/Nov/2026:16:05:06 +0000", DAY),
        ("Wednesday, November 25", DAY),
        ("at 2026-11-25T01:02:03Z", FoundMoment("date", ("iso8601",))),
        ("at 2026-11-25 01:02:03, on 25.11.2026", FoundMoment("date", ("iso8601", "date"))),
        ("Time is 16:05 UTC", TIME),
        ("It is 4:05 PM now", TIME),
        ("Uhrzeit: 16.05 Uhr", TIME),
        ("current_time: 16:05", TIME),
        ("Time is 16:06 UTC", None),
        ("call me at 16:05 UTC", None),
        ("John 3:16, and 16:05", None),
        ("November 24, 2026", None),
        ("11/12/2026", None),
        ("25.11.2025", None),
        ("gpt-4o-2026-11-25", None),
        ("version 2026-11-25", None),
        ("in November 2026", None),
    ],
)
def test_a_request_with_todays_date_or_the_time_of_day_is_found(
    text: str, found: FoundMoment | None
) -> None:
    assert found_moment(asked(chat(f"You help. {text}")), NO_RULES, [NOW]) == found
    assert found_moment(asked({}, target=f"/v1/x?q={text}"), NO_RULES, [NOW]) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Work in /tmp/pytest-of-ci/pytest-3/popen-gw0/test_a0", PATH),
        ("cwd: /tmp/tmpa1b2c3d4", PATH),
        ("cwd: /private/var/folders/x1/y2z3/T/tmp.Xa9Tq2WbLk", PATH),
        ("cwd: /tmp/agent-aB3dE9/work", PATH),
        ("C:\\Users\\ci\\AppData\\Local\\Temp\\tmpq1w2e3r4", PATH),
        ("It is November 25, 2026 in /tmp/tmpa1b2c3d4", FoundMoment("date", ("date", "tmp_path"))),
        ("Work in /tmp/project", None),
        ("Write to /tmp/out.txt or /tmp/my-folder", None),
        ("see /srv/tmp/tmpa1b2c3d4", None),
    ],
)
def test_a_request_with_a_temporary_folder_of_the_run_is_found(
    text: str, found: FoundMoment | None
) -> None:
    request = asked(chat(text))

    assert found_moment(request, NO_RULES, [NOW]) == found
    assert found_moment(request, Rules(normalise=("date", "tmp_path")), [NOW]) is None


def test_a_date_that_rules_leave_out_is_not_found() -> None:
    body: Json = {**chat("hi"), "system": "Today's date: 2026-11-25"}
    rules = [
        Rules(normalise=("date",)),
        Rules(ignore=("body.system",)),
        Rules(presets=("claude-code",)),
    ]

    assert found_moment(asked(body), NO_RULES, [NOW]) == DAY
    assert [found_moment(asked(body), rule, [NOW]) for rule in rules] == [None] * 3


@given(st.datetimes(datetime(2000, 1, 1), datetime(2099, 1, 1)), st.integers(1, 3000))
def test_a_day_is_found_in_each_form_of_strftime_and_on_that_day_alone(
    now: datetime, later: int
) -> None:
    forms = (
        *("%Y-%m-%d", "%a %b %d %Y", "%A, %B %d, %Y", "%d. %B %Y", "%d %b %Y", "%A, %B %d %Y"),
        *("%d-%b-%Y", "%a, %d %b %Y %H:%M:%S GMT", "%c", "%b %d, %Y", "%Y/%m/%d"),
    )
    for form in forms:
        request = asked(chat(f"Started {now:{form}}."))
        assert found_moment(request, NO_RULES, [now]) == DAY, form
        assert found_moment(request, NO_RULES, [now + timedelta(later)]) is None, form
