"""When a replay sends what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model.messages import BodyFile, Cuts, Response, ResponseChunk, ResponseHead
from tapeway.core.streams.pacing import AS_RECORDED, AT_ONCE, Pace, Schedule


def answer(*times: float) -> Response:
    return Response(ResponseHead(200), tuple([ResponseChunk(b"x", at_ms) for at_ms in times]))


def test_the_head_goes_with_the_first_piece_and_the_end_when_the_call_had_ended() -> None:
    schedule = Schedule(answer(250, 400), 1000, AS_RECORDED)

    assert (schedule.head_s, schedule.end_s) == (0.25, 1.0)
    assert [schedule.due_s(each) for each in (250, 400)] == [0.25, 0.4]


@pytest.mark.parametrize(("pace", "factor"), [(AT_ONCE, 0.0), (0.5, 0.5), (2.0, 2.0)])
def test_a_pace_stretches_every_time_alike(pace: float, factor: float) -> None:
    schedule = Schedule(answer(250, 400), 1000, Pace(pace))

    assert (schedule.head_s, schedule.due_s(400), schedule.end_s) == (
        0.25 * factor,
        0.4 * factor,
        factor,
    )


@pytest.mark.parametrize("times", [(), (0,), (0, 0)])
def test_an_answer_without_times_comes_when_its_call_had_ended(times: tuple[float, ...]) -> None:
    schedule = Schedule(answer(*times), 700, AS_RECORDED)

    assert (schedule.head_s, schedule.due_s(0), schedule.end_s) == (0.7, 0.7, 0.7)


def test_a_body_in_a_file_keeps_its_times() -> None:
    file = BodyFile("", 2, "")
    response = Response(ResponseHead(200), file=file, cuts=Cuts([(100, 1), (300, 1)]))
    schedule = Schedule(response, 0, AS_RECORDED)

    assert (schedule.head_s, schedule.end_s) == (0.1, 0.3)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1e6), st.floats(0, 1000))
def test_no_piece_is_due_before_the_head_or_after_the_end(
    times: list[float], latency_ms: float, pace: float
) -> None:
    times.sort()
    schedule = Schedule(answer(*times), latency_ms, Pace(pace))

    assert all(schedule.head_s <= schedule.due_s(each) <= schedule.end_s for each in times)
