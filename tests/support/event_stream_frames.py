"""Frames of AWS's event stream, as a service writes them."""

import base64
import json
import zlib


def frame(kind: str, payload: bytes = b"{}", *, message: str = "event") -> bytes:
    """A frame with its checksums; an exception names its kind in another header."""
    name = ":event-type" if message == "event" else ":exception-type"
    fields = {name: kind, ":content-type": "application/json", ":message-type": message}
    headers = b"".join([_header(*item) for item in fields.items()])
    prelude = (16 + len(headers) + len(payload)).to_bytes(4) + len(headers).to_bytes(4)
    checked = prelude + zlib.crc32(prelude).to_bytes(4) + headers + payload
    return checked + zlib.crc32(checked).to_bytes(4)


def model_frame(event: object) -> bytes:
    """A frame that carries a piece of a model's own stream."""
    inner = base64.b64encode(json.dumps(event).encode()).decode()
    return frame("chunk", json.dumps({"bytes": inner}).encode())


def _header(name: str, value: str) -> bytes:
    return len(name).to_bytes(1) + name.encode() + b"\x07" + len(value).to_bytes(2) + value.encode()
