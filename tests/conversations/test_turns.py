"""LLM calls as turns, in each dialect: what is new, what it cost, what a cache could keep."""

from dataclasses import replace
from typing import Any

import pytest

from tapeway.conversations.turns import MOST_RESULTS, CassetteTurns, read_calls, turns
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import Request
from tapeway.providers.prices import PriceTable
from tests.conversations.recorded_calls import (
    CHAT,
    MESSAGES,
    RESPONSES,
    assistant,
    call,
    chat,
    user,
)

PRICES = PriceTable()
TOOL = {"name": "look", "input_schema": {"type": "object"}}


def read(*items: Interaction) -> CassetteTurns:
    return turns(read_calls(items), PRICES)


def kept(*items: Interaction) -> list[tuple[int, int, str | None]]:
    return [
        (turn.prefix.kept, turn.prefix.of, turn.prefix.breaks_at) for turn in read(*items).turns
    ]


def claude(index: int, messages: list[Any], said: str = "ok", **more: Any) -> Interaction:
    answer = {
        "type": "message",
        "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": said}],
        "stop_reason": "end_turn",
        "usage": {
            "input_tokens": 10,
            "cache_read_input_tokens": 1000,
            "cache_creation_input_tokens": 0,
            "output_tokens": 5,
        },
    }
    asked = {"model": "claude-sonnet-4-5", "messages": messages, **more}
    return call(index, MESSAGES, asked, answer, route="anthropic")


def test_a_turn_that_repeats_the_one_before_keeps_its_prefix() -> None:
    first, second = [user("a")], [user("a"), assistant("ok"), user("b")]

    assert kept(claude(0, first), claude(1, second)) == [(0, 0, None), (1, 1, None)]


@pytest.mark.parametrize(
    ("before", "after", "breaks_at"),
    [
        ({"tools": [TOOL]}, {"tools": [TOOL, {**TOOL, "name": "b"}]}, "tools"),
        ({"system": "at 10:00"}, {"system": "at 10:01"}, "system"),
        ({"tools": [TOOL], "system": "x"}, {"tools": [], "system": "y"}, "tools"),
        ({"model": "claude-haiku-4-5"}, {}, "model"),
    ],
)
def test_the_first_part_that_differs_is_where_the_prefix_breaks(
    before: dict[str, Any], after: dict[str, Any], breaks_at: str
) -> None:
    first = claude(0, [user("a")], **before)
    second = claude(1, [user("a"), assistant("ok"), user("b")], **after)

    assert kept(first, second)[1] == (0, 1, breaks_at)


def test_a_message_that_was_edited_is_where_the_prefix_breaks() -> None:
    first = [user("a"), assistant("b"), user("c")]
    second = [user("a"), assistant("b"), user("C"), assistant("d"), user("e")]

    found = kept(claude(0, [user("a")], "b"), claude(1, first, "d"), claude(2, second))

    assert found == [(0, 0, None), (1, 1, None), (2, 3, "message 2")]


def test_marks_for_the_cache_are_no_difference() -> None:
    marked = {
        "role": "user",
        "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
    }
    plain = {"role": "user", "content": [{"type": "text", "text": "a"}]}

    assert kept(claude(0, [marked]), claude(1, [plain, assistant("ok"), user("b")]))[1] == (
        *(1, 1),
        None,
    )


def test_tokens_price_and_cached_tokens_of_each_turn_and_their_sums() -> None:
    found = read(claude(0, [user("a")]), claude(1, [user("a"), assistant("ok"), user("b")]))

    first = found.turns[0]
    assert (first.prompt_tokens, first.completion_tokens, first.cached_tokens) == (1010, 5, 1000)
    assert first.usd == pytest.approx((1010 * 3 + 5 * 15) / 1_000_000)
    assert found.sums == {
        "turns": 2,
        "conversations": 1,
        "prompt_tokens": 2020,
        "completion_tokens": 10,
        "total_tokens": 2030,
        "cached_tokens": 2000,
        "usd": pytest.approx(2 * (1010 * 3 + 5 * 15) / 1_000_000),
        "latency_ms": 0.0,
        "unpriced": [],
    }


def test_recorded_usage_comes_first() -> None:
    item = replace(claude(0, [user("a")]), usage={"prompt_tokens": 7, "completion_tokens": 2})

    (found,) = read(item).turns

    assert (found.prompt_tokens, found.completion_tokens) == (7, 2)


def test_a_model_without_a_price_is_named() -> None:
    answer = {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}}],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 1,
            "total_tokens": 4,
            "prompt_tokens_details": {"cached_tokens": 2},
        },
    }
    found = read(call(0, CHAT, {"model": "own", "messages": [user("a")]}, answer))

    assert (found.sums["usd"], found.sums["unpriced"]) == (None, ["openai/own"])
    assert found.turns[0].cached_tokens == 2


def test_only_what_a_turn_added_is_new() -> None:
    found = read(
        chat(0, [user("one")], "1"), chat(1, [user("one"), assistant("1"), user("two")], "2")
    )

    new: Any = found.turns[1].document["new"]
    assert [(message["role"], message["kind"], message["head"]) for message in new] == [
        ("user", "text", "two"),
        ("assistant", "text", "2"),
    ]
    assert found.turns[1].messages == 3


def test_the_largest_tool_results_are_named_by_their_tool() -> None:
    asked: list[Any] = [
        user("go"),
        {"role": "assistant", "content": [tool_use("t1", "small"), tool_use("t2", "big")]},
        {"role": "user", "content": [result("t1", "x"), result("t2", "y" * 5000)]},
    ]
    found = read(claude(0, asked))

    assert [
        (tool_result.name, tool_result.characters) for tool_result in found.largest_results
    ] == [
        ("big", 5000),
        ("small", 1),
    ]
    assert len(found.largest_results[0].head) == 200


def tool_use(id: str, name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {}}


def result(id: str, content: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


def test_the_largest_tool_results_are_a_few() -> None:
    calls = [tool_use(f"t{at}", "f") for at in range(30)]
    results = [result(f"t{at}", "x" * at) for at in range(30)]
    asked: list[Any] = [
        user("go"),
        {"role": "assistant", "content": calls},
        {"role": "user", "content": results},
    ]

    found = read(claude(0, asked))

    assert len(found.largest_results) == MOST_RESULTS
    assert found.largest_results[0].characters == 29


ROLES = ("user", "assistant")


def said(texts: list[str]) -> list[Any]:
    return [{"role": ROLES[at % 2], "content": text} for at, text in enumerate(texts)]


def gemini(index: int, texts: list[str], **more: Any) -> Interaction:
    roles = ("user", "model")
    contents = [{"role": roles[at % 2], "parts": [{"text": text}]} for at, text in enumerate(texts)]
    answer = {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "ok"}]}}],
        "usageMetadata": {
            "promptTokenCount": 9,
            "candidatesTokenCount": 1,
            "totalTokenCount": 10,
            "cachedContentTokenCount": 4,
        },
    }
    path = "/v1beta/models/gemini-2.5-flash:generateContent"
    return call(index, path, {"contents": contents, **more}, answer, route="gemini")


def converse(index: int, texts: list[str], **more: Any) -> Interaction:
    messages = [
        {"role": ROLES[at % 2], "content": [{"text": text}]} for at, text in enumerate(texts)
    ]
    answer = {
        "output": {"message": {"role": "assistant", "content": [{"text": "ok"}]}},
        "usage": {"inputTokens": 5, "outputTokens": 1, "cacheReadInputTokens": 4},
        "stopReason": "end_turn",
    }
    path = "/model/anthropic.claude-x/converse"
    return call(index, path, {"messages": messages, **more}, answer, route="bedrock")


def responses(index: int, texts: list[str], **more: Any) -> Interaction:
    answer = {
        "id": f"resp_{index}",
        "object": "response",
        "model": "gpt-4o",
        "output": [
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "ok"}],
            }
        ],
        "usage": {
            "input_tokens": 9,
            "output_tokens": 1,
            "total_tokens": 10,
            "input_tokens_details": {"cached_tokens": 4},
        },
    }
    asked = {"model": "gpt-4o", "input": said(texts), **more}
    return call(index, RESPONSES, asked, answer)


def ollama(index: int, texts: list[str], **more: Any) -> Interaction:
    asked = {"model": "m", "messages": said(texts), **more}
    answer = {"message": {"role": "assistant", "content": "ok"}, "done": True}
    return call(index, "/api/chat", asked, answer, route="ollama")


@pytest.mark.parametrize(
    ("made", "system", "tools", "cached"),
    [
        (gemini, {"systemInstruction": {"parts": [{"text": "x"}]}}, {"tools": [TOOL]}, 4),
        (converse, {"system": [{"text": "x"}]}, {"toolConfig": {"tools": [TOOL]}}, 4),
        (responses, {"instructions": "x"}, {"tools": [TOOL]}, 4),
        (ollama, None, {"tools": [TOOL]}, None),
    ],
    ids=["gemini", "bedrock", "responses", "ollama"],
)
def test_each_dialect_has_tools_system_and_messages(
    made: Any, system: Any, tools: Any, cached: int | None
) -> None:
    same, grown = ["a"], ["a", "ok", "c"]

    assert kept(made(0, same), made(1, grown))[1] == (1, 1, None)
    assert kept(made(0, same), made(1, grown, **tools))[1] == (0, 1, "tools")
    if system is not None:
        assert kept(made(0, same), made(1, grown, **system))[1] == (0, 1, "system")
    assert read(made(0, same)).turns[0].cached_tokens == cached


def test_a_turn_that_names_the_answer_before_keeps_what_the_service_has() -> None:
    first = responses(0, ["a"])
    second = responses(1, ["b"], previous_response_id="resp_0")

    assert kept(first, second)[1] == (1, 1, None)


def test_two_conversations_are_compared_apart() -> None:
    found = read(chat(0, [user("one")], "1"), chat(1, [user("two")], "2"))

    assert [turn.conversation for turn in found.turns] == [0, 1]
    assert [turn.prefix.breaks_at for turn in found.turns] == [None, None]


def test_a_call_that_cannot_be_read_is_left_out_with_the_reason() -> None:
    broken = chat(0, [], "x")
    broken = replace(broken, request=replace(broken.request, body=b"{"))
    other = Interaction(1, Request("default", "GET", "/x"), broken.response)

    found = turns(read_calls([broken, other]), PRICES)

    assert found.turns == ()
    assert found.left_out == ((0, "its request is not a readable JSON object"),)


def test_an_sdk_call_of_agenttape_is_a_turn() -> None:
    item = ForeignInteraction(
        0,
        {
            "kind": "llm",
            "request": {"endpoint": "chat.completions", "model": "m", "messages": [user("a")]},
            "response": {"choices": [{"index": 0, "message": assistant("b")}]},
        },
    )

    (found,) = turns(read_calls([item]), PRICES).turns

    assert (found.model, len(found.new)) == ("m", 2)
