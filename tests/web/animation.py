"""Screenshots of one size as an animated PNG."""

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_PLAYS = 3
"""Who reads beside it is left in peace after that; the last frame stays."""

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True, slots=True)
class Frame:
    png: bytes
    milliseconds: int


def animated(frames: Sequence[Frame]) -> bytes:
    """One PNG that shows them in turn, a few times; what knows no animations shows the first.

    The pixels stay as they were compressed.
    """
    (header,) = {_part(frame.png, b"IHDR") for frame in frames}
    width, height = struct.unpack_from(">II", header)
    parts = [_chunk(b"IHDR", header), _chunk(b"acTL", struct.pack(">II", len(frames), _PLAYS))]
    number = 0
    for frame in frames:
        shown = (width, height, 0, 0, frame.milliseconds, 1000, 0, 0)
        parts.append(_chunk(b"fcTL", struct.pack(">IIIIIHHBB", number, *shown)))
        pixels = _part(frame.png, b"IDAT")
        if number == 0:
            parts.append(_chunk(b"IDAT", pixels))
        else:
            number += 1
            parts.append(_chunk(b"fdAT", struct.pack(">I", number) + pixels))
        number += 1
    return b"".join([_SIGNATURE, *parts, _chunk(b"IEND", b"")])


def chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The kind and the content of each chunk."""
    at = len(_SIGNATURE)
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += 12 + length


def _part(png: bytes, kind: bytes) -> bytes:
    """The content of all chunks of a kind."""
    return b"".join(content for each, content in chunks(png) if each == kind)


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
