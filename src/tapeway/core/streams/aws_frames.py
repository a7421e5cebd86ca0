"""AWS's event stream: binary frames with headers and checksums, read and written.

The layout is that of "Amazon event stream encoding" in the SDKs' documentation: total length, length
of the headers, checksum of these two, headers, payload, checksum of all before it. Bedrock's
`invoke-with-response-stream` carries a model's own events in base64 inside the payload's JSON.
"""

import base64
import binascii
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from tapeway.core.json_text import Json
from tapeway.core.streams.end_marks import EndMark

MEDIA_TYPE = b"application/vnd.amazon.eventstream"

_PRELUDE = 12
_CHECKSUM = 4
_LARGEST = 32 * 1024 * 1024
_TEXT = 7

# The sizes of header values of a fixed size, by type.
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_MODEL_EVENT = re.compile(rb'(?<="bytes":)\s*"([A-Za-z0-9+/=]+)"')


@dataclass(frozen=True, slots=True)
class AwsFrame:
    """A frame: place in the stream, headers, and payload with a model's event decoded.

    `decoded` has the number of bytes of the text before and after the decoded part. Data that is
    not a whole frame has no headers.
    """

    start: int
    end: int
    text: bytes
    headers: bytes | None = None
    decoded: tuple[int, int] | None = None

    def with_text(self, text: bytes) -> bytes:
        """The frame's bytes with a new text, and matching lengths and checksums."""
        if self.headers is None:
            return text
        if self.decoded is not None:
            before, after = self.decoded
            end = len(text) - after
            text = text[:before] + b'"' + base64.b64encode(text[before:end]) + b'"' + text[end:]
        size = _PRELUDE + len(self.headers) + len(text) + _CHECKSUM
        prelude = size.to_bytes(4) + len(self.headers).to_bytes(4)
        checked = prelude + _checksum(prelude) + self.headers + text
        return checked + _checksum(checked)


def parse_frames(body: bytes) -> list[AwsFrame]:
    """All frames of a stream. Data that is no frame comes last, as a frame without headers."""
    frames: list[AwsFrame] = []
    at = 0
    while at < len(body):
        payload_at, end = _layout(body, at)
        whole = payload_at + _CHECKSUM <= end <= len(body)
        if not whole or _checksum(body[at : at + 8]) != body[at + 8 : at + _PRELUDE]:
            frames.append(AwsFrame(at, len(body), body[at:]))
            break
        text, decoded = _decode_model_event(body[payload_at : end - _CHECKSUM])
        frames.append(AwsFrame(at, end, text, body[at + _PRELUDE : payload_at], decoded))
        at = end
    return frames


class AwsFrameScanner:
    """An EndScanner of frames.

    `last` is the event that ends the stream, empty where none is known. With None the frames carry a
    model's stream, and the model's last event ends it. Clients verify the checksums.
    """

    def __init__(self, last: str | None = None) -> None:
        self._last = last
        self.releasable = 0
        self.mark: EndMark = ""
        self._pending = bytearray()
        self._not_frames = False

    def feed(self, data: bytes) -> None:
        """Scan the next piece."""
        if self.mark:
            return
        self._pending += data
        while not self._not_frames and (size := self._whole_frame()):
            self.mark = self._mark_of(bytes(self._pending[:size]))
            if self.mark:
                return
            self.releasable += size
            del self._pending[:size]
        if self._not_frames:
            # Anything that is not a frame is passed on for the client to judge.
            self.releasable += len(self._pending)
            self._pending.clear()

    def finish(self) -> None:
        """Treat the received bytes as the whole body; a client may not notice that half a frame is
        missing.
        """
        if not self.mark and (self._pending or (self._not_frames and self._last != "")):
            self.mark = "cut"

    def _whole_frame(self) -> int:
        """The size of the first frame, 0 while it is not all there."""
        if len(self._pending) < _PRELUDE:
            return 0
        payload_at, end = _layout(self._pending, 0)
        self._not_frames = not payload_at + _CHECKSUM <= end <= _LARGEST
        return end if not self._not_frames and end <= len(self._pending) else 0

    def _mark_of(self, frame: bytes) -> EndMark:
        payload_at, end = _layout(frame, 0)
        headers = dict(_text_headers(frame[_PRELUDE:payload_at]))
        if headers.get(b":message-type") in (b"exception", b"error"):
            return "error"
        if self._last is not None:
            return "end" if headers.get(b":event-type") == self._last.encode() else ""
        return _model_mark(frame[payload_at : end - _CHECKSUM])


def _layout(body: bytes | bytearray, at: int) -> tuple[int, int]:
    """Where the payload of the frame at `at` begins, and where the frame ends, by its own lengths."""
    size, headers = int.from_bytes(body[at : at + 4]), int.from_bytes(body[at + 4 : at + 8])
    return at + _PRELUDE + headers, at + size


def _checksum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4)


def _text_headers(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The headers with text values; nothing after one of an unknown type is read."""
    at = 0
    while at < len(text):
        name = text[at + 1 : at + 1 + text[at]]
        at += 1 + len(name)
        kind = text[at] if at < len(text) else -1
        size = _SIZES.get(kind)
        at += 1
        if size is None:
            size = int.from_bytes(text[at : at + 2])
            at += 2
        if kind == _TEXT:
            yield name, text[at : at + size]
        at += size


def _model_mark(payload: bytes) -> EndMark:
    try:
        outer: Json = orjson.loads(payload)
        inner = outer.get("bytes") if isinstance(outer, dict) else None
        event: Json = orjson.loads(base64.b64decode(inner)) if isinstance(inner, str) else None
    except ValueError:
        return ""
    match event:
        case {"type": "error"}:
            return "error"
        case {"type": "message_stop"} | {"amazon-bedrock-invocationMetrics": _}:
            return "end"
    return ""


def _decode_model_event(payload: bytes) -> tuple[bytes, tuple[int, int] | None]:
    match = _MODEL_EVENT.search(payload)
    if match is None:
        return payload, None
    try:
        event = base64.b64decode(match[1], validate=True)
    except binascii.Error:
        return payload, None
    # On one line: redaction reads the frames' texts as lines.
    if not event.startswith(b"{") or b"\n" in event:
        return payload, None
    text = payload[: match.start()] + event + payload[match.end() :]
    return text, (match.start(), len(payload) - match.end())
