"""The upstream's side of a connection with turns: messages find the turn that they answer."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from tapeway.core.json_text import Json
from tapeway.core.model.messages import MESSAGES_TYPE, Headers, Request, ResponseHead, Verdict
from tapeway.core.websocket.messages import Close, WebSocketMessage
from tapeway.core.websocket.request_protocol import (
    AnswerMessage,
    End,
    RequestProtocol,
    TurnRequest,
)
from tapeway.core.websocket.turns import LiveTurns
from tapeway.errors import UpstreamError
from tapeway.ports import UpstreamSocket
from tapeway.server.websocket.live_lines import LiveLines

_GOOD_ENDS = (1000, 1001)
"""Close codes of a service that has come to its end, or goes away (RFC 6455, 7.4.1)."""

_VERDICTS: Mapping[End, Verdict] = {"": "", "end": "marked", "error": "error"}

Came = tuple[int, bool, AnswerMessage | None]
"""The length of a message of the service as it is recorded, whether it is binary, and what it is."""


class LiveTurnAnswer(LiveLines):
    """A request that is sent on a connection, and its answer while it comes."""

    is_session = False

    def __init__(
        self,
        link: "UpstreamLink",
        message: WebSocketMessage,
        request: TurnRequest,
        metadata: dict[str, Json],
    ) -> None:
        super().__init__(link.head)
        self.shared = not request.subscribes
        """A subscription goes on for long: nobody can wait for the end of another client's."""
        self.metadata: Mapping[str, Json] = {"websocket": metadata}
        self.came: deque[Came] = deque()
        """What the client is to have, in order."""
        self.sent = asyncio.Event()
        """Set once the request has gone out, or cannot any more."""
        self.handed_out = asyncio.Event()
        """Set once the client has all that it gets of the answer."""
        self._about = metadata
        self._link = link
        self._message = message
        self._request = request
        self._count = 0

    @asynccontextmanager
    async def ask(self, request: Request) -> AsyncGenerator["LiveTurnAnswer"]:
        self.begin()
        try:
            await self._link.send_turn(self, self._message, self._request)
        finally:
            self.sent.set()
        try:
            yield self
        finally:
            self.drop()

    @property
    def subscribes(self) -> bool:
        return self._request.subscribes

    @property
    def lane(self) -> bytes:
        return self._request.lane or b""

    async def add(self, message: WebSocketMessage, answer: AnswerMessage | None, end: End) -> None:
        """Take a message of the service."""
        if message.binary:
            places = self._about.setdefault("binary", [])
            if isinstance(places, list):
                places.append(self._count)
        self._count += 1
        line = message.data + b"\n"
        self.came.append((len(line), message.binary, answer))
        await self.put(line, _VERDICTS[end])


class UpstreamLink:
    """One connection to the upstream, with the turns that are under way on it."""

    def __init__(
        self,
        socket: UpstreamSocket,
        protocol: RequestProtocol,
        pass_on: Callable[[WebSocketMessage], Awaitable[None]],
    ) -> None:
        """`pass_on` sends the client what belongs to no turn."""
        self.socket = socket
        self.head = message_head(socket.head)
        self.used = False
        """Whether any turn was asked on it."""
        self.received = 0
        """How many messages have come."""
        self.late = 0
        """How many of them came after the end of their turn, so that no recording has them."""
        self._protocol = protocol
        self._pass_on = pass_on
        self._turns = LiveTurns()
        self._live: dict[int, LiveTurnAnswer] = {}
        self._ending: dict[int, LiveTurnAnswer] = {}
        """Turns that have ended, and whose end the client may not have yet."""
        self._unheard: set[int] = set()
        """Turns whose answer the client has already."""
        self._cancelled: set[int] = set()
        """Turns that ended because their client, or their take, wanted no more of them."""
        self._close: Close | None = None

    async def send_turn(
        self, turn: LiveTurnAnswer, message: WebSocketMessage, request: TurnRequest
    ) -> None:
        """Send a request, and have its answers find it. Raises UpstreamError."""
        if self._close is not None:
            raise _lost(self._close)
        self.used = True
        self._live[self._turns.asked(request)] = turn
        await self.send(message)

    async def prepare(self, message: WebSocketMessage, request: TurnRequest | None) -> None:
        """Send what the client was answered from a recording. Raises UpstreamError."""
        if request is not None:
            self._unheard.add(self._turns.asked(request))
        await self.send(message)

    async def send(self, message: WebSocketMessage) -> None:
        """Send a message that nothing answers. Raises UpstreamError."""
        try:
            await self.socket.send(message)
        except ConnectionError:
            raise _lost(Close(0)) from None

    def cancelled(self, lane: bytes) -> None:
        """Note that the client wants no more of the turn in this lane."""
        number = self._turns.cancelled(lane)
        if number is not None and (turn := self._ended(number)) is not None:
            self._cancelled.add(number)
            turn.end("open")

    def unsubscribe(self) -> None:
        """End all subscriptions: their client has left."""
        for lane in [each.lane for each in self._live.values() if each.subscribes]:
            self.cancelled(lane)

    async def run(self) -> Close:
        """Read until the upstream ends the connection; returns how it did."""
        while not isinstance(found := await self.socket.receive(), Close):
            self.received += 1
            await self._came(found)
        self._close = found
        for each in self._live.values():
            if each.subscribes and found.code in _GOOD_ENDS:
                each.end("open")
            else:
                each.fail(_lost(found))
        self._live.clear()
        return found

    async def _came(self, message: WebSocketMessage) -> None:
        answer = self._protocol.read_answer(message)
        arrival = None if answer is None else self._turns.came(answer)
        if arrival is None:
            await self._pass_on(message)
            return
        for number in arrival.ended_before:
            if (ended := self._ended(number)) is not None:
                ended.end("marked")
        if arrival.turn in self._unheard:
            return
        turn = self._live.get(arrival.turn)
        if turn is None or arrival.late:
            if (before := self._ending.get(arrival.turn)) is not None:
                # The end of that turn waits until the turn is stored.
                await before.handed_out.wait()
            self.late += arrival.turn not in self._cancelled
            await self._pass_on(message)
            return
        if arrival.end:
            self._ended(arrival.turn)
        await turn.add(message, answer, arrival.end)

    def _ended(self, number: int) -> LiveTurnAnswer | None:
        """A turn that ends now, None where the turn was not asked on this connection."""
        if (turn := self._live.pop(number, None)) is not None:
            waiting = {
                at: each for at, each in self._ending.items() if not each.handed_out.is_set()
            }
            self._ending = waiting | {number: turn}
        return turn


def message_head(head: ResponseHead) -> ResponseHead:
    """The head of a recorded turn: what answered the handshake, with the media type of messages."""
    fields = [each for each in head.headers if each[0].lower() != b"content-type"]
    headers = ((b"Content-Type", MESSAGES_TYPE), *fields)
    return ResponseHead(200, "OK", headers, framing="chunked")


def message_fields(headers: Headers) -> Headers:
    """The fields of a handshake as those of the requests on its connection."""
    kept = [each for each in headers if each[0].lower() not in _OF_THE_HANDSHAKE]
    return ((b"Content-Type", b"application/json"), *kept)


_OF_THE_HANDSHAKE = frozenset(
    {
        *(b"connection", b"upgrade", b"content-type", b"content-length", b"content-encoding"),
        *(b"sec-websocket-key", b"sec-websocket-version", b"sec-websocket-extensions"),
    }
)


def _lost(close: Close) -> UpstreamError:
    how = "was lost" if close.aborted else f"was closed with {close.code}"
    return UpstreamError(
        f"the WebSocket connection to the upstream {how} before the answer had ended; nothing was "
        "stored",
        code="upstream_truncated",
    )
