"""The client for all upstreams: it sends each request once, as the app wrote it.

Connections, name resolution, TLS, time-outs and the parser are aiohttp's; plain responses do without
the parser (`connection.py`). Its `ClientSession` is not used: it normalises and retries requests,
and takes a seventh of what a recording costs (ADR 30).
"""

import asyncio
import base64
import ipaddress
import ssl
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import accumulate
from types import TracebackType
from typing import Self, cast
from urllib.parse import unquote, urlsplit
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from yarl import URL

from tapeway.body_files import stream_body
from tapeway.core.http.headers import CASSETTE_HEADER, HOPS_HEADER, end_to_end
from tapeway.core.http.location import without_userinfo
from tapeway.core.model.messages import Headers, Request, ResponseHead
from tapeway.errors import UpstreamError, too_large
from tapeway.loop_guard import LoopGuard
from tapeway.ports import NONE_OPEN, OnChunks, OpenConnections
from tapeway.upstream.address_guard import AddressGuard
from tapeway.upstream.connection import (
    Clock,
    ReceivedBody,
    UpstreamConnection,
    give_back,
    watch,
)
from tapeway.upstream.faults import translated
from tapeway.upstream.response import UpstreamAnswer

KIB = 1024
_NOT_FORWARDED = frozenset({b"host", b"expect", CASSETTE_HEADER, HOPS_HEADER})
"""Host becomes the upstream's, and the proxy has already answered an Expect."""
_BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})
_SENT_AT_ONCE = 64 * KIB
"""A larger body is sent while the response is waited for, as fast as the upstream reads it."""
_PIECE = 256 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Time-outs in seconds, and the number of open connections."""

    connect_s: float = 10.0
    idle_s: float = 600.0
    connections: int = 500


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the requests of a route go."""

    url: URL
    path: str
    """What stands before each target."""
    host: bytes
    login: bytes | None
    """The Authorization of the name and password in the route's URL."""
    connects: aiohttp.ClientRequest
    """Tells aiohttp's connector where to connect; it is never sent."""


class UpstreamClient:
    """The LiveResponder of every route, as an async context manager."""

    def __init__(
        self,
        guard: AddressGuard,
        limits: Limits,
        loops: LoopGuard,
        *,
        tls: ssl.SSLContext | bool,
        clock: Clock,
    ) -> None:
        self.loops = loops
        self.clock = clock
        self._guard = guard
        self._limits = limits
        self._tls = tls
        self._timeouts = aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_s)
        self._connector: GuardedConnector | None = None
        self._uploads = asyncio.TaskGroup()
        self._origin = lru_cache(maxsize=256)(_origin)
        self._used: WeakSet[ResponseHandler] = WeakSet()
        """Connections that have carried a request. On a new one a busy server may send its error
        first.
        """

    @property
    def connections(self) -> int:
        return 0 if self._connector is None else self._connector.created

    @property
    def open_connections(self) -> OpenConnections:
        return NONE_OPEN if self._connector is None else self._connector.open_now

    async def __aenter__(self) -> Self:
        self._connector = GuardedConnector(
            self._guard, limit=self._limits.connections, resolver=self._guard, tls=self._tls
        )
        await self._uploads.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._connector is not None:
            # Without its connection each upload ends.
            await self._connector.close()
            await self._uploads.__aexit__(None, None, None)

    def ask(self, request: Request) -> "Asking":
        return Asking(self, request, self._origin(request.base))

    async def send(self, request: Request, origin: Origin) -> "UpstreamAnswer | WholeAnswer":
        """Send a request and wait for the head of its response."""
        started = self.clock()
        head = _head(request, origin, self.loops.sent(request))
        connection, protocol = await self._connect(origin)
        upload: asyncio.Task[None] | None = None
        try:
            protocol.expect(bodiless=request.method == "HEAD", idle_s=self._limits.idle_s)
            if request.file is None and len(request.body) <= _SENT_AT_ONCE:
                _write(protocol, head + request.body)
            else:
                upload = self._uploads.create_task(_upload(protocol, head, request))
            message, content = await protocol.message(request, self.loops)
        except BaseException:
            if upload is not None:
                upload.cancel()
            connection.close()
            raise
        clock = self.clock
        if isinstance(content, ReceivedBody):
            give_back(connection, upload)
            return WholeAnswer(cast(ResponseHead, message), content, clock, started)
        return UpstreamAnswer(
            connection, upload, origin.url, request.method, message, content, clock, started
        )

    async def _connect(self, origin: Origin) -> tuple[Connection, UpstreamConnection]:
        if self._connector is None:
            raise RuntimeError("the upstream client is used outside its context")
        while True:
            connection = await self._connector.connect(origin.connects, [], self._timeouts)
            if connection.protocol is None:
                raise RuntimeError("the connector gave a connection that is released")
            protocol = cast(UpstreamConnection, connection.protocol)
            if protocol not in self._used:
                self._used.add(protocol)
                watch(protocol)
            elif protocol.should_close:
                # The upstream sent something unasked, such as an error, while it was idle. Nothing
                # was sent on it yet, so this is no retry.
                connection.close()
                continue
            return connection, protocol


class WholeAnswer:
    """A plain response that came in one segment, with its head; its connection is free again."""

    __slots__ = ("_body", "_clock", "_started", "head", "raw_headers", "status")

    def __init__(
        self, head: ResponseHead, body: ReceivedBody, clock: Clock, started: float
    ) -> None:
        self.head = head
        self.status = head.status
        self.raw_headers = head.headers
        self._body = body
        self._clock = clock
        self._started = started

    def elapsed_ms(self) -> float:
        return (self._clock() - self._started) * 1000

    def framed(self) -> bytes | None:
        return self._body.framed

    async def pieces(self) -> AsyncIterator[bytes]:
        if self._body.chunks:
            yield b"".join(self._body.chunks)

    async def receive(self, max_bytes: int, on_chunks: OnChunks) -> bool:
        chunks, lengths, framed = self._body
        self._body = ReceivedBody([], [], framed)
        if sum(lengths) > max_bytes:
            fitting = bisect_right([*accumulate(lengths)], max_bytes)
            on_chunks(chunks[:fitting], self.elapsed_ms())
            raise too_large(max_bytes)
        return bool(chunks and on_chunks(chunks, self.elapsed_ms(), lengths))

    def open(self) -> None:
        """Nothing is left to check, or to free."""

    close = open


class Asking:
    """A request to an upstream, sent at the beginning of the block; its end frees the connection."""

    __slots__ = ("_answer", "_client", "_origin", "_request")

    def __init__(self, client: UpstreamClient, request: Request, origin: Origin) -> None:
        self._client = client
        self._request = request
        self._origin = origin
        self._answer: UpstreamAnswer | WholeAnswer | None = None

    async def __aenter__(self) -> UpstreamAnswer | WholeAnswer:
        request, loops = self._request, self._client.loops
        try:
            answer = await self._client.send(request, self._origin)
        except Exception as exc:
            raise self._failed(exc) from None
        try:
            loops.answered(request, answer.status, answer.raw_headers)
            answer.open()
        except BaseException:
            answer.close()
            raise
        self._answer = answer
        return answer

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._answer is not None:
            self._answer.close()

    def _failed(self, exc: Exception) -> Exception:
        error = translated(exc, self._origin.url)
        if isinstance(error, UpstreamError) and error.status != 508:
            self._client.loops.failed(self._request)
        return error


class GuardedConnector(aiohttp.TCPConnector):
    """Opens the connections, and counts them. Raises UpstreamError for an address not allowed.

    Names are checked where they are resolved; addresses written in a URL are not resolved.
    """

    def __init__(
        self, guard: AddressGuard, *, limit: int, resolver: AddressGuard, tls: ssl.SSLContext | bool
    ) -> None:
        super().__init__(limit=limit, resolver=resolver, ssl=tls)
        self._factory = cast(
            "partial[ResponseHandler]", partial(UpstreamConnection, loop=self._loop)
        )
        self._guard = guard
        self._reading = asyncio.Lock()
        self.created = 0

    @property
    def open_now(self) -> OpenConnections:
        kept = sum(each.is_connected() for pool in self._conns.values() for each, _ in pool)
        return OpenConnections(len(self._acquired), kept)

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[aiohttp.tracing.Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's own
    ) -> ResponseHandler:
        host = req.host
        try:
            ipaddress.ip_address(host)
        except ValueError:
            pass
        else:
            self._guard.check(host, host, req.port or 0)
        if self._ssl is True and req.is_ssl():
            await self._read_authorities()
        self.created += 1
        return await super()._create_connection(req, traces, timeout)

    async def _read_authorities(self) -> None:
        # Of many first connections one reads them, while the others wait.
        async with self._reading:
            if self._ssl is True:
                self._ssl = await asyncio.to_thread(_verifying)


def _verifying() -> ssl.SSLContext:
    """What aiohttp makes when it is imported: `tapeway serve` has it read no authorities then."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(("http/1.1",))
    return context


def _write(protocol: ResponseHandler, data: bytes) -> None:
    if protocol.transport is None:
        raise aiohttp.ClientConnectionResetError("Connection lost")
    protocol.transport.write(data)


async def _upload(protocol: ResponseHandler, head: bytes, request: Request) -> None:
    """Send a large body; what goes wrong is raised where the response is waited for."""
    try:
        async with aclosing(_pieces(head, request)) as pieces:
            async for piece in pieces:
                _write(protocol, piece)
                await protocol._drain_helper()
    except OSError as exc:
        protocol.set_exception(aiohttp.ClientOSError(exc.errno, "the body was not sent"), exc)
    except Exception as exc:
        protocol.set_exception(aiohttp.ClientConnectionError("the body was not sent"), exc)
    else:
        protocol.start_timeout()


async def _pieces(head: bytes, request: Request) -> AsyncGenerator[bytes]:
    yield head
    if request.file is None:
        for start in range(0, len(request.body), _PIECE):
            yield request.body[start : start + _PIECE]
        return
    async with aclosing(stream_body(request.file)) as pieces:
        async for piece in pieces:
            yield piece


class _Destination(aiohttp.ClientRequest):
    """Tells aiohttp's connector where to connect, with one key for all connections."""

    @cached_property
    def connection_key(self) -> ConnectionKey:
        return super().connection_key


def _origin(base: str) -> Origin:
    shown = without_userinfo(base)
    url = URL(shown).origin()
    _, slash, path = shown.partition("://")[2].partition("/")
    userinfo = urlsplit(base).netloc.rpartition("@")[0]
    login = base64.b64encode(unquote(userinfo).encode()) if userinfo else None
    connects = _Destination("GET", url, loop=asyncio.get_running_loop())
    host = connects.headers[aiohttp.hdrs.HOST].encode()
    return Origin(url, slash + path, host, login and b"Basic " + login, connects)


def _head(request: Request, origin: Origin, own: Headers) -> bytes:
    """The head of a request as its app wrote it, addressed to the upstream.

    The length keeps its place among the fields; its value may differ.
    """
    size = len(request.body) if request.file is None else request.file.size
    target = f"{origin.path}{request.target}".encode("utf-8", "surrogateescape")
    has_body = bool(size) or request.method in _BODY_METHODS
    parts = _fields(request.headers, own, origin.host, origin.login, has_body)
    line = b"%b %b HTTP/1.1\r\n" % (request.method.encode(), target)
    if line.count(b"\n") != 1 or b"\0" in line:
        raise _unsendable()
    return line + (b"%d" % size).join(parts)


@lru_cache(maxsize=256)
def _fields(
    headers: Headers, own: Headers, host: bytes, login: bytes | None, has_body: bool
) -> tuple[bytes, ...]:
    """The fields, divided where their length is to be put in.

    Remembered, since a client sends the same fields with nearly every request.
    """
    lines = [b"Host: " + host]
    lengths = 0
    for field in (*end_to_end(headers, drop=_NOT_FORWARDED), *own):
        name = field[0].lower()
        if name == b"content-length":
            lengths += 1
            lines.append(b"%b: \0" % field[0])
            continue
        if name == b"authorization":
            login = None
        lines.append(b": ".join(field))
    if login is not None:
        lines.append(b"Authorization: " + login)
    if not lengths and has_body:
        lengths = 1
        lines.append(b"Content-Length: \0")
    fields = b"\r\n".join(lines)
    if fields.count(b"\n") != len(lines) - 1 or fields.count(b"\0") != lengths:
        raise _unsendable()
    return tuple((fields + b"\r\n\r\n").split(b"\0"))


def _unsendable() -> UpstreamError:
    return UpstreamError("a field of the request cannot be sent on", status=400)
