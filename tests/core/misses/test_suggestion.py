"""A suggested rule makes the keys equal and no more."""

import tomllib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json
from tapeway.core.matching.rules import NO_RULES, Rules, merged_rules, parse_rules
from tapeway.core.misses.suggestion import matches, rules_text, suggestion
from tapeway.core.model.messages import Request
from tests.core.requests import asked, chat

UUID = "3f2b1c9e-8a57-4d3c-9e21-0b6f4c5d7e8"
TEMPORARY = "/tmp/tmp"  # noqa: S108 - compared, not opened


def suggested(recorded: Request, requested: Request, rules: Rules = NO_RULES) -> str | None:
    found = suggestion(recorded, requested, rules)
    return None if found is None else rules_text(found)


def turns(*messages: dict[str, Json]) -> dict[str, Json]:
    return {"messages": list(messages)}


@pytest.mark.parametrize(
    ("recorded", "requested", "expected"),
    [
        (chat("a", temperature=0.5), chat("a", temperature=0.7), ["body.temperature"]),
        (chat("a"), chat("a", stream=True), ["body.stream"]),
        (chat("a", n=1), chat("a"), ["body.n"]),
        (chat("a", **{"odd key": 1}), chat("a"), ['body["odd key"]']),
        ({"a": {}}, {"a": []}, ["body.a"]),
        (
            turns({"id": "m1", "content": "a"}, {"id": "m2", "content": "b"}),
            turns({"id": "m3", "content": "a"}, {"id": "m4", "content": "b"}),
            ["body.messages[*].id"],
        ),
        (
            turns({"id": "m1", "content": "a"}, {"content": "b"}),
            turns({"id": "m3", "content": "a"}, {"content": "b"}),
            ["body.messages[0].id"],
        ),
        (
            turns({"name": "a1"}, {"name": "b2"}),
            turns({"name": "c3"}, {"name": "d4"}),
            ["body.messages[0].name", "body.messages[1].name"],
        ),
        (
            turns({"note": "so long"}, {"note": "farewell then"}),
            turns({"note": "good day"}, {"note": "hello again"}),
            ["body.messages[0].note", "body.messages[1].note"],
        ),
    ],
)
def test_a_difference_is_ignored_by_its_path(
    recorded: Json, requested: Json, expected: list[str]
) -> None:
    found = suggestion(asked(recorded), asked(requested), NO_RULES)

    assert found == Rules(ignore=tuple(expected))


@pytest.mark.parametrize(
    ("recorded", "requested", "expected"),
    [
        (f"job {UUID}1", f"job {UUID}2", 'normalise = ["uuid"]'),
        ("at 2026-11-22T10:00:00Z", "at 2026-11-23T11:00:00Z", 'normalise = ["iso8601"]'),
        (1795312835, 1795312999, 'normalise = ["epoch"]'),
        (f"{TEMPORARY}a1b2c3/x", f"{TEMPORARY}d4e5f6/x", 'normalise = ["tmp_path"]'),
        (
            f"{UUID}1 on 2026-11-22T10:00:00Z",
            f"{UUID}2 on 2026-11-23T11:00:00Z",
            'normalise = ["uuid", "iso8601"]',
        ),
        (
            f"in {TEMPORARY}a1b2c3 on day 3",
            f"in {TEMPORARY}d4e5f6 on day 3",
            'normalise = ["tmp_path"]',
        ),
    ],
)
def test_a_value_of_a_known_form_is_normalised(
    recorded: Json, requested: Json, expected: str
) -> None:
    bodies = [turns({"content": content}) for content in (recorded, requested)]

    assert suggested(asked(bodies[0]), asked(bodies[1])) == expected


@pytest.mark.parametrize(
    ("recorded", "requested", "pattern"),
    [
        (
            "build ABC-0123456 of it",
            "build ABC-6543210 of it",
            '{ "abc" = "\\\\bABC\\\\-[0-9]{7}" }',
        ),
        ("in lot_a1b2c3d4.", "in lot_e5f6a7b8c9.", '{ "lot" = "\\\\blot_[0-9a-f]{6,}" }'),
        ("see x1y2z3w4", "see a9b8c7d6", '{ "id" = "\\\\b[0-9A-Za-z]{8}" }'),
        (
            f"job {UUID}1 of lot-0a1b2c3",
            f"job {UUID}2 of lot-4d5e6f7",
            '{ "lot" = "\\\\blot\\\\-[0-9a-f]{7}" }',
        ),
    ],
)
def test_an_opaque_value_in_a_prompt_gets_a_pattern(
    recorded: str, requested: str, pattern: str
) -> None:
    requests = asked(chat(recorded)), asked(chat(requested))
    text = suggested(*requests)

    assert text is not None
    assert f"patterns = {pattern}" in text
    pasted = parse_rules(tomllib.loads(text))
    assert matches(*requests, pasted)
    assert not matches(asked(chat(f"{recorded} now")), requests[1], pasted)


@pytest.mark.parametrize(
    "prompts",
    [
        ("one word", "two words"),
        ("one spider", "one beetle"),
        ("1", "2"),
        ("order 1234 please", "order 4321 please"),
        ("ask gpt-4o", "ask gpt-4.1"),
        ("in 2025", "in 2026"),
        (f"job {UUID}1", f"task {UUID}2"),
        ("in /home/ann/shop", "in /home/bob/shop"),
        ("", "hello"),
    ],
)
@pytest.mark.parametrize(
    "body",
    [
        lambda text: {"prompt": text},
        lambda text: {"input": text},
        lambda text: {"instructions": text, "input": [{"id": "a"}]},
        lambda text: {"system": [{"type": "text", "text": text}]},
        lambda text: {"contents": [{"parts": [{"text": text}]}]},
        lambda text: chat(text),
        lambda text: {"tools": [{"function": {"description": text}}]},
        lambda text: {"messages": [{"tool_calls": [{"function": {"arguments": text}}]}]},
    ],
)
def test_to_ignore_a_prompt_is_never_suggested(
    prompts: tuple[str, str], body: Callable[[str], Json]
) -> None:
    recorded, requested = map(body, prompts)

    assert suggested(asked(recorded), asked(requested)) is None


def test_the_preset_that_explains_all_of_a_difference_is_suggested() -> None:
    system = "Be brief.\n - Primary working directory: {}\n - Platform: linux\n"
    here, there, other = [
        asked({**chat(prompt), "system": system.format(folder)})
        for folder, prompt in (("/home/ann", "hi"), ("/home/bob", "hi"), ("/home/bob", "ho"))
    ]

    assert suggested(here, there) == 'presets = ["claude-code"]'
    assert suggested(here, other) is None


def test_normalise_and_ignore_are_suggested_together() -> None:
    recorded = asked({"run": f"{UUID}1", "temperature": 1})
    requested = asked({"run": f"{UUID}2", "temperature": 2})

    assert suggested(recorded, requested) == 'ignore = ["body.temperature"]\nnormalise = ["uuid"]'


@pytest.mark.parametrize(
    ("recorded", "requested", "expected"),
    [
        ("/v1/models/m", "/v1beta/models/m", 'rewrite = { "/v1beta/" = "/v1/" }'),
        ("/a/v2/b", "/a/v1/b", 'rewrite = { "/v1/" = "/v2/" }'),
        ("/v1/b", "/b", 'rewrite = { "/v1/" = "/" }'),
        ("/b", "/v1/b", 'rewrite = { "/v1/" = "/" }'),
        (
            "/2024-05-01/b",
            "/2024-09-01-preview/b",
            'rewrite = { "/2024-09-01-preview/" = "/2024-05-01/" }',
        ),
        ("/v1/models/one", "/v1/models/two", None),
        ("/v1/a", "/v2/b", None),
        ("/b/v1", "/b/v2", None),
        ("/v1/b?page=1", "/v2/b?page=2", 'ignore = ["query.page"]\nrewrite = { "/v2/" = "/v1/" }'),
    ],
)
def test_another_version_in_the_path_is_rewritten(
    recorded: str, requested: str, expected: str | None
) -> None:
    requests = [asked(chat("a"), target=target) for target in (recorded, requested)]

    assert suggested(requests[0], requests[1]) == expected


def test_nothing_is_suggested_where_no_rule_could_help() -> None:
    here = asked(chat("a"))

    assert suggested(here, here) is None
    assert suggested(here, asked(chat("a"), route="groq")) is None
    assert suggested(here, asked(chat("a"), method="PUT")) is None
    assert suggested(here, asked(chat("a", "b"))) is None
    assert suggested(asked(chat("b", "c")), asked(chat("a", "b", "c"))) is None


def test_nothing_is_suggested_for_requests_that_differ_in_many_places() -> None:
    recorded = asked({f"field-{number}": "one thing" for number in range(13)})
    requested = asked({f"field-{number}": "another" for number in range(13)})

    assert suggested(recorded, requested) is None


def test_ignoring_a_whole_body_is_never_suggested() -> None:
    one, other = [
        Request("openai", "POST", "/v1/x", ((b"content-type", b"text/plain"),), body)
        for body in (b"good morning", b"good evening")
    ]

    assert suggested(one, other) is None
    assert suggested(asked(chat("a")), asked(1)) is None


def test_rules_in_force_are_not_suggested_again() -> None:
    rules = Rules(ignore=("body.user",), normalise=("uuid",))
    recorded = asked(chat(f"{UUID}1", user="a", n=1))
    requested = asked(chat(f"{UUID}2", user="b", n=2))

    assert suggested(recorded, requested, rules) == 'ignore = ["body.n"]'


LEAVES: st.SearchStrategy[Json] = st.sampled_from(
    [None, True, 1, 2, 0.5, "a b", "c1", "d2", f"{UUID}1", f"{UUID}2", "2026-11-22", "\x7f", "ü"]
)
BODIES: st.SearchStrategy[Json] = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "content", "odd key", "\x7f", "*"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(BODIES, BODIES, st.sampled_from(["/v1/x", "/v2/x", "/x"]))
def test_a_suggestion_can_be_pasted_and_makes_the_keys_equal(
    recorded: Json, requested: Json, target: str
) -> None:
    requests = asked({"a": recorded}), asked({"a": requested}, target=target)
    text = suggested(*requests)

    if text is not None:
        pasted = parse_rules(tomllib.loads(text))
        assert not matches(*requests, NO_RULES)
        assert matches(*requests, merged_rules(NO_RULES, pasted))


OBJECTS: st.SearchStrategy[Json] = st.dictionaries(
    st.sampled_from(["id", "name", "odd key", "*"]), LEAVES, max_size=3
)


@given(OBJECTS, OBJECTS)
def test_fields_that_differ_can_always_be_ignored(recorded: Json, requested: Json) -> None:
    requests = asked({"a": recorded}), asked({"a": requested})

    assert (suggested(*requests) is None) == matches(*requests, NO_RULES)
