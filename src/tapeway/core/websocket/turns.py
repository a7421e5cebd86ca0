"""Divides the messages of a connection into turns, live and on a replay.

Lanes are independent; in a lane the turns come one after the other. A joining request (steering)
goes into the answer under way in the lane. The service acknowledges a joining request at once, and
answers the request after the answer under way.
"""

from dataclasses import dataclass, field
from typing import TypeVar

import orjson

from tapeway.core.websocket.request_protocol import (
    DEFAULT_LANE,
    PLAIN_ANSWER,
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

    `ended_before` lists turns that ended without an end message. A message is `late` if the turn
    had ended: a notification of a subscription, say. A late message without a lane belongs to the
    turn with the latest end.
    """

    turn: int
    end: End = ""
    late: bool = False
    ended_before: tuple[int, ...] = ()


@dataclass(slots=True)
class _Turn:
    number: int
    lane: bytes
    parent: str
    joins: bool
    begun: bool = False
    """Whether the answer has an identifier, or the joining request an acknowledgement."""
    joined: str = ""
    """The service's name for a joining request."""
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
        self._under_way: dict[bytes, _Turn] = {}
        """For each lane the turn whose answer has begun."""
        self._ended = _Latest[bytes, int](_MOST_ENDED)
        self._lanes = IssuedIn()

    @property
    def open(self) -> tuple[int, ...]:
        """The turns without an end, in the order of the requests."""
        return tuple([turn.number for turn in self._open])

    def asked(self, request: TurnRequest) -> int:
        """Begin a turn with a request; return the turn's number."""
        lane = self._lanes.lane_of(request)
        self._open.append(_Turn(self._count, lane_key(lane), request.parent, request.joins))
        self._count += 1
        return self._count - 1

    def cancelled(self, lane: bytes) -> int | None:
        """End the first open turn of a lane for the client; return the turn's number, or None."""
        key = lane_key(lane)
        for turn in self._open:
            if turn.lane == key:
                self._end(turn)
                return turn.number
        return None

    def came(self, answer: AnswerMessage) -> TurnArrival | None:
        """The turn of a message; None before the first turn."""
        if answer is PLAIN_ANSWER and (begun := self._under_way.get(DEFAULT_LANE)) is not None:
            return begun.arrival
        if answer.joined is not None and (joining := self._joining(answer)) is not None:
            joining.begun, joining.joined = True, answer.joined
            return self._arrived(joining, answer)
        if answer.lane is None:
            return self._without_lane(answer)
        lane = lane_key(answer.lane)
        if answer.issued:
            self._lanes.add(answer.issued, answer.lane)
            return self._begun(lane, answer)
        turn = self._under_way.get(lane) or self._next(lane)
        if turn is not None:
            return self._arrived(turn, answer)
        return self._late(lane)

    def _begun(self, lane: bytes, answer: AnswerMessage) -> TurnArrival | None:
        joined = [
            open_turn
            for open_turn in self._open
            if open_turn.joins and open_turn.begun and open_turn.lane == lane
            if not answer.parent or open_turn.parent == answer.parent
        ]
        if not joined:
            turn = self._next(lane)
            if turn is None:
                return self._late(lane)
            turn.begun = True
            self._under_way[lane] = turn
            return self._arrived(turn, answer)
        # One answer serves all joining requests, and comes after the last of the requests.
        *before, turn = joined
        for earlier in before:
            self._end(earlier)
        self._under_way[lane] = turn
        arrival = self._arrived(turn, answer)
        return TurnArrival(
            arrival.turn, arrival.end, False, tuple([earlier.number for earlier in before])
        )

    def _joining(self, answer: AnswerMessage) -> _Turn | None:
        joining = [turn for turn in self._open if turn.joins and turn.parent == answer.parent]
        named = [turn for turn in joining if turn.begun and turn.joined == answer.joined]
        return next(iter(named or [turn for turn in joining if not turn.begun]), None)

    def _next(self, lane: bytes) -> _Turn | None:
        turns = (turn for turn in self._open if turn.lane == lane and not turn.joins)
        return next(turns, None)

    def _without_lane(self, answer: AnswerMessage) -> TurnArrival | None:
        if not self._open:
            return self._late(DEFAULT_LANE)
        if not answer.end:
            # A notification: most likely about the latest request.
            return self._arrived(self._open[-1], answer)
        turn = self._under_way.get(DEFAULT_LANE) or self._next(DEFAULT_LANE) or self._open[0]
        return self._arrived(turn, answer)

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
        if self._under_way.get(turn.lane) is turn:
            del self._under_way[turn.lane]
        self._ended.put(turn.lane, turn.number)
        self._latest = turn.number


@dataclass(eq=False, slots=True)
class LanePlace:
    """The place of one turn in the order of a replay; the turn's messages get this `lane`."""

    lane: bytes
    joins: bool = False
    joined: bool = False
    """Whether a request has joined this answer. The recorded end may wait for the request."""
    acknowledged: bool = False
    """Whether the acknowledgement of a joining request has gone out."""


class ReplayLanes:
    """Gives the order in which the messages of replayed turns go out.

    Call `enter` for each request, in `auto` for live requests too. Send a message of a turn when
    `may_send` allows, and call `sent` for each message. Call `left` after the last message. Ask
    `may_send` again after `left`, and after `sent` returns true.
    """

    def __init__(self) -> None:
        self._queues: dict[bytes, list[LanePlace]] = {}
        self._lanes = IssuedIn()
        self._replayed = _Latest[str, None](_MOST_ISSUED)

    def enter(self, request: TurnRequest) -> LanePlace:
        """The place of a new turn, last in the lane."""
        place = LanePlace(self._lanes.lane_of(request), request.joins)
        self._queues.setdefault(lane_key(place.lane), []).append(place)
        return place

    def may_send(self, place: LanePlace, answer: AnswerMessage | None) -> bool:
        """Whether the next message of a turn may go out; `answer` classifies the message."""
        if answer is not None and answer.joined is not None and not place.acknowledged:
            # The acknowledgement comes in the middle of the joined answer.
            return True
        if self._queues[lane_key(place.lane)][0] is not place:
            return False
        return answer is None or not answer.awaits_join or place.joined

    def sent(
        self, place: LanePlace, answer: AnswerMessage | None, *, replayed: bool = True
    ) -> bool:
        """Note an outgoing message of a turn, replayed or live.

        Return whether more turns may send now.
        """
        if answer is None:
            return False
        acknowledges = answer.joined is not None and place.joins and not place.acknowledged
        if acknowledges:
            place.acknowledged = True
            self._queues[lane_key(place.lane)][0].joined = True
        if answer.issued:
            self._lanes.add(answer.issued, place.lane)
            if replayed:
                self._replayed.put(answer.issued, None)
        return acknowledges

    def left(self, place: LanePlace) -> None:
        """Let the next turn of the lane go on; a turn may leave twice."""
        key = lane_key(place.lane)
        queue = self._queues.get(key, [])
        if place in queue:
            queue.remove(place)
            if queue and place.joins:
                # A refused request joins no answer: let the answer end without the request.
                queue[0].joined = True
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


class IssuedIn:
    """Remembers the lane of each identifier of an answer."""

    def __init__(self) -> None:
        self._lanes = _Latest[str, bytes](_MOST_ISSUED)

    def add(self, issued: str, lane: bytes) -> None:
        """Remember the lane of an identifier."""
        self._lanes.put(issued, lane)

    def lane_of(self, request: TurnRequest) -> bytes:
        """The lane of a request, if need be the lane of the parent answer."""
        if request.lane is not None:
            return request.lane
        return self._lanes.get(request.parent, DEFAULT_LANE)


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
