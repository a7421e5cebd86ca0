"""The end mark in AWS's event stream: length-prefixed binary frames with headers and checksums.

The layout is that of "Amazon event stream encoding" in the SDKs' documentation: total length, length
of the headers, checksum, headers, payload, checksum.

What AWS's event stream tells, taken out of its frames and put back into them.

A frame says how long it is and has checksums, and a model's own events stand in base64 inside: what
is exchanged in such bytes as they are leaves frames that no client reads.
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

_PRELUDE = 12
_CHECKSUM = 4
_LARGEST = 32 * 1024 * 1024
_TEXT = 7

# The sizes of the header values that have a fixed one, by their type.
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
MEDIA_TYPE = b"application/vnd.amazon.eventstream"
_INNER = re.compile(rb'(?<="bytes":)\s*"([A-Za-z0-9+/=]+)"')


class AwsFrameScanner:
    """A Scanner of frames.

    `last` is the event that ends the stream. Without one it is a model's own answer that the frames
    carry, and its own last event that ends it.
    """

    def __init__(self, last: str | None = None) -> None:
        self._last = last
        self.free = 0
        self.mark: EndMark = ""
        self._frame = bytearray()
        self._lost = False

    def feed(self, data: bytes) -> None:
        """Look at the next piece."""
        if self.mark:
            return
        self._frame += data
        while not self._lost and (size := self._whole()):
            self.mark = self._judge(bytes(self._frame[:size]))
            if self.mark:
                return
            self.free += size
            del self._frame[:size]
        if self._lost:
            # What is no frame to us is passed on for the client to judge.
            self.free += len(self._frame)
            self._frame.clear()

    def finish(self) -> None:
        """Take what has come for all there is; a client may not notice that half a frame is missing."""
        if not self.mark and (self._frame or self._lost):
            self.mark = "cut"

    def _whole(self) -> int:
        """The size of the first frame, 0 while it is not all there."""
        if len(self._frame) < _PRELUDE:
            return 0
        size = int.from_bytes(self._frame[:4])
        headers = int.from_bytes(self._frame[4:8])
        self._lost = not _PRELUDE + headers + _CHECKSUM <= size <= _LARGEST
        return size if not self._lost and size <= len(self._frame) else 0

    def _judge(self, frame: bytes) -> EndMark:
        end = _PRELUDE + int.from_bytes(frame[4:8])
        headers = dict(_headers(frame[_PRELUDE:end]))
        if headers.get(b":message-type") in (b"exception", b"error"):
            return "error"
        if self._last is not None:
            return "end" if headers.get(b":event-type") == self._last.encode() else ""
        return _of_model(frame[end:-_CHECKSUM])


def _headers(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The headers that hold text; what stands behind one of an unknown type is not read."""
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


def _of_model(payload: bytes) -> EndMark:
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


@dataclass(frozen=True, slots=True)
class AwsFrame:
    """A frame's place in the stream, its headers, and its text, with base64 in it opened.

    `inner` tells how much of the text stands before and behind what was opened. What is no whole
    frame is one without headers.
    """

    start: int
    end: int
    text: bytes
    headers: bytes | None = None
    inner: tuple[int, int] | None = None


def parse_frames(body: bytes) -> list[AwsFrame]:
    """All of the stream, frame by frame; what is no frame comes last."""
    return list(_frames(body))


def _frames(body: bytes) -> Iterator[AwsFrame]:
    at = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4])
        text_at = at + _PRELUDE + int.from_bytes(body[at + 4 : at + 8])
        end = at + size
        if not text_at + _CHECKSUM <= end <= len(body) or not _is_prelude(body, at):
            yield AwsFrame(at, len(body), body[at:])
            return
        payload = body[text_at : end - _CHECKSUM]
        text, inner = _opened(payload)
        yield AwsFrame(at, end, text, body[at + _PRELUDE : text_at], inner)
        at = end


def _is_prelude(body: bytes, at: int) -> bool:
    return zlib.crc32(body[at : at + 8]).to_bytes(4) == body[at + 8 : at + _PRELUDE]


def _opened(payload: bytes) -> tuple[bytes, tuple[int, int] | None]:
    found = _INNER.search(payload)
    if found is None:
        return payload, None
    try:
        plain = base64.b64decode(found[1], validate=True)
    except binascii.Error:
        return payload, None
    if not plain.startswith(b"{") or b"\n" in plain:
        return payload, None
    text = payload[: found.start()] + plain + payload[found.end() :]
    return text, (found.start(), len(payload) - found.end())
