"""aimock's fixtures: the nearest recording of each, and what is lost."""

import json
from typing import Any

import pytest

from tapeway.core.matching import rules
from tapeway.core.matching.key import request_key
from tapeway.core.model.messages import Request
from tapeway.formats import registry
from tapeway.formats.other_tools.stubs import aimock
from tests.formats.other_tools.example_files import calls, fault, kind, load, losses

TOOL = {"name": "get_weather", "arguments": '{"city": "NYC"}'}
FIXTURES: list[dict[str, Any]] = [
    {"match": {"userMessage": "weather?"}, "response": {"toolCalls": [TOOL]}},
    {"match": {"userMessage": "joke", "sequenceIndex": 0}, "response": {"content": "one"}},
    {"match": {"userMessage": "joke", "sequenceIndex": 1}, "response": {"content": "two"}},
    {"match": {"inputText": "hello"}, "response": {"embedding": [0.5, -1]}},
    {
        "match": {"userMessage": "too fast"},
        "response": {"error": {"message": "slow", "type": "rate_limit_error"}, "status": 429},
    },
    {"match": {"userMessage": "weather?"}, "response": {"content": "never"}},
    {"match": {"userMessage": "x", "turnIndex": 1}, "response": {"content": "y"}},
    {"match": {}, "response": {"content": "y"}},
    {"match": {"userMessage": "draw"}, "response": {"image": {"url": "u"}}},
    {"match": {"userMessage": "slow"}, "response": {"content": "y"}, "latency": 5},
]
TEXT = json.dumps({"fixtures": FIXTURES}, indent=1).encode()


def bodies() -> list[Any]:
    return [json.loads(call.response.body) for call in calls(load("aimock", TEXT))]


def test_a_fixture_becomes_a_call_of_openais() -> None:
    first = calls(load("aimock", TEXT))[0]
    weather, one, two, vector, error, _ = bodies()

    assert first.request.url == "https://api.openai.com/v1/chat/completions"
    assert json.loads(first.request.body)["messages"] == [{"role": "user", "content": "weather?"}]
    (choice,) = weather["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"] == TOOL
    assert [event["choices"][0]["message"]["content"] for event in (one, two)] == ["one", "two"]
    assert vector["data"][0]["embedding"] == [0.5, -1]
    assert error == {"error": {"message": "slow", "type": "rate_limit_error"}}
    assert calls(load("aimock", TEXT))[4].response.status == 429


def test_fields_that_aimock_ignores_make_no_difference() -> None:
    loaded = load("aimock", TEXT)
    in_force = rules.rules_of_meta(loaded.cassette.head.meta)
    recorded = calls(loaded)[0].request
    message = {"role": "user", "content": "weather?"}
    body = json.dumps({"model": "gpt-5.5", "temperature": 1, "messages": [message]})
    asked = Request("", "POST", recorded.target, recorded.headers, body.encode())

    assert request_key(asked, in_force) == request_key(recorded, in_force)
    assert request_key(asked) != request_key(recorded)


def test_losses_are_named() -> None:
    assert [
        loss for loss in losses(load("aimock", TEXT)) if not loss.endswith(aimock.NARROWED)
    ] == [
        "fixtures[6]: matches requests by 'turnIndex': left out",
        "fixtures[7]: takes any request: left out",
        "fixtures[8]: its answer is none of content, toolCalls, error and embedding: left out",
        "fixtures[5]: fixtures[0] always matches first: left out",
        "fixtures[9].latency: is not kept",
        f"fixtures[2].match.sequenceIndex: {aimock.LAST_REPEATS}",
    ]


@pytest.mark.parametrize(
    ("turns", "answering", "rule", "lost"),
    [
        ([0, 1], [0, 1], "miss", []),
        ([1, 0], [1, 0], "miss", []),
        ([None], [0], "last", []),
        ([0, None], [0, 1], "last", []),
        ([None, 0], [0], "last", ["fixtures[1]: fixtures[0] always matches first: left out"]),
        ([0, 0], [0], "miss", ["fixtures[1]: fixtures[0] always matches first: left out"]),
        ([0, 2], [0], "miss", ["fixtures[1]: has no turn: left out"]),
    ],
)
def test_fixtures_answer_in_the_order_of_aimock(
    turns: list[int | None], answering: list[int], rule: str, lost: list[str]
) -> None:
    fixtures = [
        {
            "match": {"userMessage": "x", "sequenceIndex": turn},
            "response": {"content": str(position)},
        }
        for position, turn in enumerate(turns)
    ]
    loaded = load("aimock", json.dumps({"fixtures": fixtures}).encode())

    found = [json.loads(call.response.body) for call in calls(loaded)]
    assert [int(event["choices"][0]["message"]["content"]) for event in found] == answering
    assert loaded.cassette.head.meta["repeats"] == rule
    assert [loss for loss in losses(loaded) if not loss.endswith(aimock.NARROWED)] == lost


def test_a_broken_fixture_is_named_with_line_and_place() -> None:
    broken = TEXT.replace(b'"status": 429', b'"status": 200')

    assert fault("aimock", broken) == (
        "fixtures[4].response.status: must be a whole number between 400 and 599, not 200",
        broken[: broken.index(b'"status"')].count(b"\n") + 1,
    )
    assert registry.detect(TEXT) is kind("aimock")
