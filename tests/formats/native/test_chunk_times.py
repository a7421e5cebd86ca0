"""The chunks of a body that is unchanged, and of one that was edited."""

from typing import Any

import pytest

from tapeway.core.model.messages import Framing, Response, ResponseChunk, ResponseHead
from tapeway.formats.fields import Fields
from tapeway.formats.native import chunk_times

EVENTS = "text/event-stream; charset=utf-8"


def test_a_body_under_content_length_has_only_its_time() -> None:
    assert chunk_times.encode(_response("length", (b"ab", 3.0004))) == {"at_ms": 3.0}
    assert chunk_times.encode(_response("length", (b"ab", 0.0))) == {}


def test_chunks_have_their_times_and_lengths() -> None:
    shown = chunk_times.encode(_response("chunked", (b"a", 1.0), (b"", 1.5), (b"bcd", 2.25)))

    assert shown == {"framing": "chunked", "chunks": [[1.0, 1], [2.25, 3]]}


def test_an_unchanged_body_has_its_recorded_chunks() -> None:
    fields = _fields([[1.0, 1], [2.25, 3]])

    assert chunk_times.decode(fields, b"abcd", "") == (
        ResponseChunk(b"a", 1.0),
        ResponseChunk(b"bcd", 2.25),
    )


def test_a_body_edited_within_its_length_keeps_its_chunks() -> None:
    assert [c.data for c in chunk_times.decode(_fields([[1, 1], [2, 3]]), b"wxyz", EVENTS)] == [
        b"w",
        b"xyz",
    ]


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_an_edited_event_stream_is_divided_after_each_event(end: bytes) -> None:
    body = b"data: 1" + end + b"data: 22" + end + b"data: 3" + end + b"data: [DONE]"

    chunks = chunk_times.decode(_fields([[1.0, 5], [2.0, 5]]), body, EVENTS)

    assert [chunk.data for chunk in chunks] == [
        b"data: 1" + end,
        b"data: 22" + end,
        b"data: 3" + end,
        b"data: [DONE]",
    ]
    assert [chunk.at_ms for chunk in chunks] == [1.0, 2.0, 2.0, 2.0]


def test_edited_json_lines_are_divided_after_each_line() -> None:
    chunks = chunk_times.decode(
        _fields([[1.0, 5], [2.0, 5], [3.0, 5]]), b'{"a":1}\n\n{"b":2}', "application/x-ndjson"
    )

    assert [chunk.data for chunk in chunks] == [b'{"a":1}\n', b"\n", b'{"b":2}']


def test_any_other_edited_body_is_one_chunk() -> None:
    chunks = chunk_times.decode(_fields([[1.0, 5], [2.0, 5]]), b"abc", "text/plain")

    assert chunks == (ResponseChunk(b"abc", 1.0),)


def test_a_removed_body_has_no_chunks() -> None:
    for media in (EVENTS, "application/x-ndjson", "text/plain"):
        assert chunk_times.decode(_fields([[1.0, 5]]), b"", media) == ()


def _response(framing: Framing, *chunks: tuple[bytes, float]) -> Response:
    head = ResponseHead(200, framing=framing)
    return Response(head, tuple(ResponseChunk(data, at_ms) for data, at_ms in chunks))


def _fields(chunks: Any) -> Fields:
    return Fields({"framing": "chunked", "chunks": chunks}, ())
