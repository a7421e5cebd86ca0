"""Streams that stay open: which they are, and what their events wait for."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model.messages import Framing, Headers, Response, ResponseHead, Verdict
from tapeway.core.streams.open_streams import (
    EventWatch,
    Gate,
    LineWatch,
    gates,
    may_stay_open,
    may_turn_out_open,
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


LINES = b'{"type":"ADDED"}\n\n{"type":"BOOKMARK","object":{"a":"\\n"}}\r\n\x1e{}\n'


@given(st.lists(st.integers(0, len(LINES))))
def test_lines_of_objects_are_seen_however_they_are_cut(places: list[int]) -> None:
    watch = LineWatch()
    for start, end in pairwise([0, *sorted(places), len(LINES)]):
        watch.add(LINES[start:end])
        assert watch.may_stay_open
        whole = LINES[:end].rstrip(b"\n\r\x1e")
        assert watch.has_whole_lines is (
            len(whole) > 0 and LINES[len(whole) : end].startswith((b"\n", b"\r\n"))
        )


@pytest.mark.parametrize(
    "body",
    [
        b'{\n  "a": 1\n}\n',
        b'[{"a": 1}]\n',
        b'{"a": 1}\n["b"]\n',
        b"1\n2\n",
        b"<html>",
        b'{"a": 1} {"b": 2}\n',
    ],
)
def test_a_document_and_lines_of_anything_else_are_no_lines_of_objects(body: bytes) -> None:
    watch = LineWatch()
    watch.add(body)

    assert not watch.may_stay_open
    assert not watch.has_whole_lines


def test_a_line_without_its_end_is_not_whole_and_blanks_say_nothing() -> None:
    watch = LineWatch()

    assert not watch.has_whole_lines
    assert watch.add(b'{"a": 1}')
    assert not watch.has_whole_lines
    assert not watch.add(b"\n \n")
    assert watch.has_whole_lines


JSON = ((b"content-type", b"application/json;stream=watch"),)
NDJSON = ((b"content-type", b"application/x-ndjson"),)
CODED = (*JSON, (b"content-encoding", b"gzip"))


@pytest.mark.parametrize(
    ("method", "headers", "framing", "may"),
    [
        ("GET", JSON, "chunked", True),
        ("GET", NDJSON, "close", True),
        ("GET", JSON, "length", False),
        ("POST", JSON, "chunked", False),
        ("GET", CODED, "chunked", False),
        ("GET", ((b"content-type", b"text/html"),), "chunked", False),
    ],
)
def test_json_without_a_length_that_answers_a_get_may_turn_out_open(
    method: str, headers: Headers, framing: Framing, may: bool
) -> None:
    assert may_turn_out_open(method, ResponseHead(200, "OK", headers, framing)) is may


def test_each_line_of_an_open_stream_waits_for_the_requests_before_it() -> None:
    head = ResponseHead(200, "OK", JSON, "chunked")
    chunks = [(b'{"a":1}\n', 1.0), (b"\n", 2.0), (b'{"b":2}\n', 9.0)]
    answer = Response.of_chunks(head, chunks, verdict="open")
    answer = replace(answer, after_requests=requests_by_event(answer, [(0.0, 1), (5.0, 3)]))

    assert answer.after_requests == (1, 1, 3)
    assert [*gates(answer)] == [Gate(0, 1), Gate(8, 3)]
