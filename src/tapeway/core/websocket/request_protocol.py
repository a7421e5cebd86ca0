"""The interface of a request protocol: the messages that ask, that answer, and that end an answer.

One connection carries many turns. A turn is a request of the client with its answers up to the end,
and it becomes one interaction. How to use a protocol:

1. `providers.websocket.choice.protocol_of` chooses the protocol, once the client has sent its first
   message. `None` means that the connection is one session (`core.websocket.sessions`).
2. `RequestProtocol.read_sent` reads each message of the client. A `TurnRequest` is looked up like a
   POST whose body is `TurnRequest.content` (JSON) on the path of the handshake; `lane` is stored
   beside the recording. `Cancelled`, `LocalReply` and None are passed on live, and recorded nowhere.
3. Live, `turns.LiveTurns` divides the messages into turns. On a replay, `turns.ReplayLanes` says in
   which order messages go out, and `RequestProtocol.echoed` writes the lane of the request that asks
   into each recorded message.
4. A miss, and any other error of the proxy, is `RequestProtocol.error_message`, sent like an answer.
   Where the protocol has no form for it, the proxy closes with `messages.MISS_CLOSE`.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from tapeway.core.websocket.messages import WebSocketMessage

DEFAULT_LANE = b""
"""The lane of requests that name none."""

End = Literal["", "end", "error"]
"""Whether a message ends the answer to a request, and whether as an error."""


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A message of the client that asks for an answer.

    `content` is the message as it is stored and compared: without its lane, and without what says
    nothing about what is asked. `lane` is the lane as it is written in JSON; None stands for the
    lane in which `parent` was issued.
    """

    content: bytes
    lane: bytes | None = DEFAULT_LANE
    parent: str = ""
    """The identifier of the answer that the request goes on from."""
    joins: bool = False
    """Whether it goes into the answer that is under way in its lane, as steering does."""
    subscribes: bool = False
    """Whether its answer goes on until the client wants no more, or the connection ends."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The client wants no more answers in this lane; a recording ends there as one that stays open."""

    lane: bytes


@dataclass(frozen=True, slots=True)
class LocalReply:
    """A message that asks for a sign of life; live the service answers it, on a replay the proxy."""

    message: WebSocketMessage


Sent = TurnRequest | Cancelled | LocalReply | None
"""What a message of the client is; None for one that nothing answers."""


@dataclass(frozen=True, slots=True)
class AnswerMessage:
    """What a message of the service is for the turns of its connection.

    `lane` is None where the message names none.
    """

    lane: bytes | None = None
    end: End = ""
    issued: str = ""
    """The identifier that later requests give as their parent; it begins an answer."""
    parent: str = ""
    """The identifier of the answer that the answer, or the request that joins, goes on from."""
    joined: str | None = None
    """Set for a message about a request that joins: the name that the service gave this request."""
    awaits_join: bool = False
    """Whether the message only came because a request had joined the answer."""

    @property
    def is_mark(self) -> bool:
        """Whether it changes which turns may send, or ends a turn."""
        return bool(self.issued or self.end) or self.joined is not None or self.awaits_join


PLAIN_ANSWER = AnswerMessage(DEFAULT_LANE)
"""A message in the default lane in the middle of an answer, as nearly all are."""


class RequestProtocol(Protocol):
    """One request protocol; it keeps nothing of a connection."""

    @property
    def name(self) -> str:
        """Its name in recordings and logs."""

    @property
    def lanes_last(self) -> bool:
        """Whether a lane has one request after another, and not one request alone."""

    def read_sent(self, message: WebSocketMessage) -> Sent:
        """What a message of the client is."""

    def read_answer(self, message: WebSocketMessage) -> AnswerMessage | None:
        """What a message of the service is; None for a sign of life, which belongs to no turn."""

    def echoed(
        self, message: WebSocketMessage, recorded_lane: bytes, asked_lane: bytes
    ) -> WebSocketMessage:
        """A recorded message with the lane of the request that asks, every other byte as it was."""

    def error_message(
        self, lane: bytes, code: str, text: str, status: int = 400
    ) -> WebSocketMessage | None:
        """An error of the proxy in the protocol's own form, None where it has no form for it."""
