"""The result of an SDK's method in the form that a client asks for."""

import base64
import json
import struct
from typing import Any

import pytest

from tapeway.core.agenttape import sdk_calls
from tapeway.core.json_text import Json, dump
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead

RESULT: dict[str, Json] = {
    "id": "c1",
    "object": "chat.completion",
    "model": "m",
    "service_tier": None,
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "logprobs": {"content": []},
            "message": {"role": "assistant", "content": "a", "refusal": None},
        },
        {
            "index": 1,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "t1", "type": "function"}, {"id": "t2", "type": "function"}],
            },
        },
    ],
    "usage": {"total_tokens": 3},
}


def recorded(
    result: Json, endpoint: str = "chat.completions", status: int = 200, base: str = ""
) -> Interaction:
    head = ResponseHead(status, "OK", (sdk_calls.JSON_TYPE,))
    request = Request("", "POST", f"/v1{sdk_calls.ENDPOINTS[endpoint]}", (), b"{}", base)
    response = Response(head, dump(result), 7.0)
    return Interaction(0, request, response, stored_keys=("sha256:0",))


def asking(endpoint: str = "chat.completions", **body: Json) -> Request:
    ending = sdk_calls.ENDPOINTS[endpoint]
    return Request(
        "openai", "POST", f"/v1{ending}", (sdk_calls.JSON_TYPE,), json.dumps(body).encode()
    )


def events(answer: Interaction) -> list[Any]:
    *chunks, end = answer.response.pieces()
    assert end == b"data: [DONE]\n\n"
    return [json.loads(chunk.removeprefix(b"data: ")) for chunk in chunks]


def test_a_stream_has_each_choice_and_its_end() -> None:
    found = events(sdk_calls.in_requested_form(recorded(RESULT), asking(stream=True)))

    choices = [choice for event in found for choice in event["choices"]]
    assert [(choice["index"], choice["finish_reason"]) for choice in choices] == [
        *((0, None), (1, None)),
        *((0, "stop"), (1, "tool_calls")),
    ]
    assert choices[0]["delta"] == {"role": "assistant", "content": "a"}
    assert choices[0]["logprobs"] == {"content": []}
    assert [call["index"] for call in choices[1]["delta"]["tool_calls"]] == [0, 1]
    assert all(chunk["id"] == "c1" and "service_tier" not in chunk for chunk in found)
    # `stream_options` did not ask for it.
    assert all("usage" not in chunk for chunk in found)


def test_a_stream_is_timed_as_the_result_was_and_ends_as_a_stream_does() -> None:
    answer = sdk_calls.in_requested_form(recorded(RESULT), asking(stream=True))

    assert {*answer.response.arrivals().times} == {7.0}
    assert answer.response.head.framing == "chunked"
    assert answer.response.verdict == "marked"


@pytest.mark.parametrize("result", [None, [], "text", {}, {"choices": None}, {"choices": ["x"]}])
def test_a_result_without_choices_is_a_stream_of_nothing(result: Json) -> None:
    assert events(sdk_calls.in_requested_form(recorded(result), asking(stream=True))) == []


def test_embeddings_are_packed_in_base64_on_request() -> None:
    data: Json = [{"index": 0, "embedding": [1, 0.5, -2]}, {"index": 1, "embedding": "packed"}, 5]
    held = recorded({"data": data, "model": "e"}, "embeddings")

    answer = sdk_calls.in_requested_form(held, asking("embeddings", encoding_format="base64"))

    found = json.loads(answer.response.body)
    numbers = base64.b64decode(found["data"][0]["embedding"])
    assert struct.unpack("<3f", numbers) == (1.0, 0.5, -2.0)
    assert found["data"][1:] == [{"index": 1, "embedding": "packed"}, 5]
    assert found["model"] == "e"
    assert sdk_calls.in_requested_form(held, asking("embeddings", encoding_format="float")) is held


def test_an_http_exchange_and_a_failure_stay_as_they_are() -> None:
    exchange = recorded(RESULT, base="https://h")
    failed = recorded({"error": {}}, status=429)
    asked = asking(stream=True)

    assert sdk_calls.in_requested_form(exchange, asked) is exchange
    assert sdk_calls.in_requested_form(failed, asked) is failed
    assert sdk_calls.can_answer(exchange, asked)
    assert sdk_calls.can_answer(failed, asking("responses", stream=True))


def test_only_chat_completions_can_be_streamed() -> None:
    assert sdk_calls.can_answer(recorded(RESULT), asking(stream=True))
    held = recorded({}, "responses")
    assert sdk_calls.can_answer(held, asking("responses", stream=False))
    assert not sdk_calls.can_answer(held, asking("responses", stream=True))
