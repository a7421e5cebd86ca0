"""Records a connection as one session, and replays a session as the client's messages come."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import replace
from typing import TypeGuard

from tapeway.cooperative import loop_turns
from tapeway.core.cassette.plan import Answer, LiveCall, Replay, in_its_base
from tapeway.core.correlation.ids import looks_random
from tapeway.core.json_text import Json
from tapeway.core.matching.placeholders import SecretDigests
from tapeway.core.misses.differences import difference_document
from tapeway.core.misses.miss import Miss, MissExplanation, NearestRecording
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import WEBSOCKET, Headers, Request
from tapeway.core.websocket.keep_alives import KeepAlives, is_plain_keep_alive
from tapeway.core.websocket.messages import MISS_CLOSE, Close, WebSocketMessage
from tapeway.core.websocket.session_comparison import texts_of
from tapeway.core.websocket.session_dialect import SessionDialect
from tapeway.core.websocket.session_lines import close_line, session_line
from tapeway.core.websocket.sessions import (
    SessionChoice,
    SessionDifference,
    SessionRecording,
    SessionReplay,
    lookup_content,
    recorded_content,
)
from tapeway.engine.journal import UnreachedTail
from tapeway.engine.single_flight import Pending
from tapeway.errors import RequestError, TapewayError
from tapeway.ports import StoredCall, UpgradeRefused, UpstreamSocket
from tapeway.providers.websocket.choice import protocol_of
from tapeway.server.websocket.connection import (
    ConnectionServices,
    OpenConnection,
    close_reason,
    message_head,
    message_request,
    refused_error,
    settled,
)
from tapeway.server.websocket.faulted import FAILED, MessageFault
from tapeway.server.websocket.handshake import ClientSocket
from tapeway.server.websocket.live_lines import LiveLines, session_metadata
from tapeway.server.websocket.recorded_messages import about_connection, recorded_session
from tapeway.server.websocket.relay import GOING_AWAY, relay
from tapeway.upstream.message_socket import CLOSE_S, LOST

log = logging.getLogger(__name__)

STALL_S = 15.0
"""After this wait for the client, in seconds, the log names the missing message."""
_JSON: Headers = ((b"Content-Type", b"application/json"),)
_OK = 200
_INTERNAL_ERROR = 1011
_MOST_REDACTED = 256 * 1024
"""The longest redacted message of a client, in bytes; a longer message holds media."""
_MIXED = (
    "a session that began from a recording cannot continue live: record the session anew (mode "
    "record, or another cassette)"
)


class LiveSession(LiveLines):
    """A session while it is recorded. There may be thousands."""

    __slots__ = ("_name", "_subprotocol")

    shared = False
    is_session = True

    def __init__(self, upstream: UpstreamSocket, dialect: SessionDialect, began: float) -> None:
        super().__init__(message_head(upstream.head), began)
        self._name = dialect.name
        self._subprotocol = upstream.subprotocol

    @property
    def metadata(self) -> Mapping[str, Json]:
        return session_metadata(self._name, self._subprotocol)

    def ask(self, request: Request) -> AbstractAsyncContextManager["LiveSession"]:
        return nullcontext(self)

    def stored(self, call: StoredCall) -> None:
        """Nothing comes after the end of a connection."""


class OpenSession:
    """A recorded session: an earlier end of the take ends the recording."""

    __slots__ = ("_session", "cassette", "take")

    def __init__(self, cassette: str, take: int, session: LiveSession) -> None:
        self.cassette = cassette
        self.take = take
        self._session = session

    def close(self) -> None:
        self._session.end("open")


class SessionConnection:
    """Serves one session to its end."""

    __slots__ = (
        *("_address", "_choice", "_client", "_dialect", "_exchange", "_handshake", "_opening"),
        *("_recorded", "_services"),
    )

    def __init__(
        self,
        services: ConnectionServices,
        opened: OpenConnection,
        dialect: SessionDialect,
        recorded: Sequence[Interaction] = (),
    ) -> None:
        """`recorded` are the recordings with this handshake."""
        self._services = services
        self._recorded = recorded
        self._exchange = opened.exchange
        self._address = opened.address
        self._handshake = opened.handshake
        self._client = opened.client
        self._dialect = dialect
        self._choice: SessionChoice | None = None
        """The replay of the opening."""
        self._opening = opened.opening
        opened.exchange.method = WEBSOCKET

    # Deciding.

    async def _decided(self, first: WebSocketMessage | None) -> Replay | LiveCall | Miss:
        exchange, services = self._exchange, self._services
        in_force = await services.arrived(exchange, self._address)
        plan = await services.decided(exchange, self._address, self._request(first), in_force)
        # The plan lives as long as the session: drop the request's parsed parts.
        return plan._replace(read=None) if isinstance(plan, LiveCall) else plan

    def _request(self, first: WebSocketMessage | None) -> Request:
        if first is None:
            return message_request(self._handshake, b"")
        keys = (recording.request.body for recording in self._recorded)
        return message_request(self._handshake, recorded_content(first, self._dialect, keys))

    # Live.

    async def serve_live(
        self,
        upstream: UpstreamSocket,
        first: WebSocketMessage | Close | None,
        live_call: LiveCall | None = None,
    ) -> None:
        """Relay and record a session; the client has the opening already.

        `first` is None for a feed, whose client has said nothing yet.
        """
        if live_call is None:
            live_call = await self._ask_of(None if isinstance(first, Close) else first)
        recorder = self._services.broker.recorder
        session = LiveSession(upstream, self._dialect, self._opening.began)
        heard = self._opening.messages
        given = [*heard]
        heard.clear()
        session.precede(
            (self.line(live_call, item.message, by_client=item.by_client), item.at_ms)
            for item in given
        )
        recording = _SessionBeingRecorded(
            self, live_call, session, recorder.follow(live_call, None, session)
        )
        opened = OpenSession(self._exchange.cassette, live_call.take.number, session)
        with recorder.streams.registered(opened):
            if isinstance(first, Close):
                await recording.seen(first, first.by_client)
                await self._end_both(upstream, first)
            else:
                if first is not None:
                    await recording.seen(first, True)
                    await upstream.send(first)
                await relay(self._client, upstream, self._services.stopping, recording.seen)
        await recording.seen(LOST, False)

    async def _end_both(self, upstream: UpstreamSocket, close: Close) -> None:
        """Pass a close on, and the answer back."""
        if close.by_client:
            await self._client.close(await upstream.end(close))
        else:
            await upstream.close(await self._client.end(close))

    async def _ask_of(self, first: WebSocketMessage | None) -> LiveCall:
        """The live call for a connected service. Raises RequestError if no live call is allowed."""
        request = self._request(first)
        live_call = await self._services.live_call(self._exchange, self._address, request)
        if live_call is None:
            raise RequestError(_MIXED, code="mixed_session")
        return live_call._replace(read=None)

    def line(self, live_call: LiveCall, message: WebSocketMessage, *, by_client: bool) -> bytes:
        """The recorded line of a message; a text of the client is redacted like a request body."""
        if by_client and not message.binary and len(message.data) <= _MOST_REDACTED:
            route, target, base = (
                live_call.request.route,
                live_call.request.target,
                live_call.request.base,
            )
            request = Request(route, "POST", target, _JSON, message.data, base)
            salt, rules = live_call.cassette.head.run_id, live_call.cassette.rules
            redaction = self._services.broker.redaction
            redacted, taught = redaction.redact_and_learn(salt, request, rules)
            redaction.learn(salt, taught)
            message = WebSocketMessage(redacted.body)
        return session_line(message, by_client=by_client)

    def note_live(self, answer: Answer | TapewayError) -> None:
        """Enter an ended session in the journal; cut the client off if the store failed."""
        if isinstance(answer, TapewayError):
            # The client sees no more than a lost connection.
            self._services.ended(self._exchange, "error", answer.status, error=answer)
            self._client.abort()
            return
        self._services.note_live(self._exchange, answer, answer.note)

    # A replay.

    async def open(self, recorded: Sequence[SessionRecording]) -> WebSocketMessage | Close:
        """Send the service's messages before the client's first message, and return that message.

        With several recordings the client gets the first opening of all.
        """
        if not recorded:
            return await self._first_message(KeepAlives())
        self._choice = choice = SessionChoice(recorded, self._dialect)
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(self._first_message(choice.replay))
            try:
                await self._send_opening(choice, first)
            except ConnectionError:
                return await first
            close = choice.replay.close_due()
            if close is None or first.done():
                return await first
            first.cancel()
            await asyncio.wait((first,))
        return await self._client.end(close)

    async def _first_message(
        self, answering: KeepAlives | SessionReplay
    ) -> WebSocketMessage | Close:
        """The client's first message that is no keep-alive; answer the keep-alives before it."""
        while True:
            message = await self._client.receive()
            if not self.is_keep_alive(message):
                return message
            if (answer := answering.answer(message)) is not None:
                with suppress(ConnectionError):
                    # Reading tells that the client has left.
                    await self._client.send(answer)

    def is_keep_alive(self, message: WebSocketMessage | Close) -> TypeGuard[WebSocketMessage]:
        """Whether the client's first message is a keep-alive, and begins no recorded session.

        An earlier version looked a session up by a keep-alive too.
        """
        target, subprotocol = self._handshake.target, self._client.subprotocol or ""
        if isinstance(message, Close) or not is_plain_keep_alive(message):
            return False
        if protocol_of(target, subprotocol, message) is not None:
            return False
        content = lookup_content(message, self._dialect)
        return all(recording.request.body != content for recording in self._recorded)

    async def _send_opening(
        self, choice: SessionChoice, first: "asyncio.Task[WebSocketMessage | Close]"
    ) -> None:
        """Send due messages at the recorded pace, at most until the client's first message."""
        while not first.done():
            if gap_s := choice.replay.gap_ms / 1000 * self._services.pace:
                await asyncio.wait((first,), timeout=gap_s)
            if first.done() or (due := choice.due()) is None:
                return
            await self._client.send(due.message)
            self._opening.add(due.message)

    async def send_rest(self) -> None:
        """Send the rest of the opening at once: the client has sent the first request."""
        if self._choice is None:
            return
        turns = loop_turns()
        with suppress(ConnectionError):
            while (due := self._choice.due()) is not None:
                await self._client.send(due.message)
                self._opening.add(due.message)
                await turns.pause_if_over()

    async def miss_in_silence(self, missed: Miss | None) -> None:
        """Answer a client that waits for a service of which nothing is recorded.

        `missed` is the miss if the journal has one already.
        """
        if missed is not None:
            await self._say("replay_miss", missed.message)
        elif isinstance(plan := await self._decided(None), Miss):
            await self._miss(plan)

    async def serve_replay(self, first: WebSocketMessage, feed: Replay | None = None) -> None:
        """Replay the session chosen by the client's first message.

        Without such a session, `feed` is replayed, whose client may have spoken late.
        """
        if (faulted := await self._faulted(first)) is not None:
            await self._play(faulted[0], first, faulted[1])
            return
        plan = await self._decided(first)
        if feed is not None and not isinstance(plan, Replay):
            plan = feed
        if isinstance(plan, Replay):
            await self._play(plan, first)
        elif isinstance(plan, Miss):
            await self._miss(plan)
        else:
            await self._go_live(plan, first)

    async def _faulted(self, first: WebSocketMessage) -> tuple[Replay, MessageFault] | None:
        """The session that is replayed with a fault; None where no fault happens."""

        async def said_in(interaction: Interaction) -> Sequence[WebSocketMessage]:
            recorded = await recorded_session(interaction)
            return [each.message for each in recorded.messages if not each.by_client]

        exchange, services = self._exchange, self._services
        mode = await services.arrived(exchange, self._address)
        error = self._dialect.error_message("server_error", FAILED)
        asked = exchange, self._address, self._request(first), mode
        return await services.faulted(*asked, said_in, error)

    async def _go_live(self, live_call: LiveCall, first: WebSocketMessage) -> None:
        """Ask the service for a session without a recording, if nothing was replayed yet."""
        if self._opening.messages:
            await self._refuse(RequestError(_MIXED, code="mixed_session"))
            return
        try:
            upstream = await self._services.dial(self._handshake)
        except UpgradeRefused as refusal:
            await self._refuse(refused_error(refusal))
            return
        except TapewayError as error:
            await self._refuse(error)
            return
        try:
            await self.serve_live(upstream, first, live_call)
        finally:
            upstream.release()

    async def _play(
        self, plan: Replay, first: WebSocketMessage, laid: MessageFault | None = None
    ) -> None:
        cassette, chosen = plan.cassette, plan.interaction
        given = [message.message for message in self._opening.messages]
        candidates = [*cassette.recordings(plan.key)]
        heard = set[str]().union(*map(texts_of, given))
        if any(map(looks_random, heard & texts_of(first))):
            # With an identifier of the greeting each session has a key of its own.
            candidates += [item for item in self._recorded if about_connection(item).session]
        ordered = [*{item.index: item for item in (chosen, *candidates)}.values()]
        sessions = [await recorded_session(interaction) for interaction in ordered]
        digests = SecretDigests(cassette.head.run_id)
        play = SessionChoice(sessions, self._dialect, cassette.rules, digests, given)
        playback = _Playback(self._client, play, self._services, laid, sent=len(given))
        difference = await playback.run(first)
        base, chosen = in_its_base(cassette, ordered[play.place])
        self._exchange.base = base or plan.base
        index = chosen.index
        unreached = playback.replay.unreached() if laid is None else ()
        tail, left = UnreachedTail(), None
        if unreached:
            tail = UnreachedTail(unreached[0], len(unreached), playback.stalled)
        if unreached and difference is None:
            left = tail.text
            log.warning("cassette '%s' #%d: %s", cassette.name, index, left)
        self._services.ended(
            *(self._exchange, "replayed", _OK, index, left),
            interaction=chosen,
            tail=tail if laid is None else None,
        )
        if difference is not None:
            await self._differ(plan, chosen, difference)

    async def _differ(
        self, plan: Replay, chosen: Interaction, difference: SessionDifference
    ) -> None:
        """Report a client message that differs from the recording."""
        index, cassette = chosen.index, plan.cassette
        request = replace(chosen.request, target=self._shown())
        nearest = NearestRecording(index, tuple(map(difference_document, difference.differences)))
        miss = Miss(cassette.name, request, plan.key, searched=cassette)
        slot = self._exchange.address.slot if self._exchange.address else None
        miss = replace(miss, explanation=MissExplanation((nearest,)))
        miss = self._services.commands.told(miss, slot)
        text = (
            f"replay miss: the session {miss.target} differs from #{index} of cassette "
            f"'{cassette.name}': {difference.text}"
        )
        log.warning("%s", text)
        exchange = self._services.begun(self._exchange)
        exchange.key, exchange.shown = plan.key, self._exchange.shown
        self._services.ended(exchange, "miss", 400, None, text, miss=miss)
        await self._say("replay_miss", text)

    async def _miss(self, miss: Miss) -> None:
        explained = await self._services.note_miss(self._exchange, miss)
        await self._say("replay_miss", explained.message)

    async def _refuse(self, error: TapewayError) -> None:
        self._services.ended(self._exchange, "error", error.status, error=error)
        await self._say(error.code, error.message)

    async def _say(self, code: str, text: str) -> None:
        """Send the protocol's error message, if any, and close the connection."""
        try:
            if (event := self._dialect.error_message(code, text)) is not None:
                await self._client.send(event)
            await self._client.end(Close(MISS_CLOSE, close_reason(text)))
        except ConnectionError:
            # The client has left.
            return

    def _shown(self) -> str:
        shown = self._exchange.shown
        return shown if isinstance(shown, str) else shown() if shown is not None else ""


class _SessionBeingRecorded:
    """Records all messages of a connection; the end waits until all are stored."""

    __slots__ = ("_connection", "_ended", "_live_call", "_pending", "_session")

    def __init__(
        self,
        connection: SessionConnection,
        live_call: LiveCall,
        session: LiveSession,
        pending: Pending,
    ) -> None:
        self._connection = connection
        self._live_call = live_call
        self._session = session
        self._pending = pending
        self._ended = False

    async def seen(self, message: WebSocketMessage | Close, by_client: bool) -> None:
        """Take a message, or the end of the connection."""
        session = self._session
        if not isinstance(message, Close):
            if session.put(self._connection.line(self._live_call, message, by_client=by_client)):
                await session.room()
        elif not self._ended:
            self._ended = True
            session.put(close_line(replace(message, by_client=by_client)), "complete")
            self._connection.note_live(await settled(self._pending))


class _Playback:
    """Plays a session: takes the client's messages, and sends due messages."""

    def __init__(
        self,
        client: ClientSocket,
        play: SessionChoice,
        services: ConnectionServices,
        laid: MessageFault | None = None,
        *,
        sent: int = 0,
    ) -> None:
        """`sent` messages of the service have gone out already."""
        self._client = client
        self._play = play
        self._laid = laid
        if laid is not None:
            laid.say, laid.sent = self._say, sent
        self._pace = services.pace
        self._stopping = services.stopping
        self._changed = asyncio.Event()
        self._patience: asyncio.TimerHandle | None = None
        self._difference: SessionDifference | None = None
        self.stalled: str | None = None
        """The client message that the recording waits for; None if nothing is missing."""

    @property
    def replay(self) -> SessionReplay:
        """The current replay."""
        return self._play.replay

    async def run(self, first: WebSocketMessage) -> SessionDifference | None:
        """Play to the end; return the difference if a client message differs from the recording."""
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(self._send_all())
            with self._stopping.listening(lambda: tasks.create_task(self._end(GOING_AWAY))):
                await self._receive_all(first)
            sending.cancel()
            self.stalled = self.replay.awaited()
            if self._patience is not None:
                self._patience.cancel()
        return self._difference

    async def _end(self, close: Close) -> None:
        """Close the connection; the client has to answer in time."""
        await self._client.close(close)
        loop = asyncio.get_running_loop()
        self._patience = self._patience or loop.call_later(CLOSE_S, self._client.abort)

    async def _receive_all(self, first: WebSocketMessage) -> None:
        message: WebSocketMessage | Close = first
        while not isinstance(message, Close):
            self._difference = self._play.received(message)
            if self._difference is not None:
                return
            self._changed.set()
            if (answer := self.replay.answer(message)) is not None:
                with suppress(ConnectionError):
                    # Reading tells that the client has left.
                    await self._client.send(answer)
            message = await self._client.receive()
        await self._client.close(message)

    async def _say(self, message: WebSocketMessage) -> bool:
        """Send a message; return False once the client has left."""
        try:
            await self._client.send(message)
        except ConnectionError:
            return False
        return True

    async def _end_faulted(self, laid: MessageFault) -> None:
        """End the session as the fault says, unless the client has left."""
        if laid.fault.do != "timeout":
            await self._end(laid.close or Close(_INTERNAL_ERROR))
        elif laid.seconds:
            await asyncio.sleep(laid.seconds)
            self._client.abort()

    async def _send_all(self) -> None:
        turns, laid = loop_turns(), self._laid
        if laid is not None and not await laid.begin():
            await self._end_faulted(laid)
            return
        while True:
            gap_s = self.replay.gap_ms / 1000 * self._pace
            if (due := self._play.due()) is not None:
                if gap_s:
                    await asyncio.sleep(gap_s)
                if not await (self._say if laid is None else laid.send)(due.message):
                    if laid is not None:
                        await self._end_faulted(laid)
                    return
                await turns.pause_if_over()
            elif (close := self.replay.close_due()) is not None:
                await self._end(close)
                return
            else:
                await self._wait_for_client()

    async def _wait_for_client(self) -> None:
        """Wait for the client's next message; after a long wait log the missing message."""
        self._changed.clear()
        try:
            async with asyncio.timeout(STALL_S if self.replay.awaited() else None):
                await self._changed.wait()
        except TimeoutError:
            log.warning("a replayed session waits for its client: %s", self.replay.awaited())
            await self._changed.wait()
