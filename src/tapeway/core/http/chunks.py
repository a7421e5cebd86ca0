"""Bodies in chunks: of HTTP (RFC 9112 section 7.1), and of AWS clients with signatures."""

import re
from typing import Literal

LAST_CHUNK = b"0\r\n\r\n"

_FEW = 4096

_LONGEST_LINE = 1024
_MOST_TRAILERS = 16 * 1024
_LINE_END = b"\r\n"


class _SizeLines(dict[int, bytes]):
    """The line before a chunk, by the chunk's size; lines for small chunks are remembered."""

    def __missing__(self, size: int) -> bytes:
        line = b"%x" % size
        if size < _FEW:
            self[size] = line
        return line


size_line = _SizeLines().__getitem__
"""The line before a chunk of `size` bytes, without the line end."""


class MalformedChunks(Exception):
    """The body is not in chunks."""


class AwsChunks:
    """The data of a body in signed chunks that arrives piece by piece.

    Each chunk begins with the length in hex and a signature, which is new in each
    request: `10000;chunk-signature=…`. The last chunk is empty; trailers with checksums may follow.
    """

    def __init__(self) -> None:
        self.ended = False
        """Whether the last chunk was there."""
        self._buffer = b""
        self._left = 0
        self._expects: Literal["head", "data", "end"] = "head"

    def feed(self, data: bytes, room: int = 0) -> bytes:
        """The data in the next piece. Raises MalformedChunks. It never needs more `room` than that."""
        self._buffer += data
        pieces: list[bytes] = []
        while not self.ended and (piece := self._next()) is not None:
            pieces.append(piece)
        if self.ended and len(self._buffer) > _MOST_TRAILERS:
            raise MalformedChunks
        return b"".join(pieces)

    def _next(self) -> bytes | None:
        """Some data, b"" behind a line, or None where more has to come first."""
        if self._expects == "data":
            piece, self._buffer = self._buffer[: self._left], self._buffer[self._left :]
            self._left -= len(piece)
            if not self._left:
                self._expects = "end"
            return piece or None
        end = self._buffer.find(_LINE_END)
        if end < 0:
            if len(self._buffer) > _LONGEST_LINE:
                raise MalformedChunks
            return None
        line, self._buffer = self._buffer[:end], self._buffer[end + len(_LINE_END) :]
        if self._expects == "end":
            if line:
                raise MalformedChunks
            self._expects = "head"
            return b""
        return self._begin(line)

    def _begin(self, line: bytes) -> bytes:
        size, _, _ = line.partition(b";")
        try:
            self._left = int(size.decode("ascii"), 16)
        except ValueError:
            raise MalformedChunks from None
        self.ended = self._left == 0
        self._expects = "data"
        return b""


_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED = rb'"[ !#-\[\]-~]*"'
_SIZE = re.compile(rb"0*([0-9A-Fa-f]{1,15})(?:;%b(?:=(?:%b|%b))?)*\r\n" % (_TOKEN, _TOKEN, _QUOTED))
_SIZE_SO_FAR = re.compile(rb"[0-9A-Fa-f]*(?:[;\r].*)?")
_TRAILER = re.compile(rb"%b:[ \t]*[!-~\t ]*\r\n" % _TOKEN)
_LONGEST_SIZE_LINE = 16 * 1024


class ChunkedBody:
    """Finds where a chunked body ends, while aiohttp's parser reads it.

    The parser does not tell at which byte a body ended, nor that a body was given up. The chunks are
    therefore followed in parallel, never more leniently than the parser.
    """

    __slots__ = ("_left", "_line", "_trailers", "ended")

    def __init__(self) -> None:
        self.ended = False
        self._line = b""
        """A line that is not whole yet."""
        self._left = 0
        """The missing bytes of a chunk and the line end after the data."""
        self._trailers = False

    def take(self, data: bytes) -> int:
        """How many of these bytes belong to the body. Raises MalformedChunks."""
        at = 0
        while at < len(data) and not self.ended:
            at = self._in_chunk(data, at) if self._left else self._in_line(data, at)
        return at

    def _in_chunk(self, data: bytes, at: int) -> int:
        end = min(len(data), at + self._left)
        self._left -= end - at
        if (end_bytes := len(_LINE_END) - self._left) > 0:
            beginning = data[end - min(end_bytes, end - at) : end]
            if not _LINE_END[:end_bytes].endswith(beginning):
                raise MalformedChunks
        return end

    def _in_line(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at) + 1
        self._line += data[at : end or len(data)]
        if len(self._line) > _LONGEST_SIZE_LINE:
            raise MalformedChunks
        if not end:
            if not self._trailers and _SIZE_SO_FAR.fullmatch(self._line) is None:
                raise MalformedChunks
            return len(data)
        line, self._line = self._line, b""
        if self._trailers:
            self._end_or_trailer(line)
        elif (size := _SIZE.fullmatch(line)) is None:
            raise MalformedChunks
        elif length := int(size[1], 16):
            self._left = length + len(_LINE_END)
        else:
            self._trailers = True
        return end

    def _end_or_trailer(self, line: bytes) -> None:
        if line == _LINE_END:
            self.ended = True
        elif _TRAILER.fullmatch(line) is None:
            raise MalformedChunks
