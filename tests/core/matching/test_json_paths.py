"""Paths: what is written is what is read, and each leads where it says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json
from tapeway.core.matching import json_paths
from tapeway.core.matching.json_paths import ANY_DEPTH, ONE, Having, Path, PathFault

STEPS = st.one_of(
    st.text(),
    st.integers(0, 999_999_999),
    st.sampled_from([ONE, ANY_DEPTH, Having("role", "system")]),
)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("body", ("body",)),
        ("body.messages[2].content", ("body", "messages", 2, "content")),
        ("body.messages[*].id", ("body", "messages", ONE, "id")),
        ("body.*.id", ("body", ONE, "id")),
        ("body.**.id", ("body", ANY_DEPTH, "id")),
        ("**.id", (ANY_DEPTH, "id")),
        ('query["odd key"]', ("query", "odd key")),
        ('body["a.b"].c', ("body", "a.b", "c")),
        ('body["*"]', ("body", "*")),
        (r'body["say \"hi\""]', ("body", 'say "hi"')),
        ("headers.anthropic-beta", ("headers", "anthropic-beta")),
        ("body[0][1]", ("body", 0, 1)),
        ("body.0", ("body", "0")),
        ("body.größe", ("body", "größe")),
        ("body.messages[role=system].id", ("body", "messages", Having("role", "system"), "id")),
        ('body["role=system"]', ("body", "role=system")),
    ],
)
def test_a_path_is_parsed_into_steps(text: str, path: Path) -> None:
    assert json_paths.parse_path(text) == path


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".a",
        "a.",
        "a..b",
        "a[",
        "a[x]",
        "a[-1]",
        "a***",
        "*a",
        "a.[1]",
        "a[b=]",
        "a[=b]",
        "a[b=c d]",
        'a["b]',
        " a",
    ],
)
def test_a_malformed_path_is_refused(text: str) -> None:
    with pytest.raises(PathFault):
        json_paths.parse_path(text)


@given(st.lists(STEPS, min_size=1).map(tuple))
def test_a_written_path_is_read_back(path: Path) -> None:
    assert json_paths.parse_path(json_paths.path_text(path)) == path


MESSAGES: list[Json] = [
    {"id": 2, "text": "a"},
    {"id": 3, "text": "b", "more": {"id": 4}},
]
DOCUMENT: Json = {
    "id": 1,
    "messages": MESSAGES,
    "0": "zero",
}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("id", {"messages": MESSAGES, "0": "zero"}),
        (
            "messages[*].id",
            {"id": 1, "messages": [{"text": "a"}, {"text": "b", "more": {"id": 4}}], "0": "zero"},
        ),
        ("**.id", {"messages": [{"text": "a"}, {"text": "b", "more": {}}], "0": "zero"}),
        ("messages[0]", {"id": 1, "messages": [MESSAGES[1]], "0": "zero"}),
        ("messages[text=a]", {"id": 1, "messages": [MESSAGES[1]], "0": "zero"}),
        ("messages[text=c]", DOCUMENT),
        ("messages[id=2]", DOCUMENT),
        ("messages[0].id.x", DOCUMENT),
        ("absent[3]", DOCUMENT),
        ("0", {"id": 1, "messages": MESSAGES}),
        ("[0]", DOCUMENT),
        ("*", {}),
    ],
)
def test_what_a_path_leads_to_is_removed(text: str, left: Json) -> None:
    assert json_paths.without_paths(DOCUMENT, [json_paths.parse_path(text)]) == left


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("id", ["1"]),
        ("messages[*].text", ["a", "b"]),
        ("messages[1].more.id", ["4"]),
        ("**.id", ["1", "2", "3", "4"]),
        ("messages", []),
        ("absent[3]", []),
    ],
)
def test_the_texts_are_found_that_a_path_leads_to(text: str, texts: list[str]) -> None:
    assert list(json_paths.texts_at(DOCUMENT, json_paths.parse_path(text))) == texts


def test_indexes_count_in_the_given_value() -> None:
    paths = [json_paths.parse_path("[0]"), json_paths.parse_path("[1]")]

    assert json_paths.without_paths(["a", "b", "c"], paths) == ["c"]


def test_the_given_value_is_not_changed() -> None:
    value: Json = {"a": [{"b": 1}]}

    json_paths.without_paths(value, [json_paths.parse_path("a[0].b")])

    assert value == {"a": [{"b": 1}]}


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        ("a", {"a": "!", "b": [{"a": 2}, [3]]}),
        ("b[0].a", {"a": 1, "b": [{"a": "!"}, [3]]}),
        ("b[*]", {"a": 1, "b": ["!", "!"]}),
        ("*", {"a": "!", "b": "!"}),
        ("b[7]", {"a": 1, "b": [{"a": 2}, [3]]}),
        ("a.a", {"a": 1, "b": [{"a": 2}, [3]]}),
        ("**.a", {"a": "!", "b": [{"a": "!"}, [3]]}),
    ],
)
def test_what_a_path_leads_to_is_changed(path: str, changed: Json) -> None:
    value: Json = {"a": 1, "b": [{"a": 2}, [3]]}

    assert json_paths.changed_at(value, json_paths.parse_path(path), lambda _: "!") == changed
    assert value == {"a": 1, "b": [{"a": 2}, [3]]}


@pytest.mark.parametrize(
    ("rule", "place", "covered"),
    [
        ("body.id", ("body", "id"), True),
        ("body.id", ("body", "id", "deep", 3), True),
        ("body.id.deep", ("body", "id"), False),
        ("body.messages[*].id", ("body", "messages", 7, "id"), True),
        ("body.messages[*].id", ("body", "messages", 7, "name"), False),
        ("body.**.id", ("body", "a", 1, "b", "id"), True),
        ("body.**.id", ("query", "id"), False),
    ],
)
def test_a_rule_covers_a_place_it_leads_to(
    rule: str, place: tuple[str | int, ...], covered: bool
) -> None:
    value: Json = "leaf"
    for step in reversed(place):
        value = {step: value} if isinstance(step, str) else [*range(step), value]

    left = json_paths.without_paths(value, [json_paths.parse_path(rule)])

    assert (left != value) is covered
