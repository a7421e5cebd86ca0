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


def ask(lane: bytes = b"", parent: str = "") -> TurnRequest:
    return TurnRequest(b"{}", lane, parent)


def steer(parent: str) -> TurnRequest:
    return TurnRequest(b"{}", None, parent, joins=True)


def created(name: str, lane: bytes = b"", parent: str = "") -> AnswerMessage:
    return AnswerMessage(lane, "", name, parent)


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


def test_steering_ends_an_answer_and_gets_the_successor() -> None:
    turns = LiveTurns()
    turns.asked(ask(b'"a"'))
    turns.came(created("r0", b'"a"'))
    assert turns.asked(steer("r0")) == 1
    assert turns.came(AnswerMessage(b'"a"', parent="r0", joined="s")) == TurnArrival(1)
    assert turns.came(AnswerMessage(b'"a"')) == TurnArrival(0)
    assert turns.came(AnswerMessage(b'"a"', "end", awaits_join=True)) == TurnArrival(0, "end")
    assert turns.came(created("r1", b'"a"', "r0")) == TurnArrival(1)
    assert turns.came(AnswerMessage(b'"a"', "end")) == TurnArrival(1, "end")


def test_several_steers_share_a_successor_which_the_last_one_gets() -> None:
    turns = LiveTurns()
    turns.asked(ask())
    turns.came(created("r0"))
    turns.asked(steer("r0"))
    turns.asked(steer("r0"))
    assert turns.came(AnswerMessage(None, parent="r0", joined="s1")) == TurnArrival(1)
    assert turns.came(AnswerMessage(None, parent="r0", joined="s2")) == TurnArrival(2)
    assert turns.came(AnswerMessage(b"", "end", awaits_join=True)) == TurnArrival(0, "end")
    assert turns.came(created("r1", parent="r0")) == TurnArrival(2, ended_before=(1,))
    assert turns.came(AnswerMessage(b"", "end")) == TurnArrival(2, "end")


def test_a_refused_steer_ends_with_its_refusal() -> None:
    turns = LiveTurns()
    turns.asked(ask())
    turns.came(created("r0"))
    turns.asked(steer("r0"))
    assert turns.came(AnswerMessage(None, "error", parent="r0", joined="")) == TurnArrival(
        1, "error"
    )
    assert turns.came(AnswerMessage(b"", "end")) == TurnArrival(0, "end")


def test_a_pending_steer_ends_and_the_next_request_gets_the_answer() -> None:
    turns = LiveTurns()
    turns.asked(ask())
    turns.came(created("r0"))
    turns.asked(steer("r0"))
    turns.came(AnswerMessage(None, parent="r0", joined="s"))
    turns.came(AnswerMessage(b"", "end"))
    assert turns.came(AnswerMessage(None, "end", parent="r0", joined="s")) == TurnArrival(1, "end")
    turns.asked(ask(parent="r0"))
    assert turns.came(created("r1", parent="r0")) == TurnArrival(2)


def test_an_explicit_request_with_another_parent_is_no_successor() -> None:
    turns = LiveTurns()
    turns.asked(ask())
    turns.came(created("r0"))
    turns.asked(steer("r0"))
    turns.came(AnswerMessage(None, parent="r0", joined="s"))
    turns.asked(ask(parent="other"))
    turns.came(AnswerMessage(b"", "end"))
    assert turns.came(created("r2", parent="other")) == TurnArrival(2)


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
    assert lanes.may_send(first, AnswerMessage(b""))
    assert not lanes.may_send(second, AnswerMessage(b""))
    assert lanes.may_send(other, AnswerMessage(b'"a"'))
    lanes.left(first)
    lanes.left(first)
    assert lanes.may_send(second, AnswerMessage(b""))


def test_a_steered_end_waits_for_the_steer_and_goes_before_its_answer() -> None:
    lanes = ReplayLanes()
    turn = lanes.enter(ask(b'"a"'))
    lanes.sent(turn, created("r0", b'"a"'))
    steered = AnswerMessage(b'"a"', "end", awaits_join=True)
    assert not lanes.may_send(turn, steered)
    joining = lanes.enter(steer("r0"))
    assert joining.lane == b'"a"'
    accepted = AnswerMessage(b'"a"', parent="r0", joined="s")
    assert lanes.may_send(joining, accepted)
    assert not lanes.may_send(turn, steered)
    assert lanes.sent(joining, accepted)
    assert lanes.may_send(turn, steered)
    assert not lanes.sent(turn, steered)
    assert not lanes.may_send(joining, created("r1", b'"a"', "r0"))
    lanes.left(turn)
    assert lanes.may_send(joining, created("r1", b'"a"', "r0"))


def test_a_steered_end_comes_after_a_steer_that_missed() -> None:
    lanes = ReplayLanes()
    turn = lanes.enter(ask())
    lanes.sent(turn, created("r0"))
    joining = lanes.enter(steer("r0"))
    lanes.left(joining)
    assert lanes.may_send(turn, AnswerMessage(b"", "end", awaits_join=True))


def test_only_the_acknowledgement_of_a_steer_goes_ahead() -> None:
    lanes = ReplayLanes()
    turn = lanes.enter(ask())
    lanes.sent(turn, created("r0"))
    joining = lanes.enter(steer("r0"))
    lanes.sent(joining, AnswerMessage(None, parent="r0", joined="s"))
    assert not lanes.may_send(joining, AnswerMessage(None, "end", parent="r0", joined="s"))


def test_identifiers_of_recordings_are_told_from_live_ones() -> None:
    lanes = ReplayLanes()
    turn = lanes.enter(ask())
    lanes.sent(turn, created("old"))
    lanes.left(turn)
    live = lanes.enter(ask())
    lanes.sent(live, created("new"), replayed=False)
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
            ready = [turn for turn in under_way if lanes.may_send(turn[0], AnswerMessage(b""))]
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
