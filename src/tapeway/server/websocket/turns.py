"""A connection of a request protocol: each client request begins a turn, recorded or replayed."""

import asyncio
import logging
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from tapeway.body_files import with_body_in_memory
from tapeway.core.cassette.plan import Answer, LiveCall, Replay
from tapeway.core.json_text import Json
from tapeway.core.misses.miss import Miss
from tapeway.core.model.control import MODE_POLICIES, Mode
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request
from tapeway.core.model.request_fields import RequestFields
from tapeway.core.redaction.credentials import header_credentials
from tapeway.core.streams.pacing import Schedule
from tapeway.core.websocket.messages import MISS_CLOSE, Close, WebSocketMessage
from tapeway.core.websocket.request_protocol import (
    Cancelled,
    LocalReply,
    RequestProtocol,
    Sent,
    TurnRequest,
)
from tapeway.core.websocket.turns import LanePlace, ReplayLanes
from tapeway.engine.journal import NOT_STORED, SentThroughSlot
from tapeway.engine.response_buffer import ResponseReader
from tapeway.errors import (
    ClientLeft,
    RecordingEdited,
    RequestError,
    TapewayError,
    UpstreamError,
    describe,
)
from tapeway.ports import UpgradeRefused, UpstreamSocket
from tapeway.server.messages import Exchange
from tapeway.server.websocket.connection import (
    ConnectionServices,
    OpenConnection,
    TimedMessage,
    close_reason,
    message_request,
    refused_error,
    settled,
)
from tapeway.server.websocket.faulted import FAILED, MessageFault
from tapeway.server.websocket.opening import LiveOpening
from tapeway.server.websocket.recorded_messages import (
    Mark,
    Said,
    about_connection,
    mark_of,
    messages_of,
    said_of,
)
from tapeway.server.websocket.relay import GOING_AWAY
from tapeway.server.websocket.upstream_link import LiveTurnAnswer, UpstreamLink
from tapeway.upstream.message_socket import CLOSE_S, LOST

log = logging.getLogger(__name__)

_UNKNOWN_LANE = b"\0"
"""A text that no lane has: `echoed` replaces every lane of a message."""
_MOST_TURNS = 1024
"""The limit of turns under way on a connection; beyond, the connection reads no client message."""
_AT_ONCE = 64 * 1024
"""Bytes of messages that go out together."""
_OK = 200
_OUTSIDE = f"messages of the service outside of any recorded turn ({{count}}): they were passed on, and {NOT_STORED}"
_LEFT = "the client left before the answer ended"
_FOR_EVER_S = 365 * 86_400.0
_REPLAYED_PARENT = (
    "the request continues {parent}, an id from a recording: the service does not know this id. "
    "Record the whole conversation anew (mode record, or another cassette)"
)


class TurnConnection:
    """Serves the turns of a connection, from the first message to the end."""

    def __init__(
        self,
        services: ConnectionServices,
        opened: OpenConnection,
        upstream: UpstreamSocket | None,
        protocol: RequestProtocol,
    ) -> None:
        self._services = services
        self._connection = opened
        self._opened = opened.exchange
        self._address = opened.address
        self._handshake = opened.handshake
        self._message = message_request(opened.handshake, b"")
        self._client = opened.client
        self._protocol = protocol
        self._lanes = ReplayLanes()
        self._changed = asyncio.Event()
        self._deciding = asyncio.Lock()
        """Turns are decided on, and sent, in the order of the requests."""
        self._dropped: set[int] = set()
        self._tasks = asyncio.TaskGroup()
        self._link: UpstreamLink | None = None
        self._reading: asyncio.Task[None] | None = None
        self._upstream = upstream
        self._has_left = False
        self._prelude: list[tuple[WebSocketMessage, TurnRequest | None]] = []
        """Messages for an upstream dialled later, such as the beginning of the connection."""
        self._newest: LanePlace | None = None
        """The place of the latest turn."""
        self._under_way = 0
        """Turns that have begun and not ended."""
        self._patience: asyncio.TimerHandle | None = None

    async def serve(self, first: WebSocketMessage) -> None:
        """Serve until either side ends the connection, and every turn being recorded has ended."""
        message: WebSocketMessage | Close = first
        try:
            async with self._tasks:
                if self._upstream is not None and not await self._begin(self._upstream):
                    message = LOST
                # A finished task group takes no new task: tell only while the client stays.
                with self._services.stopping.listening(self._stop):
                    while not isinstance(message, Close):
                        await self._take(message)
                        message = await self._client.receive()
                self._has_left = True
                self._tell()
                await self._client.close(message)
                self._tasks.create_task(self._end_link(message))
        finally:
            if self._patience is not None:
                self._patience.cancel()
            if self._link is not None:
                await self._link.release()

    def _stop(self) -> None:
        self._tasks.create_task(self._close(GOING_AWAY))

    async def _close(self, close: Close) -> None:
        """Close the client's side once no turn is under way; cut off a client without an answer."""
        await self._idle()
        await self._client.close(close)
        if self._patience is None:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(CLOSE_S, self._client.abort)

    # The client's messages.

    async def _take(self, message: WebSocketMessage) -> None:
        sent = self._protocol.read_sent(message)
        if isinstance(sent, TurnRequest) and not self._is_passed_on(sent):
            while self._under_way >= _MOST_TURNS and not self._has_left:
                await self._change()
            place = self._newest = self._lanes.enter(sent)
            self._under_way += 1
            self._tell()
            self._tasks.create_task(self._serve_turn(message, sent, place))
        elif isinstance(sent, LocalReply) and self._link is None:
            await self._send(sent.message)
        else:
            self._tasks.create_task(self._pass_on(message, sent))

    def _is_passed_on(self, sent: TurnRequest) -> bool:
        """Whether a message goes into an answer that the service gives on this connection."""
        return sent.joins and self._link is not None and not self._lanes.was_replayed(sent.parent)

    async def _pass_on(self, message: WebSocketMessage, sent: Sent) -> None:
        """Pass on a message without an answer, after the earlier requests."""
        async with self._deciding:
            if isinstance(sent, Cancelled):
                self._cancel(sent.lane)
            if self._link is not None:
                await _unless_lost(self._link.send(message))
            elif not isinstance(sent, Cancelled):
                self._prelude.append((message, None))

    def _cancel(self, lane: bytes) -> None:
        if self._link is not None:
            self._link.cancelled(lane)
        if (place := self._lanes.cancelled(lane)) is not None:
            self._dropped.add(id(place))
            self._tell()

    # The upstream.

    async def _begin(self, upstream: UpstreamSocket) -> bool:
        """Store the opening, and read on; return False if the store failed."""
        opening = self._live_opening(upstream)
        link = self._begin_link(upstream, opening)
        messages = self._heard()
        try:
            # The first answer comes after the opening is stored.
            if messages and not await opening.store(messages):
                link.unrecorded += len(messages)
        except TapewayError as error:
            self._not_stored(len(messages), error)
            return False
        self._reading = self._tasks.create_task(self._read(link))
        return True

    def _heard(self) -> Sequence[TimedMessage]:
        """The opening without signs of life."""
        heard, read = self._connection.opening.messages, self._protocol.read_answer
        return [
            message
            for message in heard
            if not message.by_client and read(message.message) is not None
        ]

    def _live_opening(self, upstream: UpstreamSocket, given: int = 0) -> LiveOpening:
        return LiveOpening(
            *(self._services, self._connection, upstream, self._protocol, self._not_stored), given
        )

    def _begin_link(self, upstream: UpstreamSocket, opening: LiveOpening) -> UpstreamLink:
        recorder = self._services.broker.recorder
        self._link = link = UpstreamLink(
            upstream, self._protocol, opening, self._send, recorder, self._not_stored
        )
        return link

    def _not_stored(self, count: int, error: TapewayError) -> None:
        """Note messages outside of the turns under way that the store did not take."""
        if isinstance(error, RecordingEdited):
            # Somebody wanted the recording otherwise: the client stays.
            self._passed_on(count)
            return
        exchange = self._services.begun(self._opened)
        self._services.ended(exchange, "error", error.status, error=error)
        self._client.abort()

    def _passed_on(self, count: int) -> None:
        exchange = self._services.begun(self._opened)
        self._services.ended(exchange, "live", _OK, None, _OUTSIDE.format(count=count))

    async def _read(self, link: UpstreamLink) -> None:
        close = await link.run()
        if link.unrecorded:
            self._passed_on(link.unrecorded)
        if self._link is not link:
            return
        if link.used or not self._replays:
            # Stored turns go out before the close.
            await self._close(close)
        self._link = None
        await link.release()

    @property
    def _replays(self) -> bool:
        return MODE_POLICIES[self._services.broker.mode_of(self._opened.cassette)].replays

    async def _open_link(self) -> UpstreamLink:
        """The connection to the upstream. Raises UpstreamError."""
        if self._link is not None:
            return self._link
        try:
            upstream = await self._services.dial(self._handshake)
        except UpgradeRefused as refusal:
            raise refused_error(refusal) from None
        opening = self._live_opening(upstream, len(self._heard()))
        link = self._begin_link(upstream, opening)
        self._reading = self._tasks.create_task(self._read(link))
        for message, request in self._prelude:
            await link.prepare(message, request)
        self._prelude.clear()
        return link

    async def _end_link(self, close: Close) -> None:
        """Close the upstream's side once no turn is under way."""
        async with self._deciding:
            if self._link is not None:
                self._link.unsubscribe()
        await self._idle_or_silent()
        link, self._link = self._link, None
        if link is None:
            return
        await link.socket.close(Close(close.code, close.reason))
        if self._reading is not None:
            _, waiting = await asyncio.wait((self._reading,), timeout=CLOSE_S)
            if waiting:
                link.socket.abort()
        await link.release()

    async def _idle(self) -> None:
        """Wait until no turn is under way."""
        while self._under_way:
            await self._change()

    async def _idle_or_silent(self) -> None:
        """Wait until no turn is under way; cut off an upstream that has fallen silent."""
        while self._under_way:
            link = self._link
            before = 0 if link is None else link.received
            try:
                async with asyncio.timeout(None if link is None else link.socket.idle_s):
                    await self._change()
            except TimeoutError:
                if link is not None and link.received == before:
                    link.socket.abort()

    # Turns.

    async def _serve_turn(
        self, message: WebSocketMessage, asked: TurnRequest, place: LanePlace
    ) -> None:
        turn = ServedTurn(self._services.begun(self._opened), message, asked, place)
        try:
            await self._answer_turn(turn)
        except ConnectionError:
            self._note(turn, ClientLeft(_LEFT))
        except TapewayError as error:
            self._note(turn, error)
            if not (self._has_left or _ends_connection(error)):
                await self._say(turn.place, error.code, error.message, error.status)
        except Exception as exc:
            log.error("a turn failed: %s", describe(exc))
            self._client.abort()
        finally:
            if turn.live is not None:
                turn.live.handed_out.set()
            self._under_way -= 1
            self._lanes.left(place)
            self._dropped.discard(id(place))
            self._tell()

    def _note(self, turn: "ServedTurn", error: TapewayError) -> None:
        if not turn.noted:
            self._services.ended(turn.exchange, "error", error.status, error=error)

    async def _answer_turn(self, turn: "ServedTurn") -> None:
        async with self._deciding:
            plan = await self._decided(turn)
            live = await self._begin_live(turn, plan) if isinstance(plan, LiveCall) else None
        if live is not None and isinstance(plan, LiveCall):
            with self._closed_with_its_take(turn, plan):
                await self._follow(turn, live)
        elif isinstance(plan, Replay):
            if self._link is None and self._is_beginning(turn):
                self._prelude.append((turn.message, turn.asked))
            await self._replay(turn, plan)
        elif isinstance(plan, Miss):
            await self._miss(turn, plan)

    async def _decided(self, turn: "ServedTurn") -> Replay | LiveCall | Miss:
        exchange, services = turn.exchange, self._services
        address, request = self._address, replace(self._message, body=turn.asked.content)
        mode = await services.arrived(exchange, address)
        if address.slot is not None and exchange.take is not None:
            sent = SentThroughSlot(address.slot, exchange.take, exchange.id, request)
            services.broker.journal.sent.add(sent)
        exchange.request = request
        if (faulted := await self._faulted(turn, request, mode)) is not None:
            return faulted
        plan = await services.decided(exchange, address, request, mode)
        if turn.asked.fields and not isinstance(plan, Miss):
            services.broker.redaction.learn(
                plan.cassette.head.run_id, header_credentials(RequestFields(turn.asked.fields))
            )
        if isinstance(plan, LiveCall):
            exchange.live_call = plan
            self._check_parent(turn.asked, plan)
        return plan

    async def _faulted(self, turn: "ServedTurn", request: Request, mode: Mode) -> Replay | None:
        """The recording that answers with a fault; None where no fault happens."""
        error = self._protocol.error_message(turn.place.lane, "server_error", FAILED, 500)
        if error is None:
            # It begins the connection.
            return None
        asked = turn.exchange, self._address, request, mode
        found = await self._services.faulted(*asked, self._said_in, error)
        if found is None:
            return None
        replay, turn.laid = found
        return replay

    async def _said_in(self, interaction: Interaction) -> Sequence[WebSocketMessage]:
        recorded = await self._services.turns.read(interaction, self._protocol)
        return [message for message, _ in recorded.messages]

    @contextmanager
    def _closed_with_its_take(self, turn: "ServedTurn", live_call: LiveCall) -> Iterator[None]:
        """Inside the block the end of the take ends a subscription; other turns run to the end."""
        link = self._link
        if not turn.asked.subscribes or link is None:
            yield
            return
        opened = OpenSubscription(
            turn.exchange.cassette, live_call.take.number, link, turn.place.lane
        )
        with self._services.broker.recorder.streams.registered(opened):
            yield

    def _check_parent(self, asked: TurnRequest, live_call: LiveCall) -> None:
        """Raise RequestError if a recording, not the service, issued the parent of a request."""
        parent = asked.parent
        if asked.joins or (
            parent and (self._lanes.was_replayed(parent) or parent in live_call.replayed_ids)
        ):
            raise RequestError(_REPLAYED_PARENT.format(parent=parent), code="replayed_parent")

    def _is_beginning(self, turn: "ServedTurn") -> bool:
        """Whether a request begins the connection: the protocol has no error message then."""
        return self._protocol.error_message(turn.place.lane, "", "") is None

    # A replay.

    async def _replay(self, turn: "ServedTurn", plan: Replay) -> None:
        interaction = plan.interaction
        response = interaction.response
        self._services.ended(
            *(turn.exchange, "replayed", response.status, interaction.index),
            None if interaction.failure is None else interaction.failure.message,
            interaction=interaction,
        )
        turn.noted = True
        schedule = Schedule(response, interaction.latency_ms, self._services.pace)
        started = asyncio.get_running_loop().time()
        recorded = await self._services.turns.read(interaction, self._protocol)
        messages = recorded.asked_in(turn.place.lane, self._protocol)
        if turn.laid is not None:
            divided = schedule.divided(recorded.times, messages)
            timed = [(started + due_s, said) for due_s, due in divided for said, _ in due]
            await self._replay_faulted(turn, turn.laid, timed)
            return
        has_ended = False
        for due_s, together in schedule.divided(recorded.times, messages):
            await self._until(started + due_s, turn.place if has_ended else None)
            if not await self._hand_out(turn, together):
                return
            has_ended = has_ended or any(what is not None and what.end for _, what in together)
        if interaction.failure is not None:
            await self._until(started + schedule.end_s)
            self._client.abort()

    async def _replay_faulted(
        self,
        turn: "ServedTurn",
        laid: MessageFault,
        timed: Sequence[tuple[float, WebSocketMessage]],
    ) -> None:
        """Replay messages, each at its time, up to where the fault ends the turn."""
        now = asyncio.get_running_loop().time

        async def send(message: WebSocketMessage) -> bool:
            return await self._hand_out(turn, [(message, mark_of(self._protocol, message))])

        laid.say, laid.pause = send, lambda seconds: self._until(now() + seconds)
        goes_on = await laid.begin()
        for due, message in timed:
            if not goes_on:
                break
            await self._until(due)
            goes_on = await laid.send(message)
        if goes_on or self._has_left:
            return
        if laid.fault.do == "timeout":
            await self._until(now() + (laid.seconds or _FOR_EVER_S))
            self._client.abort()
        elif laid.close is not None:
            await self._client.close(laid.close)

    async def _until(self, due: float, ended: LanePlace | None = None) -> None:
        """Wait until this time, at most until the client leaves.

        After the end of a turn wait only until the next request: late messages go out before the
        next answer.
        """
        loop = asyncio.get_running_loop()
        while not self._has_left and (left := due - loop.time()) > 0:
            if ended is not None and self._newest is not ended:
                return
            try:
                async with asyncio.timeout(left):
                    await self._change()
            except TimeoutError:
                return

    # A live answer.

    async def _begin_live(self, turn: "ServedTurn", live_call: LiveCall) -> "AskedLive":
        """Ask, and return once the request is sent, or a call under way serves the request too."""
        link = await self._open_link()
        about: dict[str, Json] = {"protocol": self._protocol.name}
        if turn.place.lane:
            about["lane"] = turn.place.lane.decode()
        if link.socket.subprotocol:
            about["subprotocol"] = link.socket.subprotocol
        moved = partial(self._services.broker.journal.move, turn.exchange.id)
        live = LiveTurnAnswer(link, turn.message, turn.asked, about, moved)
        is_whole = self._services.delivery == "buffer" and not turn.asked.subscribes
        reader = ResponseReader(held=is_whole)
        pending = self._services.broker.recorder.follow(live_call, reader, live)
        answer = self._tasks.create_task(settled(pending))
        if pending.joins:
            return AskedLive(reader, answer)
        turn.live = live
        sent = self._tasks.create_task(live.sent.wait())
        await asyncio.wait((answer, sent), return_when=asyncio.FIRST_COMPLETED)
        sent.cancel()
        return AskedLive(reader, answer, live)

    async def _follow(self, turn: "ServedTurn", asked: "AskedLive") -> None:
        """Hand out a live answer: message by message, or as a whole once the answer is stored."""
        live, is_streamed = asked.live, False
        last: Sequence[Said] = ()
        if live is not None and await asked.reader.head() is not None:
            is_streamed, last = True, await self._hand_out_pieces(turn, asked.reader, live)
        answer = await asked.answer
        if isinstance(answer, TapewayError):
            raise answer
        note = _LEFT if self._has_left else answer.note
        self._services.note_live(turn.exchange, answer, note)
        turn.noted = True
        if is_streamed:
            await self._hand_out(turn, last)
            return
        response = await with_body_in_memory(answer.response)
        if live is None or not live.sent.is_set():
            await self._hand_out_joined(turn, answer, messages_of(response))
            return
        lines = zip(response.pieces(), live.came, strict=True)
        await self._hand_out(turn, [said_of(line, arrived) for line, arrived in lines])

    async def _hand_out_pieces(
        self, turn: "ServedTurn", reader: ResponseReader, live: LiveTurnAnswer
    ) -> Sequence[Said]:
        """Hand out an answer as the recorder releases pieces, but return the last message."""
        held, last = b"", list[Said]()
        async for pieces in reader.pieces():
            due: list[Said] = []
            for piece in pieces:
                # A long message in a file comes in several pieces.
                held = held + piece if held else piece
                if len(held) < live.came[0][0]:
                    continue
                message_with_mark = said_of(held, live.came.popleft())
                mark = message_with_mark[1]
                (due if mark is None or not mark.end else last).append(message_with_mark)
                held = b""
            await self._hand_out(turn, due)
        return last

    async def _hand_out_joined(
        self, turn: "ServedTurn", answer: Answer, messages: Sequence[WebSocketMessage]
    ) -> None:
        """Hand out the answer of a call made for an earlier request."""
        recorded, protocol = answer.recorded, self._protocol
        lane = _UNKNOWN_LANE if recorded is None else about_connection(recorded).lane
        shown = [protocol.echoed(message, lane, turn.place.lane) for message in messages]
        await self._hand_out(turn, [(message, mark_of(protocol, message)) for message in shown])

    # Handing out.

    async def _hand_out(self, turn: "ServedTurn", messages: Sequence[Said]) -> bool:
        """Send messages when the turn may; return False if the client has cancelled or left."""
        together: list[WebSocketMessage] = []
        size = 0
        for message, mark in messages:
            # A message without a mark shares the write of the message before.
            if mark is not None or not together:
                await self._send(*together)
                together, size = [], 0
                if not await self._may_send(turn, mark):
                    return False
            together.append(message)
            size += len(message.data)
            if size > _AT_ONCE:
                await self._send(*together)
                together, size = [], 0
        await self._send(*together)
        return True

    async def _may_send(self, turn: "ServedTurn", mark: Mark) -> bool:
        """Wait until a message may go out; return False if the client has cancelled or left."""
        place, lanes = turn.place, self._lanes
        while not (self._has_left or lanes.may_send(place)):
            if id(place) in self._dropped:
                return False
            await self._change()
        if self._has_left or id(place) in self._dropped:
            return False
        if turn.live is None:
            lanes.sent(place, mark)
        return True

    async def _send(self, *messages: WebSocketMessage) -> None:
        try:
            await self._client.send_all(messages)
        except ConnectionError:
            # Recording goes on; reading the client's side returns the end.
            self._has_left = True
            self._tell()

    async def _say(self, place: LanePlace, code: str, text: str, status: int) -> None:
        """Send the protocol's error message; close the connection if the protocol has none."""
        while not (self._has_left or self._lanes.may_send(place)):
            await self._change()
        message = self._protocol.error_message(place.lane, code, text, status)
        if message is not None:
            await self._send(message)
            return
        await self._client.close(Close(MISS_CLOSE, close_reason(text)))

    async def _miss(self, turn: "ServedTurn", miss: Miss) -> None:
        explained = await self._services.note_miss(turn.exchange, miss)
        turn.noted = True
        await self._say(turn.place, "replay_miss", explained.message, 400)

    # Waiting.

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _change(self) -> None:
        await self._changed.wait()


@dataclass(slots=True)
class ServedTurn:
    """A request of the client while the connection serves the answer."""

    exchange: Exchange
    message: WebSocketMessage
    asked: TurnRequest
    place: LanePlace
    live: LiveTurnAnswer | None = None
    """The live answer of a turn asked on this connection."""
    noted: bool = False
    """Whether the turn is in the journal."""
    laid: MessageFault | None = None
    """The fault that the recorded answer gets."""


@dataclass(frozen=True, slots=True)
class OpenSubscription:
    """A recorded subscription: an earlier end of the take ends the recording."""

    cassette: str
    take: int
    link: UpstreamLink
    lane: bytes

    def close(self) -> None:
        """End the recording; the client still gets all later messages."""
        self.link.cancelled(self.lane)


@dataclass(frozen=True, slots=True)
class AskedLive:
    """A live call for a turn; `live` is None if the call of an earlier request answers."""

    reader: ResponseReader
    answer: "asyncio.Task[Answer | TapewayError]"
    live: LiveTurnAnswer | None = None


def _ends_connection(error: TapewayError) -> bool:
    """Whether an error ends the connection: the client sees the upstream's close."""
    return isinstance(error, UpstreamError) and error.code == "upstream_truncated"


async def _unless_lost(sending: Awaitable[None]) -> None:
    try:
        await sending
    except UpstreamError:
        # Reading the upstream's side returns the end.
        return
