"""Gemini's Live sessions: media, control messages, handles."""

import json

import pytest

from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.session_dialect import AudioPiece, SentMessage
from tapeway.core.websocket.sessions import (
    SessionMessage,
    SessionRecording,
    SessionReplay,
    lookup_content,
)
from tapeway.providers.websocket.choice import GEMINI_LIVE

PCM = {"data": "YWJj", "mimeType": "audio/pcm"}
AUDIO = SentMessage("audio", (AudioPiece(b"abc", "audio/pcm"),))


def message(value: object, *, binary: bool = True) -> WebSocketMessage:
    return WebSocketMessage(json.dumps(value).encode(), binary)


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ({"realtimeInput": {"audio": PCM}}, AUDIO),
        ({"realtime_input": {"audio": {"data": "YWJj", "mime_type": "audio/pcm"}}}, AUDIO),
        ({"realtimeInput": {"mediaChunks": [PCM]}}, AUDIO),
        ({"realtime_input": {"media_chunks": [PCM]}}, AUDIO),
        ({"realtimeInput": {"text": "hi"}}, SentMessage()),
        ({"realtimeInput": {"activityStart": {}}}, SentMessage()),
        ({"realtimeInput": {"activityEnd": {}}}, SentMessage(ends_audio=True)),
        ({"realtime_input": {"audio_stream_end": True}}, SentMessage(ends_audio=True)),
        ({"setup": {"model": "m"}}, SentMessage()),
        ({"clientContent": {}}, SentMessage()),
        ({}, SentMessage()),
        ("words", SentMessage()),
    ],
)
def test_what_a_client_sends(value: object, sent: SentMessage) -> None:
    assert GEMINI_LIVE.read_sent(message(value)) == sent


def test_any_handle_resumes_and_no_handle_does_not() -> None:
    def setup(handle: dict[str, str]) -> WebSocketMessage:
        return message({"setup": {"model": "m", "sessionResumption": handle}})

    held = setup({"handle": "REDACTED.handle.ghijklmn"})
    other, none = setup({"handle": "another-handle-1a2b3c"}), setup({})
    recording = SessionRecording((SessionMessage(held, by_client=True),))
    assert SessionReplay(recording, GEMINI_LIVE).received(other) is None
    assert SessionReplay(recording, GEMINI_LIVE).received(none) is not None
    assert lookup_content(held, GEMINI_LIVE) == lookup_content(other, GEMINI_LIVE)
    assert lookup_content(held, GEMINI_LIVE) != lookup_content(none, GEMINI_LIVE)


def test_there_is_no_error_message() -> None:
    assert GEMINI_LIVE.error_message("replay_miss", "x") is None
