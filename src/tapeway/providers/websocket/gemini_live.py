"""Gemini's Live sessions, at the Gemini API and at Vertex AI; in camel case and in snake case."""

from collections.abc import Iterator, Mapping

from tapeway.core.json_text import Json, json_object
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.plain_session import decoded
from tapeway.core.websocket.session_dialect import CONTROL, AudioPiece, SentMessage

_INPUTS = ("realtimeInput", "realtime_input")
_CHUNKS = frozenset({"mediaChunks", "media_chunks"})
_MEDIA = frozenset({"audio", "video"}) | _CHUNKS
_ENDS_AUDIO = frozenset({"activityEnd", "activity_end", "audioStreamEnd", "audio_stream_end"})


class GeminiLiveSession:
    """The dialect; see `core.websocket.session_dialect.SessionDialect`."""

    name = "gemini-live"
    ignored: frozenset[str] = frozenset()

    def read_sent(self, message: WebSocketMessage) -> SentMessage:
        """Real-time input is a stream, unless it has a text or says where an activity ends."""
        value = json_object(message.data)
        given = next((value[name] for name in _INPUTS if name in value), None) if value else None
        if not isinstance(given, dict):
            return CONTROL
        if not given or not _MEDIA.issuperset(given):
            return SentMessage(ends_audio=not _ENDS_AUDIO.isdisjoint(given))
        return SentMessage("audio", tuple(_pieces(given)))

    def is_identifier(self, steps: tuple[str | int, ...], container: object) -> bool:
        """The handle of a resumed session: a secret, and new each time."""
        return steps[-1:] == ("handle",) and len(steps) > 1

    def error_message(self, code: str, text: str) -> WebSocketMessage | None:
        """None: the service closes with a reason."""
        return None


def _pieces(given: Mapping[str, Json]) -> Iterator[AudioPiece]:
    for name, value in given.items():
        for blob in value if name in _CHUNKS and isinstance(value, list) else [value]:
            if isinstance(blob, dict):
                data, kind = blob.get("data"), blob.get("mimeType", blob.get("mime_type"))
                octets = decoded(data) if isinstance(data, str) else None
                yield AudioPiece(octets or b"", kind if isinstance(kind, str) else "")
