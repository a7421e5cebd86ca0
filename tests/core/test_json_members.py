"""Members of a JSON object are changed in its text, and nothing else is."""

import json
import random

import pytest

from tapeway.core.json_members import (
    elements,
    member_text,
    with_elements,
    with_member,
    without_members,
)


@pytest.mark.parametrize(
    ("before", "names", "after"),
    [
        (b'{"a": 1, "b": 2, "c": 3}', ("b",), b'{"a": 1, "c": 3}'),
        (b'{"a": 1, "b": 2, "c": 3}', ("a",), b'{"b": 2, "c": 3}'),
        (b'{"a": 1, "b": 2, "c": 3}', ("c",), b'{"a": 1, "b": 2}'),
        (b'{"a": 1, "b": 2, "c": 3}', ("a", "c"), b'{"b": 2}'),
        (b'{ "a" : 1 }', ("a",), b"{}"),
        (b'{"x": {"a": 1}, "a": "\\"a\\""}', ("a",), b'{"x": {"a": 1}}'),
        (b'{"\\u0061": 1, "b": 2}', ("a",), b'{"b": 2}'),
        (b'{"a": 1, "a": 2, "b": 3}', ("a",), b'{"b": 3}'),
        (b'{"n": 123456789012345678901234567890.10, "a": 1}', ("a",), None),
        (b'["a"]', ("a",), b'["a"]'),
        (b'"a"', ("a",), b'"a"'),
    ],
)
def test_members_are_taken_out(before: bytes, names: tuple[str, ...], after: bytes | None) -> None:
    if after is None:
        after = before.replace(b', "a": 1', b"")
    assert without_members(before, names) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"id": 1, "r": {"id": 1}}', b'{"id": "x", "r": {"id": 1}}'),
        (b'{"r":2}', b'{"id":"x","r":2}'),
        (b"{}", b'{"id":"x"}'),
        (b" { } ", b' {"id":"x" } '),
        (b"[1]", b"[1]"),
    ],
)
def test_a_member_is_written(before: bytes, after: bytes) -> None:
    assert with_member(before, "id", b'"x"') == after


def test_a_value_is_read_as_it_is_written() -> None:
    assert member_text(b'{"id": 1.0, "a": {"id": 2}}', "id") == b"1.0"
    assert member_text(b'{"a": {"id": 2}}', "id") is None
    assert member_text(b"[1]", "id") is None


def test_elements_are_changed_one_by_one() -> None:
    text = b' [ {"a": [1, 2]},\n 3 ,"x"]'
    assert elements(text) == [b'{"a": [1, 2]}', b"3", b'"x"']
    assert with_elements(text, lambda element: b"<" + element + b">") == (
        b' [ <{"a": [1, 2]}>,\n <3> ,<"x">]'
    )
    assert elements(b"[]") == []
    assert elements(b"[1,") is None
    assert elements(b"\xff") is None


def test_deep_nesting_changes_nothing() -> None:
    deep = b'{"a": 1, "x": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    assert without_members(deep, ("a",)) in (deep, deep.replace(b'"a": 1, ', b""))


def test_any_object_keeps_what_is_not_named() -> None:
    draw = random.Random(43)
    for _ in range(500):
        names = [draw.choice('abcdé"\\') for _ in range(draw.randrange(5))]
        value = {name: draw.choice([1, "a", None, {"a": [1]}, [{"b": "}"}]]) for name in names}
        text = json.dumps(
            value, indent=draw.choice([None, 1, 4]), ensure_ascii=draw.random() < 0.5
        ).encode()
        gone = draw.choice("abcd")
        assert json.loads(without_members(text, (gone,))) == {
            name: member for name, member in value.items() if name != gone
        }
        assert json.loads(with_member(text, gone, b"[7]")) == value | {gone: [7]}


@pytest.mark.parametrize("data", [b'{"a": "\xff", "b": 1}', b'{"a": 1', b'[{"a": "\xff"}]'])
def test_what_is_no_json_stays_as_it_is(data: bytes) -> None:
    assert without_members(data, ("a",)) == data
    assert with_member(data, "a", b"2") == data
    assert with_elements(data, lambda _: b"x") == data
    assert member_text(data, "a") is None
