"""WebSocket connections to upstreams, by aiohttp's ordinary client."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import (
    ClientHandlerType,
    ClientRequest,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ClientWebSocketResponse,
    DummyCookieJar,
    TCPConnector,
    hdrs,
)
from multidict import CIMultiDict
from yarl import URL

from tapeway.core.http.headers import OWN, end_to_end
from tapeway.core.model.messages import Headers, Response, ResponseHead
from tapeway.errors import UpstreamError
from tapeway.ports import UpgradeRefused
from tapeway.upstream.address_guard import AddressGuard
from tapeway.upstream.connection import Egress
from tapeway.upstream.faults import proxy_failed, translated
from tapeway.upstream.message_socket import MessageSocket

_OF_EACH_CONNECTION = frozenset(
    {
        *(b"sec-websocket-accept", b"sec-websocket-extensions", b"sec-websocket-key"),
        *(b"sec-websocket-protocol", b"sec-websocket-version", b"content-length"),
    }
)
"""Fields of a handshake that belong to a single connection."""
_SWITCHING = 101
_WINDOW_BITS = 15
_MOST_REFUSAL = 1024 * 1024

EgressTo = Callable[[URL, str], Awaitable[Egress]]


@dataclass(frozen=True, slots=True)
class Opening:
    """A handshake with an upstream: URL, fields, subprotocols and compression."""

    url: URL
    headers: Headers
    subprotocols: Sequence[str] = field(repr=False)
    deflate: bool
    max_message: int
    route: str


class DialledSocket(MessageSocket):
    """A connection to an upstream. `head` is the answer to the handshake, without framing."""

    __slots__ = ("_answer", "head", "idle_s")

    def __init__(self, connection: "_Connection", idle_s: float) -> None:
        super().__init__(connection, connection.abort, connection.protocol)
        self.idle_s = idle_s
        self._answer = answer = connection.answer
        self.head = ResponseHead(
            answer.status, answer.reason or "", _fields(answer.raw_headers), framing="chunked"
        )

    def release(self) -> None:
        """Let go of a connection that both sides have closed."""
        self._answer.close()


class WebSocketDialer:
    """Opens connections to upstreams, outside any pool.

    Each belongs to a client's connection. The listener refuses clients if descriptors run out.
    """

    def __init__(
        self, guard: AddressGuard, egress_to: EgressTo, *, connect_s: float, idle_s: float
    ) -> None:
        self._guard = guard
        self._egress_to = egress_to
        self._connect_s = connect_s
        self._idle_s = idle_s
        self._session: ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def dial(self, opening: Opening) -> DialledSocket:
        """A connection. Raises UpgradeRefused with the upstream's answer, and UpstreamError."""
        url, egress = opening.url, await self._egress_to(opening.url, opening.route)
        proxy = egress.proxy
        self._guard.check_written(url)
        if proxy is not None:
            self._guard.check_written(proxy.url)
        try:
            # Known too late by its type: `ws_connect` says that it returns any connection.
            connection: Any = await self._opened_session().ws_connect(
                url,
                protocols=opening.subprotocols,
                headers=_sendable(opening.headers),
                autoclose=False,
                compress=_WINDOW_BITS if opening.deflate else 0,
                max_msg_size=opening.max_message,
                ssl=egress.tls,
                proxy=None if proxy is None else proxy.url,
                proxy_headers=None if proxy is None else proxy.headers,
                decode_text=False,
            )
        except Exception as exc:
            raise (
                translated(exc, url) if proxy is None else proxy_failed(exc, url, proxy)
            ) from None
        return DialledSocket(connection, self._idle_s)

    def _opened_session(self) -> ClientSession:
        if self._session is None:
            connector = TCPConnector(limit=0, resolver=self._guard)
            self._session = ClientSession(
                connector=connector,
                cookie_jar=DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=(hdrs.USER_AGENT, hdrs.ACCEPT, hdrs.ACCEPT_ENCODING),
                timeout=ClientTimeout(
                    total=None, connect=self._connect_s, sock_connect=self._connect_s
                ),
                ws_response_class=_Connection,
                middlewares=(_refusals,),
            )
        return self._session


class _Connection(ClientWebSocketResponse):
    """aiohttp's connection, with the answer to the handshake."""

    def __init__(
        self,
        reader: Any,
        writer: Any,
        protocol: str | None,
        response: ClientResponse,
        *a: Any,
        **k: Any,
    ) -> None:
        super().__init__(reader, writer, protocol, response, *a, **k)
        self.answer = response

    def abort(self) -> None:
        """End the connection without a close frame."""
        held = self.answer.connection
        if held is not None and held.transport is not None:
            held.transport.abort()
        self.answer.close()


async def _refusals(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """Reads an answer that opens no connection. `ws_connect` would follow or drop such an answer."""
    answer = await handler(request)
    if answer.status == _SWITCHING:
        return answer
    try:
        body = await _bounded(answer)
    finally:
        answer.close()
    head = ResponseHead(answer.status, answer.reason or "", _fields(answer.raw_headers))
    raise UpgradeRefused(Response(head, body))


async def _bounded(answer: ClientResponse) -> bytes:
    """The body of a refusal. Raises UpstreamError for a body larger than any refusal."""
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > _MOST_REFUSAL:
            raise UpstreamError(
                "the upstream refused the WebSocket connection with more than 1 MiB",
                code="upstream_protocol",
            )
    return bytes(body)


def _fields(headers: Headers) -> Headers:
    return end_to_end(headers, drop=OWN | _OF_EACH_CONNECTION)


def _sendable(headers: Headers) -> CIMultiDict[str]:
    """Fields for aiohttp. Raises UpstreamError for octets that are no text."""
    fields: CIMultiDict[str] = CIMultiDict()
    try:
        for name, value in headers:
            fields.add(name.decode(), value.decode())
    except UnicodeDecodeError:
        raise UpstreamError("a field of the request cannot be sent on", status=400) from None
    return fields


def forwarded_fields(headers: Headers, dropped: frozenset[bytes]) -> Headers:
    """The fields of a client's handshake for the upstream."""
    return end_to_end(headers, drop=dropped | _OF_EACH_CONNECTION)
