"""OpenAI's Realtime and Live sessions, and services of that form (Azure, xAI and more)."""

import re

import orjson

from tapeway.core.json_text import Json, json_object
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.plain_session import decoded
from tapeway.core.websocket.session_dialect import CONTROL, AudioPiece, SentMessage

_APPENDS = re.compile(r"(?:.*\.)?input_audio(?:_buffer)?\.append")
_ENDS_AUDIO = re.compile(r"(?:.*\.)?input_audio_buffer\.(?:commit|clear)")
_IDENTIFIERS = frozenset(
    {"call_id", "event_id", "item_id", "previous_item_id", "response_id", "client_event_id"}
)
_EVENT_ID = "event_replay_miss"
"""Clients refuse an event without an identifier."""


class RealtimeSession:
    """The dialect; see `core.websocket.session_dialect.SessionDialect`."""

    name = "openai-realtime"
    # How much of an interrupted answer was played differs from run to run.
    ignored = frozenset({"audio_end_ms"})

    def read_sent(self, message: WebSocketMessage) -> SentMessage:
        """Appended audio is a stream; a commit takes the audio before it for a whole."""
        value = json_object(message.data)
        kind = value.get("type") if value is not None else None
        if value is None or not isinstance(kind, str):
            return CONTROL
        if _APPENDS.fullmatch(kind):
            audio = value.get("audio")
            octets = decoded(audio) if isinstance(audio, str) else None
            return SentMessage("audio", (AudioPiece(octets or b""),))
        return SentMessage(ends_audio=_ENDS_AUDIO.fullmatch(kind) is not None)

    def is_identifier(self, steps: tuple[str | int, ...], container: object) -> bool:
        """Events and items: clients may draw their identifiers."""
        name = steps[-1] if steps else ""
        if name == "id" and len(steps) > 1:
            return steps[-2] == "item" or isinstance(steps[-2], int)
        return name in _IDENTIFIERS

    def error_message(self, code: str, text: str) -> WebSocketMessage | None:
        """An `error` event."""
        error: dict[str, Json] = {
            "type": code,
            "code": code,
            "message": text,
            "param": None,
            "event_id": None,
        }
        event = {"type": "error", "event_id": _EVENT_ID, "error": error}
        return WebSocketMessage(orjson.dumps(event))
