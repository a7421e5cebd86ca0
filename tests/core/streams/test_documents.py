import gzip
import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model.messages import Response, ResponseHead
from tapeway.core.streams.documents import documents
from tapeway.core.streams.events import SSE
from tapeway.core.streams.framings import FRAMINGS, events_of


def make_response(content_type: bytes, body: bytes, coding: bytes | None = None) -> Response:
    headers = [(b"Content-Type", content_type)]
    if coding is not None:
        headers.append((b"Content-Encoding", coding))
    return Response(ResponseHead(200, headers=tuple(headers)), body)


def event_data(body: bytes, marks: Sequence[bytes] = ()) -> list[bytes]:
    return [event.data for event in events_of(FRAMINGS[SSE], body, marks)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_are_cut_at_blank_lines_however_lines_end(end: bytes) -> None:
    lines = [b": hello", b"event: a", b"data: 1", b"", b"id: 7", b"data:2", b"data: 3", b"", b""]

    assert event_data(end.join(lines)) == [b"1", b"2\n3"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", []),
        (b": only a comment\n\n", []),
        (b"event: ping\n\n", []),
        (b"\xef\xbb\xbfdata: 1\n\n", [b"1"]),
        (b"data:  two spaces\n\n", [b" two spaces"]),
        (b"data\n\ndata: 1\n\n", [b"", b"1"]),
        (b"dataset: 1\n\n", []),
        (b"data: 1\n\ndata: cut", [b"1", b"cut"]),
        (b"data: [DONE]\n\n", [b"[DONE]"]),
        (b"data: \xc3\xbc\n\n", [b"\xc3\xbc"]),
    ],
)
def test_event_data_is_what_the_standard_says(body: bytes, expected: list[bytes]) -> None:
    assert event_data(body) == expected


@given(
    st.lists(st.binary(min_size=1).filter(lambda b: not set(b) & {10, 13}), min_size=1),
    st.sampled_from([b"\n", b"\r\n"]),
)
def test_every_event_that_was_written_is_read(texts: list[bytes], end: bytes) -> None:
    body = b"".join([b": c" + end + b"data: " + text + end + end for text in texts])

    assert event_data(body) == texts


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        (b"application/json", b'{"a":\n1}', [b'{"a":\n1}']),
        (b"Text/Event-Stream; charset=utf-8", b"data: 1\n\n", [b"1"]),
        (b"application/x-ndjson", b"1\n2\r\n3", [b"1", b"2", b"3"]),
    ],
)
def test_the_content_type_says_how_texts_are_told_apart(
    content_type: bytes, body: bytes, expected: list[bytes]
) -> None:
    assert list(documents(make_response(content_type, body))) == expected


def test_a_compressed_response_is_looked_into() -> None:
    body = gzip.compress(b"data: 1\n\n")

    assert list(documents(make_response(b"text/event-stream", body, b"gzip"))) == [b"1"]


@pytest.mark.parametrize("coding", [b"gzip", b"br", b"gzip, gzip"])
def test_a_coding_that_cannot_be_undone_gives_nothing(coding: bytes) -> None:
    assert list(documents(make_response(b"application/json", b"{}", coding))) == []


def test_codings_in_two_fields_are_both_undone() -> None:
    body = gzip.compress(zlib.compress(b'{"a": 1}'))
    headers = (
        (b"Content-Type", b"application/json"),
        (b"Content-Encoding", b"deflate"),
        (b"content-encoding", b"gzip"),
    )

    response = Response(ResponseHead(200, headers=headers), body)

    assert list(documents(response)) == [b'{"a": 1}']


_LINES = [
    b"data: mark",
    b"data:ma",
    b"data: rk",
    b": mark",
    b"id: mark",
    b"x",
    b"\xef\xbb\xbfdata: mark",
]


@given(
    st.lists(st.tuples(st.sampled_from([*_LINES, b""]), st.sampled_from([b"\n", b"\r\n", b"\r"])))
)
def test_of_events_without_a_mark_alone_none_is_missed(lines: list[tuple[bytes, bytes]]) -> None:
    body = b"".join([line + end for line, end in lines])

    found = [data for data in event_data(body, [b"mark"]) if b"mark" in data]

    assert found == [data for data in event_data(body) if b"mark" in data]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_events_without_a_mark_are_not_taken_apart(end: bytes) -> None:
    body = b"".join([b"data: %b" % text + end + end for text in (b"1", b"mark", b"2", b"3")])

    assert event_data(body, [b"mark"]) == [b"mark"]


def test_a_body_without_a_mark_has_no_documents_with_one() -> None:
    response = make_response(b"application/x-ndjson", b"1\n2\n")

    assert list(documents(response, [b"mark"])) == []
