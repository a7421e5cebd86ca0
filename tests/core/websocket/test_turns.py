"""Messages find their turns live, and keep their order on a replay."""

import random

import pytest

from tapeway.core.websocket.request_protocol import AnswerMessage, TurnRequest
from tapeway.core.websocket.turns import (
    NO_TURN,
    LanePlace,
    LiveTurns,
    ReplayLanes,
    TurnArrival,
    lane_key,
)


def ask(lane: bytes = b"") -> TurnRequest:
    return TurnRequest(b"{}", lane)


def steer(parent: str) -> TurnRequest:
    return TurnRequest(b"{}", None, parent, joins=True)


def created(name: str, lane: bytes = b"") -> AnswerMessage:
    return AnswerMessage(lane, "", name)


def test_a_message_before_any_turn_belongs_to_none() -> None:
    assert LiveTurns().came(AnswerMessage()) is None


def test_turns_of_a_lane_follow_each_other() -> None:
    turns = LiveTurns()
    assert (turns.asked(ask()), turns.asked(ask())) == (0, 1)
    assert turns.came(created("r0")) == TurnArrival(0)
    assert turns.came(AnswerMessage(b"")) == TurnArrival(0)
    assert turns.came(AnswerMessage(b"", "end")) == TurnArrival(0, "end")
    assert turns.came(created("r1")) == TurnArrival(1)
    assert turns.open == (1,)
    assert turns.came(AnswerMessage(b"", "error")) == TurnArrival(1, "error")
    assert not turns.open


def test_lanes_are_independent() -> None:
    turns = LiveTurns()
    turns.asked(ask(b'"a"'))
    turns.asked(ask(b'"b"'))
    assert turns.came(created("r1", b'"b"')) == TurnArrival(1)
    assert turns.came(created("r0", b'"a"')) == TurnArrival(0)
    assert turns.came(AnswerMessage(b'"b"', "end")) == TurnArrival(1, "end")
    assert turns.came(AnswerMessage(b'"a"')) == TurnArrival(0)


def test_an_error_without_a_lane_ends_the_default_lane_or_the_oldest_turn() -> None:
    turns = LiveTurns()
    turns.asked(ask(b'"a"'))
    turns.asked(ask())
    assert turns.came(AnswerMessage(None, "error")) == TurnArrival(1, "error")
    assert turns.came(AnswerMessage(None, "error")) == TurnArrival(0, "error")
    assert turns.came(AnswerMessage(None, "error")) == TurnArrival(1, late=True)
    turns.asked(ask(b'"a"'))
    turns.came(AnswerMessage(b'"a"', "end"))
    assert turns.came(AnswerMessage(b'"b"')) == TurnArrival(NO_TURN, late=True)


def test_a_late_message_without_a_lane_belongs_to_the_turn_that_ended_last() -> None:
    turns = LiveTurns()
    turns.asked(ask(b"1"))
    turns.asked(ask(b"2"))
    turns.came(AnswerMessage(b"2", "end"))
    turns.came(AnswerMessage(b"1", "end"))
    assert turns.came(AnswerMessage()) == TurnArrival(0, late=True)


def test_a_message_behind_the_end_is_late() -> None:
    turns = LiveTurns()
    turns.asked(ask(b"1"))
    turns.came(AnswerMessage(b"1", "end"))
    assert turns.came(AnswerMessage()) == TurnArrival(0, late=True)
    turns.asked(ask(b"2"))
    assert turns.came(AnswerMessage(b"1")) == TurnArrival(0, late=True)
    assert turns.came(AnswerMessage()) == TurnArrival(1)


def test_a_client_ends_a_turn() -> None:
    turns = LiveTurns()
    turns.asked(ask(b'"a"'))
    assert turns.cancelled(b'"b"') is None
    assert turns.cancelled(b'"a"') == 0
    assert turns.came(AnswerMessage(b'"a"')) == TurnArrival(0, late=True)


def test_a_lane_is_the_same_in_each_spelling() -> None:
    assert lane_key(b'"a"') == lane_key(b'"\\u0061"')
    assert lane_key(b"[1, 2]") == lane_key(b"[2,1]")
    assert lane_key(b"1") != lane_key(b'"1"')
    assert lane_key(b"{") == b"{"


def test_random_turns_find_their_messages() -> None:
    """A service that answers each lane in order, and lanes in any order."""
    draw = random.Random(4343)
    for _ in range(300):
        turns = LiveTurns()
        waiting: dict[bytes, list[tuple[int, list[AnswerMessage]]]] = {}
        left = draw.randrange(1, 20)
        while left or any(waiting.values()):
            if left and draw.random() < 0.4:
                left -= 1
                lane = draw.choice([b"", b'"a"', b'"b"', b"3"])
                number = turns.asked(ask(lane))
                told = [created(f"r{number}", lane)] if draw.random() < 0.8 else []
                told += [AnswerMessage(lane)] * draw.randrange(4)
                told.append(AnswerMessage(lane, draw.choice(["end", "error"])))
                waiting.setdefault(lane, []).append((number, told))
                continue
            lanes = [lane for lane, queue in waiting.items() if queue]
            if not lanes:
                continue
            queue = waiting[draw.choice(lanes)]
            number, told = queue[0]
            answer = told.pop(0)
            assert turns.came(answer) == TurnArrival(number, answer.end)
            if not told:
                queue.pop(0)
        assert not turns.open


def test_a_replayed_turn_waits_for_the_one_before() -> None:
    lanes = ReplayLanes()
    first, second, other = lanes.enter(ask()), lanes.enter(ask()), lanes.enter(ask(b'"a"'))
    assert lanes.may_send(first)
    assert not lanes.may_send(second)
    assert lanes.may_send(other)
    lanes.left(first)
    lanes.left(first)
    assert lanes.may_send(second)


def test_a_request_without_a_lane_has_that_of_its_replayed_parent() -> None:
    lanes = ReplayLanes()
    lanes.sent(lanes.enter(ask(b'"a"')), created("r0", b'"a"'))
    assert lanes.enter(steer("r0")).lane == b'"a"'
    assert lanes.enter(steer("unknown")).lane == b""


def test_identifiers_of_recordings_are_told_from_live_ones() -> None:
    lanes = ReplayLanes()
    turn = lanes.enter(ask())
    lanes.sent(turn, created("old"))
    lanes.left(turn)
    assert lanes.was_replayed("old")
    assert not lanes.was_replayed("new")
    assert not lanes.was_replayed("")


def test_a_client_ends_the_turn_under_way_of_a_lane() -> None:
    lanes = ReplayLanes()
    turn = lanes.enter(ask(b'"a"'))
    assert lanes.cancelled(b'"b"') is None
    assert lanes.cancelled(b'"a"') is turn


@pytest.mark.parametrize("seed", range(5))
def test_random_replays_keep_the_order_of_each_lane(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(60):
        lanes = ReplayLanes()
        told: list[tuple[bytes, int]] = []
        under_way: list[tuple[LanePlace, int, int]] = []
        asked = 0
        while asked < 15 or under_way:
            if asked < 15 and draw.random() < 0.4:
                place = lanes.enter(ask(draw.choice([b"", b"1", b"2"])))
                under_way.append((place, asked, draw.randrange(1, 4)))
                asked += 1
                continue
            ready = [turn for turn in under_way if lanes.may_send(turn[0])]
            assert bool(ready) == bool(under_way)
            if not ready:
                continue
            chosen = draw.choice(ready)
            place, number, messages = chosen
            told.append((place.lane, number))
            under_way.remove(chosen)
            if messages > 1:
                under_way.append((place, number, messages - 1))
            else:
                lanes.left(place)
        for lane in (b"", b"1", b"2"):
            numbers = [number for told_lane, number in told if told_lane == lane]
            assert numbers == sorted(numbers)
