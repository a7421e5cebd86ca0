"""A client's request as parsed by aiohttp, the request's body, and an answer of ready bytes."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, cast

from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader
from aiohttp.web_exceptions import HTTPException
from aiohttp.web_protocol import RequestHandler, RequestPayloadError
from aiohttp.web_request import BaseRequest
from aiohttp.web_response import StreamResponse

from tapeway.body_files import BodyBuffer
from tapeway.core.cassette.plan import LiveCall, Replay
from tapeway.core.http.location import DEFAULT_PORTS
from tapeway.core.http.routing import RequestAddress
from tapeway.core.matching.body_digest import largest_in_memory
from tapeway.core.matching.key import KeyAndBody
from tapeway.core.model.client_login import ClientLogin
from tapeway.core.model.faults import Fault
from tapeway.core.model.messages import BodyFile, Request
from tapeway.core.model.request_fields import RequestFields
from tapeway.engine.open_streams import Signal
from tapeway.errors import ClientLeft, RequestError, StoreAway
from tapeway.loop_guard import Interim, Passage
from tapeway.providers.hosts import RoutedHost

_CONTINUE = b"HTTP/1.1 100 Continue\r\n"


class ClientConnection(Protocol):
    """The connection that a request came on."""

    method: str | None
    """The request's method, if aiohttp's parser got `POST` instead."""
    client_address: str
    keyed: KeyAndBody | None
    uncounted: StoreAway | None
    answer_began: bool
    writing_paused: bool
    left: Signal
    login: ClientLogin
    lost: "asyncio.Future[None]"

    def answered(self, *, keep_alive: bool) -> None:
        """The answer to the request is written."""


class ClientRequest(BaseRequest):
    """A client's request. The answer goes out through the front of the connection."""

    def __init__(
        self,
        message: RawRequestMessage,
        content: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: "asyncio.Task[None]",
        connection: ClientConnection,
    ) -> None:
        super().__init__(message, content, protocol, writer, task, asyncio.get_running_loop())
        self.connection = connection
        self.own_method = connection.method or message.method
        self.target = message.path
        self.fields = RequestFields(message.raw_headers)
        self.keyed = connection.keyed
        """The match key without rules and the body as JSON, if both are known already."""
        self.uncounted = connection.uncounted
        """Why nobody knows whether the store counted the request as a hit."""

    @property
    def method(self) -> str:
        """The method as the client wrote it; aiohttp's parser knows a fixed list."""
        return self.own_method

    def write(self, data: bytes) -> None:
        """Write bytes of the answer. Raises ConnectionError."""
        transport = self.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client's connection is closed")
        if data:
            self.connection.answer_began = True
            transport.write(data)

    async def send(self, data: bytes) -> None:
        """Write bytes of the answer as fast as the client takes them. Raises ConnectionError."""
        self.write(data)
        if self.connection.writing_paused:
            await self.writer.drain()


class WireResponse(StreamResponse):
    """An answer as bytes, in place of aiohttp's own serialisation."""

    def __init__(self, pieces: Iterable[bytes], *, keep_alive: bool) -> None:
        # aiohttp's state (cookies, header map) is never used, and not set up.
        self._pieces = pieces
        self._may_keep_alive = keep_alive
        self.request: ClientRequest | None = None

    @property
    def keep_alive(self) -> bool:
        # aiohttp closes no connection: the front does.
        return True

    async def prepare(self, request: BaseRequest) -> None:
        self.request = cast(ClientRequest, request)

    async def write_eof(self, data: bytes = b"") -> None:
        if (request := self.request) is None:
            raise RuntimeError("written before it was prepared")
        await self.write_to(request)
        request.connection.answered(keep_alive=self._may_keep_alive)

    async def write_to(self, request: ClientRequest) -> None:
        """Write the answer's bytes."""
        for piece in self._pieces:
            request.write(piece)
            if request.connection.writing_paused:
                await request.writer.drain()


class SentPieces(Protocol):
    """A response in pieces."""

    @property
    def begun(self) -> bool:
        """Whether the client may have received a part."""

    @property
    def sent(self) -> int:
        """How many bytes of the body were sent."""


Handle = Callable[["ClientRequest"], Awaitable["WireResponse"]]
"""Answers a request."""


@dataclass(slots=True)
class Exchange:
    """A request in progress: the connection, and the contents of the journal entry."""

    raw: ClientRequest
    id: str
    at: float
    """Seconds since the epoch; `started` is on the monotonic clock."""
    started: float
    cassette: str = ""
    method: str | None = None
    """The noted method where it is not the request's own, as for a WebSocket session."""
    take: int | None = None
    """The take of the request's slot."""
    address: RequestAddress | None = None
    shown: str | Callable[[], str] | None = None
    """The redacted target, or what tells it; None until it is known."""
    key: bytes | None = None
    request: Request | None = None
    """What is decided on; None until it was read."""
    live_call: LiveCall | None = None
    """What the upstream is asked; None where it is not asked."""
    passage: Passage | None = None
    """Its way through to an upstream."""
    note: str | None = None
    """An addition to the message of the journal entry."""
    base: str = ""
    """The base of the cassette that the recording is in."""
    outgoing: SentPieces | None = None
    """The response, if it is sent in pieces."""
    host: RoutedHost | None = None
    """The host that the client meant to call, None for a call of the proxy by address."""
    elsewhere: dict[str, None] = field(default_factory=dict)
    """Origins in the response that no route leads to."""
    fault: Fault | None = None
    """What its recorded answer gets laid over."""

    def lay(self, fault: Fault, replay: Replay) -> None:
        """Note the fault that the answer of a recording gets."""
        self.key, self.shown, self.base = replay.key, replay.target, replay.base
        self.fault, self.note = fault, fault.text


def buffered_body(raw: ClientRequest, max_body: int) -> bytes | None:
    """The body if all of it is here already, else None. Raises RequestError (413)."""
    if not raw.content.is_eof():
        return None
    body = raw.content.read_nowait(-1)
    if len(body) > max_body:
        raise _too_large(max_body)
    return body


def interim_sender(raw: ClientRequest) -> Interim:
    """Sends the client an interim response with ids of tapeways; one of HTTP/1.0 knows none."""

    def send(ids: bytes) -> None:
        if raw.version >= (1, 1) and raw.transport is not None:
            raw.transport.write(b"%sTapeway-Hops: %s\r\n\r\n" % (_CONTINUE, ids))

    return send


async def read_body(
    raw: ClientRequest, *, max_body: int, idle_s: float, scratch: str | None
) -> bytes | BodyFile:
    """Wait for the whole body, after `100 Continue` if expected; a large one is stored in a file.

    Raises RequestError: 413 beyond `max_body`, 408 when nothing comes for `idle_s` seconds or the
    whole takes twenty times that, 400 for broken framing.
    """
    content = raw.content
    if (raw.content_length or 0) > max_body:
        raise _too_large(max_body)
    if raw.version >= (1, 1) and b"expect" in raw.fields.first and raw.transport:
        raw.transport.write(_CONTINUE + b"\r\n")
    intake = BodyBuffer(largest_in_memory(raw.fields), scratch)
    try:
        async with asyncio.timeout(20 * idle_s):
            while not content.at_eof():
                async with asyncio.timeout(idle_s):
                    piece = await content.readany()
                if intake.size + len(piece) > max_body:
                    raise _too_large(max_body)
                await intake.add(piece)
    except TimeoutError:
        raise RequestError(
            "the request's body did not arrive in time", status=408, code="request_timeout"
        ) from None
    except (HTTPException, HttpProcessingError, RequestPayloadError):
        raise RequestError(
            "the request's body does not match its Content-Length or chunks"
        ) from None
    except ConnectionError:
        raise ClientLeft("the client left before its request ended") from None
    return await intake.finish()


def authorities(raw: ClientRequest, scheme: str) -> tuple[str, ...]:
    """Host and port of the connection's local end, in all spellings. A Host header could lie."""
    if raw.transport is None:
        return ()
    address, port = raw.transport.get_extra_info("sockname")[:2]
    host = f"[{address}]" if ":" in address else address
    names = (f"{host}:{port}", f"localhost:{port}")
    return (*names, host, "localhost") if port == DEFAULT_PORTS[scheme] else names


def client_address(transport: asyncio.BaseTransport) -> str:
    """The IP address of the other end, "" where the connection is lost already."""
    peer = transport.get_extra_info("peername")
    # A listener for both families shows IPv4 clients as mapped addresses.
    return str(peer[0]).removeprefix("::ffff:") if peer else ""


def origin(raw: ClientRequest, scheme: str) -> str:
    """The URL of the listener, with the address that the client connected to."""
    host, *_ = authorities(raw, scheme) or ("",)
    return f"{scheme}://{host}"


def abort(raw: ClientRequest, *, reset: bool = False) -> WireResponse:
    """Abort the connection within an answer: a clean end would make a part look complete.

    With `reset` the client sees that it was reset, before any answer too.
    """
    if (transport := raw.transport) is not None:
        if reset or raw.version < (1, 1):
            # Without chunks an orderly close would end the body; a reset does not.
            client_socket: socket.socket = transport.get_extra_info("socket")
            with contextlib.suppress(OSError):
                client_socket.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
        transport.abort()
    return WireResponse((), keep_alive=False)


def _too_large(max_body: int) -> RequestError:
    return RequestError(
        f"the request's body is larger than --max-body ({max_body} bytes)",
        status=413,
        code="request_too_large",
    )
