import hashlib

from tapeway.conversations.transcript import transcript
from tapeway.core.json_text import Json
from tests.conversations.recorded_calls import MESSAGES, call, messages_of, sse, user

PNG = "iVBORw0KGgo="
DIGEST = hashlib.sha256(b"\x89PNG\r\n\x1a\n").hexdigest()


def last(answer: "Json | bytes", media: bytes = b"application/json") -> Json:
    asked: Json = {"model": "m", "messages": [user("hi")]}
    found = transcript([call(0, MESSAGES, asked, answer, route="anthropic", media=media)])
    return messages_of(found)[-1]


def test_every_part_of_a_history_is_listed() -> None:
    image: Json = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": PNG},
    }
    messages: list[Json] = [
        {"role": "user", "content": [image, {"type": "text", "text": "Look"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "I look"},
                {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}},
                {"type": "tool_use", "id": "t2", "name": "look", "input": {"at": 2}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
                {
                    "type": "tool_result",
                    "tool_use_id": "t2",
                    "content": [{"type": "text", "text": "two"}, image],
                },
                {"type": "text", "text": "and?"},
                {"type": "document", "source": {"type": "url", "url": "https://x.test/d.pdf"}},
            ],
        },
    ]
    asked: Json = {"system": [{"type": "text", "text": "Be brief."}], "messages": messages}

    found = messages_of(
        transcript([call(0, MESSAGES, asked, {"type": "message"}, route="anthropic")])
    )

    shown: Json = {"type": "image", "media_type": "image/png", "bytes": 8, "sha256": DIGEST}
    assert found == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look", "attachments": [shown]},
        {
            "role": "assistant",
            "content": "I look",
            "thinking": "Hm(redacted)",
            "tool_calls": [
                {"id": "t1", "name": "look", "arguments": {"at": 1}},
                {"id": "t2", "name": "look", "arguments": {"at": 2}},
            ],
        },
        {"role": "tool", "content": "one", "tool_call_id": "t1", "name": "look"},
        {
            "role": "tool",
            "content": "two",
            "tool_call_id": "t2",
            "name": "look",
            "attachments": [shown],
        },
        {
            "role": "user",
            "content": "and?",
            "attachments": [{"type": "document", "url": "https://x.test/d.pdf"}],
            "notes": [
                "interaction 0: the answer holds no message in the format of anthropic's messages"
            ],
        },
    ]


def test_deltas_are_joined_as_the_whole_answer_has_it() -> None:
    whole: Json = {
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "think"},
            {"type": "text", "text": "Hello"},
            {"type": "tool_use", "id": "t", "name": "f", "input": {"x": 12}},
        ],
        "stop_reason": "max_tokens",
    }
    block, delta = "content_block_start", "content_block_delta"
    events: list[Json] = [
        {"type": "message_start", "message": {"content": [], "stop_reason": None}},
        {"type": block, "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "ping"},
        {"type": delta, "index": 0, "delta": {"type": "thinking_delta", "thinking": "thi"}},
        {"type": delta, "index": 0, "delta": {"type": "thinking_delta", "thinking": "nk"}},
        {"type": delta, "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
        {"type": block, "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": delta, "index": 1, "delta": {"type": "text_delta", "text": "Hel"}},
        {"type": delta, "index": 1, "delta": {"type": "text_delta", "text": "lo"}},
        {
            "type": block,
            "index": 2,
            "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}},
        },
        {"type": delta, "index": 2, "delta": {"type": "input_json_delta", "partial_json": ""}},
        {
            "type": delta,
            "index": 2,
            "delta": {"type": "input_json_delta", "partial_json": '{"x": 12}'},
        },
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
        {"type": "message_stop"},
    ]

    streamed = last(sse(events), b"text/event-stream")

    assert streamed == last(whole)
    assert streamed == {
        "role": "assistant",
        "content": "Hello",
        "thinking": "think",
        "tool_calls": [{"id": "t", "name": "f", "arguments": {"x": 12}}],
        "notes": ["the answer is incomplete: max_tokens"],
    }


def test_an_error_inside_a_stream_is_noted() -> None:
    error: Json = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    text: Json = {"type": "content_block_delta", "index": 0, "delta": {"text": "Hel"}}

    assert last(sse([text, error]), b"text/event-stream") == {
        "role": "assistant",
        "content": "Hel",
        "notes": ["interaction 0: the answer reported an error: overloaded_error: Overloaded"],
    }


def test_a_loop_with_tools_is_listed_once() -> None:
    use: Json = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
    given: Json = {"type": "tool_result", "tool_use_id": "t1", "content": "1"}
    history: list[Json] = [
        user("go"),
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [given]},
    ]
    calls = [
        call(
            *(0, MESSAGES, {"messages": history[:1]}, {"type": "message", "content": [use]}),
            route="anthropic",
        ),
        call(
            *(1, MESSAGES, {"messages": history}),
            {"type": "message", "content": [{"type": "text", "text": "done"}]},
            route="anthropic",
        ),
    ]

    assert [(message.role, message.content) for message in transcript(calls).messages] == [
        ("user", "go"),
        ("assistant", ""),
        ("tool", "1"),
        ("assistant", "done"),
    ]


def test_a_streamed_call_without_arguments_and_a_block_without_text_are_listed() -> None:
    block = "content_block_start"
    used: Json = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    events: list[Json] = [
        {"type": "message_start", "message": {"role": "assistant", "content": []}},
        {"type": block, "index": 0, "content_block": {"type": "text"}},
        {"type": "content_block_stop", "index": 0},
        {"type": block, "index": 1, "content_block": used},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_stop"},
    ]

    assert last(sse(events), b"text/event-stream") == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "t", "name": "f", "arguments": {}}],
    }
