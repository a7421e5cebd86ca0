"""The interface of a request protocol: classifies messages as request, answer and end of an answer.

One connection carries many turns. A turn is a request of the client with all answers up to the end,
and becomes one interaction. How to use a protocol:

1. `providers.websocket.choice.protocol_of` chooses the protocol from the client's first message.
   `None` makes the connection a session (`core.websocket.sessions`).
2. `RequestProtocol.read_sent` reads each message of the client. The proxy looks a `TurnRequest` up
   like a POST with the body `TurnRequest.content` (JSON) on the path of the handshake, and stores
   `lane` beside the recording. The proxy passes `Cancelled`, `LocalReply` and None on live, and
   records none of them.
3. Live, `turns.LiveTurns` divides the messages into turns. On a replay, `turns.ReplayLanes` gives
   the order of the messages, and `RequestProtocol.echoed` writes the lane of the current request
   into each recorded message.
4. The proxy sends `RequestProtocol.error_message` as the answer after a miss or an error. If the
   protocol has no error message, the proxy closes with `messages.MISS_CLOSE`.
"""

from dataclasses import dataclass, field
from typing import Literal, Protocol

from tapeway.core.model.messages import Headers
from tapeway.core.websocket.messages import WebSocketMessage

DEFAULT_LANE = b""
"""The lane of requests without a lane."""

End = Literal["", "end", "error"]
"""Whether a message ends the answer to a request, normally or as an error."""


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A message of the client that asks for an answer.

    `content` is the message for storage and comparison: without the lane, and without members that
    do not affect the answer. `lane` is the JSON text of the lane; None stands for the lane of the answer
    `parent`.
    """

    content: bytes
    lane: bytes | None = DEFAULT_LANE
    parent: str = ""
    """The identifier of the answer that the request continues."""
    joins: bool = False
    """Whether the request goes into the answer `parent` under way, as steering does.

    It is no turn: the service gets it, and no recording answers it.
    """
    subscribes: bool = False
    """Whether the answer goes on until the client cancels, or the connection ends."""
    fields: Headers = field(default=(), compare=False)
    """What the message holds in place of header fields. It is neither stored nor compared."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The client cancels the answers of a lane. A replay of the recording stays open there."""

    lane: bytes


@dataclass(frozen=True, slots=True)
class LocalReply:
    """A ping of the protocol. Live the service replies; on a replay the proxy sends `message`."""

    message: WebSocketMessage


Sent = TurnRequest | Cancelled | LocalReply | None
"""The class of a message of the client; None if nothing answers the message."""


@dataclass(frozen=True, slots=True)
class AnswerMessage:
    """The effect of a message of the service on the turns of a connection.

    `lane` is None if the message names no lane.
    """

    lane: bytes | None = None
    end: End = ""
    issued: str = ""
    """The identifier that later requests give as `parent`; a message with one begins an answer."""

    @property
    def is_mark(self) -> bool:
        """Whether the message ends a turn, or has an identifier."""
        return bool(self.issued or self.end)


PLAIN_ANSWER = AnswerMessage(DEFAULT_LANE)
"""A message in the default lane in the middle of an answer: nearly every message."""


class RequestProtocol(Protocol):
    """One request protocol, without state of a connection."""

    @property
    def name(self) -> str:
        """The name in recordings and logs."""

    @property
    def lanes_last(self) -> bool:
        """Whether a lane may have several requests in sequence, not only one."""

    def read_sent(self, message: WebSocketMessage) -> Sent:
        """Classify a message of the client."""

    def read_answer(self, message: WebSocketMessage) -> AnswerMessage | None:
        """Classify a message of the service; None for a message outside all turns."""

    def echoed(
        self, message: WebSocketMessage, recorded_lane: bytes, asked_lane: bytes
    ) -> WebSocketMessage:
        """A recorded message with the lane of the current request; all remaining bytes stay."""

    def error_message(
        self, lane: bytes, code: str, text: str, status: int = 400
    ) -> WebSocketMessage | None:
        """The protocol's message for an error of the proxy; None if the protocol has none."""
