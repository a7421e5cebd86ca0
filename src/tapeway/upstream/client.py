"""The client for all upstreams. Each request is sent once, as the app wrote it.

Connections, name resolution, TLS and the parser are aiohttp's (`connection.py`). Its `ClientSession`
is not used, because it normalises and repeats requests.
"""

import asyncio
import base64
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

from yarl import URL

from tapeway.body_files import stream_body
from tapeway.core.http.headers import (
    CASSETTE_HEADER,
    FAULT_HEADER,
    HOPS_HEADER,
    end_to_end,
    find_header,
)
from tapeway.core.http.location import without_userinfo
from tapeway.core.http.sigv4 import Signing, client_signature
from tapeway.core.model.messages import Headers, Request
from tapeway.errors import UpstreamError
from tapeway.loop_guard import LoopGuard
from tapeway.ports import NONE_OPEN, OpenConnections
from tapeway.upstream.address_guard import AddressGuard
from tapeway.upstream.aws_signing import AwsSigner
from tapeway.upstream.connection import ConnectionPool, UpstreamExchange
from tapeway.upstream.faults import login_needed, translated
from tapeway.upstream.outer_proxy import DIRECT, OuterProxy, ProxyChoice
from tapeway.upstream.response import Clock, UpstreamAnswer
from tapeway.upstream.websocket import (
    DialledSocket,
    Opening,
    WebSocketDialer,
    forwarded_fields,
)

KIB = 1024
_NOT_FORWARDED = frozenset({b"host", b"expect", CASSETTE_HEADER, FAULT_HEADER, HOPS_HEADER})
"""Host becomes the upstream's, and the proxy has already answered an Expect."""
_NOT_BY_PROXY = _NOT_FORWARDED | {b"proxy-authorization"}
_LENGTH = b"content-length"
_PROXY_LOGIN = 407
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
        signing: Mapping[str, Signing] | None = None,
        proxies: ProxyChoice = DIRECT,
        certificates: Mapping[str, ssl.SSLContext | bool] | None = None,
    ) -> None:
        """`signing` has the routes whose requests are signed for AWS.

        `certificates` has the TLS context of routes with a client certificate, under "" the context
        of all other routes.
        """
        self._certificates = certificates or {}
        self._proxies = proxies
        self.loops = loops
        self._signing = signing or {}
        self._signer = AwsSigner()
        self.clock = clock
        self._guard = guard
        self._limits = limits
        self._tls = tls
        self._pool: ConnectionPool | None = None
        self._uploads = asyncio.TaskGroup()
        self._origin = lru_cache(maxsize=256)(_origin)

    @property
    def connections(self) -> int:
        return 0 if self._pool is None else self._pool.opened

    @property
    def open_connections(self) -> OpenConnections:
        return NONE_OPEN if self._pool is None else self._pool.open_now

    async def __aenter__(self) -> Self:
        limits = self._limits
        self._pool = ConnectionPool(
            self._guard,
            limit=limits.connections,
            connect_s=limits.connect_s,
            idle_s=limits.idle_s,
            tls=self._tls,
            proxies=self._proxies,
            certificates=self._certificates,
        )
        self._dialer = WebSocketDialer(
            self._guard, self._pool.egress_to, connect_s=limits.connect_s, idle_s=limits.idle_s
        )
        await self._uploads.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._pool is not None:
            await self._dialer.close()
            # Without its connection each upload ends.
            await self._pool.close()
            await self._uploads.__aexit__(None, None, None)

    def proxy_for(self, url: URL) -> OuterProxy | None:
        """The proxy on the way to an upstream. Raises UpstreamError if it cannot be used."""
        return self._proxies.proxy_for(url)

    def ask(self, request: Request) -> "UpstreamCall":
        return UpstreamCall(self, request, self._origin(request.base))

    async def dial(
        self, request: Request, subprotocols: Sequence[str], *, deflate: bool, max_message: int
    ) -> DialledSocket:
        """A WebSocket connection to the upstream of a handshake. Raises UpgradeRefused, UpstreamError."""
        origin = self._origin(request.base)
        headers = forwarded_fields(request.headers, _NOT_FORWARDED)
        if origin.login is not None and find_header(headers, b"authorization") is None:
            headers = (*headers, (b"Authorization", origin.login))
        return await self._dialer.dial(
            Opening(
                # Not joined as a reference: `//name` at its beginning would be another host.
                URL(f"{origin.url.origin()}{origin.path}{request.target}", encoded=True),
                (*headers, *self.loops.sent(request)),
                subprotocols,
                deflate,
                max_message,
                request.route,
            )
        )

    async def send(self, request: Request, origin: Origin) -> UpstreamAnswer:
        """Send a request and wait for the head of its response."""
        if self._pool is None:
            raise RuntimeError("the upstream client is used outside its context")
        started = self.clock()
        if (signing := self._signing.get(request.route)) is not None:
            request = await self._signed(request, origin, signing)
        # A request of plain HTTP is the proxy's to read; a tunnel leads past it.
        proxy = self.proxy_for(origin.url) if origin.url.scheme == "http" else None
        head = _head(request, origin, self.loops.sent(request), proxy)
        exchange = await self._pool.begin(
            origin.url,
            route=request.route,
            bodiless=request.method == "HEAD",
            on_interim=partial(self.loops.interim, request),
            login=request.login,
        )
        try:
            if request.file is None and len(request.body) <= _SENT_AT_ONCE:
                exchange.write(head + request.body)
            else:
                upload = _upload(exchange, head, request)
                exchange.upload_by(self._uploads.create_task(upload))
            raw = await exchange.head()
        except BaseException:
            exchange.close()
            raise
        if proxy is not None and raw.status == _PROXY_LOGIN:
            exchange.close()
            raise login_needed(proxy)
        return UpstreamAnswer(exchange, raw, origin.url, request.method, self.clock, started)

    async def _signed(self, request: Request, origin: Origin, signing: Signing) -> Request:
        """The request, with the proxy's signature in place of the client's, if signed."""
        if (client := client_signature(request.target, request.headers)) is None:
            return request
        if find_header(request.headers, b"host") == origin.host and not origin.path:
            # The client's signature holds for exactly this address.
            return request
        target, headers = await self._signer.sign(
            signing,
            client,
            method=request.method,
            base=f"{origin.url.scheme}://{origin.host.decode()}{origin.path}",
            target=request.target,
            headers=request.headers,
            body=request.body if request.file is None else request.file,
        )
        return replace(request, target=target, headers=headers)


class UpstreamCall:
    """A request to an upstream, sent at the beginning of the block; its end frees the connection."""

    __slots__ = ("_answer", "_client", "_origin", "_request")

    def __init__(self, client: UpstreamClient, request: Request, origin: Origin) -> None:
        self._client = client
        self._request = request
        self._origin = origin
        self._answer: UpstreamAnswer | None = None

    async def __aenter__(self) -> UpstreamAnswer:
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


async def _upload(exchange: UpstreamExchange, head: bytes, request: Request) -> None:
    async with aclosing(_pieces(head, request)) as pieces:
        await exchange.upload(pieces)


async def _pieces(head: bytes, request: Request) -> AsyncGenerator[bytes]:
    yield head
    if request.file is None:
        for start in range(0, len(request.body), _PIECE):
            yield request.body[start : start + _PIECE]
        return
    async with aclosing(stream_body(request.file)) as pieces:
        async for piece in pieces:
            yield piece


def _origin(base: str) -> Origin:
    shown = without_userinfo(base)
    url = URL(shown).origin()
    _, slash, path = shown.partition("://")[2].partition("/")
    userinfo = urlsplit(base).netloc.rpartition("@")[0]
    login = base64.b64encode(unquote(userinfo).encode()) if userinfo else None
    host = (url.host_port_subcomponent or "").encode()
    return Origin(url, slash + path, host, login and b"Basic " + login)


def _head(request: Request, origin: Origin, own: Headers, proxy: OuterProxy | None) -> bytes:
    """The head of a request as its app wrote it, addressed to the upstream, maybe by way of a proxy."""
    target = f"{origin.path}{request.target}".encode("utf-8", "surrogateescape")
    if proxy is not None:
        target = f"{origin.url.scheme}://".encode() + origin.host + target
    line = b"%b %b HTTP/1.1" % (request.method.encode(), target)
    lines = [line, b"Host: " + origin.host, *_fields(request, origin, own, proxy)]
    head = b"\r\n".join(lines)
    if head.count(b"\n") != len(lines) - 1 or head.find(b"\0") >= 0:
        raise UpstreamError("a field of the request cannot be sent on", status=400)
    return head + b"\r\n\r\n"


def _fields(
    request: Request, origin: Origin, own: Headers, proxy: OuterProxy | None
) -> list[bytes]:
    """The lines of the fields. The length keeps its place among them; its value may differ."""
    through = None if proxy is None else proxy.authorization
    fields = end_to_end(request.headers, drop=_NOT_FORWARDED if through is None else _NOT_BY_PROXY)
    names = [name.lower() for name, _ in fields]
    lines = [*map(b": ".join, fields + own)]
    size = len(request.body) if request.file is None else request.file.size
    at = -1
    for _ in range(names.count(_LENGTH)):
        at = names.index(_LENGTH, at + 1)
        lines[at] = b"%b: %d" % (fields[at][0], size)
    if origin.login is not None and b"authorization" not in names:
        lines.append(b"Authorization: " + origin.login)
    if through is not None:
        lines.append(b"Proxy-Authorization: " + through)
    if at < 0 and (size or request.method in _BODY_METHODS):
        lines.append(b"Content-Length: %d" % size)
    return lines
