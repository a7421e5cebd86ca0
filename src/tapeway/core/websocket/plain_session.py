"""Sessions of unknown protocols: conventions common to most JSON and voice services."""

import base64
import binascii
from collections.abc import Mapping

from tapeway.core.correlation.ids import looks_random
from tapeway.core.json_text import Json, json_object
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.session_dialect import CONTROL, AudioPiece, SentMessage

_CORRELATING = frozenset(
    {
        *("event_id", "eventId", "message_id", "messageId", "request_id", "requestId"),
        *("correlation_id", "correlationId", "trace_id", "traceId", "client_event_id"),
        # Speech of Cartesia, ElevenLabs and Inworld.
        *("context_id", "contextId"),
    }
)
"""Members that tie a message to the answer: clients draw the values at random."""

_CONTENTS = frozenset({"args", "arguments", "body", "data", "params", "payload"})
"""Members that hold the content of a message. Beside these an `id` only names the message."""

_AUDIO_MEMBERS = ("audio", "audio_chunk", "user_audio_chunk", "audio_base_64", "chunk", "data")
_LEAST_AUDIO = 16
_MAGIC = (b"RIFF", b"OggS", b"fLaC", b"ID3", b"\x1aE\xdf\xa3", b"\xff\xfb", b"\xff\xf3", b"#!AMR")
"""The first bytes of containers of audio."""


class PlainSession:
    """JSON counts by value, audio by length, and every remaining message byte by byte.

    Audio is base64 in well-known members, or a binary message that begins like an audio file. With
    `binary_audio`, set by the path of a voice service, every binary message is audio.
    """

    name = "session"
    ignored: frozenset[str] = frozenset()

    def __init__(self, *, binary_audio: bool = False) -> None:
        self._binary_audio = binary_audio

    def read_sent(self, message: WebSocketMessage) -> SentMessage:
        """Classify a message of the client."""
        value = json_object(message.data)
        if value is None:
            return self._read_octets(message)
        piece = audio_in(value)
        return CONTROL if piece is None else SentMessage("audio", (AudioPiece(piece),))

    def is_identifier(self, steps: tuple[str | int, ...], container: object) -> bool:
        """Correlating members are identifiers, and a random `id` beside a member with content."""
        name = steps[-1] if steps else ""
        if name in _CORRELATING:
            return True
        if name != "id" or len(steps) != 1 or not isinstance(container, Mapping):
            return False
        own = container.get("id")
        return not _CONTENTS.isdisjoint(container) and isinstance(own, str) and looks_random(own)

    def error_message(self, code: str, text: str) -> WebSocketMessage | None:
        """None: an unknown protocol has no known error message."""
        return None

    def _read_octets(self, message: WebSocketMessage) -> SentMessage:
        if message.binary and (self._binary_audio or message.data.startswith(_MAGIC)):
            return SentMessage("audio", (AudioPiece(message.data),))
        return CONTROL


PLAIN = PlainSession()
VOICE = PlainSession(binary_audio=True)


def audio_in(value: Mapping[str, Json]) -> bytes | None:
    """The octets of a piece of audio; None if the message is no audio."""
    kind = value.get("type")
    if isinstance(kind, str) and "audio" not in kind.lower():
        return None
    for name in _AUDIO_MEMBERS if kind is not None else _AUDIO_MEMBERS[:4]:
        text = value.get(name)
        if isinstance(text, str) and len(text) >= _LEAST_AUDIO:
            octets = decoded(text)
            if octets is not None:
                return octets
    return None


def decoded(text: str) -> bytes | None:
    """The octets of a base64 text; None if the text is no base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
