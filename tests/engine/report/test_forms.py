"""The report on a run: what it counts and names, and its text, Markdown and JUnit forms."""

from collections.abc import Mapping
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.cassette.credential_index import FoundKey
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.json_text import Json
from tapeway.core.matching.key import request_key
from tapeway.core.misses.miss import NearestRecording
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import Outcome
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.engine.journal import (
    MOST_EXPLAINED_MISSES,
    MOST_MISSES,
    ClientTexts,
    MissedCall,
    ServedAnswer,
    ServedRequest,
    Tally,
    tokens_of,
)
from tapeway.engine.report.forms import MOST_BYTES, junit_report, markdown_report, text_report
from tapeway.engine.report.summary import (
    CassetteReport,
    Isolation,
    ModelTokens,
    RecordingSummary,
    Savings,
)
from tests.support.reports import report_of_index


def make_interaction(
    index: int, path: str = "/v1/x", usage: Mapping[str, Json] | None = None
) -> Interaction:
    request = Request("openai", "POST", path)
    return Interaction(index, request, Response(ResponseHead(200)), usage=usage)


def make_cassette(*interactions: AnyInteraction) -> CassetteIndex:
    return CassetteIndex("c", StoredCassette(CassetteHead("", ""), interactions), take=1)


def served(
    outcome: Outcome, path: str = "/", *, usage: Mapping[str, Json] | None = None
) -> ServedRequest:
    """A request that ended so; `usage` is that of the recording that answered."""
    tokens = () if usage is None else tokens_of(usage)
    return ServedRequest(
        *("tw-1", 0.0, "c", "r", "GET", ClientTexts(path)),
        *(ServedAnswer(outcome, 200, tokens=tokens), 0.0, None),
    )


USAGE: Mapping[str, Json] = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def test_each_outcome_is_counted() -> None:
    tally = Tally()
    outcomes: tuple[Outcome, ...] = ("replayed", "replayed", "recorded", "live", "error")
    for outcome in outcomes:
        tally.add(served(outcome))
    tally.add(served("miss", "/a"))
    report = report_of_index(make_cassette(), tally)

    assert (report.replayed, report.recorded, report.live) == (2, 1, 1)
    assert report.misses == (MissedCall("GET", "/a", "GET /a"),)


def test_equal_misses_are_one_with_their_number() -> None:
    tally = Tally()
    nearest = (NearestRecording(3, ({"path": "body.a", "recorded": 1, "requested": 2},)),)
    explained = served("miss", "/a")._replace(
        key=b"r\0k", message="replay miss: GET /a is not there", nearest=nearest, suggestion="x = 1"
    )
    for missed in (explained, explained._replace(nearest=()), explained._replace(key=b"r\0other")):
        tally.add(missed)
    report = report_of_index(make_cassette(), tally)

    assert [miss.times for miss in report.misses] == [2, 1]
    assert report.misses[0] == MissedCall(
        *("GET", "/a", "replay miss: GET /a is not there", nearest, "x = 1", 2)
    )
    assert (report.missed, report.requests) == (3, 3)


def test_the_tokens_of_a_hit_are_saved() -> None:
    tally = Tally()
    for _ in range(2):
        tally.add(served("replayed", usage=USAGE))
    tally.add(served("replayed"))

    assert report_of_index(make_cassette(), tally).usage == {
        "prompt_tokens": 6,
        "completion_tokens": 8,
        "total_tokens": 14,
    }


@pytest.mark.parametrize(
    "usage",
    [{}, {"prompt_tokens": None}, {"prompt_tokens": "12"}, {"prompt_tokens": True}, {"cost": 5}],
)
def test_token_counts_that_are_no_integers_count_as_0(usage: Mapping[str, Json]) -> None:
    tally = Tally()
    tally.add(served("replayed", usage=usage))

    assert set(report_of_index(make_cassette(), tally).usage.values()) == {0}


def test_unused_and_duplicate_recordings_are_named() -> None:
    cassette = make_cassette(
        make_interaction(0, "/a"),
        make_interaction(1, "/b"),
        ForeignInteraction(2, {"kind": "tool"}),
        make_interaction(3, "/b"),
    )
    cassette.choose(FoundKey(request_key(Request("openai", "POST", "/b"))), cassette.take, "last")
    report = report_of_index(cassette, Tally())

    assert report.unused == (RecordingSummary(0, "POST", "/a"), RecordingSummary(3, "POST", "/b"))
    assert report.duplicates == (
        (RecordingSummary(1, "POST", "/b"), RecordingSummary(3, "POST", "/b")),
    )


def test_a_report_does_not_change_afterwards() -> None:
    tally = Tally()
    tally.add(served("miss", "/a"))
    report = report_of_index(make_cassette(), tally)
    tally.add(served("miss", "/b"))
    tally.add(served("replayed", usage=USAGE))

    assert (report.missed, report.replayed, report.usage["total_tokens"]) == (1, 0, 0)


def test_a_client_that_goes_on_missing_does_not_fill_the_memory() -> None:
    tally = Tally()
    for number in range(2 * MOST_MISSES):
        entry = served("miss", f"/{number}")
        tally.add(entry._replace(nearest=(NearestRecording(1),), suggestion="x = 1"))
    named = report_of_index(make_cassette(), tally).misses

    assert (named[0].path, len(named)) == ("/0", MOST_MISSES)
    explained = [miss for miss in named if miss.nearest and miss.suggestion]
    assert explained == list(named[:MOST_EXPLAINED_MISSES])


def report_of_attempts(*outcomes: Outcome) -> CassetteReport:
    """The report after the attempts of one call."""
    tally = Tally()
    for at, outcome in enumerate(outcomes):
        tally.add(served(outcome, "/a")._replace(key=b"r\0key", attempt=at + 1))
    return report_of_index(make_cassette(), tally)


@pytest.mark.parametrize(
    ("outcomes", "replayed", "recorded", "live", "misses", "retries"),
    [
        (("replayed",), 1, 0, 0, 0, 0),
        (("replayed", "replayed", "replayed"), 1, 0, 0, 0, 2),
        (("recorded", "recorded"), 0, 1, 0, 0, 1),
        (("live", "live", "recorded"), 0, 1, 0, 0, 2),
        (("error", "recorded"), 0, 1, 0, 0, 1),
        (("error", "error", "error"), 0, 0, 0, 0, 2),
        (("miss", "miss", "miss"), 0, 0, 0, 1, 2),
        (("replayed", "miss"), 0, 0, 0, 1, 1),
        (("miss", "replayed"), 1, 0, 0, 1, 1),
    ],
)
def test_a_call_that_its_sdk_retried_counts_once_as_its_last_attempt(
    outcomes: tuple[Outcome, ...],
    replayed: int,
    recorded: int,
    live: int,
    misses: int,
    retries: int,
) -> None:
    report = report_of_attempts(*outcomes)

    assert (report.replayed, report.recorded, report.live) == (replayed, recorded, live)
    assert report.misses == misses * (MissedCall("GET", "/a", "GET /a"),)
    assert report.retries == retries


def test_requests_without_attempt_numbers_are_each_a_call() -> None:
    tally = Tally()
    for _ in range(2):
        tally.add(served("miss", "/a"))
    report = report_of_index(make_cassette(), tally)

    assert (report.missed, report.retries) == (2, 0)


def report(name: str = "suite/one", **fields: object) -> CassetteReport:
    values: dict[str, object] = {
        "replayed": 0,
        "recorded": 0,
        "live": 0,
        "retries": 0,
        "misses": (),
        "unused": (),
        "duplicates": (),
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }
    return CassetteReport(name, **(values | fields))  # type: ignore[arg-type]


BUSY = report(
    replayed=3,
    recorded=2,
    live=1,
    retries=4,
    misses=(
        MissedCall(
            *(
                "GET",
                "/v1/a?b=<c>&d",
                "replay miss: GET /v1/a is not in it; nearest #2 differs at a",
            ),
            (
                NearestRecording(
                    2, ({"path": "body.a", "recorded": "x\ny", "requested": "`<"}, {"path": "b"}), 4
                ),
            ),
            'ignore = ["body.a"]\nnormalise = ["uuid"]',
            3,
        ),
        MissedCall("POST", '/"x"', 'POST /"x"'),
    ),
    unused=(RecordingSummary(7, "GET", "/v1/z"),),
    usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 1200},
    unmarked=(RecordingSummary(4, "POST", "/v1/chat<"),),
    duplicates=((RecordingSummary(1, "GET", "/v1/y"), RecordingSummary(6, "GET", "/v1/y")),),
    stale=(RecordingSummary(2, "GET", "/v1/a", day="2026-01-31"),),
    saved=Savings(0.0123, (ModelTokens("openai/new", 2, 30, 4),), "list prices of 2026-11-22"),
    redacted_kinds={"authorization": 3, "set-cookie": 2},
    elsewhere=("https://cdn.example",),
)


def test_every_form_counts_failed_calls_by_their_code() -> None:
    down = report("down", failed={"upstream_timeout": 1, "upstream_unreachable": 3})

    assert text_report([down]).splitlines() == [
        "down: 4 failed",
        "  failed: upstream_timeout",
        "  failed: upstream_unreachable (3 times)",
    ]
    assert "| down | 0 | 0 | 0 | 0 | 4 |" in markdown_report([down])
    assert "- `upstream_unreachable (3 times)`" in markdown_report([down])
    assert "failed: upstream_unreachable (3 times)" in junit_report([down])


def test_misses_of_one_cause_share_its_rule() -> None:
    misses = tuple(
        MissedCall("GET", path, f"GET {path} is not in it", suggestion='normalise = ["date"]')
        for path in ("/a", "/b")
    )

    assert text_report([report("one", misses=misses)]).splitlines()[1:] == [
        "  missed: GET /a is not in it",
        "  missed: GET /b is not in it",
        '  2 misses, one cause: a date; rule: normalise = ["date"] in tapeway.toml [rules]',
    ]


def test_text_leaves_out_counts_of_0() -> None:
    assert text_report([BUSY, report("quiet"), report("good", replayed=5)]).splitlines() == [
        "suite/one: 3 replayed, 2 recorded, 1 passed on, 4 missed, 4 retried, 1 unused, 1 stale",
        "  1200 tokens saved, $0.0123 at list prices of 2026-11-22",
        "  no price is known for openai/new: 2 calls, 34 tokens",
        "  5 secrets replaced: authorization 3, set-cookie 2",
        "  missed: GET /v1/a is not in it; nearest #2 differs at a (3 times)",
        '    a: recorded "x\\ny", requested "`<"',
        "    b: recorded nothing, requested nothing",
        "    4 more differences",
        '    rule that would match: ignore = ["body.a"]',
        '    rule that would match: normalise = ["uuid"]',
        '  missed: POST /"x"',
        "  unused: #7 GET /v1/z",
        "  recorded more than once: #1, #6 GET /v1/y",
        "  stale: #2 GET /v1/a, of 2026-01-31",
        "  without its protocol's end mark: #4 POST /v1/chat<",
        "  leads around tapeway: https://cdn.example, which no route leads to: "
        "--route NAME=https://cdn.example",
        "quiet: no requests",
        "good: 5 replayed",
    ]
    assert text_report([]) == "No cassette was used.\n"


def test_markdown_is_a_table_with_the_misses_below() -> None:
    assert markdown_report([BUSY, report("quiet")]).splitlines() == [
        "| cassette | replayed | recorded | live | missed | failed | retries | unused | stale "
        "| tokens saved | saved | secrets replaced |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        "| suite/one | 3 | 2 | 1 | 4 | 0 | 4 | 1 | 1 | 1200 | $0.0123 | 5 |",
        "| quiet | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | unknown | 0 |",
        "",
        "Missed in suite/one:",
        "",
        "- `GET /v1/a is not in it; nearest #2 differs at a (3 times)`",
        '  - `a: recorded "x\\ny", requested "%60<"`',
        "  - `b: recorded nothing, requested nothing`",
        "  - `4 more differences`",
        '  - `rule that would match: ignore = ["body.a"]`',
        '  - `rule that would match: normalise = ["uuid"]`',
        '- `POST /"x"`',
        "",
        "Not used in suite/one:",
        "",
        "- `#7 GET /v1/z`",
        "",
        "Recorded more than once in suite/one:",
        "",
        "- `#1, #6 GET /v1/y`",
        "",
        "Older than they may be in suite/one:",
        "",
        "- `#2 GET /v1/a, of 2026-01-31`",
        "",
        "Streams without their protocol's end mark in suite/one:",
        "",
        "- `#4 POST /v1/chat<`",
        "",
        "Addresses in responses that lead around tapeway in suite/one:",
        "",
        "- `https://cdn.example, which no route leads to: --route NAME=https://cdn.example`",
        "",
        "Saved in suite/one:",
        "",
        "- `1200 tokens saved, $0.0123 at list prices of 2026-11-22`",
        "- `no price is known for openai/new: 2 calls, 34 tokens`",
        "- `5 secrets replaced: authorization 3, set-cookie 2`",
    ]


def test_many_misses_are_counted_and_some_of_them_named() -> None:
    many = report(misses=tuple(MissedCall("GET", f"/{at}", f"GET /{at}") for at in range(50)))

    assert text_report([many]).splitlines()[-1] == "  missed: 30 more"
    assert markdown_report([many]).splitlines()[-1] == "- 30 more"
    assert "GET /49" in junit_report([many])


@pytest.mark.slow
def test_markdown_never_grows_beyond_what_a_job_summary_takes() -> None:
    miss = MissedCall("GET", "/", "x" * 5000 + "é" * 5000)
    long = [report(f"c{number}", misses=(miss,) * 20) for number in range(60)]
    tables = [report(f"{'n' * 900}{number}") for number in range(1500)]

    for reports in (long, tables, [*long, *tables]):
        text = markdown_report(reports, Isolation(network_namespace=False, bypassed=("h:1",)))
        assert 700_000 < len(text.encode()) <= MOST_BYTES
        assert "- `h:1`" in text
        assert text.splitlines()[-1].startswith("This report is cut: ")


def test_junit_has_a_suite_a_cassette_and_a_failure_a_miss() -> None:
    root = ElementTree.fromstring(junit_report([BUSY, report("quiet")]).encode())  # noqa: S314 - our own

    assert [suite.attrib for suite in root] == [
        {
            "name": "tapeway.suite/one",
            "tests": "3",
            "failures": "2",
            "errors": "0",
            "skipped": "0",
        },
        {"name": "tapeway.quiet", "tests": "1", "failures": "0", "errors": "0", "skipped": "0"},
    ]
    assert [case.get("name") for case in root[0].iter("testcase")] == [
        "6 calls answered",
        "GET /v1/a?b=<c>&d",
        'POST /"x"',
    ]
    first, second = root.iter("failure")
    assert [element.get("message") for element in (first, second)] == [
        miss.message for miss in BUSY.misses
    ]
    assert (first.text or "").splitlines() == [
        "3 times",
        'a: recorded "x\\ny", requested "`<"',
        "b: recorded nothing, requested nothing",
        "4 more differences",
        'rule that would match: ignore = ["body.a"]',
        'rule that would match: normalise = ["uuid"]',
    ]
    assert (root[0].findtext("system-out") or "").splitlines() == [
        "4 retried",
        "1200 tokens saved, $0.0123 at list prices of 2026-11-22",
        "no price is known for openai/new: 2 calls, 34 tokens",
        "5 secrets replaced: authorization 3, set-cookie 2",
        "unused: #7 GET /v1/z",
        "recorded more than once: #1, #6 GET /v1/y",
        "stale: #2 GET /v1/a, of 2026-01-31",
        "without its protocol's end mark: #4 POST /v1/chat<",
        "leads around tapeway: https://cdn.example, which no route leads to: "
        "--route NAME=https://cdn.example",
    ]
    assert root[1].find("system-out") is None


def test_a_recording_without_its_end_mark_is_named_once_however_often_it_is_used() -> None:
    tally = Tally()
    for index in (4, 4, 2, 3):
        entry = served("replayed", f"/{index}")
        tally.add(
            entry._replace(answer=entry.answer._replace(interaction=index, unmarked=index != 3))
        )

    found = report_of_index(make_cassette(), tally).unmarked
    assert found == (RecordingSummary(2, "GET", "/2"), RecordingSummary(4, "GET", "/4"))


def test_characters_that_xml_does_not_allow_are_replaced() -> None:
    xml = junit_report([report(misses=(MissedCall("GET", "/", "GET /\0\x1f\ufffe\t"),))])
    root = ElementTree.fromstring(xml.encode())  # noqa: S314 - our own

    assert [element.get("message") for element in root.iter("failure")] == [
        "GET /\ufffd\ufffd\ufffd\t"
    ]


@given(st.lists(st.text(), max_size=4), st.text())
def test_every_form_can_be_written_of_any_target(misses: list[str], name: str) -> None:
    missed = tuple(
        MissedCall(
            miss, miss, miss, (NearestRecording(0, ({"path": miss, "recorded": miss},)),), miss
        )
        for miss in misses
    )
    found = report(misses=missed, unused=(RecordingSummary(0, "GET", name),))

    ElementTree.fromstring(junit_report([found]).encode())  # noqa: S314 - our own
    assert text_report([found]).encode()
    assert markdown_report([found]).encode()


@pytest.mark.parametrize("namespace", [True, False])
def test_what_kept_a_command_offline_and_what_it_asked_for_is_in_every_form(
    namespace: bool,
) -> None:
    isolation = Isolation(namespace, ("api.openai.com:443", "a`b:80"))

    text = text_report([BUSY], isolation)
    markdown = markdown_report([BUSY], isolation)
    root = ElementTree.fromstring(junit_report([BUSY], isolation).encode())  # noqa: S314 - our own

    assert text.endswith(f"{isolation.text}\n  bypassed: api.openai.com:443\n  bypassed: a`b:80\n")
    assert markdown.endswith(
        f"{isolation.text}.\n\nBypassed the proxy:\n\n- `api.openai.com:443`\n- `a%60b:80`\n"
    )
    assert [element.get("name") for element in root[-1].iter("testcase")] == [
        *(isolation.text, "api.openai.com:443", "a`b:80")
    ]
    assert root[-1].get("failures") == "2"
    assert ("namespace" in isolation.text) == namespace
