"""What AWS's event stream tells, taken out of its frames and put back into them.

A frame says how long it is and has checksums, and a model's own events stand in base64 inside: what
is exchanged in such bytes as they are leaves frames that no client reads.
"""

import base64
import binascii
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tapeway.core.spans import Span, exchanged

MEDIA = b"application/vnd.amazon.eventstream"

_PRELUDE = 12
_CHECKSUM = 4
_INNER = re.compile(rb'(?<="bytes":)\s*"([A-Za-z0-9+/=]+)"')


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame's place in the stream, its headers, and its text, with base64 in it opened.

    `inner` tells how much of the text stands before and behind what was opened. What is no whole
    frame is one without headers.
    """

    start: int
    end: int
    text: bytes
    headers: bytes | None = None
    inner: tuple[int, int] | None = None


def read(body: bytes) -> list[Frame]:
    """All of the stream, frame by frame; what is no frame comes last."""
    return list(_frames(body))


def written(
    body: bytes, frames: Sequence[Frame], texts: Sequence[bytes], lengths: Sequence[int]
) -> list[bytes]:
    """The stream with these texts in its frames, in pieces where those of these lengths were."""
    changed = [
        (Span(frame.start, frame.end, None), _framed(frame, text))
        for frame, text in zip(frames, texts, strict=True)
        if text != frame.text
    ]
    return exchanged(body, lengths, changed)


def _frames(body: bytes) -> Iterator[Frame]:
    at = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4])
        text_at = at + _PRELUDE + int.from_bytes(body[at + 4 : at + 8])
        end = at + size
        if not text_at + _CHECKSUM <= end <= len(body) or not _is_prelude(body, at):
            yield Frame(at, len(body), body[at:])
            return
        payload = body[text_at : end - _CHECKSUM]
        text, inner = _opened(payload)
        yield Frame(at, end, text, body[at + _PRELUDE : text_at], inner)
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


def _framed(frame: Frame, text: bytes) -> bytes:
    if frame.headers is None:
        return text
    if frame.inner is not None:
        before, behind = frame.inner
        end = len(text) - behind
        text = text[:before] + b'"' + base64.b64encode(text[before:end]) + b'"' + text[end:]
    size = _PRELUDE + len(frame.headers) + len(text) + _CHECKSUM
    prelude = size.to_bytes(4) + len(frame.headers).to_bytes(4)
    checked = prelude + zlib.crc32(prelude).to_bytes(4) + frame.headers + text
    return checked + zlib.crc32(checked).to_bytes(4)
