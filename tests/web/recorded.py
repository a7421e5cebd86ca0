"""Cassettes for the tests of the page, as documents."""

import base64
import json
import struct
import zlib
from typing import Any
from urllib.parse import quote

from tapeway.embedded.deck import Deck

HOSTILE = (
    "<script>window.ran = 1</script><img src=x onerror='window.ran = 2'>"
    '<a href="javascript:window.ran=3">x</a>"\'`${window.ran=4}{{7*7}}</textarea></title>'
)
"""Markup and code for every place where a text may become one."""


def stored(deck: Deck, name: str, interactions: list[dict[str, Any]]) -> None:
    """Put a cassette of these into the store."""
    document = {
        "version": "1",
        "created_at": "2026-01-02T03:04:05+00:00",
        "run_id": "a-run",
        "meta": {},
        "interactions": interactions,
    }
    deck.admin.call("PUT", f"cassettes/{quote(name, safe='')}", document, secrets="keep")


def exchange(body: object, response: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A recorded POST of a JSON body."""
    request = {
        "method": "POST",
        "url": "http://service.invalid/v1/items",
        "json": body,
        "route": "default",
    }
    headers = {"Content-Type": "application/json"} if "json" in response else {}
    answer = {"status_code": 200, "headers": headers, **response}
    return {"kind": "http", "request": request, "response": answer, **more}


def png(width: int = 8, height: int = 8) -> bytes:
    """An image of one colour."""
    rows = b"".join(b"\0" + b"\x2f\x6f\x5e" * width for _ in range(height))
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def wav(samples: int = 800) -> bytes:
    """A short silence."""
    data = b"\0\0" * samples
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16)
    return (
        b"RIFF"
        + struct.pack("<I", 36 + len(data))
        + b"WAVE"
        + head
        + struct.pack("<4sI", b"data", len(data))
        + data
    )


def text_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def stream(words: list[str], gap_ms: float = 40.0) -> dict[str, Any]:
    """The response of a chat whose words came one by one."""
    events = [
        "data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": word}}]}) + "\n\n"
        for word in words
    ]
    events.append("data: [DONE]\n\n")
    return {
        "headers": {"Content-Type": "text/event-stream"},
        "text": "".join(events),
        "framing": "chunked",
        "chunks": [[(at + 1) * gap_ms, len(event)] for at, event in enumerate(events)],
        "verdict": "marked",
    }
