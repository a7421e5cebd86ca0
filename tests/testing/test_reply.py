"""The replies of the simulated model, and that a tool's result belongs to the call whose id it names."""

import struct

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.testing import StandIn
from tapeway.testing.reply import (
    Conversation,
    InvalidToolResult,
    PendingTurn,
    Tool,
    pieces,
    reply_to,
    sample,
    slices,
    vector,
)
from tapeway.testing.request import StandInRequest
from tests.testing.wires import post

CALL = StandInRequest("POST", "/v1/chat/completions", json={"model": "gpt-4o"})
CITY = Tool("weather", {"type": "object", "properties": {"city": {"type": "string"}}})
ZONE = Tool("time", {"type": "object", "properties": {"hours": {"type": "integer"}}})
SCHEMA = {"type": "object", "properties": {}}
CHAT_TOOLS = [{"type": "function", "function": {"name": n, "parameters": SCHEMA}} for n in "ab"]
MESSAGE_TOOLS = [{"name": name, "input_schema": SCHEMA} for name in "ab"]


def test_the_answer_repeats_the_prompt_and_leaves_ascii() -> None:
    text = reply_to(CALL, PendingTurn("hello")).text

    assert "hello" in text
    assert not text.isascii()


def test_equal_turns_get_equal_words() -> None:
    assert reply_to(CALL, PendingTurn("hello")) == reply_to(CALL, PendingTurn("hello"))


def test_tools_are_called_one_after_the_other_then_their_results_are_repeated() -> None:
    turns = [PendingTurn("Rome", (CITY, ZONE), results) for results in [(), ("21",), ("21", "9h")]]
    first, second, last = (reply_to(CALL, turn) for turn in turns)

    assert [(call.name, call.arguments) for call in first.calls] == [("weather", {"city": "Rome"})]
    assert [(call.name, call.arguments) for call in second.calls] == [("time", {"hours": 4})]
    assert "21; 9h" in last.text
    assert not last.calls


def test_a_prompt_that_names_a_tool_gets_that_call_alone() -> None:
    prompt = 'Look first, then use time {"hours": 7} and tell me'
    first = reply_to(CALL, PendingTurn(prompt, (CITY, ZONE)))
    last = reply_to(CALL, PendingTurn(prompt, (CITY, ZONE), ("9h",)))

    assert [(call.name, call.arguments) for call in first.calls] == [("time", {"hours": 7})]
    assert "9h" in last.text
    assert not last.calls
    assert reply_to(CALL, PendingTurn(prompt, (CITY,))).calls[0].name == "weather"


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


def test_results_come_in_the_order_of_their_calls() -> None:
    conversation = Conversation("no {}")
    for call_id in "ab":
        conversation.called(call_id)
    conversation.answered("b", "second")
    conversation.answered("a", "first")

    assert conversation.turn(()).results == ("first", "second")


def test_a_result_for_no_call_is_refused_by_name() -> None:
    conversation = Conversation("no {}")
    conversation.called("a")
    conversation.said("again")

    with pytest.raises(InvalidToolResult, match="no a"):
        conversation.answered("a", "late")


@pytest.mark.parametrize("swapped", [False, True])
async def test_swapped_results_of_a_chat_make_another_answer(swapped: bool) -> None:
    asked: list[object] = [{"role": "user", "content": "at once"}]
    async with StandIn() as upstream:
        body = {"model": "gpt-4o", "tools": CHAT_TOOLS, "messages": asked}
        wire = await post(upstream.url, "/v1/chat/completions", body)
        called = orjson.loads(wire.body)["choices"][0]["message"]
        ids = [call["id"] for call in called["tool_calls"]]
        texts = ["eins", "zwei"][:: -1 if swapped else 1]
        told = [
            {"role": "tool", "tool_call_id": i, "content": t}
            for i, t in zip(ids, texts, strict=True)
        ]
        wire = await post(
            upstream.url, "/v1/chat/completions", body | {"messages": [*asked, called, *told]}
        )

        answer = orjson.loads(wire.body)["choices"][0]["message"]["content"]
        assert ("zwei; eins" if swapped else "eins; zwei") in answer


async def test_a_thought_whose_signature_is_not_ours_is_refused() -> None:
    ask = {"role": "user", "content": "hello"}
    async with StandIn() as upstream:
        body = {
            "model": "claude-sonnet-5",
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "tools": MESSAGE_TOOLS,
        }
        first = await post(upstream.url, "/v1/messages", body | {"messages": [ask]})
        content = orjson.loads(first.body)["content"]
        kinds = [block["type"] for block in content]
        told = [{"type": "tool_result", "tool_use_id": content[-1]["id"], "content": "21"}]

        def following(blocks: list[object]) -> dict[str, object]:
            answers = [{"role": "assistant", "content": blocks}, {"role": "user", "content": told}]
            return body | {"messages": [ask, *answers]}

        good = await post(upstream.url, "/v1/messages", following(content))
        forged = {**content[0], "signature": "Zm9yZ2Vk"}
        bad = await post(upstream.url, "/v1/messages", following([forged, *content[1:]]))

        assert kinds == ["thinking", "text", "tool_use"]
        assert (good.status, bad.status) == (200, 400)
        assert b"Invalid `signature`" in bad.body


@pytest.mark.parametrize("forged", [False, True])
async def test_reasoning_is_given_back_as_it_was(forged: bool) -> None:
    async with StandIn() as upstream:
        body = {
            "model": "o4",
            "reasoning": {"effort": "low"},
            "include": ["reasoning.encrypted_content"],
            "store": False,
        }
        ask = {"role": "user", "content": "hello"}
        first = await post(upstream.url, "/v1/responses", body | {"input": [ask]})
        output = orjson.loads(first.body)["output"]
        if forged:
            output[0]["encrypted_content"] += "A"
        more = [ask, *output, {"role": "user", "content": "and now?"}]
        second = await post(upstream.url, "/v1/responses", body | {"input": more})

        assert [item["type"] for item in output] == ["reasoning", "message"]
        assert second.status == (400 if forged else 200)


@pytest.mark.parametrize(
    ("target", "body", "words"),
    [
        (
            "/v1/chat/completions",
            {"messages": [{"role": "tool", "tool_call_id": "call_x", "content": "21"}]},
            b"'call_x' not found",
        ),
        (
            "/v1/responses",
            {"input": [{"type": "function_call_output", "call_id": "call_x", "output": "21"}]},
            b"with call_id call_x",
        ),
        (
            "/v1/messages",
            {
                "messages": [
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_x"}]}
                ]
            },
            b"blocks: toolu_x",
        ),
        (
            "/v1beta/models/gemini-2.5-flash:generateContent",
            {"contents": [{"parts": [{"functionResponse": {"id": "fx", "response": {}}}]}]},
            b"response fx comes",
        ),
    ],
)
async def test_a_result_for_no_call_is_a_bad_request(
    target: str, body: dict[str, object], words: bytes
) -> None:
    async with StandIn() as upstream:
        wire = await post(upstream.url, target, {"model": "m"} | body)

        assert wire.status == 400
        assert words in wire.body
