"""The summary of a report: causes of misses, what needs attention, slow calls, and what is missing."""

from typing import Any

from tapeway.html_report.summary import summary

NONE = {"replayed": 0, "recorded": 0, "live": 0, "miss": 0, "error": 0}


def report(name: str, **more: Any) -> dict[str, Any]:
    return {
        **{
            "name": name,
            "replayed": 0,
            "recorded": 0,
            "live": 0,
            "retries": 0,
            "redacted": 0,
            "redacted_kinds": {},
        },
        **{text: [] for text in ("misses", "unused", "duplicates", "unmarked", "stale", "dated")},
        "failed": {},
        **{text: [] for text in ("elsewhere", "unrecorded", "repeated", "told_apart", "unreached")},
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        "saved": {"usd": None, "unpriced": [], "prices": ""},
        **more,
    }


def miss(path: str, **more: Any) -> dict[str, Any]:
    message = f"replay miss: POST {path} is not in it"
    found = {"method": "POST", "path": path, "message": message, "nearest": [], "times": 1}
    return {**found, "suggestion": 'normalise = ["date"]', **more}


def entry(id_: str, outcome: str, ms: float, message: str = "") -> dict[str, Any]:
    return {"id": id_, "outcome": outcome, "duration_ms": ms, "message": message, "path": "/a"}


def made(*reports: dict[str, Any], entries: Any = (), **more: Any) -> dict[str, Any]:
    found: Any = summary(reports, entries, **{"served": NONE, "left_out": 0, **more})
    return dict(found)


def test_misses_of_one_cause_in_several_cassettes_are_one() -> None:
    first, second = miss("/a", times=2), miss("/b")
    entries = [
        entry("m3", "miss", 1, second["message"]) | {"asked": "Where to go?"},
        entry("m2", "miss", 1, first["message"]),
        entry("m1", "miss", 1, first["message"]),
    ]

    found = made(report("one", misses=[first]), report("two", misses=[second]), entries=entries)

    assert found["causes"] == [
        {
            "times": 3,
            "text": "a date",
            "rule": 'normalise = ["date"]',
            "requests": ["POST /a in one", "Where to go?, POST /b in two"],
            "more": 0,
            "entry": "m1",
        }
    ]


def test_what_needs_attention_stands_once_for_all_cassettes() -> None:
    call = {"index": 1, "method": "GET", "path": "/a"}
    dated = {**call, "kind": "date", "advice": 'rule: normalise = ["date"]'}

    found = made(report("one", unused=[call], dated=[dated]), report("two", unused=[call]))

    unused, dates = found["remarks"]
    assert unused["items"] == ["one: #1 GET /a", "two: #1 GET /a"]
    assert (unused["title"], unused["count"], unused["notices"]) == ("Not used", 2, [])
    assert dates["notices"] == [
        '1 recording contains today\'s date and will miss tomorrow; rule: normalise = ["date"]'
    ]


def test_the_slowest_calls_are_those_that_were_answered() -> None:
    entries = [entry(f"h{ms}", "replayed", ms) for ms in range(7)] + [entry("m", "miss", 99)]

    assert [slow["id"] for slow in made(entries=entries)["slowest"]] == [
        "h6",
        "h5",
        "h4",
        "h3",
        "h2",
    ]


def test_a_replayed_call_is_as_slow_as_its_recording_and_stands_once() -> None:
    played = [{**entry(f"h{at}", "replayed", 1), "cassette": "a", "interaction": 0} for at in "ab"]
    live = {**entry("l", "live", 50), "cassette": "a", "interaction": None}

    slowest = made(entries=[live, *played], latencies={("a", 0): 9000.0})["slowest"]

    assert [(slow["id"], slow["took_ms"]) for slow in slowest] == [("ha", 9000.0), ("l", 50.0)]


def test_what_was_saved_is_said_for_the_whole_run() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    fields = {"usage": usage, "saved": {"usd": 0.01, "unpriced": [], "prices": "list prices"}}

    found = made(
        report("one", **fields, redacted=1, redacted_kinds={"set-cookie": 1}),
        report("two", **fields),
    )

    assert found["gains"] == [
        "14 tokens saved, $0.0200 at list prices",
        "1 secret replaced: set-cookie 1",
    ]


def test_it_says_what_the_file_does_not_hold() -> None:
    whole = made(entries=[entry("a", "live", 1)], served={**NONE, "live": 1})
    part = made(entries=[entry("a", "live", 1)], served={**NONE, "live": 9}, left_out=1)

    assert whole["notes"] == []
    assert part["notes"] == [
        "Of 9 requests, this file holds the last.",
        "The details of 1 request are not in this file.",
    ]
    assert part["counts"] == {**NONE, "live": 9}


def test_long_lists_are_cut_and_counted() -> None:
    call = {"index": 1, "method": "GET", "path": "/a"}
    many = [miss(f"/{at}", suggestion=None) for at in range(60)]

    found = made(report("one", misses=many, unused=[call] * 60))

    assert (len(found["causes"]), found["more_causes"]) == (50, 10)
    assert (len(found["remarks"][0]["items"]), found["remarks"][0]["count"]) == (50, 60)
