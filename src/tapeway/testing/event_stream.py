"""Frames of AWS's event stream encoding, with both of their checksums."""

import struct
import zlib
from collections.abc import Mapping

CONTENT_TYPE = "application/vnd.amazon.eventstream"

_STRING = 7


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One message: prelude and its CRC, header fields, payload, and the CRC of all of it."""
    fields = b"".join(_field(name, value) for name, value in headers.items())
    prelude = struct.pack(">II", 16 + len(fields) + len(payload), len(fields))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + fields + payload
    return message + struct.pack(">I", zlib.crc32(message))


def event(kind: str, payload: bytes) -> bytes:
    """An event of that type, whose payload is JSON."""
    return frame(
        {
            ":event-type": kind,
            ":content-type": "application/json",
            ":message-type": "event",
        },
        payload,
    )


def failure(kind: str, payload: bytes) -> bytes:
    """An exception in the midst of a stream."""
    return frame(
        {
            ":exception-type": kind,
            ":content-type": "application/json",
            ":message-type": "exception",
        },
        payload,
    )


def _field(name: str, value: str) -> bytes:
    written, content = name.encode(), value.encode()
    return (
        struct.pack(">B", len(written))
        + written
        + struct.pack(">BH", _STRING, len(content))
        + content
    )
