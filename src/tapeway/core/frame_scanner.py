"""The end mark in AWS's event stream: length-prefixed binary frames with headers and checksums.

The layout is that of "Amazon event stream encoding" in the SDKs' documentation: total length, length
of the headers, checksum, headers, payload, checksum.
"""

import base64
from collections.abc import Iterator

import orjson

from tapeway.core.completeness import Mark
from tapeway.core.json_text import Json

_PRELUDE = 12
_CHECKSUM = 4
_LARGEST = 32 * 1024 * 1024
_TEXT = 7
# The sizes of the header values that have a fixed one, by their type.
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}


class FrameScanner:
    """A Scanner of frames.

    `last` is the event that ends the stream. Without one it is a model's own answer that the frames
    carry, and its own last event that ends it.
    """

    def __init__(self, last: str | None = None) -> None:
        self._last = last
        self.free = 0
        self.mark: Mark = ""
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

    def _judge(self, frame: bytes) -> Mark:
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


def _of_model(payload: bytes) -> Mark:
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
