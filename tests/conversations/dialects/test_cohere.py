from tapeway.conversations.transcript import transcript
from tapeway.core.json_text import Json
from tests.conversations.recorded_calls import call, messages_of, sse, user

TARGET = "/v2/chat"


def last(answer: "Json | bytes", media: bytes = b"application/json", status: int = 200) -> Json:
    asked: Json = {"model": "m", "messages": [user("hi")]}
    made = call(0, TARGET, asked, answer, route="cohere", media=media, status=status)
    return messages_of(transcript([made]))[-1]


def test_deltas_are_joined_as_the_whole_answer_has_it() -> None:
    function: Json = {"name": "f", "arguments": '{"x": 12}'}
    whole: Json = {
        "id": "1",
        "message": {
            "role": "assistant",
            "tool_plan": "plan",
            "content": [{"type": "text", "text": "Hello"}],
            "tool_calls": [{"id": "a", "type": "function", "function": function}],
        },
        "finish_reason": "MAX_TOKENS",
    }
    start: Json = {"id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}
    messages: list[tuple[str, dict[str, Json]]] = [
        ("message-start", {"role": "assistant"}),
        ("tool-plan-delta", {"tool_plan": "pl"}),
        ("tool-plan-delta", {"tool_plan": "an"}),
        ("content-start", {"content": {"type": "text", "text": ""}}),
        ("content-delta", {"content": {"text": "Hel"}}),
        ("content-delta", {"content": {"text": "lo"}}),
        ("tool-call-start", {"tool_calls": start}),
        ("tool-call-delta", {"tool_calls": {"function": {"arguments": '{"x": '}}}),
        ("tool-call-delta", {"tool_calls": {"function": {"arguments": "12}"}}}),
    ]
    events: list[Json] = [
        {"type": kind, "index": 0, "delta": {"message": message}} for kind, message in messages
    ]
    events.append({"type": "message-end", "delta": {"finish_reason": "MAX_TOKENS"}})

    streamed = last(sse(events), b"text/event-stream")

    assert streamed == last(whole)
    assert streamed == {
        "role": "assistant",
        "content": "Hello",
        "thinking": "plan",
        "tool_calls": [{"id": "a", "name": "f", "arguments": {"x": 12}}],
        "notes": ["the answer is incomplete: MAX_TOKENS"],
    }


def test_an_error_is_noted() -> None:
    assert last({"message": "invalid api token"}, status=401) == {
        "role": "user",
        "content": "hi",
        "notes": ["interaction 0: the answer was an error, 401: invalid api token"],
    }


def test_an_answer_in_an_unknown_format_is_noted() -> None:
    old: Json = {"text": "hello", "generation_id": "1"}

    assert last(old) == {
        "role": "user",
        "content": "hi",
        "notes": ["interaction 0: the answer holds no message in the format of cohere's chat"],
    }
