"""HTTP/1 messages, read for tools that record the wire.

A tool may have changed a message and left the length: a length beyond the body does not count.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tapeway.core.http.headers import find_header
from tapeway.core.model.messages import Headers

_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]+)[^\r\n]*\r?\n")


@dataclass(frozen=True, slots=True)
class HttpMessage:
    """The parts of the first line, the fields, and the body in its chunks."""

    start: tuple[bytes, bytes, bytes]
    headers: Headers
    chunks: tuple[bytes, ...]

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)


def read_message(raw: bytes) -> HttpMessage | None:
    """The message, None for a text without a first line."""
    end = _END_OF_HEAD.search(raw)
    head, body = (raw[: end.start()], raw[end.end() :]) if end else (raw.rstrip(b"\r\n"), b"")
    first, *lines = head.replace(b"\r\n", b"\n").split(b"\n")
    parts = first.split(b" ", 2)
    if len(parts) < 2:
        return None
    headers = tuple(_fields(lines))
    coding = find_header(headers, b"transfer-encoding") or b""
    chunked = coding.lower().rstrip().endswith(b"chunked")
    chunks = tuple(_chunks(body)) if chunked else (_measured(headers, body),)
    start = (parts[0], parts[1], parts[2].strip() if len(parts) > 2 else b"")
    return HttpMessage(start, headers, chunks)


def _fields(lines: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    for line in lines:
        name, colon, value = line.partition(b":")
        if colon and name.strip():
            yield name.strip(), value.strip()


def _measured(headers: Headers, body: bytes) -> bytes:
    length = find_header(headers, b"content-length") or b""
    return body[: int(length)] if length.isdigit() else body


def _chunks(body: bytes) -> Iterator[bytes]:
    """The chunks; a rest in another form is the last chunk."""
    at = 0
    while match := _SIZE.match(body, at):
        size = int(match[1], 16)
        if not size:
            return
        at = match.end() + size
        yield body[match.end() : at]
        at = body.find(b"\n", at) + 1 or len(body)
    if body[at:]:
        yield body[at:]
