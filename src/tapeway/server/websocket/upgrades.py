"""Requests to become a WebSocket connection: what is done with each, and how it ends."""

from collections.abc import Awaitable, Callable

from tapeway.core.http.routing import RequestAddress, no_route_error
from tapeway.core.model.messages import Request, Response
from tapeway.engine.broker import Broker
from tapeway.engine.open_streams import Signal
from tapeway.errors import RequestError, WebSocketOff
from tapeway.ports import Dial, UpgradeRefused, UpstreamSocket
from tapeway.server.answers import outcome_headers
from tapeway.server.messages import Exchange, WireResponse
from tapeway.server.websocket.handshake import (
    accept,
    check_handshake,
    offered_subprotocols,
    offers_deflate,
)
from tapeway.server.websocket.relay import relay

_OFF = (
    "WebSocket is switched off here (--no-websocket, or ?websocket=off at the route): use the API over "
    "HTTP"
)
_LEFT = "the client left before its WebSocket connection was open"


class Upgrades:
    """Serves WebSocket connections to their end."""

    def __init__(
        self,
        broker: Broker,
        dial: Dial | None,
        stopping: Signal,
        *,
        max_message: int,
        enabled: bool,
        ended: Callable[..., None],
        refused: Callable[[Exchange, Response, str], Awaitable[WireResponse]],
    ) -> None:
        """`ended` enters the connection in the journal; `refused` answers in place of a connection."""
        self._broker = broker
        self._max_message = max_message
        self._enabled = enabled
        self._dial = dial
        self._stopping = stopping
        self._ended = ended
        self._refused = refused

    async def serve(self, exchange: Exchange, address: RequestAddress) -> WireResponse:
        """Serve the connection that a request asks for. Raises RequestError, UpstreamError."""
        raw, route = exchange.raw, address.route
        if not (self._enabled and route.websocket):
            raise WebSocketOff(_OFF)
        exchange.cassette, mode, exchange.take = self._broker.in_force(
            address.cassette, address.slot
        )
        if mode != "passthrough":
            raise WebSocketOff(_OFF)
        check_handshake(raw)
        request = Request(
            route.name, raw.method, address.target, raw.raw_headers, b"", route.url or ""
        )
        try:
            upstream = await self._dialled(request)
        except UpgradeRefused as refusal:
            return await self._refused(exchange, refusal.response, request.base)
        try:
            await self._relay(exchange, upstream)
        except ConnectionError:
            upstream.abort()
            raise RequestError(_LEFT) from None
        finally:
            upstream.release()
        self._ended(exchange, "live", upstream.head.status)
        return WireResponse((), keep_alive=False)

    async def _dialled(self, request: Request) -> UpstreamSocket:
        """A connection to the upstream. Raises UpgradeRefused, UpstreamError, NoRoute."""
        if not request.base or self._dial is None:
            raise no_route_error(self._broker.routes, request.route, request.target)
        return await self._dial(
            request,
            offered_subprotocols(request.headers),
            deflate=offers_deflate(request.headers),
            max_message=self._max_message,
        )

    async def _relay(self, exchange: Exchange, upstream: UpstreamSocket) -> None:
        fields = (*upstream.head.headers, *outcome_headers("live", exchange.cassette, None))
        limit = self._max_message
        client = await accept(exchange.raw, upstream.subprotocol, fields, limit)
        await relay(client, upstream, self._stopping)
