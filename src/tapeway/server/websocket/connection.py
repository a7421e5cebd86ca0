"""Parts shared by connections with turns and by sessions."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tapeway.core.cassette.plan import Answer, Incoming, LiveCall, Replay
from tapeway.core.http.routing import RequestAddress
from tapeway.core.misses.miss import Miss
from tapeway.core.model.control import Delivery, Mode
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import (
    MESSAGES_TYPE,
    WEBSOCKET,
    Headers,
    Request,
    ResponseHead,
)
from tapeway.core.streams.pacing import Pace
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.engine.broker import Broker
from tapeway.engine.faults import chosen, faults_of, still_fitting
from tapeway.engine.open_streams import Signal
from tapeway.engine.record_command import RecordCommands
from tapeway.engine.request_log import log_miss
from tapeway.engine.single_flight import Pending
from tapeway.errors import TapewayError, UpstreamError
from tapeway.ports import UpgradeRefused, UpstreamSocket
from tapeway.server.messages import Exchange
from tapeway.server.miss_explainer import Explainer
from tapeway.server.websocket.faulted import MessageFault, lay_on_messages
from tapeway.server.websocket.handshake import ClientSocket
from tapeway.server.websocket.recorded_messages import RecordedTurns

_LONGEST_REASON = 123
"""Bytes; RFC 6455 section 5.5."""
_MOST_REFUSAL = 200
"""How many bytes of a refusal an error text shows."""


@dataclass(frozen=True, slots=True)
class TimedMessage:
    """A message; `at_ms` counts milliseconds since the handshake."""

    message: WebSocketMessage
    at_ms: float
    by_client: bool = False


def _now() -> float:
    return asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True)
class HeardOpening:
    """The messages before the client's first message, and keep-alives of the client."""

    messages: list[TimedMessage] = field(default_factory=list)
    began: float = field(default_factory=_now)
    """The time of the handshake on the clock of the event loop."""

    def add(self, message: WebSocketMessage, *, by_client: bool = False) -> None:
        """Add a message that came just now."""
        self.messages.append(TimedMessage(message, (_now() - self.began) * 1000, by_client))


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """A client's connection, and the request for the connection."""

    exchange: Exchange
    address: RequestAddress
    handshake: Request
    client: ClientSocket
    opening: HeardOpening = field(default_factory=HeardOpening)


@dataclass(frozen=True, slots=True)
class ConnectionServices:
    """The parts of the proxy that connections use."""

    broker: Broker
    explainer: Explainer
    commands: RecordCommands
    stopping: Signal
    ended: Callable[..., None]
    """Enters an exchange in the journal."""
    begun: Callable[[Exchange], Exchange]
    """Makes the exchange of a turn from the exchange of the connection."""
    dial: Callable[[Request], Awaitable[UpstreamSocket]]
    delivery: Delivery
    pace: Pace
    page: str | None
    turns: RecordedTurns = field(default_factory=RecordedTurns)

    async def arrived(self, exchange: Exchange, address: RequestAddress) -> Mode:
        """The mode in force, for a request that arrives now. Raises NoSlot, StoreAway."""
        await self.broker.confirm()
        in_force = self.broker.in_force(address.cassette, address.slot)
        exchange.cassette, mode, exchange.take = in_force
        return mode

    async def decided(
        self, exchange: Exchange, address: RequestAddress, request: Request, mode: Mode
    ) -> Replay | LiveCall | Miss:
        """The plan for a request on a connection."""
        broker = self.broker
        take = broker.arrival_take(exchange.cassette, mode, exchange.take)
        incoming = Incoming(request, address.guessed, mode, take=take)
        plan = await broker.decide(exchange.cassette, incoming)
        exchange.key, exchange.shown = plan.key, plan.target
        if isinstance(plan, Replay | LiveCall):
            exchange.note = plan.note
        if isinstance(plan, Replay):
            exchange.base = plan.base
        return plan

    async def faulted(
        self,
        exchange: Exchange,
        address: RequestAddress,
        request: Request,
        mode: Mode,
        said_in: Callable[[Interaction], Awaitable[Sequence[WebSocketMessage]]],
        error: WebSocketMessage | None,
    ) -> tuple[Replay, MessageFault] | None:
        """What would answer a request on a connection, and the fault that it gets; None without one.

        `said_in` reads the service's messages of a recording, `error` is the protocol's error.
        """
        broker, name = self.broker, exchange.cassette
        wanted = faults_of(broker.source.control, address.slot, name, request)
        incoming = Incoming(request, address.guessed, mode, take=exchange.take)
        replay = await broker.would_replay(name, incoming) if wanted.faults else None
        if replay is None or replay.interaction.failure is not None:
            return None
        wanted = still_fitting(wanted, replay, incoming.take)
        messages = await said_in(replay.interaction)
        at = partial(lay_on_messages, messages=messages, error=error)
        if (laid := await chosen(broker.source, incoming, replay, wanted, at)) is None:
            return None
        exchange.lay(laid.fault, replay)
        exchange.request = request
        return replay, laid

    async def live_call(
        self, exchange: Exchange, address: RequestAddress, request: Request
    ) -> LiveCall | None:
        """The call for a service that speaks already; None if no live call is allowed."""
        plan = await self.decided(exchange, address, request, await self.arrived(exchange, address))
        if isinstance(plan, Replay):
            # Recorded after this client connected; the service has already begun with this client.
            plan = await self.decided(exchange, address, request, "record")
        return plan if isinstance(plan, LiveCall) else None

    async def note_miss(self, exchange: Exchange, miss: Miss) -> Miss:
        """Enter a miss in log and journal; return the miss with the explanation."""
        slot = exchange.address.slot if exchange.address else None
        explained = self.commands.told(await self.explainer.explain(miss), slot)
        log_miss(explained, exchange.id, self.page)
        self.ended(exchange, "miss", 400, None, explained.message, miss=explained)
        return explained

    def note_live(self, exchange: Exchange, answer: Answer, note: str | None) -> None:
        """Enter a live answer in the journal."""
        self.ended(
            *(exchange, answer.outcome, answer.response.status, answer.index, note),
            size=answer.response.size,
            verdict=answer.response.verdict,
            redacted=answer.redacted,
            response=answer.response,
        )


_OF_THE_HANDSHAKE = frozenset(
    {
        *(b"connection", b"upgrade", b"content-type", b"content-length", b"content-encoding"),
        *(b"sec-websocket-key", b"sec-websocket-version", b"sec-websocket-extensions"),
    }
)


def message_request(handshake: Request, content: bytes) -> Request:
    """The request for a message with this content, as if sent by HTTP on the handshake's path."""
    kept = [field for field in handshake.headers if field[0].lower() not in _OF_THE_HANDSHAKE]
    headers: Headers = ((b"Content-Type", b"application/json"), *kept)
    return replace(handshake, method=WEBSOCKET, headers=headers, body=content)


def message_head(head: ResponseHead) -> ResponseHead:
    """The head of recorded messages: the handshake's answer with the media type of messages."""
    fields = [header for header in head.headers if header[0].lower() != b"content-type"]
    headers = ((b"Content-Type", MESSAGES_TYPE), *fields)
    return ResponseHead(200, "OK", headers, framing="chunked")


def close_reason(text: str) -> str:
    """As much of a text as a close frame holds."""
    return text.encode()[:_LONGEST_REASON].decode("utf-8", "ignore")


def refused_error(refusal: UpgradeRefused) -> UpstreamError:
    """The error if the upstream refuses a connection after the client's connection is open."""
    response = refusal.response
    text = response.body[:_MOST_REFUSAL].decode("utf-8", "replace")
    return UpstreamError(
        f"the upstream refused the WebSocket connection with {response.status}: {text}",
        status=max(response.status, 400),
        code="upstream_refused",
    )


async def settled(pending: Pending) -> Answer | TapewayError:
    """The answer of a live call, or its error."""
    try:
        return await pending.answer()
    except TapewayError as exc:
        return exc
