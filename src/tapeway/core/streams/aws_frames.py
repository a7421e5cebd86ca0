"""AWS's event stream: binary frames with headers and checksums, read and written.

The layout is that of "Amazon event stream encoding" in the SDKs' documentation: total length, length
of the headers, checksum of these two, headers, payload, checksum of all before it. Bedrock's
`invoke-with-response-stream` carries a model's own events in base64 inside the payload's JSON.
"""

import base64
import binascii
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tapeway.core.streams.events import Event

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

    def halved(self) -> bytes:
        """The frame with half of its event's JSON, and matching lengths and checksums."""
        before, after = self.decoded or (0, 0)
        end = len(self.text) - after
        half = before + (end - before) // 2
        return self.with_text(self.text[:half] + self.text[end:])


def exception_frame(kind: str, payload: bytes) -> bytes:
    """A frame that reports an error of this kind."""
    headers = {b":exception-type": kind.encode(), b":message-type": b"exception"}
    headers[b":content-type"] = b"application/json"
    written = b"".join(
        [
            b"%c%b%c%b%b" % (len(name), name, _TEXT, len(value).to_bytes(2), value)
            for name, value in headers.items()
        ]
    )
    return AwsFrame(0, 0, b"", written).with_text(payload)


def parse_frames(body: bytes) -> list[AwsFrame]:
    """All frames of a stream. Data that is no frame comes last, as a frame without headers."""
    frames: list[AwsFrame] = []
    at = 0
    while (layout := _layout(body, at)) is not None and layout[1] <= len(body):
        payload_at, end = layout
        text, decoded = _decode_model_event(body[payload_at : end - _CHECKSUM])
        frames.append(AwsFrame(at, end, text, body[at + _PRELUDE : payload_at], decoded))
        at = end
    if at < len(body):
        frames.append(AwsFrame(at, len(body), body[at:]))
    return frames


class FrameEvents:
    """Frames as events, with payloads in which a model's event is decoded.

    Data that is no frame is for the client to judge: it is one event without data, at the end, and cut
    off where it is behind frames. A frame is kept whole, whatever its size.
    """

    def __init__(self, wanted: Sequence[bytes] = (), most: int = 0) -> None:
        self.size = 0
        self._pending = bytearray()
        self._stray: int | None = None
        """Where data begins that is no frame."""

    def feed(self, data: bytes) -> Sequence[Event]:
        events: list[Event] = []
        base = self.size - len(self._pending)
        self.size += len(data)
        self._pending += data
        at = 0
        while self._stray is None and len(self._pending) - at >= _PRELUDE:
            layout = _layout(self._pending, at)
            if layout is None:
                self._stray = base + at
                break
            if layout[1] > len(self._pending):
                break
            events.append(_event(bytes(self._pending[at : layout[1]]), base + at, layout[0] - at))
            at = layout[1]
        del self._pending[: at if self._stray is None else None]
        return events

    def finish(self) -> Sequence[Event]:
        start = self.size - len(self._pending) if self._stray is None else self._stray
        if start == self.size:
            return ()
        return (Event(start, closes=self.size, end=self.size, whole=self._stray == 0),)

    @property
    def begun(self) -> Event | None:
        return Event(self.size - len(self._pending)) if self._pending else None


def _event(frame: bytes, start: int, payload_at: int) -> Event:
    name, failed = _kind(frame[_PRELUDE:payload_at])
    text, _ = _decode_model_event(frame[payload_at:-_CHECKSUM])
    end = start + len(frame)
    return Event(start, [(start + payload_at, text)], name, name, failed, end, end, whole=True)


@lru_cache(maxsize=64)
def _kind(headers: bytes) -> tuple[str, bool]:
    """The event that a frame with these headers has, and whether it reports an error."""
    texts = dict(_text_headers(headers))
    name = texts.get(b":event-type", b"").decode("utf-8", "replace")
    return name, texts.get(b":message-type") in (b"exception", b"error")


def _layout(body: bytes | bytearray, at: int) -> tuple[int, int] | None:
    """Where the payload of the frame at `at` begins, and where the frame ends, by its own lengths.

    None if no frame begins there.
    """
    prelude = body[at : at + _PRELUDE]
    size, headers = int.from_bytes(prelude[:4]), int.from_bytes(prelude[4:8])
    if not _PRELUDE + headers + _CHECKSUM <= size <= _LARGEST:
        return None
    return (at + _PRELUDE + headers, at + size) if _checksum(prelude[:8]) == prelude[8:] else None


def _checksum(data: bytes | bytearray) -> bytes:
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


def _decode_model_event(payload: bytes) -> tuple[bytes, tuple[int, int] | None]:
    # The expression takes long where the member is missing.
    match = _MODEL_EVENT.search(payload) if payload.find(b'"bytes"') >= 0 else None
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
