"""The section of a test's report that shows what it missed."""

from tapeway.pytest_plugin.reports import miss_section


def test_a_miss_is_shown_with_its_details() -> None:
    details = ['a0: recorded 0, requested "b"', 'rule that would match: ignore = ["body.a0"]']
    miss = {"message": "replay miss: GET /a", "details": details}

    assert miss_section([miss]).splitlines() == [
        "replay miss: GET /a",
        *[f"  {line}" for line in details],
    ]


def test_many_misses_are_counted() -> None:
    miss = {"message": "replay miss: GET /a"}

    assert miss_section([miss] * 12).splitlines()[-1] == "2 more misses"
    assert miss_section([miss] * 11).splitlines()[-1] == "1 more miss"


def test_what_the_traceback_says_already_is_not_said_again() -> None:
    miss = {
        "id": "tw-1",
        "message": "replay miss: GET /a; nearest #3 differs at a0: 0 → nothing",
        "details": ["a1: recorded 1, requested nothing"],
    }
    printed = f"E   BadRequestError: 400 - {miss['message']}"

    assert miss_section([miss], printed) == "  a1: recorded 1, requested nothing"
    assert miss_section([miss], printed, "file:///app/last.html").splitlines()[1:] == [
        "look at it in a browser: file:///app/last.html#/journal/tw-1"
    ]
