"""Divides the messages of a connection into turns, live and on a replay.

Lanes are independent; in a lane the turns come one after the other.
"""

from dataclasses import dataclass, field
from typing import TypeVar

import orjson

from tapeway.core.websocket.request_protocol import (
    DEFAULT_LANE,
    AnswerMessage,
    End,
    TurnRequest,
)

_MOST_ENDED = 64
"""How many lanes keep the last turn in memory; OpenAI allows 32 lanes on a connection."""

_MOST_ISSUED = 4096
"""How many identifiers of answers a connection keeps in memory."""

NO_TURN = -1
"""The turn number of a late message without a turn."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class TurnArrival:
    """The turn that a message of the service belongs to, and whether the message ends the turn.

    A message is `late` if the turn had ended: a notification of a subscription, say. A late message
    without a lane belongs to the turn with the latest end.
    """

    turn: int
    end: End = ""
    late: bool = False


@dataclass(slots=True)
class _Turn:
    number: int
    lane: bytes
    arrival: TurnArrival = field(init=False)
    """The arrival of every message in the middle of the answer."""

    def __post_init__(self) -> None:
        self.arrival = TurnArrival(self.number)


class LiveTurns:
    """Assigns each message of the service to a turn; the first turn has the number 0."""

    def __init__(self) -> None:
        self._count = 0
        self._open: list[_Turn] = []
        """Turns without an end, in the order of the requests."""
        self._latest = NO_TURN
        """The turn with the latest end."""
        self._ended = _Latest[bytes, int](_MOST_ENDED)

    @property
    def open(self) -> tuple[int, ...]:
        """The turns without an end, in the order of the requests."""
        return tuple([turn.number for turn in self._open])

    def asked(self, request: TurnRequest) -> int:
        """Begin a turn with a request; return the turn's number."""
        self._open.append(_Turn(self._count, lane_key(request.lane or DEFAULT_LANE)))
        self._count += 1
        return self._count - 1

    def cancelled(self, lane: bytes) -> int | None:
        """End the first open turn of a lane for the client; return the turn's number, or None."""
        if (turn := self._next(lane_key(lane))) is None:
            return None
        self._end(turn)
        return turn.number

    def came(self, answer: AnswerMessage) -> TurnArrival | None:
        """The turn of a message; None before the first turn."""
        if answer.lane is None:
            return self._without_lane(answer)
        lane = lane_key(answer.lane)
        turn = self._next(lane)
        return self._late(lane) if turn is None else self._arrived(turn, answer)

    def _next(self, lane: bytes) -> _Turn | None:
        return next((turn for turn in self._open if turn.lane == lane), None)

    def _without_lane(self, answer: AnswerMessage) -> TurnArrival | None:
        if not self._open:
            return self._late(DEFAULT_LANE)
        if not answer.end:
            # A notification: most likely about the latest request.
            return self._arrived(self._open[-1], answer)
        return self._arrived(self._next(DEFAULT_LANE) or self._open[0], answer)

    def _arrived(self, turn: _Turn, answer: AnswerMessage) -> TurnArrival:
        if not answer.end:
            return turn.arrival
        self._end(turn)
        return TurnArrival(turn.number, answer.end)

    def _late(self, lane: bytes) -> TurnArrival | None:
        if not self._count:
            return None
        # A message without a lane may be about the connection.
        otherwise = NO_TURN if lane else self._latest
        return TurnArrival(self._ended.get(lane, otherwise), late=True)

    def _end(self, turn: _Turn) -> None:
        self._open.remove(turn)
        self._ended.put(turn.lane, turn.number)
        self._latest = turn.number


@dataclass(eq=False, slots=True)
class LanePlace:
    """The place of one turn in the order of a replay; the turn's messages get this `lane`."""

    lane: bytes


class ReplayLanes:
    """Gives the order in which the messages of replayed turns go out.

    Call `enter` for each request, in `auto` for live requests too. Send a message of a turn when
    `may_send` allows, and call `sent` for each message. Call `left` after the last message, and ask
    `may_send` again.
    """

    def __init__(self) -> None:
        self._queues: dict[bytes, list[LanePlace]] = {}
        self._replayed = _Latest[str, bytes](_MOST_ISSUED)
        """The lane of each identifier from a recording."""

    def enter(self, request: TurnRequest) -> LanePlace:
        """The place of a new turn, last in the lane."""
        lane = request.lane
        if lane is None:
            lane = self._replayed.get(request.parent, DEFAULT_LANE)
        place = LanePlace(lane)
        self._queues.setdefault(lane_key(place.lane), []).append(place)
        return place

    def may_send(self, place: LanePlace) -> bool:
        """Whether the next message of a turn may go out."""
        return self._queues[lane_key(place.lane)][0] is place

    def sent(self, place: LanePlace, answer: AnswerMessage | None) -> None:
        """Note an outgoing message of a replayed turn; `answer` classifies the message."""
        if answer is not None and answer.issued:
            self._replayed.put(answer.issued, place.lane)

    def left(self, place: LanePlace) -> None:
        """Let the next turn of the lane go on; a turn may leave twice."""
        key = lane_key(place.lane)
        queue = self._queues.get(key, [])
        if place in queue:
            queue.remove(place)
        if not queue:
            self._queues.pop(key, None)

    def cancelled(self, lane: bytes) -> LanePlace | None:
        """The turn that a cancellation in this lane ends; None without a turn under way."""
        queue = self._queues.get(lane_key(lane))
        return queue[0] if queue else None

    def was_replayed(self, parent: str) -> bool:
        """Whether the client got this identifier from a recording on this connection.

        The service does not know such an identifier: a live request must not continue from there.
        """
        return parent in self._replayed


def lane_key(lane: bytes) -> bytes:
    """A key equal for all spellings of a lane, and for all orders of a batch."""
    if not lane:
        return lane
    try:
        value = orjson.loads(lane)
    except orjson.JSONDecodeError:
        return lane
    if isinstance(value, list):
        return b",".join(sorted([orjson.dumps(item) for item in value]))
    return orjson.dumps(value)


class _Latest(dict[K, V]):
    """Keeps a bounded number of keys, and drops the oldest first."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def put(self, key: K, value: V) -> None:
        """Add a value as the latest, also if the key is known."""
        self.pop(key, None)
        self[key] = value
        if len(self) > self._most:
            del self[next(iter(self))]
