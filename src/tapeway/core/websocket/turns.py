"""Divides the messages of a connection into turns, live and on a replay.

Lanes are independent of each other; in a lane a turn follows the one before. A request that joins
(steering) goes into the answer that is under way in its lane. The service acknowledges such a
request at once, and answers it after that answer.
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
"""Lanes whose last turn is remembered after its end; OpenAI allows 32 on a connection."""

_MOST_ISSUED = 4096
"""Identifiers of answers that are remembered on a connection."""

NO_TURN = -1
"""The turn of a late message that belongs to no turn."""

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class TurnArrival:
    """The turn that a message of the service belongs to, and whether the message ends the turn.

    `ended_before` are turns that ended without a message of their own. A message is `late` if its
    turn had ended: a notification of a subscription, say. A late message without a lane belongs to
    the turn that ended last.
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
    """Whether its answer has an identifier; of a request that joins, whether it is acknowledged."""
    joined: str = ""
    """The service's name for a joining request."""
    arrival: TurnArrival = field(init=False)
    """That of a message in the middle of the answer."""

    def __post_init__(self) -> None:
        self.arrival = TurnArrival(self.number)


class LiveTurns:
    """Which turn each message of the service belongs to; turns are numbered from 0."""

    def __init__(self) -> None:
        self._count = 0
        self._open: list[_Turn] = []
        """In the order of the requests."""
        self._latest = NO_TURN
        """The turn that ended last."""
        self._under_way: dict[bytes, _Turn] = {}
        """Of each lane the turn whose answer has begun."""
        self._ended = _Latest[bytes, int](_MOST_ENDED)
        self._lanes = IssuedIn()

    @property
    def open(self) -> tuple[int, ...]:
        """The turns without an end, in the order in which they were asked."""
        return tuple([each.number for each in self._open])

    def asked(self, request: TurnRequest) -> int:
        """The number of the turn that begins with a request."""
        lane = self._lanes.lane_of(request)
        self._open.append(_Turn(self._count, lane_key(lane), request.parent, request.joins))
        self._count += 1
        return self._count - 1

    def cancelled(self, lane: bytes) -> int | None:
        """The turn that its client has ended, None where none is open in this lane."""
        key = lane_key(lane)
        for each in self._open:
            if each.lane == key:
                self._end(each)
                return each.number
        return None

    def came(self, answer: AnswerMessage) -> TurnArrival | None:
        """The turn of a message; None while no turn has begun."""
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
            each
            for each in self._open
            if each.joins and each.begun and each.lane == lane
            if not answer.parent or each.parent == answer.parent
        ]
        if not joined:
            turn = self._next(lane)
            if turn is None:
                return self._late(lane)
            turn.begun = True
            self._under_way[lane] = turn
            return self._arrived(turn, answer)
        # What was queued by several requests goes into one answer: it comes when all were asked.
        *before, turn = joined
        for each in before:
            self._end(each)
        self._under_way[lane] = turn
        arrival = self._arrived(turn, answer)
        return TurnArrival(
            arrival.turn, arrival.end, False, tuple([each.number for each in before])
        )

    def _joining(self, answer: AnswerMessage) -> _Turn | None:
        joining = [each for each in self._open if each.joins and each.parent == answer.parent]
        named = [each for each in joining if each.begun and each.joined == answer.joined]
        return next(iter(named or [each for each in joining if not each.begun]), None)

    def _next(self, lane: bytes) -> _Turn | None:
        turns = (each for each in self._open if each.lane == lane and not each.joins)
        return next(turns, None)

    def _without_lane(self, answer: AnswerMessage) -> TurnArrival | None:
        if not self._open:
            return self._late(DEFAULT_LANE)
        if not answer.end:
            # A notification: most likely of what was asked last.
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
        # What names no lane may be about the connection.
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
    """The place of one turn in the order of a replay; `lane` is written into its messages."""

    lane: bytes
    joins: bool = False
    joined: bool = False
    """Whether a request has joined an answer, whose recorded end may come then."""
    acknowledged: bool = False
    """Of a request that joins, whether its acknowledgement has gone out."""


class ReplayLanes:
    """The order in which the messages of replayed turns go out.

    Enter each request as it comes, in `auto` the live ones too. Send a message of a turn when
    `may_send` allows it, and call `sent` for each. Call `left` after the last one. What `may_send`
    says may change after `left`, and where `sent` says so.
    """

    def __init__(self) -> None:
        self._queues: dict[bytes, list[LanePlace]] = {}
        self._lanes = IssuedIn()
        self._replayed = _Latest[str, None](_MOST_ISSUED)

    def enter(self, request: TurnRequest) -> LanePlace:
        """The place of a new turn, behind the others of its lane."""
        place = LanePlace(self._lanes.lane_of(request), request.joins)
        self._queues.setdefault(lane_key(place.lane), []).append(place)
        return place

    def may_send(self, place: LanePlace, answer: AnswerMessage | None) -> bool:
        """Whether the next message of a turn may go out, `answer` being what it is."""
        if answer is not None and answer.joined is not None and not place.acknowledged:
            # The acknowledgement comes in the middle of the answer that the request goes into.
            return True
        if self._queues[lane_key(place.lane)][0] is not place:
            return False
        return answer is None or not answer.awaits_join or place.joined

    def sent(
        self, place: LanePlace, answer: AnswerMessage | None, *, replayed: bool = True
    ) -> bool:
        """Note a message of a turn that goes out; a live one is noted too.

        Returns whether other turns may send more now.
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
        """Let the next turn of its lane go on; a turn may leave twice."""
        key = lane_key(place.lane)
        queue = self._queues.get(key, [])
        if place in queue:
            queue.remove(place)
            if queue and place.joins:
                # A request that was refused goes into nothing: the answer ends all the same.
                queue[0].joined = True
        if not queue:
            self._queues.pop(key, None)

    def cancelled(self, lane: bytes) -> LanePlace | None:
        """The turn that its client has ended, None where none is under way in this lane."""
        queue = self._queues.get(lane_key(lane))
        return queue[0] if queue else None

    def was_replayed(self, parent: str) -> bool:
        """Whether a recording has issued this identifier to the client of this connection.

        The service knows it no more, or never did: a live request must not go on from it.
        """
        return parent in self._replayed


class IssuedIn:
    """The lane in which each identifier of an answer was issued."""

    def __init__(self) -> None:
        self._lanes = _Latest[str, bytes](_MOST_ISSUED)

    def add(self, issued: str, lane: bytes) -> None:
        """Remember the lane of an identifier."""
        self._lanes.put(issued, lane)

    def lane_of(self, request: TurnRequest) -> bytes:
        """The lane of a request, which may be that of the answer it goes into."""
        if request.lane is not None:
            return request.lane
        return self._lanes.get(request.parent, DEFAULT_LANE)


def lane_key(lane: bytes) -> bytes:
    """The same for each spelling of a lane; of a batch the order does not matter."""
    if not lane:
        return lane
    try:
        value = orjson.loads(lane)
    except orjson.JSONDecodeError:
        return lane
    if isinstance(value, list):
        return b",".join(sorted([orjson.dumps(each) for each in value]))
    return orjson.dumps(value)


class _Latest(dict[K, V]):
    """What was put in last, for a bounded number of keys."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def put(self, key: K, value: V) -> None:
        """Add a value, as the latest one also where its key is known."""
        self.pop(key, None)
        self[key] = value
        if len(self) > self._most:
            del self[next(iter(self))]
