"""A server on loopback that answers like OpenAI, Anthropic, Gemini, Bedrock and Ollama.

`StandIn` runs on the caller's event loop, `ThreadedStandIn` in a thread for callers that block.
"""

import asyncio
import gzip
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self, cast

import orjson
from aiohttp import web
from multidict import CIMultiDict

from tapeway.testing.answer import AnswerFault, StandInAnswer, cut_short, fault_of
from tapeway.testing.content_codings import encode_answer
from tapeway.testing.openai.realtime_socket import RealtimeSocket
from tapeway.testing.openai.responses_socket import ResponsesSocket
from tapeway.testing.reply import StandInState
from tapeway.testing.request import JsonObject, StandInRequest, form_parts, parsed
from tapeway.testing.routes import ROUTES, Route, respond, socket_refusal, speaks_websocket

_SWITCHED = StandInAnswer(101, (), ())
_PROTOCOL = "realtime"


class Tap(asyncio.Protocol):
    """Passes everything on to the HTTP parser `inner` and keeps a copy of the bytes received."""

    def __init__(self, inner: asyncio.Protocol, opened: Callable[["Tap"], None]) -> None:
        self._inner = inner
        self._opened = opened
        self._received = bytearray()
        self.transport: asyncio.BaseTransport | None = None
        self.lost = asyncio.Event()

    def take(self) -> bytes:
        """The bytes received since the last call; pipelined requests are returned together."""
        taken = bytes(self._received)
        self._received.clear()
        return taken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._opened(self)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


@dataclass(frozen=True, slots=True)
class Received:
    """A request as received, and the answer.

    Header fields keep order, case and repeats; `body` is as sent, with its content coding. `plain`
    is the answer before any content coding.
    """

    method: str
    target: str
    version: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    raw: bytes
    connection: int
    answer: StandInAnswer
    plain: StandInAnswer

    def header(self, name: str) -> str | None:
        """The first field of that name in any case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


class StandIn:
    """An upstream to record against without a key or a network.

    Answers depend only on the request, except for ids and times, which are new each time. Some model
    names ask for faults: `error-429` (any 4xx or 5xx) for an error, `reflect` for an answer
    that repeats the caller's key, and the names in `tapeway.testing.answer` for broken connections.
    """

    routes: Sequence[Route] = ROUTES
    """What is answered, the first that fits a call."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        gap_s: float = 0.0,
        codings: Sequence[str] = (),
        require_credential: bool = False,
        state: StandInState | None = None,
    ) -> None:
        """`gap_s` is the pause between the writes of an answer.

        Answers are compressed with the first of `codings` that a client accepts.
        """
        self.requests: list[Received] = []
        self.messages: list[bytes] = []
        """What clients have sent over WebSocket."""
        self.connections = 0
        self._address = (host, port)
        self._gap_s = gap_s
        self._codings = codings
        self._require_credential = require_credential
        self._state = state or StandInState()
        self._taps: dict[asyncio.BaseTransport, tuple[int, Tap]] = {}
        self._waiting: set[asyncio.BaseTransport] = set()
        """Connections whose end comes from the client, unless the stand-in is stopped."""
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """The address of the listener, also after the stop."""
        return "http://{}:{}".format(*self._address)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen. A second start takes the port of the first."""
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
        """Refuse new connections and close open ones. `requests` stays readable."""
        if self._server is not None and self._runner is not None:
            self._server.close()
            for transport in self._waiting:
                transport.close()
            await self._runner.cleanup()
            self._server = self._runner = None
            self._taps.clear()
            self._waiting.clear()

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
        call = await _call(request, body)
        if speaks_websocket(call):
            refused = socket_refusal(call, self._state, required=self._require_credential)
            self.requests.append(
                self._received(request, body, refused or _SWITCHED, refused or _SWITCHED)
            )
            if refused is None:
                return await self._converse(request, call)
            return await self._send(request, refused, None)
        plain = respond(call, self._state, self.routes, require_credential=self._require_credential)
        answer = encode_answer(plain, self._codings, call.headers.get("accept-encoding", ""))
        self.requests.append(self._received(request, body, answer, plain))
        return await self._send(request, answer, fault_of(call))

    def _received(
        self, request: web.Request, body: bytes, answer: StandInAnswer, plain: StandInAnswer
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
        self, request: web.Request, answer: StandInAnswer, fault: AnswerFault | None
    ) -> web.StreamResponse:
        sent = cut_short(answer, fault) if fault else answer
        promised = sent if fault and fault.how == "end" else answer
        response = web.StreamResponse(status=answer.status, headers=CIMultiDict(answer.headers))
        if not answer.chunked:
            response.content_length = len(promised.body)
        elif request.version >= (1, 1):
            response.enable_chunked_encoding()
        await response.prepare(request)
        for write in () if request.method == "HEAD" else sent.writes:
            await response.write(write)
            await asyncio.sleep(self._gap_s)
        if fault is None or fault.how == "end":
            await response.write_eof()
        else:
            await self._break_off(request.transport, fault)
        return response

    async def _converse(self, request: web.Request, call: StandInRequest) -> web.WebSocketResponse:
        offered = call.headers.get("sec-websocket-protocol", "")
        named = (_PROTOCOL,) if _PROTOCOL in [part.strip() for part in offered.split(",")] else ()
        client = web.WebSocketResponse(protocols=named, max_msg_size=0)
        await client.prepare(request)
        transport = cast(asyncio.Transport, request.transport)
        self._waiting.add(transport)

        async def send(event: JsonObject) -> None:
            await client.send_str(orjson.dumps(event).decode())
            await asyncio.sleep(self._gap_s)

        async def break_off(fault: AnswerFault) -> None:
            if fault.how == "end":
                await client.close()
            else:
                await self._break_off(request.transport, fault)

        socket: RealtimeSocket | ResponsesSocket
        if call.path.endswith("/realtime"):
            socket = RealtimeSocket(call, self._state, send)
        else:
            socket = ResponsesSocket(call, self._state, send, break_off)
        try:
            await socket.opened()
            async for message in client:
                data = message.data if isinstance(message.data, bytes) else message.data.encode()
                self.messages.append(data)
                await socket.received(data)
        except ConnectionError:
            pass
        finally:
            await socket.closed()
            self._waiting.discard(transport)
        return client

    async def _break_off(self, transport: asyncio.Transport | None, fault: AnswerFault) -> None:
        if transport is None:
            return
        if fault.how == "stall":
            self._waiting.add(transport)
            await self._taps[transport][1].lost.wait()
            self._waiting.discard(transport)
        if fault.how == "reset":
            # Linger of zero: what was written is sent, then a reset instead of an end.
            client_socket = transport.get_extra_info("socket")
            client_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.close()


async def _only_own_server_header(_: web.Request, response: web.StreamResponse) -> None:
    # aiohttp adds a Server field if there is none, and Ollama sends none.
    if response.headers.get("Server", "").startswith("Python/"):
        del response.headers["Server"]


async def _call(request: web.Request, body: bytes) -> StandInRequest:
    headers = {name.lower(): value for name, value in request.headers.items()}
    decoded = _decoded(headers.get("content-encoding", ""), body)
    return StandInRequest(
        request.method,
        request.path,
        dict(request.query),
        headers,
        decoded,
        parsed(decoded),
        parts=await form_parts(headers.get("content-type", ""), decoded),
    )


def _decoded(coding: str, body: bytes) -> bytes:
    match coding:
        case "gzip":
            return gzip.decompress(body)
        case "deflate":
            return zlib.decompress(body)
        case _:
            return body


class ThreadedStandIn:
    """Serves from a thread of its own; `start` and `stop` block until it has started or stopped."""

    def __init__(self, stand_in: StandIn | None = None) -> None:
        self._stand_in = stand_in or StandIn()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tapeway-stand-in")

    @property
    def url(self) -> str:
        """The address of the listener, also after the stop."""
        return self._stand_in.url

    @property
    def requests(self) -> list[Received]:
        """The requests received so far."""
        return self._stand_in.requests

    @property
    def messages(self) -> list[bytes]:
        """The messages that clients have sent over WebSocket so far."""
        return self._stand_in.messages

    @property
    def connections(self) -> int:
        """How many connections were opened to it."""
        return self._stand_in.connections

    def start(self) -> None:
        """Listen. A second start takes the port of the first."""
        asyncio.run_coroutine_threadsafe(self._stand_in.start(), self._loop).result()

    def stop(self) -> None:
        """Refuse new connections and close open ones. `requests` stays readable."""
        asyncio.run_coroutine_threadsafe(self._stand_in.stop(), self._loop).result()

    def __enter__(self) -> Self:
        self._thread.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
