"""The baselines: servers that send bytes they have in memory, each with less around it.

`application` is an ordinary `aiohttp.web.Application`, `lowlevel` aiohttp's server without routes,
`parser` an asyncio protocol that reads requests with aiohttp's parser, which is written in C, and
`protocol` one that finds the end of a head and writes: the floor. `relay`, with the URL of an upstream
and a file, passes each request on and appends what came, without waiting for the disk: the floor of a
recording. `hold`, with the URL of an upstream, collects an answer without looking at it and sends it
on once it has come to its end: what reading and sending it takes.
"""

import asyncio
import base64
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import cache, partial
from typing import BinaryIO, cast
from urllib.parse import urlsplit

import uvloop
from aiohttp import ClientSession, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_parser import HttpRequestParser

from bench.answers import (
    EVENTS,
    HUGE_PATH,
    HUGE_SIZE,
    JSON_BODY,
    JSON_PATH,
    LARGE_BODY,
    LARGE_PATH,
    STREAM_PATH,
)

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n"
_WHOLE = _HEAD % b"application/json" + b"Content-Length: %d\r\n\r\n%b" % (len(JSON_BODY), JSON_BODY)
_STREAM = b"%bTransfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n" % (
    _HEAD % b"text/event-stream",
    b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in EVENTS),
)


async def answer(request: web.BaseRequest) -> web.StreamResponse:
    await request.read()
    if request.path == LARGE_PATH:
        return web.Response(body=LARGE_BODY, content_type="application/octet-stream")
    if request.path == HUGE_PATH:
        return web.FileResponse(f"/proc/self/fd/{huge_file().fileno()}")
    if request.path != STREAM_PATH:
        return web.Response(body=JSON_BODY, content_type="application/json")
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in EVENTS:
        await response.write(event)
    await response.write_eof()
    return response


@cache
def huge_file() -> BinaryIO:
    """A file without a name, with the body of HUGE_PATH."""
    file = cast(BinaryIO, tempfile.TemporaryFile())  # noqa: SIM115 - open until the process ends
    piece = LARGE_BODY[: 1 << 20]
    for _ in range(HUGE_SIZE // len(piece)):
        file.write(piece)
    file.flush()
    return file


def relay(session: ClientSession, upstream: str, file: BinaryIO) -> Handler:
    async def relayed(request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        fields = [
            (n, v)
            for n, v in request.headers.items()
            if n.lower() not in ("host", "content-length")
        ]
        async with session.request(
            request.method, upstream + request.path_qs, headers=fields, data=body
        ) as live:
            chunks = [piece async for piece, _ in live.content.iter_chunks()]
            made = {
                "request": [
                    request.method,
                    request.path_qs,
                    fields,
                    base64.b64encode(body).decode(),
                ],
                "response": [live.status, [*live.headers.items()]],
                "chunks": [base64.b64encode(chunk).decode() for chunk in chunks],
            }
            file.write(json.dumps(made).encode() + b"\n")
            file.flush()
            if live.content_length is not None:
                return web.Response(body=b"".join(chunks), content_type=live.content_type)
            response = web.StreamResponse(headers={"Content-Type": live.content_type})
            await response.prepare(request)
            for chunk in chunks:
                await response.write(chunk)
            await response.write_eof()
            return response

    return relayed


class Protocol(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        head, _, _ = data.partition(b"\r\n\r\n")
        _, path, _ = head[: head.index(b"\r\n")].split(b" ")
        self._transport.write(_STREAM if path == STREAM_PATH.encode() else _WHOLE)


class ParsingProtocol(BaseProtocol):
    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._requests = HttpRequestParser(self, loop, 2**16, auto_decompress=False)
        super().__init__(loop, self._requests)

    def data_received(self, data: bytes) -> None:
        messages, _, _ = self._requests.feed_data(data)
        for message, _ in messages:
            cast(asyncio.Transport, self.transport).write(
                _STREAM if message.path == STREAM_PATH else _WHOLE
            )


class Collector(asyncio.Protocol):
    """A connection to an upstream that collects an answer for a client of `Hold`."""

    client: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.upstream = cast(asyncio.Transport, transport)
        self._pieces: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        if data.endswith((b"0\r\n\r\n", JSON_BODY)):
            self.client.write(b"".join(self._pieces))
            self._pieces.clear()


class Hold(asyncio.Protocol):
    """Passes requests on by a connection of its own, from those that are free."""

    def __init__(self, free: list[Collector]) -> None:
        self._free = free

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._collector = self._free.pop()
        self._collector.client = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._collector.upstream.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._free.append(self._collector)


async def hold(upstream: str) -> Callable[[], asyncio.Protocol]:
    """What makes clients their protocol, with connections enough for all of them."""
    loop, url = asyncio.get_running_loop(), urlsplit(upstream)
    host, port = url.hostname or "", url.port or 0
    opened = [await loop.create_connection(Collector, host, port) for _ in range(64)]
    return partial(Hold, [connection for _, connection in opened])


async def main(kind: str, *more: str) -> None:
    if kind in ("parser", "protocol", "hold"):
        bare = ParsingProtocol if kind == "parser" else Protocol
        made = await hold(more[0]) if kind == "hold" else bare
        server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
    else:
        runner: web.AppRunner | web.ServerRunner
        if kind == "relay":
            file = await asyncio.to_thread(open, more[1], "ab")
            handler = relay(ClientSession(auto_decompress=False), more[0], file)
            runner = web.ServerRunner(web.Server(handler, access_log=None))
        elif kind == "application":
            application = web.Application()
            application.router.add_post(JSON_PATH, answer)
            application.router.add_post(STREAM_PATH, answer)
            application.router.add_post(LARGE_PATH, answer)
            application.router.add_post(HUGE_PATH, answer)
            runner = web.AppRunner(application, access_log=None)
        else:
            runner = web.ServerRunner(web.Server(answer, access_log=None))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
    sys.stdout.write(json.dumps({"event": "ready", "proxy": f"http://{host}:{port}"}) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
