"""A recorded WebSocket session as its messages, with the pieces of a text or a sound joined."""

import base64
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from tapeway.core.json_text import Json, dump, json_object
from tapeway.core.loose_json import string
from tapeway.core.model.interaction import Interaction
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.session_lines import read_session
from tapeway.inspection.spoken import SpokenLine, ends_turn, spoken

MOST_MESSAGES = 5000
MOST_CHARACTERS = 1024 * 1024
"""For the texts of all messages together."""

MOST_SOUND = 4 * 1024 * 1024
"""The bytes of sound shown of one session."""

_IDS = ("response_id", "item_id", "output_index", "content_index")


class SoundFormat(NamedTuple):
    """How samples are written; `tag` is the number of the codec in a WAV file."""

    tag: int = 1
    rate: int = 24_000
    bits: int = 16

    def wav(self, samples: bytes) -> bytes:
        """A WAV file of one channel."""
        width = self.bits // 8
        head = struct.pack(
            *("<HHIIHH", self.tag, 1, self.rate, self.rate * width, width, self.bits)
        )
        size = 20 + len(head) + len(samples)
        return (
            struct.pack("<4sI4s4sI", b"RIFF", size, b"WAVE", b"fmt ", len(head))
            + head
            + struct.pack("<4sI", b"data", len(samples))
            + samples
        )


_PCM = SoundFormat()
_FORMATS = {
    **dict.fromkeys(("g711_ulaw", "audio/pcmu"), SoundFormat(7, 8000, 8)),
    **dict.fromkeys(("g711_alaw", "audio/pcma"), SoundFormat(6, 8000, 8)),
}


class _Piece(NamedTuple):
    """A part of a text or of a sound that several messages bring."""

    key: tuple[object, ...]
    text: str = ""
    sound: bytes = b""
    format: SoundFormat = _PCM
    item: str = ""


@dataclass(slots=True)
class _Shown:
    """A message, or the joined pieces of several."""

    by_client: bool
    type: str
    at_ms: float
    until_ms: float
    pieces: int = 1
    texts: list[str] = field(default_factory=list)
    sounds: list[bytes] = field(default_factory=list)
    format: SoundFormat = _PCM
    value: Json = None
    item: str = ""

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def has_sound(self) -> bool:
        return any(self.sounds)

    def add(self, piece: _Piece, at_ms: float) -> None:
        self.until_ms = at_ms
        self.texts.append(piece.text)
        self.sounds.append(piece.sound)
        self.format = piece.format


def session(item: Interaction) -> dict[str, Json] | None:
    """The messages of a session; None for a recording of anything else."""
    if item.request.kind != "websocket" or item.response.file is not None:
        return None
    response = item.response
    times = response.arrivals().times
    # Without recorded times all lines are one piece.
    recorded = read_session(
        (at_ms, line)
        for at_ms, piece in zip(times, response.pieces(), strict=False)
        for line in piece.splitlines()
    )
    if not recorded.messages and recorded.close is None:
        return None
    joined: list[_Shown] = []
    growing: dict[tuple[object, ...], _Shown] = {}
    formats: dict[bool, SoundFormat] = {}
    for message in recorded.messages:
        _join(joined, growing, formats, message.message, message.by_client, message.at_ms)
    close = recorded.close
    return {
        "transcript": [_line(line) for line in spoken(joined[:MOST_MESSAGES])],
        "messages": [*_documents(joined[:MOST_MESSAGES])],
        "left_out": max(0, len(joined) - MOST_MESSAGES),
        "close": None
        if close is None
        else {
            "code": close.code,
            "reason": close.reason,
            "by": "client" if close.by_client else "service",
        },
    }


def _join(
    joined: list[_Shown],
    growing: dict[tuple[object, ...], _Shown],
    formats: dict[bool, SoundFormat],
    message: WebSocketMessage,
    by_client: bool,
    at_ms: float,
) -> None:
    """Add a message to the list, or a piece to the continued message."""
    value = json_object(message.data)
    kind = _type_of(message, value)
    piece = None if value is None else _piece(kind, value, formats.get(by_client, _PCM))
    if piece is None:
        # A message that is no piece ends what its side was saying.
        both = value is not None and ends_turn(kind, value)
        for key in [key for key in growing if both or key[0] == by_client]:
            del growing[key]
        shown = _Shown(by_client, kind, at_ms, at_ms)
        if value is None:
            shown.texts.append(_text_of(message))
        else:
            shown.value = value
            _note_formats(value, formats)
        joined.append(shown)
        return
    key = (by_client, *piece.key)
    if (begun := growing.get(key)) is None:
        begun = growing[key] = _Shown(by_client, kind, at_ms, at_ms, item=piece.item)
        joined.append(begun)
    else:
        begun.pieces += 1
    begun.add(piece, at_ms)


def _type_of(message: WebSocketMessage, value: Mapping[str, Json] | None) -> str:
    if value is None:
        return "binary" if message.binary else "text"
    kind = value.get("type")
    if isinstance(kind, str):
        return kind
    content = value.get("serverContent")
    inner = [*content] if isinstance(content, dict) else []
    return " ".join([*[name for name in value if name != "usageMetadata"], *inner])


def _text_of(message: WebSocketMessage) -> str:
    if message.binary:
        return f"{len(message.data)} byte{'' if len(message.data) == 1 else 's'}"
    return message.data.decode("utf-8", "replace")


def _piece(kind: str, value: Mapping[str, Json], format: SoundFormat) -> _Piece | None:
    """The piece that a message brings; None for a message of its own."""
    key = (kind, *(str(value.get(member)) for member in _IDS))
    item = string(value.get("item_id"))
    if kind.endswith(".delta") and isinstance(delta := value.get("delta"), str):
        if "audio" in kind and "transcript" not in kind:
            return _Piece(key, sound=_octets(delta), format=format, item=item)
        return _Piece(key, delta, item=item)
    if kind.endswith(".append") and isinstance(audio := value.get("audio"), str):
        return _Piece(key, sound=_octets(audio), format=format)
    return _gemini_piece(kind, value)


def _gemini_piece(kind: str, value: Mapping[str, Json]) -> _Piece | None:
    """A piece of the Gemini Live API: sound of the client, or a part of the model's turn."""
    texts: list[str] = []
    sounds: list[tuple[bytes, SoundFormat]] = []
    content, given = value.get("serverContent"), value.get("realtimeInput")
    if isinstance(content, dict) and content.keys() <= {
        "modelTurn",
        "outputTranscription",
        "inputTranscription",
    }:
        for name, item in content.items():
            parts = item.get("parts") if isinstance(item, dict) and name == "modelTurn" else [item]
            for part in parts if isinstance(parts, list) else ():
                _add_part(part, texts, sounds)
    elif isinstance(given, dict) and given.keys() <= {"audio", "mediaChunks"}:
        chunks = given.get("mediaChunks")
        for blob in (given.get("audio"), *(chunks if isinstance(chunks, list) else ())):
            _add_part({"inlineData": blob}, texts, sounds)
        if not sounds:
            return None
    if not (texts or sounds):
        return None
    format = sounds[0][1] if sounds else _PCM
    return _Piece((kind,), "".join(texts), b"".join(sound for sound, _ in sounds), format)


def _add_part(part: Json, texts: list[str], sounds: list[tuple[bytes, SoundFormat]]) -> None:
    if not isinstance(part, dict):
        return
    if isinstance(text := part.get("text"), str):
        texts.append(text)
    blob = part.get("inlineData")
    if not isinstance(blob, dict):
        return
    data, kind = blob.get("data"), blob.get("mimeType")
    if isinstance(data, str) and isinstance(kind, str) and kind.startswith("audio/pcm"):
        rate = kind.partition("rate=")[2]
        sounds.append(
            (
                _octets(data),
                SoundFormat(rate=int(rate) if rate.isdecimal() and len(rate) < 7 else 24_000),
            )
        )


def _octets(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except ValueError:
        return b""


def _note_formats(value: Mapping[str, Json], formats: dict[bool, SoundFormat]) -> None:
    """Note the formats of sound that a message of the Realtime API sets or confirms."""
    about = value.get("session")
    if not isinstance(about, dict):
        return
    audio = about.get("audio")
    for by_client, side in ((True, "input"), (False, "output")):
        stated = about.get(f"{side}_audio_format")
        settings = audio.get(side) if isinstance(audio, dict) else None
        newer = settings.get("format") if isinstance(settings, dict) else None
        if isinstance(newer, dict):
            stated = newer.get("type")
        if isinstance(stated, str):
            formats[by_client] = _FORMATS.get(stated, _PCM)


def _line(line: SpokenLine) -> Json:
    return {**asdict(line), "text": line.text[:MOST_CHARACTERS]}


def _documents(joined: list[_Shown]) -> Iterator[Json]:
    characters, octets = MOST_CHARACTERS, MOST_SOUND
    for piece in joined:
        text, value = piece.text[:characters], piece.value
        size = len(text) if value is None else len(dump(value))
        if size > characters:
            text, value = f"{size} bytes, which are not shown here", None
        characters -= len(text) if value is None else size
        samples = b"".join(piece.sounds)
        sound: Json = None
        if samples:
            shown = samples if len(samples) <= octets else b""
            octets -= len(shown)
            wav = base64.b64encode(piece.format.wav(shown)).decode() if shown else None
            sound = {"media_type": "audio/wav", "data": wav, "size": len(samples)}
        yield {
            "by": "client" if piece.by_client else "service",
            "type": piece.type,
            "at_ms": piece.at_ms,
            "until_ms": piece.until_ms,
            "pieces": piece.pieces,
            "text": text,
            "sound": sound,
            "value": value,
        }
