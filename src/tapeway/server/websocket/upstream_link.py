"""The upstream's side of a connection with turns: assigns each message to a turn."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from tapeway.core.json_text import Json
from tapeway.core.model.messages import Request, Verdict
from tapeway.core.websocket.messages import Close, WebSocketMessage
from tapeway.core.websocket.request_protocol import (
    PLAIN_ANSWER,
    AnswerMessage,
    End,
    RequestProtocol,
    TurnRequest,
)
from tapeway.core.websocket.turns import NO_TURN, LiveTurns, TurnArrival, lane_key
from tapeway.engine.recorder import Recorder
from tapeway.errors import TapewayError, UpstreamError
from tapeway.ports import StoredCall, UpstreamSocket
from tapeway.server.websocket.connection import message_head
from tapeway.server.websocket.late_messages import NotStored, StoredTurn
from tapeway.server.websocket.live_lines import LiveLines
from tapeway.server.websocket.opening import LiveOpening
from tapeway.server.websocket.recorded_messages import Came

_GOOD_ENDS = (1000, 1001)
"""Close codes of a service that has finished, or goes away (RFC 6455 section 7.4.1)."""

_MOST_LANES = 32
"""How many ended turns may go on, each in a lane: OpenAI allows 32 lanes on a connection."""

_VERDICTS: Mapping[End, Verdict] = {"": "", "end": "marked", "error": "error"}


class LiveTurnAnswer(LiveLines):
    """A request sent on a connection, and the answer while messages come."""

    is_session = False

    def __init__(
        self,
        link: "UpstreamLink",
        message: WebSocketMessage,
        request: TurnRequest,
        metadata: dict[str, Json],
        moved: Callable[[int], object],
    ) -> None:
        """A recording that replaces the turn's recording calls `moved` with the new index."""
        super().__init__(link.head)
        self.shared = not request.subscribes
        """Whether equal requests share the answer; False for a subscription, without a near end."""
        self.came: deque[Came] = deque()
        """The messages for the client, in order."""
        self.sent = asyncio.Event()
        """Set once the request has gone out, or the sending has failed."""
        self.handed_out = asyncio.Event()
        """Set once nothing more of the answer goes to the client."""
        self._about = metadata
        self._link = link
        self._message = message
        self._request = request
        self._moved = moved
        self._count = 0
        self._binary: list[int] = []
        self._stored: StoredTurn | None = None
        """Set once the answer is stored."""

    @property
    def metadata(self) -> Mapping[str, Json]:
        # A copy: a stored recording keeps the list.
        binary: dict[str, Json] = {"binary": [*self._binary]} if self._binary else {}
        return {"websocket": {**self._about, **binary}}

    @asynccontextmanager
    async def ask(self, request: Request) -> AsyncGenerator["LiveTurnAnswer"]:
        self.begin()
        try:
            await self._link.send_turn(self, self._message, self._request)
        finally:
            self.sent.set()
        yield self

    @property
    def subscribes(self) -> bool:
        return self._request.subscribes

    @property
    def lane(self) -> bytes:
        return self._request.lane or b""

    def add(self, message: WebSocketMessage, answer: AnswerMessage | None, end: End) -> bool:
        """Take a message of the service; return whether to wait for `room` before the next."""
        self._count_message(message)
        line = message.data + b"\n"
        # Nearly every message is a plain answer.
        has_mark = answer is not None and answer is not PLAIN_ANSWER and answer.is_mark
        mark = answer if has_mark else None
        self.came.append((len(line), message.binary, mark))
        return self.put(line, _VERDICTS[end])

    def _count_message(self, message: WebSocketMessage) -> None:
        if message.binary:
            self._binary.append(self._count)
        self._count += 1

    # After the end.

    def stored(self, call: StoredCall) -> None:
        """Take the call of the stored answer; the answer may go on."""
        self._stored = StoredTurn(call, self._link.recorder, self._moved, self._link.not_stored)

    async def add_late(self, message: WebSocketMessage, at_ms: float) -> bool:
        """Add a late message to the recording; return False if no recording takes the message."""
        stored = self._stored
        if stored is None or not await stored.add(message.data + b"\n", at_ms):
            return False
        self._count_message(message)
        return True

    async def release(self) -> None:
        """Store nothing more, and wait until all is stored."""
        if self._stored is not None:
            await self._stored.release()


class UpstreamLink:
    """One connection to the upstream, with the turns under way."""

    def __init__(
        self,
        socket: UpstreamSocket,
        protocol: RequestProtocol,
        opening: LiveOpening,
        pass_on: Callable[..., Awaitable[None]],
        recorder: Recorder,
        not_stored: NotStored,
    ) -> None:
        """`opening` records the messages before the first request.

        `pass_on` sends the client a message without a turn.
        """
        self.socket = socket
        self.recorder = recorder
        self.head = message_head(socket.head)
        self.used = False
        """Whether the connection has carried a turn."""
        self.received = 0
        """How many messages have come."""
        self.unrecorded = 0
        """The number of messages without a recording."""
        self.not_stored = not_stored
        self._protocol = protocol
        self._opening = opening
        self._pass_on = pass_on
        self._turns = LiveTurns()
        self._live: dict[int, LiveTurnAnswer] = {}
        self._ending: dict[int, LiveTurnAnswer] = {}
        """Ended turns that may go on, and ended turns whose end is on the way to the client."""
        self._unheard: set[int] = set()
        """Turns with an answer from a recording: the client does not get the live answer."""
        self._cancelled: set[int] = set()
        """Turns ended by a cancellation of the client, or by the end of the take."""
        self._close: Close | None = None

    async def send_turn(
        self, turn: LiveTurnAnswer, message: WebSocketMessage, request: TurnRequest
    ) -> None:
        """Send a request, and assign later answers to this turn. Raises UpstreamError."""
        await self._release_before(turn)
        if self._close is not None:
            raise _lost(self._close)
        self.used = True
        self._live[self._turns.asked(request)] = turn
        await self.send(message)

    async def prepare(self, message: WebSocketMessage, request: TurnRequest | None) -> None:
        """Send a client message already answered from a recording. Raises UpstreamError."""
        if request is not None:
            self._unheard.add(self._turns.asked(request))
        await self.send(message)

    async def send(self, message: WebSocketMessage) -> None:
        """Send a message to the upstream. Raises UpstreamError."""
        try:
            await self.socket.send(message)
        except ConnectionError:
            raise _lost(Close(0)) from None

    def cancelled(self, lane: bytes) -> None:
        """Note that the client has cancelled the turn in this lane."""
        number = self._turns.cancelled(lane)
        if number is not None and (turn := self._ended(number)) is not None:
            self._cancelled.add(number)
            turn.end("open")

    def unsubscribe(self) -> None:
        """End all subscriptions: the client has left."""
        for lane in [turn.lane for turn in self._live.values() if turn.subscribes]:
            self.cancelled(lane)

    async def run(self) -> Close:
        """Read until the upstream ends the connection; return the close."""
        while not isinstance(message := await self.socket.receive(), Close):
            self.received += 1
            answer = self._protocol.read_answer(message)
            if self._opening.given and self._opening.was_given(answer):
                continue
            arrival = None if answer is None else self._turns.came(answer)
            if answer is None:
                await self._pass_on(message)
            elif arrival is None:
                await self._came_late(message, self._opening)
            elif arrival.late:
                await self._came_late(message, self._ending.get(arrival.turn), arrival.turn)
            elif (turn := self._turn_of(arrival)) is not None:
                if turn.add(message, answer, arrival.end):
                    await turn.room()
            elif arrival.turn not in self._unheard:
                await self._came_late(message, None, arrival.turn)
        self._lose(message)
        return message

    def _lose(self, close: Close) -> None:
        """End the turns under way: the connection has ended."""
        self._close = close
        for turn in self._live.values():
            if turn.subscribes and close.code in _GOOD_ENDS:
                turn.end("open")
            else:
                turn.fail(_lost(close))
        self._live.clear()

    async def release(self) -> None:
        """Store nothing more of ended turns, and let go of the connection."""
        while self._ending:
            await self._ending.popitem()[1].release()
        await self._opening.release()
        self.socket.release()

    def _turn_of(self, arrival: TurnArrival) -> LiveTurnAnswer | None:
        """The turn of a message, and possibly the end of this turn; None without a live turn."""
        return self._ended(arrival.turn) if arrival.end else self._live.get(arrival.turn)

    async def _came_late(
        self,
        message: WebSocketMessage,
        turn: LiveTurnAnswer | LiveOpening | None,
        number: int = NO_TURN,
    ) -> None:
        """Pass on a message after the end of a turn, if any, and record it with the turn."""
        is_recorded = number in self._cancelled
        if turn is not None:
            at_ms = turn.elapsed_ms()
            await turn.handed_out.wait()
            try:
                is_recorded = is_recorded or await turn.add_late(message, at_ms)
            except TapewayError as exc:
                self.not_stored(1, exc)
                return
        self.unrecorded += not is_recorded
        await self._pass_on(message)

    def _ended(self, number: int) -> LiveTurnAnswer | None:
        """End a turn and return the answer; None if the turn is not live on this connection."""
        if (turn := self._live.pop(number, None)) is None:
            return None
        self._ending[number] = turn
        return turn

    async def _release_before(self, turn: LiveTurnAnswer) -> None:
        """Let go of the opening, and of ended turns that do not go on beside this one."""
        await self._opening.release()
        for at, held in [*self._ending.items()]:
            # One turn of each lane may go on, or the last turn alone.
            follows = self._protocol.lanes_last and lane_key(held.lane) != lane_key(turn.lane)
            if held.handed_out.is_set() and not (follows and len(self._ending) < _MOST_LANES):
                self._ending.pop(at, None)
                await held.release()


def _lost(close: Close) -> UpstreamError:
    how = "was lost" if close.aborted else f"was closed with {close.code}"
    return UpstreamError(
        f"the WebSocket connection to the upstream {how} before the answer had ended; nothing was "
        "stored",
        code="upstream_truncated",
    )
