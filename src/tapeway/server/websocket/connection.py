"""Parts shared by connections with turns and by sessions."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tapeway.core.cassette.plan import Answer
from tapeway.core.http.routing import RequestAddress
from tapeway.core.model.control import Delivery
from tapeway.core.model.messages import Request
from tapeway.core.streams.pacing import Pace
from tapeway.engine.broker import Broker
from tapeway.engine.open_streams import Signal
from tapeway.engine.single_flight import Pending
from tapeway.errors import TapewayError, UpstreamError
from tapeway.ports import UpgradeRefused, UpstreamSocket
from tapeway.server.messages import Exchange
from tapeway.server.miss_explainer import Explainer
from tapeway.server.websocket.handshake import ClientSocket
from tapeway.server.websocket.recorded_messages import RecordedTurns

_LONGEST_REASON = 123
"""Bytes; RFC 6455 section 5.5."""
_MOST_REFUSAL = 200
"""How many bytes of a refusal an error text shows."""


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """A client's connection, and the request for the connection."""

    exchange: Exchange
    address: RequestAddress
    handshake: Request
    client: ClientSocket


@dataclass(frozen=True, slots=True)
class ConnectionServices:
    """The parts of the proxy that connections use."""

    broker: Broker
    explainer: Explainer
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
