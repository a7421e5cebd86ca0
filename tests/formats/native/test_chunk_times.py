"""The chunks of a body that is unchanged, and of one that was edited."""

import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import dump
from tapeway.core.model.messages import NO_CHUNK_TIMES, Framing, Response, ResponseHead
from tapeway.formats.fields import Fields
from tapeway.formats.native import chunk_times

EVENTS = "text/event-stream; charset=utf-8"


def test_a_body_under_content_length_has_only_its_time() -> None:
    assert chunk_times.encode(_response("length", (b"ab", 3.0004))) == {"at_ms": 3.0}
    assert chunk_times.encode(_response("length", (b"ab", 0.0))) == {}


def test_chunks_have_their_times_and_lengths() -> None:
    shown = chunk_times.encode(_response("chunked", (b"a", 1.0), (b"", 1.5), (b"bcd", 2.25)))

    assert shown == {"framing": "chunked", "chunks": [[1.0, 1], [2.25, 3]]}


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, -0.0, 0.0004, 1.5, 2.3456, 7e15, math.nan]),
            st.sampled_from([1, 8, 9, 20]),
            st.integers(1, 300),
        ),
        max_size=20,
    )
)
def test_the_text_for_dump_is_that_of_the_list_of_chunks(
    segments: list[tuple[float, int, int]],
) -> None:
    chunks = [
        (bytes(size + number), at_ms) for at_ms, count, size in segments for number in range(count)
    ]
    response = _response("chunked", *chunks)

    assert dump(chunk_times.encode(response, for_dump=True)) == dump(chunk_times.encode(response))


def test_chunks_that_came_together_are_one_text_also_beside_an_integer_of_any_size() -> None:
    response = _response("chunked", *[(b"abc", 1.5)] * 20, *[(b"d", 2.25)] * 20)
    fields = chunk_times.encode(response, for_dump=True)

    assert orjson.Fragment in map(type, fields.values())
    shown = orjson.loads(
        dump({"chunks": fields["chunks"], "number": 2**70}).replace(b"%d" % 2**70, b"0")
    )
    assert shown == {"chunks": [[1.5, 3]] * 20 + [[2.25, 1]] * 20, "number": 0}


def test_chunks_that_came_one_by_one_are_a_list_for_dump_too() -> None:
    response = _response("chunked", *[(b"abc", float(number)) for number in range(40)])

    assert list in map(type, chunk_times.encode(response, for_dump=True).values())


def test_an_unchanged_body_has_its_recorded_chunks() -> None:
    fields = _fields([[1.0, 1], [2.25, 3]])

    assert _decoded(fields, b"abcd", "") == [(b"a", 1.0), (b"bcd", 2.25)]


def test_a_body_edited_within_its_length_keeps_its_chunks() -> None:
    found = _decoded(_fields([[1, 1], [2, 3]]), b"wxyz", EVENTS)

    assert found == [(b"w", 1.0), (b"xyz", 2.0)]


def test_an_empty_chunk_is_left_out() -> None:
    fields = _fields([[1, 1], [2, 0], [3, 3]])

    assert _decoded(fields, b"abcd", "") == [(b"a", 1.0), (b"bcd", 3.0)]


def test_a_body_in_one_chunk_has_no_arrays() -> None:
    assert chunk_times.decode(_fields([[2.5, 4]]), b"abcd", "") == (2.5, NO_CHUNK_TIMES)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_an_edited_event_stream_is_divided_after_each_event(end: bytes) -> None:
    body = b"data: 1" + end + b"data: 22" + end + b"data: 3" + end + b"data: [DONE]"

    assert _decoded(_fields([[1.0, 5], [2.0, 5]]), body, EVENTS) == [
        (b"data: 1" + end, 1.0),
        (b"data: 22" + end, 2.0),
        (b"data: 3" + end, 2.0),
        (b"data: [DONE]", 2.0),
    ]


def test_edited_json_lines_are_divided_after_each_line() -> None:
    fields = _fields([[1.0, 5], [2.0, 5], [3.0, 5]])

    found = _decoded(fields, b'{"a":1}\n\n{"b":2}', "application/x-ndjson")

    assert found == [(b'{"a":1}\n', 1.0), (b"\n", 2.0), (b'{"b":2}', 3.0)]


def test_any_other_edited_body_is_one_chunk() -> None:
    assert _decoded(_fields([[1.0, 5], [2.0, 5]]), b"abc", "text/plain") == [(b"abc", 1.0)]


def test_a_removed_body_has_no_chunks() -> None:
    for media in (EVENTS, "application/x-ndjson", "text/plain"):
        assert chunk_times.decode(_fields([[1.0, 5]]), b"", media) == (0.0, NO_CHUNK_TIMES)


def _response(framing: Framing, *chunks: tuple[bytes, float]) -> Response:
    return Response.of_chunks(ResponseHead(200, framing=framing), chunks)


def _decoded(fields: Fields, body: bytes, media: str) -> list[tuple[bytes, float]]:
    """The chunks and when they came."""
    found = Response(ResponseHead(200), body, *chunk_times.decode(fields, body, media))
    return [*zip(found.pieces(), found.arrivals().times, strict=True)]


def _fields(chunks: Any) -> Fields:
    return Fields({"framing": "chunked", "chunks": chunks}, ())
