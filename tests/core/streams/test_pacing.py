"""When a replay sends each piece, and how long a replayed response tells its client to wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model.messages import (
    BodyFile,
    ChunkTimes,
    Headers,
    Response,
    ResponseHead,
)
from tapeway.core.streams.pacing import AS_RECORDED, AT_ONCE, Pace, Schedule, scale_retry_after

DATED = (b"Date", b"Sun, 22 Nov 2026 02:00:00 GMT")
UNTIL = (b"Retry-After", b"Sun, 22 Nov 2026 02:00:40 GMT")


def response(*times: float) -> Response:
    return Response.of_chunks(ResponseHead(200), [(b"x", at_ms) for at_ms in times])


def test_the_head_goes_with_the_first_piece_and_the_end_when_the_call_had_ended() -> None:
    schedule = Schedule(response(250, 400), 1000, AS_RECORDED)

    assert (schedule.head_s, schedule.end_s) == (0.25, 1.0)
    assert [schedule.due_s(number) for number in (250, 400)] == [0.25, 0.4]


@pytest.mark.parametrize(("pace", "factor"), [(AT_ONCE, 0.0), (0.5, 0.5), (2.0, 2.0)])
def test_a_pace_stretches_every_time_alike(pace: float, factor: float) -> None:
    schedule = Schedule(response(250, 400), 1000, Pace(pace))

    assert (schedule.head_s, schedule.due_s(400), schedule.end_s) == (
        0.25 * factor,
        0.4 * factor,
        factor,
    )


@pytest.mark.parametrize("times", [(), (0,), (0, 0)])
def test_a_response_without_times_comes_when_its_call_had_ended(times: tuple[float, ...]) -> None:
    schedule = Schedule(response(*times), 700, AS_RECORDED)

    assert (schedule.head_s, schedule.due_s(0), schedule.end_s) == (0.7, 0.7, 0.7)


def test_a_body_in_a_file_keeps_its_times() -> None:
    file = BodyFile("", 2, "")
    response = Response(ResponseHead(200), file=file, chunk_times=ChunkTimes([(100, 1), (300, 1)]))
    schedule = Schedule(response, 0, AS_RECORDED)

    assert (schedule.head_s, schedule.end_s) == (0.1, 0.3)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1e6), st.floats(0, 1000))
def test_no_piece_is_due_before_the_head_or_after_the_end(
    times: list[float], latency_ms: float, pace: float
) -> None:
    times.sort()
    schedule = Schedule(response(*times), latency_ms, Pace(pace))

    assert all(schedule.head_s <= schedule.due_s(time) <= schedule.end_s for time in times)


def scaled(factor: float, *headers: tuple[bytes, bytes]) -> Headers:
    return scale_retry_after(ResponseHead(429, headers=headers), Pace(factor)).headers


def test_a_response_that_asks_for_no_wait_is_the_very_one() -> None:
    head = ResponseHead(
        429, headers=((b"x-ratelimit-reset-tokens", b"6m0s"), (b"x-should-retry", b"true"))
    )

    assert scale_retry_after(head, AT_ONCE) is head


@pytest.mark.parametrize("wait", [b"20", b"0", b"1.5", UNTIL[1], b"inf", b"soon", b""])
def test_without_a_pace_a_client_is_to_ask_again_at_once(wait: bytes) -> None:
    found = scaled(0, (b"a", b"b"), (b"Retry-After", wait), (b"x-should-retry", b"true"))

    assert found == (
        (b"a", b"b"),
        (b"Retry-After", b"0"),
        (b"retry-after-ms", b"1"),
        (b"x-should-retry", b"true"),
    )


def test_fields_keep_their_places_and_their_case() -> None:
    assert scaled(0, (b"RETRY-AFTER-MS", b"1500"), (b"x", b"y"), (b"retry-after", b"2")) == (
        (b"RETRY-AFTER-MS", b"1"),
        (b"x", b"y"),
        (b"retry-after", b"0"),
    )
    assert scaled(0, (b"retry-after-ms", b"1500")) == ((b"retry-after-ms", b"1"),)


@pytest.mark.parametrize(
    ("factor", "wait", "seconds", "milliseconds"),
    [
        (1, (b"Retry-After", b"20"), b"20", b"20000"),
        (0.5, (b"Retry-After", b"20"), b"10", b"10000"),
        (0.5, (b"Retry-After", b"1"), b"1", b"500"),
        (2, (b"Retry-After", b"20"), b"40", b"40000"),
        (2, UNTIL, b"80", b"80000"),
        (1, UNTIL, b"40", b"40000"),
    ],
)
def test_a_pace_keeps_its_part_of_the_wait(
    factor: float, wait: tuple[bytes, bytes], seconds: bytes, milliseconds: bytes
) -> None:
    assert scaled(factor, DATED, wait) == (
        DATED,
        (b"Retry-After", seconds),
        (b"retry-after-ms", milliseconds),
    )


def test_milliseconds_say_it_more_exactly_than_seconds() -> None:
    both = ((b"retry-after", b"2"), (b"retry-after-ms", b"1250"))

    assert scaled(2, *both) == ((b"retry-after", b"3"), (b"retry-after-ms", b"2500"))


@pytest.mark.parametrize("wait", [b"inf", b"1e400", b"1e308"])
def test_a_wait_without_an_end_has_one(wait: bytes) -> None:
    assert scaled(3, (b"Retry-After", wait))[0] == (b"Retry-After", b"3000000000")


def test_a_date_that_has_passed_is_no_wait() -> None:
    early = (b"Retry-After", b"Sun, 22 Nov 2026 01:00:00 GMT")

    assert scaled(1, DATED, early)[1:] == ((b"Retry-After", b"0"), (b"retry-after-ms", b"1"))


@pytest.mark.parametrize(
    "headers",
    [
        (UNTIL,),
        (DATED, (b"Retry-After", b"soon")),
        (DATED, (b"Retry-After", b"-1")),
        (DATED, (b"Retry-After", b"nan")),
        ((b"Date", b"today"), UNTIL),
    ],
)
def test_a_wait_that_cannot_be_read_is_left_as_it_was(headers: Headers) -> None:
    assert scaled(0.5, *headers) == headers


VALUES = st.one_of(st.binary(max_size=12), st.floats().map(lambda number: str(number).encode()))


@given(
    st.lists(
        st.tuples(st.sampled_from([b"Retry-After", b"retry-after-ms", b"Date", b"X"]), VALUES),
        max_size=5,
    ),
    st.sampled_from([0, 0.25, 1, 3]),
)
def test_nothing_else_ever_changes(headers: list[tuple[bytes, bytes]], factor: float) -> None:
    waits = {b"retry-after", b"retry-after-ms"}
    found = scaled(factor, *headers)

    assert [header for header in found if header[0].lower() not in waits] == [
        header for header in headers if header[0].lower() not in waits
    ]
    if factor == 0:
        assert {value for name, value in found if name.lower() in waits} <= {b"0", b"1"}
