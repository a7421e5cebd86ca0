import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.testing.reply import PendingTurn, Tool, pieces, reply_to, sample, slices, vector
from tapeway.testing.request import StandInRequest

CALL = StandInRequest("POST", "/v1/chat/completions", json={"model": "gpt-4o"})
CITY = Tool("weather", {"type": "object", "properties": {"city": {"type": "string"}}})
ZONE = Tool("time", {"type": "object", "properties": {"hours": {"type": "integer"}}})


def test_the_answer_repeats_the_prompt_and_leaves_ascii() -> None:
    text = reply_to(CALL, PendingTurn("hello")).text

    assert "hello" in text
    assert not text.isascii()


def test_equal_turns_get_equal_words() -> None:
    assert reply_to(CALL, PendingTurn("hello")) == reply_to(CALL, PendingTurn("hello"))


def test_tools_are_asked_for_one_after_the_other_then_their_results_are_told() -> None:
    turns = [PendingTurn("Rome", (CITY, ZONE), results) for results in [(), ("21",), ("21", "9h")]]
    first, second, last = (reply_to(CALL, turn) for turn in turns)

    assert [(call.name, call.arguments) for call in first.calls] == [("weather", {"city": "Rome"})]
    assert [(call.name, call.arguments) for call in second.calls] == [("time", {"hours": 4})]
    assert "21; 9h" in last.text
    assert not last.calls


def test_a_prompt_that_says_at_once_gets_all_tool_calls_in_one_turn() -> None:
    prompt = "Rome, at once"
    first = reply_to(CALL, PendingTurn(prompt, (CITY, ZONE)))
    last = reply_to(CALL, PendingTurn(prompt, (CITY, ZONE), ("21",)))

    assert [call.name for call in first.calls] == ["weather", "time"]
    assert not last.calls


def test_the_model_named_reflect_repeats_the_key() -> None:
    call = StandInRequest(
        "POST", "/v1/messages", headers={"x-api-key": "sk-mine"}, json={"model": "reflect"}
    )

    assert "sk-mine" in reply_to(call, PendingTurn("hello", (CITY,))).text


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "abc"),
        ({"type": "STRING"}, "abc"),
        ({"type": "integer"}, 3),
        ({"type": "number"}, 3.5),
        ({"type": "boolean"}, True),
        ({"type": "null"}, None),
        ({"type": "array", "items": {"type": "integer"}}, [3]),
        ({"type": "object", "properties": {"a": {"type": "boolean"}}}, {"a": True}),
        ({"type": "object"}, {}),
        ({"enum": ["red", "blue"]}, "red"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 3),
        (None, "abc"),
    ],
)
def test_a_sample_fits_its_schema(schema: object, value: object) -> None:
    assert sample(schema, "abc") == value


@given(st.text())
def test_pieces_and_slices_lose_nothing(text: str) -> None:
    assert "".join(pieces(text)) == text
    assert "".join(slices(text)) == text


def test_a_vector_survives_thirty_two_bit_floats() -> None:
    numbers = vector("hello", 64)

    assert list(struct.unpack("<64f", struct.pack("<64f", *numbers))) == numbers
    assert numbers != vector("hullo", 64)
