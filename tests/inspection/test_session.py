"""A recorded session as its messages: pieces joined, sound as a file that plays, the rest as it came."""

import base64
import wave
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import pytest

from tapeway.core.json_text import dump
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import WEBSOCKET, ChunkTimes, Request, Response, ResponseHead
from tapeway.inspection.session import MOST_CHARACTERS, session

PIECE = base64.b64encode(b"\1\2").decode()


def shown(*lines: Mapping[str, Any]) -> dict[str, Any]:
    texts = [dump({**line}) + b"\n" for line in lines]
    times = ChunkTimes([(40.0 * at, len(text)) for at, text in enumerate(texts)])
    response = Response(ResponseHead(200), body=b"".join(texts), chunk_times=times)
    found: Any = session(Interaction(0, Request("openai", WEBSOCKET, "/v1/realtime"), response))
    return found  # type: ignore[no-any-return]


def service(kind: str, **members: object) -> dict[str, object]:
    return {"service": {"type": kind, **members}}


def test_pieces_of_interleaved_texts_and_sounds_are_joined() -> None:
    found = shown(
        service("response.output_audio_transcript.delta", delta="Hel"),
        service("response.output_audio.delta", delta=PIECE),
        {"client_text": "between"},
        service("response.output_audio_transcript.delta", delta="lo"),
        service("response.output_audio.delta", delta=PIECE),
        service("response.done"),
        service("response.output_audio_transcript.delta", delta="Next"),
    )["messages"]

    assert [(message["by"], message["text"], message["pieces"]) for message in found] == [
        ("service", "Hello", 2),
        ("service", "", 2),
        ("client", "between", 1),
        ("service", "", 1),
        ("service", "Next", 1),
    ]
    with wave.open(BytesIO(base64.b64decode(found[1]["sound"]["data"]))) as sound:
        assert (sound.getframerate(), sound.getsampwidth()) == (24_000, 2)
        assert sound.readframes(9) == b"\1\2\1\2"


@pytest.mark.parametrize(
    "about",
    [
        {"input_audio_format": "g711_ulaw"},
        {"audio": {"input": {"format": {"type": "audio/pcmu"}}}},
    ],
)
def test_the_session_says_how_its_sound_is_written(about: dict[str, object]) -> None:
    found = shown(
        {"client": {"type": "session.update", "session": about}},
        {"client": {"type": "input_audio_buffer.append", "audio": PIECE}},
        service("response.output_audio.delta", delta=PIECE),
    )["messages"]

    tags = [base64.b64decode(message["sound"]["data"])[20] for message in found[1:]]
    assert tags == [7, 1]


def test_gemini_s_turn_and_the_sound_of_its_client_are_joined() -> None:
    blob = {"mimeType": "audio/pcm;rate=16000", "data": PIECE}
    said = {"serverContent": {"modelTurn": {"parts": [{"inlineData": blob}, {"text": "a"}]}}}
    found = shown(
        {"client": {"setup": {"model": "m"}}},
        {"client": {"realtimeInput": {"audio": blob}}},
        {"client": {"realtimeInput": {"mediaChunks": [blob]}}},
        {"service_binary_json": said},
        {"service_binary_json": said},
        {"service_binary_json": {"serverContent": {"turnComplete": True}}},
    )["messages"]

    assert [(message["type"], message["pieces"], message["text"]) for message in found] == [
        ("setup", 1, ""),
        ("realtimeInput", 2, ""),
        ("serverContent modelTurn", 2, "aa"),
        ("serverContent turnComplete", 1, ""),
    ]
    assert [(message["sound"] or {}).get("size") for message in found] == [None, 4, 4, None]


def test_texts_have_a_bound_and_the_close_is_told() -> None:
    found = shown(
        {"client_text": "x" * (MOST_CHARACTERS + 1)},
        {"service_binary": PIECE},
        {"close": {"code": 1000, "reason": "done", "by": "client"}},
    )

    assert len(found["messages"][0]["text"]) == MOST_CHARACTERS
    assert [message["type"] for message in found["messages"]] == ["text", "binary"]
    assert found["close"] == {"code": 1000, "reason": "done", "by": "client"}


@pytest.mark.parametrize(
    "broken",
    [
        {"serverContent": {"modelTurn": {"parts": [7, {"inlineData": {"data": 1}}]}}},
        {"serverContent": {"modelTurn": None}},
        {"realtimeInput": {"audio": {"mimeType": "audio/pcm;rate=\u00b2", "data": "\u00e9"}}},
        {"type": "response.output_audio.delta", "delta": "\u00e9"},
        {"type": "session.update", "session": {"audio": {"input": {"format": 3}}}},
        {"type": 4},
    ],
)
def test_what_has_another_form_is_shown_as_it_came(broken: dict[str, object]) -> None:
    [message] = shown({"service": broken})["messages"]

    assert message["by"] == "service"


def said(*lines: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(line["who"], line["text"]) for line in shown(*lines)["transcript"]]


def test_what_was_heard_stands_where_it_was_handed_over() -> None:
    heard = "conversation.item.input_audio_transcription."
    found = shown(
        {"client": {"type": "input_audio_buffer.append", "audio": PIECE}},
        service("input_audio_buffer.committed", item_id="a"),
        service("response.output_text.delta", item_id="b", delta="Yes"),
        service(f"{heard}delta", item_id="a", delta="Is it"),
        service(f"{heard}completed", item_id="a", transcript="Is it open?"),
        service("response.output_text.done", item_id="b", text="Yes"),
        {"client": {"type": "input_audio_buffer.append", "audio": PIECE}},
        service("conversation.item.truncated", item_id="b"),
    )["transcript"]

    assert [(line["who"], line["text"], line["sounds"]) for line in found] == [
        ("you", "Is it open?", [0]),
        ("assistant", "Yes", []),
    ]
    assert [(line["at_ms"], line["interrupted"]) for line in found] == [(0.0, False), (80.0, True)]


def test_tools_texts_and_errors_of_a_session_are_lines() -> None:
    item = {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"a":1}'}
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
    output = {"type": "function_call_output", "call_id": "c", "output": "done"}

    assert said(
        {"client": {"type": "conversation.item.create", "item": message}},
        service("response.output_item.added", item=item),
        service("response.output_item.done", item=item),
        service("response.output_item.done", item=item),
        {"client": {"type": "conversation.item.create", "item": output}},
        service("response.output_audio_transcript.done", item_id="d", transcript="Good."),
        service("error", error={"message": "Too many"}),
    ) == [
        ("you", "Hi"),
        ("tool call", '{"a":1}'),
        ("tool result", "done"),
        ("assistant", "Good."),
        ("error", "Too many"),
    ]


def test_turns_of_gemini_are_lines_with_their_sounds() -> None:
    blob = {"mimeType": "audio/pcm;rate=16000", "data": PIECE}

    def content(**members: object) -> dict[str, object]:
        return {"service_binary_json": {"serverContent": members}}

    heard = {"client": {"realtimeInput": {"audio": blob}}}
    spoken = content(modelTurn={"parts": [{"inlineData": blob}]})
    call = {"functionCalls": [{"id": "f", "name": "look", "args": {"a": 1}}]}
    found = shown(
        heard,
        spoken,
        content(outputTranscription={"text": "One"}, turnComplete=True),
        heard,
        content(inputTranscription={"text": "And?"}),
        spoken,
        content(interrupted=True),
        {"client": {"clientContent": {"turns": [{"role": "user", "parts": [{"text": "Stop"}]}]}}},
        {"service_binary_json": {"toolCall": call}},
        {"client": {"toolResponse": {"functionResponses": [{"id": "f", "response": {}}]}}},
    )["transcript"]

    assert [(line["who"], line["text"], len(line["sounds"])) for line in found] == [
        ("you", "", 1),
        ("assistant", "One", 1),
        ("you", "And?", 1),
        ("assistant", "", 1),
        ("you", "Stop", 0),
        ("tool call", '{"a":1}', 0),
        ("tool result", "{}", 0),
    ]
    assert [line["interrupted"] for line in found].index(True) == 3
    assert [line["name"] for line in found[-2:]] == ["look", "look"]


def test_a_turn_is_no_session() -> None:
    assert shown({"type": "response.completed", "response": {}}) is None
