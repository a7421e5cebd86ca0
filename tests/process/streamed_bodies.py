"""Bodies of any size on real sockets, made and checked piece by piece: none is ever held whole."""

import asyncio
import hashlib
import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

MIB = 1024 * 1024
PIECE = 64 * 1024

Framing = Literal["length", "chunked"]
_BLOCK = bytes(range(251)) * (PIECE // 251 + 2)


def pieces(size: int, seed: int = 0) -> Iterator[bytes]:
    """A body of this size, the same for the same seed."""
    for at in range(0, size, PIECE):
        start = (at // PIECE * 7 + seed) % 251
        yield _BLOCK[start : start + min(PIECE, size - at)]


def digest(size: int, seed: int = 0) -> str:
    whole = hashlib.sha256()
    for piece in pieces(size, seed):
        whole.update(piece)
    return whole.hexdigest()


@dataclass(frozen=True, slots=True)
class CorrelationMatches:
    """An answer as its client saw it; `chunks` are the lengths of its HTTP chunks."""

    status: int
    head: bytes
    size: int
    digest: str
    chunks: tuple[int, ...]
    whole: bool


@asynccontextmanager
async def giant(size: int, framing: Framing = "length") -> AsyncIterator[str]:
    """The URL of an upstream that takes any body and answers with one of this size.

    It tells in `x-got` the size and digest of the request's body.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"(?i)content-length: (\d+)", head)
        left, got = int(found[1]) if found else 0, hashlib.sha256()
        said = b"%d" % left
        while left:
            piece = await reader.read(min(left, MIB))
            if not piece:
                break
            got.update(piece)
            left -= len(piece)
        framed = (
            b"Content-Length: %d" % size if framing == "length" else b"Transfer-Encoding: chunked"
        )
        got_text = got.hexdigest().encode()
        writer.write(b"HTTP/1.1 200 OK\r\nX-Got: %b %b\r\n%b\r\n\r\n" % (said, got_text, framed))
        for piece in pieces(size):
            writer.write(piece if framing == "length" else b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        if framing == "chunked":
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def get(url: str, target: str) -> CorrelationMatches:
    """The answer to a GET."""
    return await asyncio.to_thread(_ask, url, b"GET", target, 0, b"")


async def post(url: str, target: str, size: int, content_type: bytes) -> CorrelationMatches:
    """The answer to a POST with a body of this size."""
    return await asyncio.to_thread(_ask, url, b"POST", target, size, content_type)


def _ask(
    url: str, method: bytes, target: str, size: int, content_type: bytes
) -> CorrelationMatches:
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=120) as peer:
        fields = b"Content-Length: %d\r\nContent-Type: %b\r\n" % (size, content_type)
        peer.sendall(
            b"%b %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%b\r\n"
            % (method, target.encode(), fields if method == b"POST" else b"")
        )
        try:
            for piece in pieces(size):
                peer.sendall(piece)
        except ConnectionError:
            # Refused in the middle: the answer says why.
            pass
        with peer.makefile("rb", buffering=MIB) as answer:
            return _read(answer)


def _read(answer: object) -> CorrelationMatches:
    read, readline = answer.read, answer.readline  # type: ignore[attr-defined]
    lines = []
    while (line := readline()).strip():
        lines.append(line)
    head = b"".join(lines)
    got, size, chunks = hashlib.sha256(), 0, []
    whole = True

    def take(left: int) -> bool:
        nonlocal size
        while left:
            piece = read(min(left, MIB))
            if not piece:
                return False
            got.update(piece)
            size += len(piece)
            left -= len(piece)
        return True

    if found := re.search(rb"(?i)content-length: (\d+)", head):
        whole = take(int(found[1]))
    else:
        while whole:
            line = readline()
            if not line.strip() or not int(line, 16):
                whole = bool(line.strip())
                break
            chunks.append(int(line, 16))
            whole = take(chunks[-1]) and readline() == b"\r\n"
    status = int(head.split(b" ")[1]) if head else 0
    return CorrelationMatches(status, head, size, got.hexdigest(), tuple(chunks), whole)


class Memory:
    """How much more memory a process took than when this began."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        self._idle = self._now("VmRSS")
        # From here on the peak is counted anew.
        (self._folder / "clear_refs").write_text("5")

    @property
    def growth(self) -> int:
        """Bytes at its highest."""
        return self._now("VmHWM") - self._idle

    def _now(self, name: str) -> int:
        found = re.search(rf"{name}:\s+(\d+) kB", (self._folder / "status").read_text())
        assert found is not None
        return int(found[1]) * 1024
