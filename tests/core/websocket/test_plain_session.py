"""Sessions of protocols that nobody has described."""

import pytest

from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.plain_session import PLAIN, VOICE, decoded
from tapeway.core.websocket.session_dialect import CONTROL, AudioPiece, SentMessage

TEXT = b"c2l4dGVlbiBvY3RldHMh"
HEARD = SentMessage("audio", (AudioPiece(b"sixteen octets!"),))


@pytest.mark.parametrize(
    ("data", "sent"),
    [
        (b'{"user_audio_chunk":"%b"}' % TEXT, HEARD),
        (b'{"type":"audio_input","data":"%b"}' % TEXT, HEARD),
        (b'{"type":"say","data":"%b"}' % TEXT, CONTROL),
        (b'{"data":"%b"}' % TEXT, CONTROL),
        (b'{"type":"audio","data":"YWJj"}', CONTROL),
        (b'{"type":"audio","data":"no base64, but long"}', CONTROL),
        (b"hello", CONTROL),
        (b"{}", CONTROL),
    ],
)
def test_what_a_client_sends(data: bytes, sent: SentMessage) -> None:
    assert PLAIN.read_sent(WebSocketMessage(data)) == sent


@pytest.mark.parametrize(
    ("data", "audio"), [(b"RIFF\x00\x01", True), (b"OggS", True), (b"\x00\x01", False)]
)
def test_octets_are_audio_by_their_beginning_or_their_service(data: bytes, audio: bool) -> None:
    message = WebSocketMessage(data, binary=True)
    heard = SentMessage("audio", (AudioPiece(data),))
    assert PLAIN.read_sent(message) == (heard if audio else CONTROL)
    assert VOICE.read_sent(message) == heard


@pytest.mark.parametrize(
    ("steps", "container", "is_identifier"),
    [
        (("request_id",), {}, True),
        (("meta", "trace_id"), {}, True),
        (("context_id",), {}, True),
        (("create", "contextId"), {}, True),
        (("voice_id",), {}, False),
        (("id",), {"id": "a1b2c3d4e5f6", "method": "x", "params": {}}, True),
        (("id",), {"id": "a1b2c3d4e5f6", "type": "get"}, False),
        (("id",), {"id": "first", "params": {}}, False),
        (("user", "id"), {"id": "a1b2c3d4e5f6", "params": {}}, False),
        ((), {}, False),
    ],
)
def test_clients_draw_what_ties_a_message_to_its_answer(
    steps: tuple[str | int, ...], container: object, is_identifier: bool
) -> None:
    assert PLAIN.is_identifier(steps, container) is is_identifier


def test_base64_is_decoded() -> None:
    assert decoded("YWJj") == b"abc"
    assert decoded("?") is None
    assert PLAIN.error_message("replay_miss", "x") is None
