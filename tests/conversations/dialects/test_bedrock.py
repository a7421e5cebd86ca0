import json
from base64 import b64encode

from tapeway.conversations.transcript import LeftOut, Transcript, transcript
from tapeway.core.json_text import Json
from tapeway.core.streams.aws_frames import MEDIA_TYPE
from tapeway.testing.bedrock import error_frame, event
from tests.conversations.recorded_calls import call, messages_of, user

TARGET = "/model/m/converse"


def answer(*content: Json, stop: str = "end_turn") -> Json:
    message: Json = {"type": "message", "role": "assistant", "content": list(content)}
    return {"output": {"message": message}, "stopReason": stop}


def test_a_loop_with_tools_is_listed_once() -> None:
    thought: Json = {"reasoningContent": {"reasoningText": {"text": "Hm"}}}
    used: Json = {"toolUse": {"toolUseId": "t", "name": "f", "input": {"x": 1}}}
    picture: Json = {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}
    given: Json = {"toolResult": {"toolUseId": "t", "content": [{"json": {"a": 1}}, picture]}}
    history: list[Json] = [
        {"role": "user", "content": [{"text": "go"}]},
        {"role": "assistant", "content": [used]},
        {"role": "user", "content": [given, {"text": "and?"}, {"cachePoint": {}}]},
    ]
    system: Json = [{"text": "Be brief."}]
    calls = [
        call(
            *(0, TARGET, {"system": system, "messages": history[:1]}, answer(thought, used)),
            route="bedrock",
        ),
        call(
            *(1, TARGET, {"system": system, "messages": history}),
            answer({"text": "Once"}, stop="max_tokens"),
            route="bedrock",
        ),
    ]

    found = messages_of(transcript(calls))

    assert isinstance(found[3], dict)
    assert str(found[3].pop("attachments")).startswith("[{'type': 'image', 'media_type': 'png', ")
    assert found == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": "",
            "thinking": "Hm",
            "tool_calls": [{"id": "t", "name": "f", "arguments": {"x": 1}}],
        },
        {"role": "tool", "content": '{"a":1}', "tool_call_id": "t", "name": "f"},
        {"role": "user", "content": "and?", "attachments": [{"type": "cachePoint"}]},
        {
            "role": "assistant",
            "content": "Once",
            "notes": ["the answer is incomplete: max_tokens"],
        },
    ]


def frames(*events: tuple[str, Json]) -> bytes:
    return b"".join([event(kind, json.dumps(value).encode()) for kind, value in events])


def streamed(body: bytes, asked: Json, target: str) -> Transcript:
    return transcript([call(0, target, asked, body, route="bedrock", media=MEDIA_TYPE)])


ASKED: Json = {"messages": [{"role": "user", "content": [{"text": "go"}]}]}


def test_a_stream_is_listed_as_the_whole_answer() -> None:
    thought: Json = {"reasoningContent": {"reasoningText": {"text": "Hm, well"}}}
    used: Json = {"toolUse": {"toolUseId": "t", "name": "f", "input": {"x": 12}}}
    content: list[Json] = [thought, {"text": "Hello"}, used]
    whole = transcript(
        [call(0, TARGET, ASKED, answer(*content, stop="max_tokens"), route="bedrock")]
    )
    begun: Json = {"toolUse": {"toolUseId": "t", "name": "f"}}
    deltas: list[tuple[int, Json]] = [
        (0, {"reasoningContent": {"text": "Hm, "}}),
        (0, {"reasoningContent": {"text": "well"}}),
        (0, {"reasoningContent": {"signature": "c2ln"}}),
        (1, {"text": "Hel"}),
        (1, {"text": "lo"}),
        (2, {"toolUse": {"input": '{"x": '}}),
        (2, {"toolUse": {"input": "12}"}}),
    ]
    body = frames(
        ("messageStart", {"role": "assistant", "p": "ab"}),
        ("contentBlockStart", {"contentBlockIndex": 2, "start": begun}),
        *[("contentBlockDelta", {"contentBlockIndex": at, "delta": delta}) for at, delta in deltas],
        ("contentBlockStop", {"contentBlockIndex": 2}),
        ("messageStop", {"stopReason": "max_tokens"}),
        ("metadata", {"usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}}),
    )

    assert messages_of(streamed(body, ASKED, f"{TARGET}-stream")) == messages_of(whole)
    assert messages_of(whole)[-1] == {
        "role": "assistant",
        "content": "Hello",
        "thinking": "Hm, well",
        "tool_calls": [{"id": "t", "name": "f", "arguments": {"x": 12}}],
        "notes": ["the answer is incomplete: max_tokens"],
    }


def test_a_stream_that_was_cut_off_is_listed_as_far_as_it_came() -> None:
    said: Json = {"contentBlockIndex": 0, "delta": {"text": "Hel"}}
    error = error_frame("modelStreamErrorException", b'{"message": "It ended."}')
    body = frames(("messageStart", {"role": "assistant"}), ("contentBlockDelta", said))

    ended = messages_of(streamed(body + error, ASKED, f"{TARGET}-stream"))
    assert ended[-1] == {
        "role": "assistant",
        "content": "Hel",
        "notes": ["interaction 0: the answer reported an error: It ended."],
    }
    cut = messages_of(streamed(body + error[:-7], ASKED, f"{TARGET}-stream"))
    assert cut[-1] == {"role": "assistant", "content": "Hel"}


def test_the_answer_of_an_anthropic_model_is_listed() -> None:
    asked: Json = {"anthropic_version": "bedrock-2023-05-31", "messages": [user("hi")]}
    message: Json = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "Hello"}],
    }
    events: list[Json] = [
        {"type": "message_start", "message": {"role": "assistant", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
        {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 1}},
    ]
    wrapped = [b64encode(json.dumps(one_event).encode()).decode() for one_event in events]
    body = b"".join([frames(("chunk", {"bytes": octets, "p": "a"})) for octets in wrapped])

    whole = transcript([call(0, "/model/m/invoke", asked, message, route="bedrock")])
    stream = streamed(body, asked, "/model/m/invoke-with-response-stream")

    assert (
        messages_of(whole)
        == messages_of(stream)
        == [user("hi"), {"role": "assistant", "content": "Hello"}]
    )


def test_an_error_is_noted_and_the_dialects_of_other_models_are_left_out() -> None:
    calls = [
        call(0, TARGET, ASKED, {"message": "Too many"}, route="bedrock", status=429),
        call(1, "/model/m/invoke", {"inputText": "go"}, {}, route="bedrock"),
    ]

    found = transcript(calls)

    assert found.messages[0].notes == ("interaction 0: the answer was an error, 429: Too many",)
    assert found.left_out == (LeftOut(1, "the conversations of bedrock's invoke are not read"),)


def test_a_streamed_call_without_arguments_and_a_block_without_text_are_listed() -> None:
    begun: Json = {"toolUse": {"toolUseId": "t", "name": "f"}}
    body = frames(
        ("messageStart", {"role": "assistant"}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": ""}}),
        ("contentBlockStop", {"contentBlockIndex": 0}),
        ("contentBlockStart", {"contentBlockIndex": 1, "start": begun}),
        ("contentBlockStop", {"contentBlockIndex": 1}),
        ("messageStop", {"stopReason": "tool_use"}),
    )

    assert messages_of(streamed(body, ASKED, f"{TARGET}-stream"))[-1] == {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "t", "name": "f", "arguments": {}}],
    }
