import hashlib

import pytest

from tapeway.conversations.transcript import transcript
from tapeway.core.json_text import Json
from tests.conversations.recorded_calls import CHAT, call, messages_of, sse, user

PNG = "iVBORw0KGgo="
DIGEST = hashlib.sha256(b"\x89PNG\r\n\x1a\n").hexdigest()


def last(answer: "Json | bytes", media: bytes = b"application/json") -> Json:
    asked: Json = {"model": "m", "messages": [user("hi")]}
    return messages_of(transcript([call(0, CHAT, asked, answer, media=media)]))[-1]


def test_every_part_of_a_history_is_listed() -> None:
    messages: list[Json] = [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}},
                {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}},
                {"type": "file", "file": {"file_id": "file-1"}},
                {"type": "hologram", "hologram": {}},
                {"type": "text", "text": "here"},
            ],
        },
        {"role": "assistant", "reasoning_content": "Hm", "content": None, "refusal": "No."},
        {"role": "assistant", "function_call": {"name": "old", "arguments": "not JSON"}},
        {"role": "function", "name": "old", "content": "1"},
        {"role": "user", "content": "go on"},
    ]

    found = messages_of(transcript([call(0, CHAT, {"messages": messages}, {"choices": []})]))

    assert found[:-1] == [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": "Look\nhere",
            "attachments": [
                {"type": "image", "media_type": "image/png", "bytes": 8, "sha256": DIGEST},
                {"type": "image", "url": "https://x.test/a.png"},
                {"type": "audio", "media_type": "wav", "bytes": 8, "sha256": DIGEST},
                {"type": "file", "id": "file-1"},
                {"type": "hologram"},
            ],
        },
        {
            "role": "assistant",
            "content": "No.",
            "thinking": "Hm",
            "tool_calls": [{"name": "old", "arguments": "not JSON"}],
        },
        {"role": "tool", "content": "1", "name": "old"},
    ]


def test_deltas_are_joined_as_the_whole_answer_has_it() -> None:
    whole: Json = {
        "role": "assistant",
        "content": "Hello",
        "reasoning": "think",
        "tool_calls": [
            {"id": "a", "function": {"name": "f", "arguments": '{"x": 12}'}},
            {"id": "b", "function": {"name": "g", "arguments": ""}},
        ],
    }
    deltas: list[dict[str, Json]] = [
        {"role": "assistant", "content": ""},
        {"reasoning": "thi"},
        {"reasoning": "nk"},
        {"content": "Hel"},
        {"content": "lo"},
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x": '}}]},
        {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "g", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "12}"}}]},
    ]
    events: list[Json] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    events.append({"choices": [], "usage": {}})

    streamed = last(sse(events) + b"data: [DONE]\n\n", b"text/event-stream")

    assert streamed == last({"choices": [{"index": 0, "message": whole}]})
    assert streamed == {
        "role": "assistant",
        "content": "Hello",
        "thinking": "think",
        "tool_calls": [
            {"id": "a", "name": "f", "arguments": {"x": 12}},
            {"id": "b", "name": "g", "arguments": {}},
        ],
    }


def test_further_choices_are_named() -> None:
    answer: Json = {
        "choices": [
            {"index": 1, "message": {"content": "two"}},
            {"index": 0, "message": {"content": "one"}},
        ]
    }

    assert last(answer) == {
        "role": "assistant",
        "content": "one",
        "notes": ["1 more choices are not shown"],
    }


def test_an_error_inside_a_stream_is_noted() -> None:
    events: list[Json] = [
        {"choices": [{"delta": {"content": "Hel"}}]},
        {"error": {"message": "The server had an error"}},
    ]

    assert last(sse(events), b"text/event-stream") == {
        "role": "assistant",
        "content": "Hel",
        "notes": ["interaction 0: the answer reported an error: The server had an error"],
    }


@pytest.mark.parametrize("prompt", ["Once", ["Once"]])
def test_an_older_completion_is_a_question_and_an_answer(prompt: Json) -> None:
    answer: Json = {"choices": [{"index": 0, "text": " upon a time"}]}

    found = messages_of(transcript([call(0, "/v1/completions", {"prompt": prompt}, answer)]))

    assert found == [
        {"role": "user", "content": "Once"},
        {"role": "assistant", "content": " upon a time"},
    ]
