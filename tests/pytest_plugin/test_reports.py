"""The section of a test's report that shows what it missed."""

from tapeway.pytest_plugin.reports import miss_section


def test_a_miss_is_shown_with_its_differences_and_the_rule() -> None:
    differences = [{"path": f"body.a{number}", "recorded": number} for number in range(6)]
    differences[0]["requested"] = "b\n"
    miss = {
        "method": "GET",
        "path": "/a",
        "message": "replay miss: GET /a",
        "nearest": [{"index": 3, "differences": differences, "more": 2}],
        "suggestion": 'ignore = ["body.a0"]\nnormalise = ["uuid"]',
    }

    assert miss_section([miss]).splitlines() == [
        "replay miss: GET /a",
        '  a0: recorded 0, requested "b\\n"',
        *[f"  a{number}: recorded {number}, requested nothing" for number in range(1, 5)],
        "  3 more differences",
        '  rule that would match: ignore = ["body.a0"]',
        '  rule that would match: normalise = ["uuid"]',
    ]


def test_many_misses_are_counted() -> None:
    miss: dict[str, object] = {
        "method": "GET",
        "path": "/a",
        "message": "replay miss: GET /a",
        "nearest": [],
        "suggestion": None,
    }

    assert miss_section([miss] * 12).splitlines()[-1] == "2 more misses"
    assert miss_section([miss] * 11).splitlines()[-1] == "1 more miss"


def test_what_the_traceback_says_already_is_not_said_again() -> None:
    differences = [{"path": f"body.a{number}", "recorded": number} for number in range(2)]
    miss = {
        "id": "tw-1",
        "method": "GET",
        "path": "/a",
        "message": "replay miss: GET /a; nearest #3 differs at a0: 0 → nothing",
        "nearest": [{"index": 3, "differences": differences, "more": 0}],
        "suggestion": None,
    }
    printed = f"E   BadRequestError: 400 - {miss['message']}"

    assert miss_section([miss], printed) == "  a1: recorded 1, requested nothing"
    assert miss_section([miss], printed, "file:///app/last.html").splitlines()[1:] == [
        "look at it in a browser: file:///app/last.html#/journal/tw-1"
    ]
