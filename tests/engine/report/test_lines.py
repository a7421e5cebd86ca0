"""Misses by their causes: what counts as one, and how it is named."""

from typing import Any

import pytest

from tapeway.core.misses.miss import NearestRecording
from tapeway.engine.journal import MissedCall
from tapeway.engine.report.lines import causes, listed, shared_causes

ABSENT = "replay miss: {} {}: there is no cassette 'x'; record it with --mode auto"


def missed(path: str = "/v1/a", rule: str | None = None, **more: Any) -> MissedCall:
    return MissedCall(
        "POST",
        path,
        f"replay miss: POST {path.partition('?')[0]} is not in it",
        suggestion=rule,
        **more,
    )


def differing(*paths: str, requested: str = "b") -> tuple[NearestRecording, ...]:
    found = [{"path": path, "recorded": "a", "requested": requested} for path in paths]
    return (NearestRecording(0, tuple(found)),)


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ('normalise = ["date"]', "a date"),
        ('normalise = ["uuid", "epoch"]', "a UUID and a time"),
        ('normalise = ["port"]', "port"),
        ('ignore = ["body.seed", "query.t"]', "seed and query.t"),
        ('patterns = { "id" = "id-[0-9]+" }', "text of the form id"),
        ('ignore_vary = ["accept"]', "the header accept"),
        ('rewrite = { "/v2/" = "/v1/" }', "/v2/ in place of /v1/"),
        ('presets = ["codex"]', "what codex says of its surroundings"),
        ("no TOML", "no TOML"),
    ],
)
def test_a_rule_names_the_cause_that_it_ends(rule: str, named: str) -> None:
    (cause,) = causes([missed("/a", rule, times=4), missed("/b", rule)])

    assert cause.line == f"5 misses, one cause: {named}; rule: {rule} in tapeway.toml [rules]"


def test_rules_of_several_lines_are_named_in_one() -> None:
    (cause,) = causes([missed(rule='ignore = ["body.a"]\nnormalise = ["date"]')])

    assert cause.line == (
        '1 miss: a date and a; rule: ignore = ["body.a"], normalise = ["date"] '
        "in tapeway.toml [rules]"
    )


def test_requests_that_differ_in_the_same_way_have_one_cause() -> None:
    same = [missed(path, nearest=differing("body.model", "body.x")) for path in ("/a", "/b")]
    other = missed("/c", nearest=differing("body.model", requested="c"))

    assert [cause.line for cause in causes([other, *same])] == [
        "2 misses, one cause: model: a → b",
        "1 miss: model: a → c",
    ]


def test_other_requests_have_causes_of_their_own() -> None:
    assert [cause.line for cause in causes([missed("/a?b=1"), missed("/c", times=2)])] == [
        "2 misses, one cause: POST /c is not in it",
        "1 miss: POST /a?b=1 is not in it",
    ]


def test_all_requests_to_a_cassette_that_does_not_exist_are_listed_once() -> None:
    calls = [("GET", "/a", 1), ("POST", "/b", 2), ("GET", "/a", 4)]
    misses = [
        MissedCall(method, path, ABSENT.format(method, path), times=times)
        for method, path, times in calls
    ]

    (first, other) = listed([missed(), *misses])
    assert (first.message, first.times) == (ABSENT.format("GET", "/a"), 7)
    assert other == missed()
    assert shared_causes(misses) == []
    (cause,) = causes(misses)
    assert cause.line == "7 misses, one cause: there is no cassette 'x'"
