"""The opening of a connection: the service's messages before the client's first message.

The recording of a session begins with the opening. On a connection with requests the opening is an
interaction without a message of the client, and has all messages before the first request.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

from tapeway.core.cassette.plan import LiveCall, Replay
from tapeway.core.http.routing import RequestAddress
from tapeway.core.json_text import Json
from tapeway.core.misses.miss import Miss
from tapeway.core.model.control import Mode
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.request_protocol import AnswerMessage, RequestProtocol
from tapeway.core.websocket.session_lines import session_line
from tapeway.core.websocket.sessions import SessionRecording
from tapeway.errors import Draining, NoRoute, TapewayError, UpstreamError
from tapeway.ports import StoredCall, UpstreamSocket
from tapeway.server.messages import Exchange
from tapeway.server.websocket.connection import (
    ConnectionServices,
    OpenConnection,
    TimedMessage,
    message_head,
    message_request,
    settled,
)
from tapeway.server.websocket.late_messages import NotStored, StoredTurn
from tapeway.server.websocket.live_lines import LiveLines, session_metadata
from tapeway.server.websocket.recorded_messages import about_connection, recorded_session


def has_no_client(recorded: Interaction) -> bool:
    """Whether an interaction has messages of the service alone, at least at the beginning."""
    request = recorded.request
    is_session = about_connection(recorded).session is not None
    return is_session and not request.body and request.file is None


@dataclass(frozen=True, slots=True)
class RecordedOpening:
    """A recorded opening for the current connection, and the exchange for the journal."""

    exchange: Exchange
    plan: Replay
    session: SessionRecording

    @property
    def interaction(self) -> Interaction:
        return self.plan.interaction

    @property
    def says_something(self) -> bool:
        """Whether the client gets a message or a close."""
        return bool(self.session.opening) or self.session.is_closed_by_service

    def note(self, ended: Callable[..., None]) -> None:
        """Enter the replay in the journal."""
        item, status = self.interaction, self.interaction.response.status
        ended(self.exchange, "replayed", status, item.index, interaction=item)


@dataclass(frozen=True, slots=True)
class MissedOpening:
    """The cassette has openings, but none for the current connection."""

    exchange: Exchange
    miss: Miss


async def recorded_opening(
    services: ConnectionServices,
    exchange: Exchange,
    address: RequestAddress,
    handshake: Request,
    mode: Mode,
    candidates: Sequence[Interaction],
) -> RecordedOpening | LiveCall | MissedOpening | None:
    """The opening for a new connection; None if no candidate has an opening."""
    request = message_request(handshake, b"")
    for _ in candidates:
        own = services.begun(exchange)
        own.take = exchange.take
        try:
            plan = await services.decided(own, address, request, mode)
        except NoRoute:
            return None
        if isinstance(plan, Miss):
            return MissedOpening(own, plan)
        if isinstance(plan, LiveCall):
            return plan
        session = await recorded_session(plan.interaction)
        opening = RecordedOpening(own, plan, session)
        if opening.says_something:
            return opening
    return None


class LiveOpening(LiveLines):
    """The opening of one connection to a service with requests, and its recording."""

    shared = False
    is_session = False

    def __init__(
        self,
        services: ConnectionServices,
        opened: OpenConnection,
        upstream: UpstreamSocket,
        protocol: RequestProtocol,
        not_stored: NotStored,
        given: int = 0,
    ) -> None:
        """The client has got `given` messages before this connection was dialled."""
        super().__init__(message_head(upstream.head), opened.opening.began)
        self.metadata: Mapping[str, Json] = session_metadata(protocol.name, upstream.subprotocol)
        self.handed_out = asyncio.Event()
        self.handed_out.set()
        self._services = services
        self._opened = opened
        self.given = given
        self._not_stored = not_stored
        self._is_begun = False
        self._moved: Callable[[int], object] = lambda index: None
        self._recording: StoredTurn | None = None

    def was_given(self, answer: AnswerMessage | None) -> bool:
        """Whether the service's next message, with this meaning, is among the `given` messages."""
        if answer is None:
            return False
        if answer.is_mark or answer.lane:
            # The service answers requests, so the opening is over.
            self.given = 0
            return False
        self.given -= 1
        return True

    async def store(self, messages: Sequence[TimedMessage]) -> bool:
        """Store the first messages; return whether they are stored. Raises TapewayError."""
        self._is_begun = True
        services, opened = self._services, self._opened
        exchange = services.begun(opened.exchange)
        request = message_request(opened.handshake, b"")
        live_call = await services.live_call(exchange, opened.address, request)
        if live_call is None:
            return False
        self.precede((session_line(item.message, by_client=False), item.at_ms) for item in messages)
        self.end("complete")
        self._moved = partial(services.broker.journal.move, exchange.id)
        try:
            answer = await settled(services.broker.recorder.follow(live_call, None, self))
        except Draining:
            return False
        if isinstance(answer, UpstreamError | Draining):
            # The opening does not fit into a recording, or the proxy stops.
            return False
        if isinstance(answer, TapewayError):
            raise answer
        services.note_live(exchange, answer, answer.note)
        return answer.index is not None

    async def add_late(self, message: WebSocketMessage, at_ms: float) -> bool:
        """Add a message before the first request; return False if no recording takes the message."""
        if not self._is_begun:
            return await self.store([TimedMessage(message, at_ms)])
        line = session_line(message, by_client=False)
        return self._recording is not None and await self._recording.add(line, at_ms)

    async def release(self) -> None:
        """Store nothing more, and wait until all is stored."""
        if self._recording is not None:
            await self._recording.release()

    # Called by the recorder.

    def ask(self, request: Request) -> AbstractAsyncContextManager["LiveOpening"]:
        return nullcontext(self)

    def stored(self, call: StoredCall) -> None:
        """Take the call of the stored opening; the opening may go on."""
        recorder = self._services.broker.recorder
        self._recording = StoredTurn(call, recorder, self._moved, self._not_stored)
