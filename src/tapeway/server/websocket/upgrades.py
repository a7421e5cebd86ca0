"""Requests for a WebSocket connection, each served to the end of the connection."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Incoming, LiveCall
from tapeway.core.http.routing import RequestAddress, no_route_error, on_other_routes
from tapeway.core.matching.placeholders import has_placeholder
from tapeway.core.misses.miss import Miss
from tapeway.core.misses.nearest import path_of
from tapeway.core.model.control import MODE_POLICIES, Delivery, Mode, Outcome
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import WEBSOCKET, Headers, Request, Response
from tapeway.core.redaction.credentials import plain_subprotocols
from tapeway.core.streams.pacing import Pace
from tapeway.core.websocket.json_rpc import is_json_rpc
from tapeway.core.websocket.keep_alives import is_plain_keep_alive
from tapeway.core.websocket.messages import Close, WebSocketMessage
from tapeway.core.websocket.request_protocol import RequestProtocol
from tapeway.core.websocket.sessions import SessionRecording
from tapeway.engine.broker import Broker
from tapeway.engine.decision import routes_of
from tapeway.engine.open_streams import Signal
from tapeway.engine.record_command import RecordCommands
from tapeway.errors import ClientLeft, WebSocketOff
from tapeway.ports import Dial, UpgradeRefused, UpstreamSocket
from tapeway.providers.websocket.choice import protocol_of, session_dialect_of
from tapeway.server.answers import outcome_headers
from tapeway.server.messages import Exchange, WireResponse
from tapeway.server.miss_explainer import Explainer
from tapeway.server.websocket.connection import (
    ConnectionServices,
    OpenConnection,
    message_request,
)
from tapeway.server.websocket.handshake import (
    accept,
    check_handshake,
    offered_subprotocols,
    offers_deflate,
)
from tapeway.server.websocket.opening import (
    MissedOpening,
    RecordedOpening,
    has_no_client,
    recorded_opening,
)
from tapeway.server.websocket.recorded_messages import about_connection, recorded_session
from tapeway.server.websocket.relay import relay
from tapeway.server.websocket.sessions import SessionConnection
from tapeway.server.websocket.turns import TurnConnection

_OFF = (
    "WebSocket is switched off here (--no-websocket, or ?websocket=off at the route): use the API over "
    "HTTP"
)
_OK = 200
_LEFT = "the client left before its WebSocket connection was open"
FEED_S = 5.0
"""After this time, in seconds, a connection on which only the service has spoken is a session."""
SILENCE_S = 15.0
"""After this time, in seconds, a silent client gets a miss if nothing of the service is recorded."""


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The usable recordings for a connection, and the decision on the opening."""

    others: Sequence[Interaction] = ()
    """Recordings with messages of the client."""
    opening: RecordedOpening | LiveCall | MissedOpening | None = None

    @property
    def needs_service(self) -> bool:
        """Whether the service has to speak first, or nothing is recorded."""
        return isinstance(self.opening, LiveCall) or not (self.others or self.opening)

    async def with_opening(self) -> Sequence[SessionRecording]:
        """The sessions in which the service speaks first. Raises StoreError."""
        sessions = [
            await recorded_session(recording) for recording in self.others if _is_session(recording)
        ]
        return [session for session in sessions if session.opening]

    @property
    def all(self) -> Sequence[Interaction]:
        own = self.opening
        return [*([own.interaction] if isinstance(own, RecordedOpening) else []), *self.others]


class Upgrades:
    """Serves WebSocket connections to their end."""

    def __init__(
        self,
        broker: Broker,
        explainer: Explainer,
        commands: RecordCommands,
        dial: Dial | None,
        stopping: Signal,
        *,
        max_message: int,
        enabled: bool,
        delivery: Delivery,
        pace: Pace,
        page: str | None,
        begun: Callable[[Exchange], Exchange],
        ended: Callable[..., None],
        refused: Callable[[Exchange, Response, str], Awaitable[WireResponse]],
    ) -> None:
        """`ended` enters the connection in the journal; `refused` answers a refused upgrade."""
        self._broker = broker
        self._dial = dial
        self._stopping = stopping
        self._max_message = max_message
        self._enabled = enabled
        self._ended = ended
        self._refused = refused
        self._services = ConnectionServices(
            *(broker, explainer, commands, stopping, ended, begun, self._dialled),
            *(delivery, pace, page),
        )

    async def serve(self, exchange: Exchange, address: RequestAddress) -> WireResponse:
        """Serve the connection that a request asks for. Raises RequestError, UpstreamError."""
        raw, route = exchange.raw, address.route
        if not (self._enabled and route.websocket):
            raise WebSocketOff(_OFF)
        exchange.cassette, mode, exchange.take = self._broker.in_force(
            address.cassette, address.slot
        )
        check_handshake(raw)
        request = Request(
            *(route.name, raw.method, address.target, raw.raw_headers, b"", route.url or ""),
            login=raw.connection.login,
            read=raw.fields,
        )
        recorded = await self._recorded(exchange, address, request, mode)
        upstream: UpstreamSocket | None = None
        if MODE_POLICIES[mode].asks and recorded.needs_service:
            try:
                upstream = await self._dialled(request)
            except UpgradeRefused as refusal:
                return await self._refused(exchange, refusal.response, request.base)
        try:
            await self._serve(exchange, address, request, mode, upstream, recorded)
        except ConnectionError:
            if upstream is not None:
                upstream.abort()
            raise ClientLeft(_LEFT) from None
        finally:
            if upstream is not None:
                upstream.release()
        return WireResponse((), keep_alive=False)

    async def _recorded(
        self, exchange: Exchange, address: RequestAddress, request: Request, mode: Mode
    ) -> "_Recorded":
        """The usable recordings for a connection with this handshake."""
        if not MODE_POLICIES[mode].replays:
            return _Recorded()
        incoming = Incoming(
            message_request(request, b""), address.guessed, "replay", take=exchange.take
        )
        cassette = await self._broker.cassettes.at_path(exchange.cassette, incoming)
        path = path_of(request, cassette.rules)
        recordings = [
            recording
            for recording in cassette.snapshot()
            if isinstance(recording, Interaction)
            and recording.request.method == WEBSOCKET
            and _may_be_path(path, path_of(recording.request, cassette.rules))
        ]
        others = self._with_handshake(
            *(cassette, incoming),
            [recording for recording in recordings if not has_no_client(recording)],
        )
        if MODE_POLICIES[mode].asks:
            others = _not_used_up(cassette, exchange.take, others)
        silent = [recording for recording in recordings if has_no_client(recording)]
        opening = await recorded_opening(self._services, exchange, address, request, mode, silent)
        if not isinstance(opening, RecordedOpening) and any(map(_is_session, others)):
            # Each session has an opening of its own.
            opening = None
        return _Recorded(others, opening)

    def _with_handshake(
        self, cassette: CassetteIndex, incoming: Incoming, recordings: Sequence[Interaction]
    ) -> Sequence[Interaction]:
        """The recordings whose route, path, query and deciding headers equal the handshake's."""
        others = on_other_routes(incoming.request, self._broker.routes)
        asked = [incoming, *[Incoming(other, mode=incoming.mode) for other in others]]
        known: dict[tuple[str, str, Headers], bool] = {}
        equal: list[Interaction] = []
        for recording in recordings:
            request = recording.request
            handshake = (request.route, request.target, request.headers)
            if handshake not in known:
                known[handshake] = any(
                    _finds(handshake_request, cassette, recording) for handshake_request in asked
                )
            if known[handshake]:
                equal.append(recording)
        return equal

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

    async def _serve(
        self,
        exchange: Exchange,
        address: RequestAddress,
        request: Request,
        mode: Mode,
        upstream: UpstreamSocket | None,
        recorded: "_Recorded",
    ) -> None:
        fields: Headers = ()
        if upstream is not None:
            subprotocol, fields = upstream.subprotocol, upstream.head.headers
        else:
            subprotocol = _replayed_subprotocol(request.headers, recorded.all)
        policy = MODE_POLICIES[mode]
        outcome: Outcome = ("recorded" if policy.records else "live") if upstream else "replayed"
        fields = (*fields, *outcome_headers(outcome, exchange.cassette, None))
        client = await accept(exchange.raw, subprotocol, fields, self._max_message)
        if upstream is not None and not policy.records:
            await relay(client, upstream, self._stopping)
            self._ended(exchange, "live", upstream.head.status)
            return
        opened = OpenConnection(exchange, address, request, client)
        if upstream is not None:
            await self._serve_live(opened, upstream)
        else:
            await self._serve_replay(opened, recorded)

    async def _serve_live(self, opened: OpenConnection, upstream: UpstreamSocket) -> None:
        """Serve a connection and record the messages."""
        session = self._session(opened)
        first = await _first_message(opened, upstream, session)
        protocol = _protocol_of(opened, first)
        if protocol is None or first is None or isinstance(first, Close):
            await session.serve_live(upstream, first)
            return
        await TurnConnection(self._services, opened, upstream, protocol).serve(first)

    async def _serve_replay(self, opened: OpenConnection, recorded: "_Recorded") -> None:
        """Serve a connection from recordings, as far as messages are recorded."""
        session, opening = self._session(opened, recorded.others), recorded.opening
        own = opening if isinstance(opening, RecordedOpening) else None
        missed: Miss | None = None
        if isinstance(opening, MissedOpening):
            missed = await self._services.note_miss(opening.exchange, opening.miss)
        if not recorded.all and _protocol_of(opened, None) is None:
            first = await self._first_within(opened)
            if first is None:
                await session.miss_in_silence(missed)
                return
        else:
            first = await session.open([own.session] if own else await recorded.with_opening())
        protocol = _protocol_of(opened, first)
        if isinstance(first, Close):
            await opened.client.close(first)
            if own is None:
                self._ended(opened.exchange, "replayed", _OK)
        elif protocol is None or (opened.opening.messages and own is None):
            await session.serve_replay(first, None if own is None else own.plan)
            return
        if own is not None:
            # Before a session the opening belongs to the session's recording.
            own.note(self._ended)
        if protocol is not None and not isinstance(first, Close):
            await session.send_rest()
            await TurnConnection(self._services, opened, None, protocol).serve(first)

    async def _first_within(self, opened: OpenConnection) -> WebSocketMessage | Close | None:
        """The client's first message; None if the client waits for a service without recordings."""
        async with asyncio.TaskGroup() as tasks:
            receiving = tasks.create_task(opened.client.receive())
            await asyncio.wait((receiving,), timeout=SILENCE_S)
            receiving.cancel()
        return None if receiving.cancelled() else receiving.result()

    def _session(
        self, opened: OpenConnection, recorded: Sequence[Interaction] = ()
    ) -> SessionConnection:
        dialect = session_dialect_of(opened.handshake.target)
        return SessionConnection(self._services, opened, dialect, recorded)


def _protocol_of(
    opened: OpenConnection, first: WebSocketMessage | Close | None
) -> RequestProtocol | None:
    """The request protocol of a connection, without a message as far as path and subprotocol tell.

    None for a session.
    """
    if isinstance(first, Close):
        return None
    first = first or WebSocketMessage(b"")
    return protocol_of(opened.handshake.target, opened.client.subprotocol or "", first)


def _not_used_up(
    cassette: CassetteIndex, take: int | None, recordings: Sequence[Interaction]
) -> Sequence[Interaction]:
    """The recordings without the sessions that the take has made or used: the service is asked anew."""
    now = cassette.running(take)
    return [
        recording
        for recording in recordings
        if not _is_session(recording)
        or (
            cassette.take_of(recording.index) != now.number
            and cassette.choice.why_asked(recording, now) is None
        )
    ]


def _finds(incoming: Incoming, cassette: CassetteIndex, item: Interaction) -> bool:
    """Whether the handshake of a request leads to a recording, given the recorded message."""
    asked = incoming.request
    request = replace(
        item.request, route=asked.route, target=asked.target, headers=asked.headers, base=asked.base
    )
    found_key = cassette.find(cassette.asked(request), routes_of(incoming))
    return found_key is not None and found_key.key == cassette.key_of(item.index)


def _may_be_path(asked: str, recorded: str) -> bool:
    """Whether two paths differ at most in segments with a placeholder: a quick comparison."""
    if asked == recorded:
        return True
    one, other = asked.split("/"), recorded.split("/")
    return len(one) == len(other) and all(
        own == segment or has_placeholder(segment) for own, segment in zip(one, other, strict=True)
    )


def _is_session(interaction: Interaction) -> bool:
    return about_connection(interaction).session is not None


async def _first_message(
    opened: OpenConnection, upstream: UpstreamSocket, session: SessionConnection
) -> WebSocketMessage | Close | None:
    """Pass on the opening; return the client's first message, or the end of the connection.

    Keep-alives of the client belong to the opening. None for a feed: the service has spoken, and
    the client has said nothing for a while.
    """
    client, clock = opened.client, asyncio.get_running_loop().time
    may_be_feed, has_spoken = _protocol_of(opened, None) is None, False
    pinged = False
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(client.receive())
        while not asking.done():
            speaking = tasks.create_task(upstream.receive())
            left_s = None
            if may_be_feed and has_spoken:
                left_s = max(0.0, opened.opening.began + FEED_S - clock())
            await asyncio.wait(
                (asking, speaking), timeout=left_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not speaking.done():
                speaking.cancel()
                await asyncio.wait((speaking,))
            if not speaking.cancelled():
                said = speaking.result()
                if isinstance(said, Close):
                    asking.cancel()
                    return said
                opened.opening.add(said)
                with suppress(ConnectionError):
                    # Reading the client's side tells that the client has left.
                    await client.send(said)
                may_be_feed = may_be_feed and not is_json_rpc(said.data)
                has_spoken = has_spoken or not (pinged and is_plain_keep_alive(said))
            if asking.done() and session.is_keep_alive(ping := asking.result()):
                pinged = True
                opened.opening.add(ping, by_client=True)
                with suppress(ConnectionError):
                    # Reading the service's side tells that the service has left.
                    await upstream.send(ping)
                asking = tasks.create_task(client.receive())
            if left_s is not None and clock() >= opened.opening.began + FEED_S:
                asking.cancel()
                await asyncio.wait((asking,))
    if asking.cancelled():
        return None
    first = asking.result()
    return replace(first, by_client=True) if isinstance(first, Close) else first


def _replayed_subprotocol(headers: Headers, recorded: Sequence[Interaction]) -> str | None:
    """The subprotocol for a client without an upstream: as recorded, or the first on offer.

    Never a subprotocol with a key. None if the recorded upstream chose no subprotocol.
    """
    offered = plain_subprotocols(offered_subprotocols(headers))
    about = map(about_connection, recorded)
    chosen = {description.subprotocol for description in about if description.is_described}
    common = next((subprotocol for subprotocol in offered if subprotocol in chosen), None)
    return common if common or None in chosen else next(iter(offered), None)
