"""The seam to aiohttp's connections and reader of responses, by public names.

aiohttp opens connections, keeps them for later requests, and parses responses. An
`UpstreamConnection` stands between each transport and the `ResponseHandler`, and sees every
segment of a service. So everything that a service sends is bounded, silence counts from the last
delivery, and no task is woken for a followed segment. Five faults of aiohttp are worked
around here:

- An answer that came while a connection was idle is taken for the next request's.
- The reader of a body never learns that the body turned out not to be HTTP.
- The end of a broken body is reported before the bytes that came earlier.
- The content of all responses without a body is one object, whose chunks never end.
- Each read of a body resumes its connection and parser, even if nothing paused them.
"""

import asyncio
import math
import ssl
from collections.abc import AsyncIterable, Callable, Coroutine, Hashable, Mapping
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeVar

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from aiohttp.http import StreamWriter
from aiohttp.streams import StreamReader
from yarl import URL

from tapeway.core.http.connection_logins import logs_in
from tapeway.core.model.client_login import ClientLogin
from tapeway.core.model.messages import Headers
from tapeway.ports import OpenConnections
from tapeway.upstream.address_guard import AddressGuard
from tapeway.upstream.faults import HEAD_TOO_LARGE, TOO_MANY_INTERIM, TOO_MUCH_FRAMING, proxy_failed
from tapeway.upstream.outer_proxy import DIRECT, OuterProxy, ProxyChoice

T = TypeVar("T")

KIB = 1024
MAX_LINE = 16 * KIB
MAX_FIELD = 64 * KIB
MAX_FIELDS = 256
MAX_HEADS = 1024 * KIB
"""Bytes that are no body: heads, interim responses and trailers together."""
MAX_FRAMING = 64
"""Further bytes of framing for each byte of a body."""
MAX_INTERIM = 100
_READ_AHEAD = 64 * KIB


class RawHead(NamedTuple):
    """The head of a response as aiohttp read the bytes."""

    status: int
    version: tuple[int, int]
    reason: str
    headers: Headers
    chunked: bool


OnInterim = Callable[[Headers], object]
"""Takes the fields of an interim response; what it raises ends the exchange."""


class Egress(NamedTuple):
    """How to connect to an upstream: the proxy and the TLS context."""

    proxy: OuterProxy | None
    tls: ssl.SSLContext | bool


class ConnectionPool:
    """The connections to all upstreams: opened when they are needed, and kept for later requests."""

    def __init__(
        self,
        guard: AddressGuard,
        *,
        limit: int,
        connect_s: float,
        idle_s: float,
        tls: ssl.SSLContext | bool,
        proxies: ProxyChoice = DIRECT,
        certificates: Mapping[str, ssl.SSLContext | bool] | None = None,
    ) -> None:
        """`certificates` has the TLS contexts of routes with a client certificate, "" for the rest."""
        self._certificates = certificates or {}
        self.opened = 0
        self._proxies = proxies
        self._guard = guard
        self._idle_s = idle_s
        self._tls = tls
        self._reading = asyncio.Lock()
        self._timeouts = aiohttp.ClientTimeout(total=None, sock_connect=connect_s)
        self._connector = aiohttp.TCPConnector(limit=limit, resolver=guard)
        self._open: set[UpstreamConnection] = set()
        self._destination = lru_cache(maxsize=256)(self._checked_destination)

    @property
    def open_now(self) -> OpenConnections:
        in_use = sum(connection.exchange is not None for connection in self._open)
        return OpenConnections(in_use, len(self._open) - in_use)

    async def close(self) -> None:
        await self._connector.close()

    async def begin(
        self,
        url: URL,
        *,
        bodiless: bool,
        on_interim: OnInterim,
        route: str = "",
        login: ClientLogin | None = None,
    ) -> "UpstreamExchange":
        """A connection for one request. Raises UpstreamError for an address that is not allowed.

        A client that has logged in has connections of its own.
        """
        egress = await self.egress_to(url, route)
        place = (url, egress)
        own = None if login is None else login.take(place)
        held = own if isinstance(own, Connection) else await self._connected(url, egress)
        handler, transport = held.protocol, held.transport
        if handler is None or transport is None:
            held.close()
            raise aiohttp.ClientConnectionResetError("Connection lost")
        connection = transport.get_protocol()
        if not isinstance(connection, UpstreamConnection):
            connection = UpstreamConnection(handler, transport, self._idle_s, self._open)
            transport.set_protocol(connection)
            self.opened += 1
        return UpstreamExchange(
            *(connection, held, login, place), bodiless=bodiless, on_interim=on_interim
        )

    async def _connected(self, url: URL, egress: Egress) -> Connection:
        connecting = self._connector.connect(self._destination(url, egress), [], self._timeouts)
        if egress.proxy is None:
            return await connecting
        try:
            # aiohttp waits without end for what the proxy answers to a CONNECT.
            async with asyncio.timeout(self._idle_s):
                return await connecting
        except Exception as exc:
            raise proxy_failed(exc, url, egress.proxy) from None

    async def egress_to(self, url: URL, route: str) -> Egress:
        """How to connect to a route's upstream. Raises UpstreamError for an unusable proxy."""
        proxy = self._proxies.proxy_for(url)
        needs_tls = "https" in (url.scheme, proxy.url.scheme if proxy is not None else "")
        if not needs_tls:
            return Egress(proxy, True)
        shown = self._certificates.get(route, self._certificates.get(""))
        return Egress(proxy, await self._context() if shown is None else shown)

    def _checked_destination(self, url: URL, egress: Egress) -> aiohttp.ClientRequest:
        """What tells aiohttp's connector where to connect; nobody sends it."""
        self._guard.check_written(url)
        proxy = egress.proxy
        if proxy is not None:
            self._guard.check_written(proxy.url)
        return _Destination(
            *("GET", url),
            loop=asyncio.get_running_loop(),
            ssl=egress.tls,
            proxy=None if proxy is None else proxy.url,
            proxy_headers=None if proxy is None else proxy.headers,
        )

    async def _context(self) -> ssl.SSLContext | bool:
        """The TLS context. The first connection over TLS reads the authorities."""
        if self._tls is True:
            async with self._reading:
                if self._tls is True:
                    self._tls = await asyncio.to_thread(_verifying)
        return self._tls


class UpstreamConnection(asyncio.Protocol):
    """Passes the bytes of a service on to aiohttp's handler, and checks each step."""

    exchange: "UpstreamExchange | None" = None
    """The request that uses the connection, None while idle."""

    def __init__(
        self,
        handler: ResponseHandler,
        transport: asyncio.Transport,
        idle_s: float,
        among: "set[UpstreamConnection]",
    ) -> None:
        self.handler = handler
        self.transport = transport
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._silent_since = math.inf
        """When somebody began to wait, or was last brought something; infinite while nobody waits."""
        self._is_paused = False
        self._among = among
        among.add(self)
        # The handler has them as long as the connection stands: a lost connection is no cycle.
        handler.pause_reading = self.pause_reading  # type: ignore[method-assign]
        handler.resume_reading = self.resume_reading  # type: ignore[method-assign]

    def data_received(self, data: bytes) -> None:
        if self.exchange is None:
            # Nobody asked. The next request would get these bytes as an answer.
            self.transport.close()
            return
        self.exchange.received += len(data)
        self.handler.data_received(data)
        self.exchange.arrived()

    def eof_received(self) -> None:
        self.handler.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._among.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        del self.handler.pause_reading, self.handler.resume_reading
        self.handler.connection_lost(exc)
        if self.exchange is not None:
            self.exchange.lost(exc)

    def pause_reading(self) -> None:
        self._is_paused = True
        ResponseHandler.pause_reading(self.handler)

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Resume what is paused: a call for each read would feed the parser nothing each time."""
        if self._is_paused:
            self._is_paused = False
            ResponseHandler.resume_reading(self.handler, resume_parser)

    def pause_writing(self) -> None:
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        self.handler.resume_writing()

    def progressed(self) -> None:
        """Count silence from now on."""
        if self._silent_since != math.inf:
            self._silent_since = self._loop.time()

    def count_silence(self) -> None:
        """Fail the exchange once the service has brought nothing for too long."""
        self._silent_since = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._idle_s, self._check_silence)

    def ignore_silence(self) -> None:
        self._silent_since = math.inf

    def _check_silence(self) -> None:
        # A timer that is started anew for each segment would cost more than the rest.
        self._timer = None
        left = self._silent_since + self._idle_s - self._loop.time()
        if left == math.inf or self.exchange is None:
            return
        if left > 0:
            self._timer = self._loop.call_later(left, self._check_silence)
        else:
            self.exchange.fail(TimeoutError())


class UpstreamExchange:
    """One request on a connection, and the response.

    `failure` is the error that ended the response early, or None. Earlier bytes can still be read.
    """

    failure: Exception | None = None
    was_reset = False
    received = 0
    """Bytes that the service sent."""

    def __init__(
        self,
        connection: UpstreamConnection,
        held: Connection,
        login: ClientLogin | None = None,
        place: Hashable = None,
        *,
        bodiless: bool,
        on_interim: OnInterim,
    ) -> None:
        self._connection = connection
        self._handler = connection.handler
        self._held: Connection | None = held
        self._login = login
        self._place = place
        self._on_interim = on_interim
        self._interim = 0
        self._upload: asyncio.Task[None] | None = None
        self._head: RawHead | None = None
        self._content: StreamReader | None = None
        self._taken = 0
        self._is_chunked = self._is_chunk_open = False
        self._take: Callable[[], bool] | None = None
        self._goes_on = False
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        connection.exchange = self
        # Also reads bytes that a server sent before the request.
        self._handler.set_response_params(
            skip_payload=bodiless,
            read_until_eof=True,
            auto_decompress=False,
            read_bufsize=_READ_AHEAD,
            max_line_size=MAX_LINE,
            max_field_size=MAX_FIELD,
            max_headers=MAX_FIELDS,
        )
        self.arrived()

    # Sending

    def write(self, data: bytes) -> None:
        transport = self._connection.transport
        if transport.is_closing():
            raise aiohttp.ClientConnectionResetError("Connection lost")
        transport.write(data)

    def upload_by(self, task: "asyncio.Task[None]") -> None:
        """Have this task `upload` the rest of the request, as long as the connection is held."""
        self._upload = task

    async def upload(self, pieces: AsyncIterable[bytes]) -> None:
        """Send pieces as fast as the service reads.

        A failure ends the exchange, unless a response has begun.
        """
        writer = StreamWriter(self._handler, self._loop)
        try:
            async for piece in pieces:
                await writer.write(piece)
                if self._held is not None:
                    self._connection.progressed()
        except Exception as exc:
            if self._head is None:
                errno = exc.errno if isinstance(exc, OSError) else None
                self.fail(aiohttp.ClientOSError(errno, "the body was not sent"))

    # Receiving

    async def head(self) -> RawHead:
        """The head of the final response."""
        await self.follow(self._is_answered)
        if self._head is None:
            raise self.failure or aiohttp.ServerDisconnectedError
        return self._head

    def fail(self, failure: Exception) -> None:
        """End the exchange: nothing that arrives later is read."""
        if self._held is None:
            return
        if self.failure is None:
            self.failure = failure
        self._connection.transport.abort()
        self._go_on()

    @property
    def has_come(self) -> bool:
        """Whether there is something to read, or nothing will come any more."""
        return self._has_bytes or self.ended

    @property
    def ended(self) -> bool:
        """Whether the response was read to the end."""
        content = self._content
        if content is None or self.failure is not None:
            return self.failure is not None and not self._has_bytes
        return content.at_eof()

    @property
    def ssl_object(self) -> ssl.SSLObject | None:
        ssl_object: ssl.SSLObject | None = self._connection.transport.get_extra_info("ssl_object")
        return ssl_object

    def next_pieces(self, most: int) -> list[tuple[bytes, bool]]:
        """The next parts of the body that have come, and whether an HTTP chunk ends with each."""
        pieces: list[tuple[bytes, bool]] = []
        if self._content is not None:
            _at_once(self._read_into(pieces, self._content, most))
        return pieces

    def all_as_one(self) -> tuple[bytes, bool] | None:
        """The unread rest of the body, as one chunk, and whether the body ended."""
        content = self._content
        if content is None or not self._has_bytes:
            return None
        data = content.read_nowait()
        self._taken += len(data)
        return data, True

    async def follow(self, take: Callable[[], bool]) -> None:
        """Call `take` now and after each arrival, until `take` returns True.

        No task is woken meanwhile: a stream may have thousands of segments.
        """
        if take():
            return
        self._take, self._waiter = take, self._loop.create_future()
        self._connection.count_silence()
        if self._has_bytes:
            self._later()
        try:
            await self._waiter
        finally:
            self._take = self._waiter = None
            if self._held is not None:
                self._connection.ignore_silence()

    def close(self) -> None:
        """Give the connection back, or close it if the request or the response is incomplete."""
        held, upload, self._held = self._held, self._upload, None
        if held is None:
            return
        self._connection.exchange = None
        self._connection.ignore_silence()
        is_sending = upload is not None and not upload.done()
        if upload is not None and is_sending:
            upload.cancel()
        if is_sending or self.failure is not None:
            held.close()
        else:
            self._give_back(held)

    def _give_back(self, held: Connection) -> None:
        """Keep the connection for anybody, or for its client alone if somebody has logged in on it."""
        login = self._login
        if login is None or not login.id:
            held.release()
        elif self._handler.should_close:
            held.close()
        else:
            login.keep(self._place, held)

    # What the connection calls

    def arrived(self) -> None:
        """Read what aiohttp parsed from the received bytes."""
        handler = self._handler
        while self._content is None and self.failure is None and len(handler):
            self._begin(*_taken_from(handler))
        content = self._content
        body = 0 if content is None else content.total_bytes
        if body > self._taken:
            self._connection.progressed()
        if content is not None and content.is_eof():
            self.close()
        elif (error := handler.exception()) is not None:
            self.fail(error if isinstance(error, Exception) else aiohttp.ClientConnectionError())
        elif self.received > MAX_HEADS + MAX_FRAMING * body:
            self.fail(HEAD_TOO_LARGE if content is None else TOO_MUCH_FRAMING)
        self._go_on()

    def lost(self, exc: Exception | None) -> None:
        """Take note of how the connection ended."""
        content, handler = self._content, self._handler
        self.was_reset = exc is not None
        failure = handler.exception() if content is None else content.exception()
        if content is None and isinstance(exc, ssl.SSLError):
            # In TLS 1.3 a service refuses a handshake after its end.
            failure = exc
        if content is not None and failure is not None:
            # Earlier bytes would not be handed over.
            content.set_exception(None)  # type: ignore[arg-type]
        if self.failure is None and not (content is not None and content.is_eof()):
            unknown = aiohttp.ClientPayloadError()
            self.failure = failure if isinstance(failure, Exception) else unknown
        self._go_on()

    def _begin(self, head: RawHead, content: StreamReader) -> None:
        self._connection.progressed()
        if not 100 <= head.status <= 199 or head.status == 101:
            self._head, self._content, self._is_chunked = head, content, head.chunked
            if self._login is not None and not self._login.id and logs_in(head.headers):
                self._login.begin()
            return
        self._interim += 1
        if self._interim > MAX_INTERIM:
            self.fail(TOO_MANY_INTERIM)
            return
        try:
            self._on_interim(head.headers)
        except Exception as exc:
            self.fail(exc)

    def _is_answered(self) -> bool:
        return self._head is not None or self.failure is not None

    @property
    def _has_bytes(self) -> bool:
        return self._content is not None and self._content.total_bytes > self._taken

    async def _read_into(
        self, pieces: list[tuple[bytes, bool]], content: StreamReader, most: int
    ) -> None:
        """Read so many pieces, or wait for one."""
        for _ in range(most):
            if content.total_bytes == self._taken and not self._may_end_a_chunk:
                return
            piece = await content.readchunk()
            data, is_end = piece
            self._taken += len(data)
            self._is_chunk_open = self._is_chunked and not is_end
            pieces.append(piece)

    @property
    def _may_end_a_chunk(self) -> bool:
        """Whether the end of a chunk may have come behind its last byte."""
        if not self._is_chunk_open or self.failure is not None or self._content is None:
            return False
        return not self._content.at_eof()

    def _later(self) -> None:
        """Go on in the next turn of the event loop: who takes has left something."""
        if not self._goes_on:
            self._goes_on = True
            self._loop.call_soon(self._go_on_later)

    def _go_on_later(self) -> None:
        self._goes_on = False
        self._go_on()

    def _go_on(self) -> None:
        """Hand over the received bytes, and wake the waiting task once they suffice."""
        take, waiter = self._take, self._waiter
        if take is None or waiter is None or waiter.done():
            return
        try:
            if take():
                waiter.set_result(None)
            elif self._has_bytes:
                self._later()
        except Exception as exc:
            waiter.set_exception(exc)


class _Destination(aiohttp.ClientRequest):
    """Has a single key for all connections. aiohttp would make a key for each."""

    @cached_property
    def connection_key(self) -> ConnectionKey:
        return super().connection_key


def _at_once(reading: Coroutine[Any, Any, T]) -> T | None:
    """What a coroutine returns without waiting; None where it would wait."""
    try:
        reading.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    reading.close()
    return None


def _taken_from(handler: ResponseHandler) -> tuple[RawHead, StreamReader]:
    """The next message, which is there."""
    message_and_reader = _at_once(handler.read())
    if message_and_reader is None:
        raise RuntimeError("aiohttp has counted a response that it does not have")
    message, content = message_and_reader
    version = (message.version.major, message.version.minor)
    # Older releases of aiohttp leave blanks behind a value.
    headers = tuple([(name, value.rstrip(b" \t")) for name, value in message.raw_headers])
    return (
        RawHead(message.code, version, message.reason, headers, message.chunked),
        content,
    )


def _verifying() -> ssl.SSLContext:
    """What aiohttp makes when it is imported: `tapeway serve` has it read no authorities then."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(("http/1.1",))
    return context
