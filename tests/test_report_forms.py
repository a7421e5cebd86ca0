"""A report as people and build servers read it."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from tapeway.engine.report import CassetteReport, Item, junit, markdown, text


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
    misses=("GET /v1/a?b=<c>&d", 'POST /"x"'),
    unused=(Item(7, "GET", "/v1/z"),),
    usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 1200},
)


def test_text_names_what_counts_and_leaves_out_what_is_nothing() -> None:
    assert text([BUSY, report("quiet"), report("good", replayed=5)]).splitlines() == [
        "suite/one: 3 replayed, 2 recorded, 1 passed on, 2 missed, 4 retried, 1 unused",
        "  1200 tokens not paid for",
        "  missed: GET /v1/a?b=<c>&d",
        '  missed: POST /"x"',
        "  unused: #7 GET /v1/z",
        "quiet: nothing asked",
        "good: 5 replayed",
    ]
    assert text([]) == "No cassette was used.\n"


def test_markdown_is_a_table_with_the_misses_below() -> None:
    assert markdown([BUSY, report("quiet")]).splitlines() == [
        "| cassette | replayed | recorded | live | missed | retries | unused | tokens saved |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        "| suite/one | 3 | 2 | 1 | 2 | 4 | 1 | 1200 |",
        "| quiet | 0 | 0 | 0 | 0 | 0 | 0 | 0 |",
        "",
        "Missed in suite/one:",
        "",
        "- `GET /v1/a?b=<c>&d`",
        '- `POST /"x"`',
    ]


def test_many_misses_are_counted_and_some_of_them_named() -> None:
    many = report(misses=tuple(f"GET /{at}" for at in range(50)))

    assert text([many]).splitlines()[-1] == "  missed: 30 more"
    assert markdown([many]).splitlines()[-1] == "- 30 more"
    assert "GET /49" in junit([many])


def test_junit_has_a_suite_a_cassette_and_a_failure_a_miss() -> None:
    root = ElementTree.fromstring(junit([BUSY, report("quiet")]).encode())  # noqa: S314 - our own

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
    assert [case.get("name") for case in root[0]] == [
        "6 calls answered",
        "GET /v1/a?b=<c>&d",
        'POST /"x"',
    ]
    assert [failure.get("message") for failure in root.iter("failure")] == list(BUSY.misses)


@given(st.lists(st.text(), max_size=4), st.text())
def test_whatever_was_asked_for_every_form_can_be_written(misses: list[str], name: str) -> None:
    found = report(misses=tuple(misses), unused=(Item(0, "GET", name),))

    ElementTree.fromstring(junit([found]).encode())  # noqa: S314 - our own
    assert text([found]).encode()
    assert markdown([found]).encode()
