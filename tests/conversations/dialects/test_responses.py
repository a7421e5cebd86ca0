import pytest

from tapeway.conversations.transcript import transcript
from tapeway.core.json_text import Json
from tests.conversations.recorded_calls import RESPONSES, call, lines, messages_of, sse

REASONING: Json = {"type": "reasoning", "id": "rs", "summary": [{"text": "think"}]}
CALL: Json = {
    "type": "function_call",
    "id": "fc",
    "call_id": "c1",
    "name": "f",
    "arguments": '{"x": 12}',
}


def said(text: str) -> Json:
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text}],
    }


def asking(text: str) -> Json:
    return {"role": "user", "content": text}


def response(identifier: str, *output: Json) -> dict[str, Json]:
    return {"id": identifier, "object": "response", "created_at": 1, "output": list(output)}


def last(answer: "Json | bytes", media: bytes = b"application/json") -> Json:
    return messages_of(transcript([call(0, RESPONSES, {"input": "hi"}, answer, media=media)]))[-1]


def test_a_loop_that_sends_its_items_back_is_listed_once() -> None:
    items: list[Json] = [
        {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
        REASONING,
        CALL,
        {"type": "function_call_output", "call_id": "c1", "output": "1"},
    ]
    calls = [
        call(
            *(0, RESPONSES, {"instructions": "Be brief.", "input": items[:1]}),
            response("r0", REASONING, CALL),
        ),
        call(
            *(1, RESPONSES, {"instructions": "Be brief.", "input": items}),
            response("r1", said("done")),
        ),
    ]

    assert messages_of(transcript(calls)) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": "",
            "thinking": "think",
            "tool_calls": [{"id": "c1", "name": "f", "arguments": {"x": 12}}],
        },
        {"role": "tool", "content": "1", "tool_call_id": "c1", "name": "f"},
        {"role": "assistant", "content": "done"},
    ]


def test_an_answer_that_is_continued_by_its_identifier_is_found() -> None:
    output: Json = [{"type": "function_call_output", "call_id": "c1", "output": "1"}]
    branch = [asking("go"), CALL, asking("again"), said("branch")]
    calls = [
        call(0, RESPONSES, {"input": "go", "instructions": "x"}, response("r0", CALL)),
        call(1, RESPONSES, {"input": "other"}, response("r1", said("other"))),
        call(
            *(2, RESPONSES, {"input": output, "previous_response_id": "r0"}),
            response("r2", said("done")),
        ),
        call(
            *(3, RESPONSES, {"input": "again", "previous_response_id": "r0"}),
            response("r3", said("branch")),
        ),
        # Without the service's memory: what the branch had said is the history now.
        call(
            *(4, RESPONSES, {"input": [*branch, asking("more")], "instructions": "x"}),
            response("r4", said("end")),
        ),
    ]

    assert lines(*calls) == [
        *("0 system: x", "0 user: go", "0 assistant: ", "0 tool: 1", "0 assistant: done"),
        *("0 user: again", "0 assistant: branch", "0 user: more", "0 assistant: end"),
        *("1 user: other", "1 assistant: other"),
    ]
    notes = [note for message in transcript(calls).messages for note in message.notes]
    assert notes == ["interaction 3 goes back to the answer of interaction 0"]


def test_a_conversation_that_the_service_stores_is_one() -> None:
    def kept(index: int, text: str) -> Json:
        return response(f"r{index}", said(text)) | {"conversation": {"id": "conv_1"}}

    calls = [
        call(at, RESPONSES, {"input": asked, "conversation": "conv_1"}, kept(at, answer))
        for at, (asked, answer) in enumerate([("a", "A"), ("b", "B"), ("c", "C")])
    ]

    assert lines(*calls) == [
        f"0 {line}"
        for line in (
            *("user: a", "assistant: A", "user: b", "assistant: B", "user: c", "assistant: C"),
        )
    ]


def test_an_answer_from_before_the_cassette_is_noted_as_missing() -> None:
    asked: Json = {"input": "b", "previous_response_id": "r9"}

    found = messages_of(transcript([call(0, RESPONSES, asked, response("r0", said("B")))]))

    assert found[0] == {
        "role": "user",
        "content": "b",
        "notes": ["the history up to r9 is not in the cassette"],
    }


@pytest.mark.parametrize("whole", [True, False])
def test_a_streamed_answer_is_that_of_its_last_event_or_of_its_deltas(whole: bool) -> None:
    made = response("r", REASONING, said("Hello"), CALL)
    events: list[Json] = [
        {"type": "response.created", "response": response("r")},
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning"}},
        {
            "type": "response.reasoning_summary_text.delta",
            "output_index": 0,
            "delta": "think",
        },
        {"type": "response.output_item.added", "output_index": 1, "item": {"type": "message"}},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "Hel"},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "lo"},
        {
            "type": "response.output_item.added",
            "output_index": 2,
            "item": {"type": "function_call", "call_id": "c1", "name": "f", "arguments": ""},
        },
        {
            "type": "response.function_call_arguments.delta",
            "output_index": 2,
            "delta": '{"x": 12}',
        },
    ]
    if whole:
        events.append({"type": "response.completed", "response": made})

    streamed = last(sse(events), b"text/event-stream")

    assert streamed == last(made)
    assert streamed == {
        "role": "assistant",
        "content": "Hello",
        "thinking": "think",
        "tool_calls": [{"id": "c1", "name": "f", "arguments": {"x": 12}}],
    }


def test_items_of_the_services_own_tools_are_calls_with_their_fields() -> None:
    search: Json = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"query": "x"},
    }
    drawn: Json = {"type": "image_generation_call", "id": "ig_1", "result": "iVBORw0KGgo="}

    found = last(response("r", search, drawn))

    assert isinstance(found, dict)
    assert found["tool_calls"] == [
        {"id": "ws_1", "name": "web_search", "arguments": {"action": {"query": "x"}}}
    ]
    assert str(found["attachments"]).startswith("[{'type': 'image', 'bytes': 8, 'sha256': '")


def test_a_failed_and_an_incomplete_answer_say_so() -> None:
    failed = response("r") | {"error": {"code": "server_error", "message": "Sorry"}}
    short = response("r", said("Once")) | {"incomplete_details": {"reason": "max_output_tokens"}}

    stream = sse([{"type": "response.failed", "response": failed}])

    for found in (last(failed), last(stream, b"text/event-stream")):
        assert isinstance(found, dict)
        assert found["notes"] == [
            "interaction 0: the answer reported an error: server_error: Sorry"
        ]
    assert last(short) == {
        "role": "assistant",
        "content": "Once",
        "notes": ["the answer is incomplete: max_output_tokens"],
    }


def test_parts_of_every_kind_are_listed() -> None:
    content: list[Json] = [
        {"type": "input_text", "text": "Look"},
        {"type": "input_image", "image_url": "https://x.test/a.png"},
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_file", "file_data": "iVBORw0KGgo="},
    ]
    output: list[Json] = [{"type": "input_text", "text": "seen"}]
    items: list[Json] = [
        {"role": "user", "content": content},
        {"type": "custom_tool_call", "call_id": "c", "name": "g", "input": "free text"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": output},
    ]

    found = transcript([call(0, RESPONSES, {"input": items}, response("r", said("x")))])

    asked, used, given, _ = messages_of(found)
    assert isinstance(asked, dict)
    assert asked["content"] == "Look"
    assert isinstance(asked["attachments"], list)
    assert len(asked["attachments"]) == 3
    assert used == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c", "name": "g", "arguments": "free text"}],
    }
    assert given == {"role": "tool", "content": "seen", "tool_call_id": "c", "name": "g"}
