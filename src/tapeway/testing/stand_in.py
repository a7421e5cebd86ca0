"""A server on loopback that answers as OpenAI, Anthropic, Gemini, Bedrock and Ollama do."""

import asyncio
import gzip
import socket
import struct
import zlib
from collections.abc import Sequence
from typing import Self, cast

import orjson
from aiohttp import web
from multidict import CIMultiDict

from tapeway.testing.answer import Answer
from tapeway.testing.call import Call
from tapeway.testing.codings import coded
from tapeway.testing.json_tree import JsonObject
from tapeway.testing.mishap import Mishap, mishap_of, shortened
from tapeway.testing.received import Received
from tapeway.testing.routes import respond
from tapeway.testing.tap import Tap
from tapeway.testing.world import World


class StandIn:
    """An upstream to record against without a key or a network.

    Answers depend on the request alone, save ids and times, which are new each time. Models
    with these names do something else: `error-429` (any 4xx or 5xx) gets that error, `reflect` an
    answer that repeats the caller's key, and those in `tapeway.testing.mishap` one that ends badly.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        gap_s: float = 0.0,
        codings: Sequence[str] = (),
        require_credential: bool = False,
        world: World | None = None,
    ) -> None:
        """`gap_s` lies between the writes of an answer.

        Answers are compressed with the first of `codings` that a client accepts.
        """
        self.requests: list[Received] = []
        self.connections = 0
        self._address = (host, port)
        self._gap_s = gap_s
        self._codings = codings
        self._require_credential = require_credential
        self._world = world or World()
        self._taps: dict[asyncio.BaseTransport, tuple[int, Tap]] = {}
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where it listens, or listened."""
        return "http://{}:{}".format(*self._address)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen; a second start takes the same port again."""
        app = web.Application(client_max_size=0)
        app.router.add_route("*", "/{rest:.*}", self._serve)
        app.on_response_prepare.append(_only_own_server_header)
        self._runner = web.AppRunner(
            app, access_log=None, auto_decompress=False, shutdown_timeout=1.0
        )
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, *self._address)
        self._address = self._server.sockets[0].getsockname()[:2]

    async def stop(self) -> None:
        """Refuse new connections and close the open ones; what was received stays readable."""
        if self._server is not None and self._runner is not None:
            self._server.close()
            await self._runner.cleanup()
            self._server = self._runner = None
            self._taps.clear()

    def _connection(self) -> Tap:
        server = self._runner.server if self._runner else None
        if server is None:
            raise RuntimeError("a connection came before the server was set up")
        return Tap(server(), self._opened)

    def _opened(self, tap: Tap) -> None:
        self.connections += 1
        if tap.transport is not None:
            self._taps[tap.transport] = (self.connections, tap)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        call = _call(request, body)
        plain = respond(call, self._world, require_credential=self._require_credential)
        answer = coded(plain, self._codings, call.headers.get("accept-encoding", ""))
        self.requests.append(self._received(request, body, answer, plain))
        return await self._send(request, answer, mishap_of(call))

    def _received(
        self, request: web.Request, body: bytes, answer: Answer, plain: Answer
    ) -> Received:
        connection, tap = self._taps[cast(asyncio.Transport, request.transport)]
        return Received(
            method=request.method,
            target=request.raw_path,
            version=f"HTTP/{request.version.major}.{request.version.minor}",
            headers=tuple(
                (k.decode("latin-1"), v.decode("latin-1")) for k, v in request.raw_headers
            ),
            body=body,
            raw=tap.take(),
            connection=connection,
            answer=answer,
            plain=plain,
        )

    async def _send(
        self, request: web.Request, answer: Answer, mishap: Mishap | None
    ) -> web.StreamResponse:
        sent = shortened(answer, mishap) if mishap else answer
        promised = sent if mishap and mishap.how == "end" else answer
        response = web.StreamResponse(status=answer.status, headers=CIMultiDict(answer.headers))
        if not answer.chunked:
            response.content_length = len(promised.body)
        elif request.version >= (1, 1):
            response.enable_chunked_encoding()
        await response.prepare(request)
        for write in sent.writes:
            await response.write(write)
            await asyncio.sleep(self._gap_s)
        if mishap is None or mishap.how == "end":
            await response.write_eof()
        else:
            await self._break_off(request.transport, mishap)
        return response

    async def _break_off(self, transport: asyncio.Transport | None, mishap: Mishap) -> None:
        if transport is None:
            return
        if mishap.how == "stall":
            # Until the client loses its patience, or the stand-in is stopped.
            await self._taps[transport][1].lost.wait()
        if mishap.how == "reset":
            # Nothing lingers: what was written goes out first, then a reset instead of an end.
            found = transport.get_extra_info("socket")
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.close()


async def _only_own_server_header(_: web.Request, response: web.StreamResponse) -> None:
    # aiohttp names itself where the answer names nobody; Ollama's answers name nobody.
    if response.headers.get("Server", "").startswith("Python/"):
        del response.headers["Server"]


def _call(request: web.Request, body: bytes) -> Call:
    headers = {name.lower(): value for name, value in request.headers.items()}
    decoded = _decoded(headers.get("content-encoding", ""), body)
    return Call(request.method, request.path, dict(request.query), headers, decoded, _json(decoded))


def _decoded(coding: str, body: bytes) -> bytes:
    match coding:
        case "gzip":
            return gzip.decompress(body)
        case "deflate":
            return zlib.decompress(body)
        case _:
            return body


def _json(body: bytes) -> JsonObject:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
