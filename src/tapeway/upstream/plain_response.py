"""Reads the plainest responses of HTTP/1.1: a strict head, a length, or chunks in their strictest form.

Whatever is not plain is aiohttp's: the functions here refuse it, before anything of it was used.
"""

import re

from tapeway.core.http.headers import HOP_BY_HOP, OWN
from tapeway.core.model.messages import Framing, ResponseHead

MAX_HEAD = 16 * 1024
"""Below each limit of aiohttp's parser on lines, fields and their number."""

_HEAD = re.compile(
    rb"HTTP/1\.1 ([2-5][0-9][0-9]) ([!-~](?:[ -~]{0,200}[!-~])?)\r\n"
    rb"((?:[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}: ?[!-~](?:[ -~]*[!-~])?\r\n){1,128})\r\n"
)
_FIELD = re.compile(rb"([^:]+): ?(.*)\r\n")
_KEEP_ALIVE = b"keep-alive"
_PLAIN = frozenset({b"content-length", b"transfer-encoding", b"connection", b"keep-alive"})
"""Fields of one connection that a plain response may have, once."""
_SPECIAL = HOP_BY_HOP | OWN | _PLAIN | {b"sec-websocket-key1"}
"""Fields that change how the connection or the body is read, and those of another tapeway."""
_CHUNKED: Framing = "chunked"
_BY_LENGTH: Framing = "length"
_BODILESS = frozenset({b"204", b"205", b"304"})
_SIZE = re.compile(rb"[0-9]{1,15}")

_CHUNK_SIZE = re.compile(rb"[1-9a-fA-F][0-9a-fA-F]{0,6}|0")
_LONGEST_LINE = 7
_UNFINISHED = re.compile(rb"(?:[1-9a-fA-F][0-9a-fA-F]{0,6}\r?|0(?:\r(?:\n\r?)?)?)?")
_LAST_CHUNK = b"0\r\n\r\n"


def read_plain_head(data: bytes) -> tuple[ResponseHead, int] | None:
    """The head at the beginning of a segment and where its body begins; None if it is not plain."""
    found = _HEAD.match(data, 0, MAX_HEAD)
    if found is None or found[1] in _BODILESS:
        return None
    kept: list[tuple[bytes, bytes]] = []
    special: dict[bytes, bytes] = {}
    for field in _FIELD.findall(found[3]):
        name = field[0].lower()
        if name not in _SPECIAL:
            kept.append(field)
        elif name not in _PLAIN or name in special:
            return None
        else:
            special[name] = field[1].lower()
    size, coding = special.get(b"content-length"), special.get(b"transfer-encoding")
    if special.get(b"connection", _KEEP_ALIVE) != _KEEP_ALIVE:
        return None
    length, framing = None, _CHUNKED
    if size is not None and coding is None and _SIZE.fullmatch(size):
        length, framing = int(size), _BY_LENGTH
    elif size is not None or coding != b"chunked":
        return None
    status, reason = int(found[1]), found[2].decode()
    head = ResponseHead(status, reason, tuple(kept), framing, "HTTP/1.1", length)
    return head, found.end()


class PlainChunks:
    """Takes a chunked body apart, segment by segment.

    `left` is how much is missing of the chunk that has begun, None between two chunks; `rest` is the
    beginning of a line whose end is still to come. `ended` is set by the last chunk.
    """

    __slots__ = ("ended", "left", "rest", "size")

    def __init__(self) -> None:
        self.size = 0
        """How many bytes of the body have come."""
        self.left: int | None = None
        self.rest = b""
        self.ended = False

    def read_whole(self, data: bytes) -> list[bytes] | None:
        """The chunks of the next segment; None, and nothing is read, where it has parts of some.

        Nearly every segment of a stream has whole chunks, and no chunk a line end of this kind.
        """
        if self.left is not None or self.rest:
            return None
        parts = data.split(b"\r\n")
        if parts.pop():
            return None
        chunks = parts[1::2]
        sizes = [*map(_chunk_size, parts[::2])]
        if sizes != [*map(len, chunks)]:
            return None
        if 0 in sizes:
            if sizes.index(0) != len(sizes) - 1:
                return None
            self.ended = True
            chunks.pop()
        self.size += sum(sizes)
        return chunks

    def read(self, data: bytes) -> tuple[list[bytes], list[int], bytes]:
        """The pieces of chunks in the next segment, where chunks end in the body, and what is unread.

        What is unread is not plain; it comes where `left` says, and `rest` is then empty.
        """
        data = self.rest + data
        pieces, ends, at = list[bytes](), list[int](), 0
        self.rest = b""
        while True:
            if self.left is None:
                line_end = data.find(b"\r\n", at, at + _LONGEST_LINE + 2)
                size = _chunk_size(data[at:line_end]) if line_end >= 0 else -1
                if size <= 0:
                    break
                self.left, at = size, line_end + 2
            if piece := data[at : at + self.left]:
                pieces.append(piece)
                self.size += len(piece)
                self.left -= len(piece)
                at += len(piece)
            if self.left:
                return pieces, ends, b""
            if data[at : at + 2] != b"\r\n":
                break
            ends.append(self.size)
            self.left, at = None, at + 2
        return pieces, ends, self._unread(data[at:])

    def _unread(self, data: bytes) -> bytes:
        """What cannot be read of the rest: nothing, where it may still become plain."""
        if self.left is None and data == _LAST_CHUNK:
            self.ended = True
            return b""
        plain = data in (b"", b"\r") if self.left is not None else _UNFINISHED.fullmatch(data)
        if not plain:
            return data
        self.rest = data
        return b""


class _ChunkSizes(dict[bytes, int]):
    """The size that the line before a chunk says, -1 if it is not plain.

    Only short sizes are remembered, some thousands, and nothing that is none: it may be data.
    """

    def __missing__(self, line: bytes) -> int:
        if _CHUNK_SIZE.fullmatch(line) is None:
            return -1
        size = int(line, 16)
        if len(line) <= 3:
            self[line] = size
        return size


_chunk_size = _ChunkSizes().__getitem__
