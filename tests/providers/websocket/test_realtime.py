"""OpenAI's Realtime and Live sessions: audio, control messages, identifiers, errors."""

import json

import pytest

from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.session_dialect import AudioPiece, SentMessage
from tapeway.providers.websocket.choice import REALTIME

AUDIO = SentMessage("audio", (AudioPiece(b"abc"),))


@pytest.mark.parametrize(
    ("message", "sent"),
    [
        ({"type": "input_audio_buffer.append", "audio": "YWJj"}, AUDIO),
        ({"type": "session.input_audio.append", "audio": "YWJj"}, AUDIO),
        ({"type": "session.input_audio_buffer.append", "audio": "YWJj"}, AUDIO),
        ({"type": "input_audio_buffer.append"}, SentMessage("audio", (AudioPiece(b""),))),
        ({"type": "input_audio_buffer.commit"}, SentMessage(ends_audio=True)),
        ({"type": "input_audio_buffer.clear"}, SentMessage(ends_audio=True)),
        ({"type": "output_audio_buffer.clear"}, SentMessage()),
        ({"type": "response.create"}, SentMessage()),
        ({"audio": "YWJj"}, SentMessage()),
        ("words", SentMessage()),
    ],
)
def test_what_a_client_sends(message: object, sent: SentMessage) -> None:
    assert REALTIME.read_sent(WebSocketMessage(json.dumps(message).encode())) == sent


@pytest.mark.parametrize(
    ("steps", "is_identifier"),
    [
        (("event_id",), True),
        (("item", "id"), True),
        (("response", "input", 0, "id"), True),
        (("previous_item_id",), True),
        (("id",), False),
        (("session", "prompt", "id"), False),
        (("session", "voice"), False),
        ((), False),
    ],
)
def test_clients_draw_identifiers_of_events_and_items(
    steps: tuple[str | int, ...], is_identifier: bool
) -> None:
    assert REALTIME.is_identifier(steps, {}) is is_identifier


def test_an_error_is_an_event() -> None:
    told = REALTIME.error_message("replay_miss", "replay miss: …")
    assert told is not None
    value = json.loads(told.data)
    assert value["type"] == "error"
    assert value["event_id"]
    assert value["error"]["code"] == "replay_miss"
    assert value["error"]["message"] == "replay miss: …"
