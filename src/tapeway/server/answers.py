"""The bytes of answers: head, framing and body, alike for hits, relays and errors.

tapeway writes answers itself, since aiohttp would add fields and drop octets outside
UTF-8. The framing is made for each client: a recording's framing fields are never replayed.
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Literal

from tapeway.core.http.chunks import LAST_CHUNK, size_line
from tapeway.core.model.control import Outcome
from tapeway.core.model.faults import Fault
from tapeway.core.model.messages import Headers, Response, ResponseHead

_BODILESS = frozenset({204, 304})
_JOIN_BELOW = 256 * 1024
"""Up to this size head and body are joined and sent in one write; beyond, nothing is copied."""

Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FramedHead:
    """The head of an answer, and how the client learns where the body ends.

    `framing` is `none` for an answer without a body, and `close` where the connection's end is the
    body's.
    """

    text: bytes
    framing: Literal["none", "length", "chunked", "close"]

    def piece(self, data: bytes) -> bytes:
        """A piece of the body in the framing of the answer."""
        if self.framing == "chunked":
            return chunk(data)
        return b"" if self.framing == "none" else data

    @property
    def last(self) -> bytes:
        """What is sent after the last piece."""
        return LAST_CHUNK if self.framing == "chunked" else b""


def frame(
    head: ResponseHead,
    extra: Headers,
    length: int | None,
    *,
    method: str,
    version: Version,
    keep_alive: bool,
) -> FramedHead:
    """The head of an answer to a request of this method and version.

    A body of unknown `length` is sent in chunks; to a client of HTTP/1.0 up to the connection's end.
    """
    lines = [b"HTTP/1.1 %d %b\r\n" % (head.status, head.reason.encode("utf-8", "surrogateescape"))]
    if fields := (*head.headers, *extra):
        # Joining takes a third of the time that formatting takes.
        lines += [b"\r\n".join(map(b": ".join, fields)), b"\r\n"]
    if version < (1, 1) and keep_alive:
        lines.append(b"Connection: keep-alive\r\n")
    elif version >= (1, 1) and not keep_alive:
        lines.append(b"Connection: close\r\n")
    framing: Literal["none", "length", "chunked", "close"] = "none"
    if method == "HEAD" or head.status in _BODILESS:
        pass
    elif head.status == 205:
        lines.append(b"Content-Length: 0\r\n")
    elif length is not None:
        lines.append(b"Content-Length: %d\r\n" % length)
        framing = "length"
    elif version >= (1, 1):
        lines.append(b"Transfer-Encoding: chunked\r\n")
        framing = "chunked"
    else:
        framing = "close"
    lines.append(b"\r\n")
    return FramedHead(b"".join(lines), framing)


def length_of(response: Response, version: Version) -> int | None:
    """The Content-Length of a whole answer, None for an answer in its recorded chunks."""
    return None if version >= (1, 1) and response.head.framing != "length" else response.size


def serialise(
    response: Response,
    extra: Headers,
    *,
    method: str,
    version: Version,
    keep_alive: bool,
) -> list[bytes]:
    """The bytes of a whole answer, in one piece if it is small."""
    head, body = serialise_parts(
        response, extra, method=method, version=version, keep_alive=keep_alive
    )
    return [head + body] if len(body) < _JOIN_BELOW else [head, body]


def serialise_parts(
    response: Response,
    extra: Headers,
    *,
    method: str = "GET",
    version: Version = (1, 1),
    keep_alive: bool = True,
) -> tuple[bytes, bytes]:
    """Head and framed body of a whole answer. A body with a length is the recorded one, not copied."""
    length = length_of(response, version)
    head = frame(
        response.head, extra, length, method=method, version=version, keep_alive=keep_alive
    )
    if head.framing == "none":
        return head.text, b""
    if head.framing != "chunked":
        return head.text, response.body
    lengths = response.arrivals().lengths
    parts = [LAST_CHUNK] * (2 * len(lengths) + 1)
    parts[:-1:2] = map(size_line, lengths)
    parts[1::2] = response.pieces()
    return head.text, b"\r\n".join(parts)


def chunk(data: bytes) -> bytes:
    """One HTTP chunk; nothing for no data, since an empty chunk would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def chunks(body: Iterable[bytes], recorded: Iterable[int]) -> Generator[bytes]:
    """A body that is read piece by piece, in HTTP chunks of the recorded lengths, and the last chunk."""
    lengths, left = iter(recorded), 0
    for piece in body:
        frames: list[bytes] = []
        start = 0
        while start < len(piece):
            if not left:
                left = next(lengths, len(piece) - start)
                frames.append(b"%x\r\n" % left)
            part = piece[start : start + left]
            frames.append(part)
            start += len(part)
            left -= len(part)
            if not left:
                frames.append(b"\r\n")
        yield b"".join(frames)
    yield LAST_CHUNK


def outcome_headers(
    outcome: Outcome,
    cassette: str,
    index: int | None,
    base: str = "",
    fault: Fault | None = None,
) -> Headers:
    """The headers that say where an answer came from, and which fault it got.

    The index is that in the `base`, if any.
    """
    fields: Headers = (
        (b"Tapeway-Outcome", outcome.encode()),
        (b"Tapeway-Cassette", cassette.encode()),
    )
    if base:
        fields = (*fields, (b"Tapeway-Base", base.encode()))
    if index is not None:
        fields = (*fields, (b"Tapeway-Interaction", b"%d" % index))
    return fields if fault is None else (*fields, (b"Tapeway-Fault", fault.name.encode()))
