"""Differences between two documents: found where a person would point, and no others."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json, dump, same_json
from tapeway.core.misses.differences import ABSENT, Difference, difference_document, differences

LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


def message(text: str) -> Json:
    return {"role": "user", "content": text}


def places(recorded: Json, requested: Json) -> list[str]:
    return [difference.path for difference in differences(recorded, requested, 100)]


@given(DOCUMENTS, DOCUMENTS)
def test_only_equal_documents_have_no_difference(recorded: Json, requested: Json) -> None:
    assert (differences(recorded, requested, 100) == ()) == same_json(recorded, requested)
    assert differences(recorded, copy.deepcopy(recorded), 100) == ()


@given(st.lists(DOCUMENTS, max_size=6), DOCUMENTS, st.data())
def test_one_inserted_element_is_one_difference(
    held: list[Json], new: Json, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(held)))

    found = differences(list(held), [*held[:at], new, *held[at:]], 100)

    assert len(found) == 1
    assert found[0].recorded is ABSENT
    assert found[0].requested == new


@given(DOCUMENTS, DOCUMENTS)
def test_what_is_shown_is_json(recorded: Json, requested: Json) -> None:
    for difference in differences(recorded, requested, 100):
        assert dump(difference_document(difference))


@pytest.mark.parametrize(
    ("recorded", "requested", "expected"),
    [
        ({"a": 1}, {"a": 2}, ["a"]),
        ({"a": 1}, {"a": True}, ["a"]),
        ({"a": None}, {}, ["a"]),
        ({}, {"a": None}, ["a"]),
        ({"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}]}}, ["a.b[1].c"]),
        ({"a": [1]}, {"a": {"0": 1}}, ["a"]),
        ({"odd key": 1, "": 1, 'a"b': 1, "ü": 1}, {}, ['["odd key"]', '[""]', '["a\\"b"]', "ü"]),
        ({"a": {"odd key": 1}}, {"a": {"odd key": 2}}, ['a["odd key"]']),
        ([1, 2, 3], [2, 3], ["[0]"]),
        ([1, 2, 3], [1, 9, 3], ["[1]"]),
        ([1, 2, 3, 4], [2, 3, 4, 5], ["[0]", "[3]"]),
        ([1, 2], [9, 8, 7], ["[0]", "[1]", "[2]"]),
    ],
)
def test_a_path_is_written_as_a_rule_writes_it(
    recorded: Json, requested: Json, expected: list[str]
) -> None:
    assert places(recorded, requested) == expected


def test_an_inserted_message_does_not_make_the_later_ones_differ() -> None:
    one, two, three = (message(word) for word in ("one", "two", "three"))

    found = differences({"messages": [one, three]}, {"messages": [one, two, three]}, 100)

    assert found == (Difference(("messages", 1), ABSENT, two),)


def test_a_changed_message_beside_an_inserted_one_is_named_where_it_changed() -> None:
    recorded = [message(word) for word in ("a", "b", "c")]
    requested = [message(word) for word in ("a", "b!", "c", "d")]

    assert places(recorded, requested) == ["[1].content", "[3]"]


def test_long_lists_with_nothing_in_common_are_compared_position_by_position() -> None:
    recorded: Json = [{"a": number} for number in range(2000)]
    requested: Json = [{"a": number} for number in range(2000, 4000)]

    assert places(recorded, requested)[:2] == ["[0].a", "[1].a"]
    assert len(places(recorded, requested)) == 100


def test_no_more_differences_are_looked_for_than_asked() -> None:
    assert len(differences(list(range(50)), list(range(50, 100)), 3)) == 3


def test_a_missing_value_differs_from_null() -> None:
    (null,) = differences({"a": None}, {"a": 1}, 9)
    (absent,) = differences({}, {"a": 1}, 9)

    assert difference_document(null) == {"path": "a", "recorded": None, "requested": 1}
    assert difference_document(absent) == {"path": "a", "requested": 1}


def test_long_texts_are_shown_around_where_they_differ() -> None:
    (found,) = differences("x" * 5000 + "old" + "y" * 5000, "x" * 5000 + "new" + "y" * 5000, 9)

    recorded, requested = (
        difference_document(found)["recorded"],
        difference_document(found)["requested"],
    )
    assert isinstance(recorded, str)
    assert isinstance(requested, str)
    assert recorded == "…" + "x" * 40 + "old" + "y" * 117 + "…"
    assert requested == recorded.replace("old", "new")


def test_of_large_values_the_beginning_is_shown() -> None:
    (found,) = differences({}, {"tools": [{"name": "x" * 500}]}, 9)

    assert difference_document(found)["requested"] == '[{"name": "' + "x" * 149 + "…"


def test_octets_that_are_no_text_are_escaped() -> None:
    odd = b"caf\xe9".decode("utf-8", "surrogateescape")

    pairs: list[tuple[Json, Json]] = [(odd, "b"), ({}, {odd: [odd]}), ({"a": 1}, {"a": [odd]})]
    for recorded, requested in pairs:
        (found,) = differences(recorded, requested, 9)
        assert b"caf\\\\udce9" in dump(difference_document(found))
