"""The client for all upstreams: it sends each request once, as the app wrote it.

aiohttp's client normalises and retries requests. The classes and hooks below switch that off.
"""

import base64
import ipaddress
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from ssl import SSLContext
from types import SimpleNamespace
from typing import Any, Self, cast
from urllib.parse import unquote, urlsplit
from weakref import WeakSet

import aiohttp
from aiohttp import Payload, hdrs
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from yarl import URL

from tapeway.body_files import stream_body
from tapeway.core.http.headers import CASSETTE_HEADER, HOPS_HEADER, end_to_end, find_header
from tapeway.core.http.location import without_userinfo
from tapeway.core.model.messages import BodyFile, Headers, Request
from tapeway.errors import UpstreamError
from tapeway.loop_guard import LoopGuard
from tapeway.upstream.address_guard import AddressGuard
from tapeway.upstream.faults import translated_errors
from tapeway.upstream.response import INTERIM, Clock, UpstreamAnswer, WatchedResponse

KIB = 1024
MAX_LINE = 16 * KIB
MAX_FIELD = 64 * KIB
MAX_FIELDS = 256

_NOT_FORWARDED = frozenset({b"host", b"expect", CASSETTE_HEADER, HOPS_HEADER})
"""Host becomes the upstream's, and the proxy has already answered an Expect."""
_AUTO_HEADERS = (hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.USER_AGENT, hdrs.CONTENT_TYPE)
_BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})


@dataclass(frozen=True, slots=True)
class Limits:
    """Time-outs in seconds, and the number of open connections."""

    connect_s: float = 10.0
    idle_s: float = 600.0
    connections: int = 500


class UpstreamClient:
    """The LiveResponder of every route, as an async context manager."""

    def __init__(
        self,
        guard: AddressGuard,
        limits: Limits,
        loops: LoopGuard,
        *,
        tls: SSLContext | bool,
        clock: Clock,
    ) -> None:
        self.loops = loops
        self._guard = guard
        self._limits = limits
        self._tls = tls
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self.connections = 0

    async def __aenter__(self) -> Self:
        traces = aiohttp.TraceConfig()
        traces.on_request_start.append(_restore_headers)
        traces.on_connection_create_start.append(self._count)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._limits.connections, resolver=self._guard, ssl=self._tls
            ),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=self._limits.connect_s, sock_read=self._limits.idle_s
            ),
            # Cookies of one client, and this machine's proxies and .netrc, must not leak to others.
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            skip_auto_headers=_AUTO_HEADERS,
            request_class=ForwardRequest,
            response_class=WatchedResponse,
            max_line_size=MAX_LINE,
            max_field_size=MAX_FIELD,
            max_headers=MAX_FIELDS,
            trace_configs=[traces],
        )
        # There is no public switch: the session retries an idempotent request when a reused
        # connection breaks. A recorder must see the reset, and the upstream must get one request.
        session._retry_connection = False
        self._session = session
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def ask(self, request: Request) -> AsyncIterator[UpstreamAnswer]:
        if self._session is None:
            raise RuntimeError("the upstream client is used outside its context")
        url = self._url(request)
        started = self._clock()
        try:
            with translated_errors(url):
                response = await self._send(self._session, request, url)
        except UpstreamError as exc:
            if exc.status != 508:
                self.loops.failed(request)
            raise
        async with response:
            self.loops.answered(request, response.status, response.raw_headers)
            yield UpstreamAnswer(response, self._clock, started)

    async def _send(
        self, session: aiohttp.ClientSession, request: Request, url: URL
    ) -> WatchedResponse:
        headers = _request_headers(request, self.loops.sent(request))
        INTERIM.set(partial(self.loops.interim, request))
        while True:
            try:
                response = await session.request(
                    Method(request.method),
                    url,
                    headers=headers,
                    data=_body_for(request),
                    allow_redirects=False,
                    trace_request_ctx=headers,
                )
                return cast(WatchedResponse, response)
            except StaleConnection:
                # Nothing was sent on it yet, so this is no retry.

                continue

    def _url(self, request: Request) -> URL:
        base = without_userinfo(request.base)
        configured = URL(base).origin()
        _, slash, path = base.partition("://")[2].partition("/")
        # The whole target is the path: taken apart, it would lose a lone `?`.
        url = URL.build(
            scheme=configured.scheme,
            authority=configured.raw_authority,
            path=f"{slash}{path}{request.target}",
            encoded=True,
        )
        host = url.raw_host or ""
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return url
        # The connector does not resolve IP addresses, so they are checked here.
        self._guard.check(host, host, url.port or 0)
        return url

    async def _count(self, *_: object) -> None:
        self.connections += 1


class FilePayload(Payload):
    """A large request body that is sent from its file."""

    _autoclose = True

    def __init__(self, file: BodyFile) -> None:
        super().__init__(file)
        self._file = file
        self._size = file.size

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise TypeError("a large body is not read into memory")

    async def write(self, writer: AbstractStreamWriter) -> None:
        async with aclosing(stream_body(self._file)) as pieces:
            async for piece in pieces:
                await writer.write(piece)


class Method(str):
    """A method in its own case, which counts (RFC 9110 section 9.1): aiohttp upper-cases it."""

    __slots__ = ()

    def upper(self) -> "Method":
        return self


class ForwardRequest(aiohttp.ClientRequest):
    """A client request without the headers that aiohttp would add."""

    def __init__(self, method: str, url: URL, **rest: Any) -> None:
        super().__init__(method, url, **rest)
        # aiohttp sends `Content-Length: 0` for any method it does not know to have no body.
        announced = hdrs.CONTENT_LENGTH in (rest.get("headers") or ())
        if rest.get("data") is None and method not in _BODY_METHODS and not announced:
            self.headers.popall(hdrs.CONTENT_LENGTH, None)

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        protocol = conn.protocol
        if protocol is not None:
            if protocol in _USED_CONNECTIONS and protocol.should_close:
                raise StaleConnection
            _USED_CONNECTIONS.add(protocol)
            # aiohttp starts this time-out when the body is sent: never, if the upstream does not read.
            protocol.start_timeout()
        return await super().send(conn)


_USED_CONNECTIONS: WeakSet[ResponseHandler] = WeakSet()
"""Connections that have carried a request. On a new one a busy server may send its error first."""


class StaleConnection(aiohttp.ClientError):
    """An idle connection on which the upstream sent something unasked, such as an error."""


async def _restore_headers(
    _: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceRequestStartParams
) -> None:
    # Of headers that differ only in case, aiohttp keeps the last.
    params.headers.clear()
    params.headers.extend(context.trace_request_ctx)


def _body_for(request: Request) -> FilePayload | BytesIO | bytes | None:
    if request.file is not None:
        return FilePayload(request.file)
    # aiohttp warns about a large body in bytes, as sending it at once blocks the event loop.
    return BytesIO(request.body) if len(request.body) > 512 * KIB else request.body or None


def _request_headers(request: Request, own: Headers) -> list[tuple[str, str]]:
    headers: list[tuple[str, str]] = []
    size = len(request.body) if request.file is None else request.file.size
    for name, value in (*end_to_end(request.headers, drop=_NOT_FORWARDED), *own):
        # The length keeps its place among the headers; its value may differ.
        text = str(size) if name.lower() == b"content-length" else value.decode()
        headers.append((name.decode(), text))
    userinfo = urlsplit(request.base).netloc.rpartition("@")[0]
    if userinfo and find_header(request.headers, b"authorization") is None:
        token = base64.b64encode(unquote(userinfo).encode()).decode()
        headers.append(("Authorization", f"Basic {token}"))
    return headers
