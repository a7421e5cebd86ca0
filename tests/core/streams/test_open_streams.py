"""Streams that stay open: which they are, and what their events wait for."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model.messages import Response, ResponseHead, Verdict
from tapeway.core.streams.open_streams import (
    EventWatch,
    Gate,
    gates,
    may_stay_open,
    requests_by_event,
)

SSE = ((b"Content-Type", b"text/event-stream; charset=utf-8"),)
FIRST, SECOND = b"event: endpoint\ndata: /m\n\n", b": ping\n\ndata: two\ndata: lines\n\n"


def stream(*chunks: tuple[bytes, float], verdict: Verdict = "open") -> Response:
    return Response.of_chunks(ResponseHead(200, "OK", SSE, "chunked"), chunks, verdict=verdict)


@pytest.mark.parametrize(
    ("method", "status", "headers", "may"),
    [
        ("GET", 200, SSE, True),
        ("POST", 200, SSE, False),
        ("HEAD", 200, SSE, False),
        ("GET", 404, SSE, False),
        ("GET", 200, ((b"content-type", b"application/json"),), False),
        ("GET", 200, (), False),
    ],
)
def test_an_event_stream_that_answers_a_get_may_stay_open(
    method: str, status: int, headers: tuple[tuple[bytes, bytes], ...], may: bool
) -> None:
    assert may_stay_open(method, ResponseHead(status, "", headers)) is may


def test_each_event_has_the_number_of_requests_that_came_before_its_end() -> None:
    counted = [(0.0, 1), (5.0, 2), (7.0, 3)]
    half = len(SECOND) // 2
    found = stream((FIRST, 1.0), (SECOND[:half], 4.0), (SECOND[half:], 6.0), (FIRST * 2, 9.0))

    assert requests_by_event(found, counted) == (1, 1, 2, 3, 3)


def test_an_end_waits_too() -> None:
    found = stream((FIRST, 1.0), verdict="complete")

    assert requests_by_event(found, [(0.0, 4), (3.0, 5)]) == (4, 4, 5)


def test_a_gate_is_where_more_requests_must_have_come() -> None:
    response = stream((FIRST + FIRST + SECOND + FIRST + b": bye\n\n", 0.0))
    noted = Response(response.head, response.body, verdict="open", after_requests=(1, 2, 2, 4, 4))

    assert [*gates(noted)] == [Gate(0, 2), Gate(2 * len(FIRST), 4)]


def test_the_gate_of_an_end_is_behind_everything() -> None:
    body = FIRST + b": bye\n\n"
    ended = Response(ResponseHead(200, "", SSE), body, verdict="complete", after_requests=(1, 1, 3))

    assert [*gates(ended)] == [Gate(0, 1), Gate(len(body), 3)]


def test_events_that_were_written_into_a_recording_wait_for_no_more_requests() -> None:
    edited = Response(ResponseHead(200, "", SSE), FIRST * 3, after_requests=(1, 2))

    assert [*gates(edited)] == [Gate(0, 2)]


@given(
    st.lists(
        st.sampled_from(
            [b": ping\n", b"\n", b"\r\n", b":\r", b"data: x\n", b"id: 1\n", b"event: a\n"]
        )
    ),
    st.lists(st.integers(0, 40)),
)
def test_comments_are_no_events_however_a_stream_is_cut(
    lines: list[bytes], cuts: list[int]
) -> None:
    body, watch = b"".join(lines), EventWatch()
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]

    found = [watch.has_event(body[a:b]) for a, b in pairwise(places)]

    assert any(found) is any(line[:1] in (b"d", b"i", b"e") for line in lines)
