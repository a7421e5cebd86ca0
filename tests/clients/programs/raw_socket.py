"""A client that is nothing but a socket: what it returns is what was on the wire."""

import asyncio
from dataclasses import dataclass
from urllib.parse import urlsplit

Fields = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Wire:
    """An answer as read. `chunks` are the HTTP chunks, or the whole body under a length."""

    status: int
    fields: Fields
    chunks: tuple[bytes, ...]
    chunked: bool
    complete: bool

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    def values(self, name: str) -> list[str]:
        """Every value of that field, in order."""
        return [value for key, value in self.fields if key.lower() == name.lower()]


async def exchange(
    url: str, method: str, target: str, fields: Fields = (), body: bytes = b""
) -> Wire:
    """Send one request on a new connection and read the answer to its end."""
    parts = urlsplit(url)
    lines = [f"{method} {target} HTTP/1.1", f"Host: {parts.netloc}"]
    lines += [f"{name}: {value}" for name, value in fields]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return await send_bytes(url, head + body, with_body=method != "HEAD")


async def send_bytes(url: str, sent: bytes, *, with_body: bool = True) -> Wire:
    """Send these very bytes on a new connection and read one answer."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=2**24)
    try:
        writer.write(sent)
        await writer.drain()
        return await _read(reader, with_body=with_body)
    finally:
        writer.close()
        await writer.wait_closed()


async def _read(reader: asyncio.StreamReader, *, with_body: bool) -> Wire:
    # Interim responses (RFC 9110, 15.2) come when the machine is busy: tapeway searches for loops.
    while (head := (await reader.readuntil(b"\r\n\r\n")).decode("latin-1"))[9] == "1":
        pass
    status_line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    fields = tuple((name, value) for name, _, value in (ln.partition(": ") for ln in lines))
    named = {name.lower(): value for name, value in fields}
    chunked = named.get("transfer-encoding") == "chunked"
    if not with_body:
        chunks, complete = list[bytes](), True
    elif chunked:
        chunks, complete = await _chunks(reader)
    else:
        chunks, complete = await _sized(reader, named.get("content-length"))
    return Wire(int(status_line.split(" ")[1]), fields, tuple(chunks), chunked, complete)


async def _chunks(reader: asyncio.StreamReader) -> tuple[list[bytes], bool]:
    chunks: list[bytes] = []
    try:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            chunks.append(await reader.readexactly(size))
            assert await reader.readexactly(2) == b"\r\n"
        assert await reader.readexactly(2) == b"\r\n"
    except asyncio.IncompleteReadError as short:
        return [*chunks, *([short.partial] if short.partial else [])], False
    return chunks, True


async def _sized(reader: asyncio.StreamReader, length: str | None) -> tuple[list[bytes], bool]:
    try:
        body = await reader.readexactly(int(length)) if length else await reader.read()
    except asyncio.IncompleteReadError as short:
        return [short.partial], False
    return [body] if body else [], True
