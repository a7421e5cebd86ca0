"""Recorded answers under the names of the client that asks: bytes, chunks and framing."""

import gzip

import pytest

from tapeway.core.json_rpc import AskedNames
from tapeway.core.model.messages import Headers, Response, ResponseHead
from tapeway.core.streams.renamed_calls import for_asker

STREAM = b"text/event-stream"


def answer(
    kind: bytes, *chunks: bytes, headers: Headers = (), length: int | None = None
) -> Response:
    head = ResponseHead(200, "OK", ((b"Content-Type", kind), *headers), length=length)
    return Response.of_chunks(head, [(chunk, 1.0 + at) for at, chunk in enumerate(chunks)])


def renamed(response: Response, asked: bytes = b"1234") -> Response:
    return for_asker(response, AskedNames({b"1": asked}))


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_only_the_name_changes_in_a_stream(line_end: bytes) -> None:
    events = b'\xef\xbb\xbfdata: {"id":1,"result":{"n":1}}\n\n: ping\n\nid: 1\ndata:{"id":1,"error":{}}\n\n'
    recorded = answer(STREAM, events.replace(b"\n", line_end))

    expected = events.replace(b'{"id":1,', b'{"id":1234,').replace(b"\n", line_end)
    assert renamed(recorded).body == expected


def test_a_message_of_several_lines_keeps_its_lines() -> None:
    recorded = answer(STREAM, b'data: {\ndata:  "id":\ndata:  1,"result":{}}\n\n')

    assert renamed(recorded).body == b'data: {\ndata:  "id":\ndata:  1234,"result":{}}\n\n'


def test_chunks_keep_their_boundaries_and_times() -> None:
    chunks = [b'data: {"id"', b':1,"result', b'":1}\n\ndata: {"id":1', b',"result":2}\n\n']
    made = renamed(answer(STREAM, *chunks))

    expected = [
        chunk.replace(b":1,", b":1234,").replace(b'"id":1', b'"id":1234') for chunk in chunks
    ]
    assert made.pieces() == expected
    assert [*made.arrivals().times] == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("asked", [b"2", b"11", b'"a"', b"123456789"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
def test_any_division_into_chunks_has_the_same_bytes(asked: bytes, size: int) -> None:
    body = b'data: {"id":1,"result":1}\n\n' * 3
    chunks = [body[at : at + size] for at in range(0, len(body), size)]

    expected = body.replace(b'"id":1', b'"id":' + asked)
    assert renamed(answer(STREAM, *chunks), asked).body == expected


def test_the_length_follows_and_checksums_go() -> None:
    fields = ((b"Content-MD5", b"abc"), (b"ETag", b'"1"'))
    made = renamed(answer(b"application/json", b'{"id":1}', headers=fields, length=8))

    assert (made.body, made.head.length) == (b'{"id":1234}', 11)
    assert [name for name, _ in made.headers] == [b"Content-Type", b"ETag"]


def test_a_coded_answer_becomes_plain() -> None:
    body = gzip.compress(b'{"id":1,"result":1}')
    fields = ((b"Content-Encoding", b"gzip"),)
    made = renamed(answer(b"application/json", body, headers=fields, length=len(body)))

    assert (made.body, made.head.length) == (b'{"id":1234,"result":1}', 22)
    assert made.head.value(b"content-encoding") is None


def test_lines_of_json_are_messages() -> None:
    recorded = answer(b"application/x-ndjson", b'{"id":1,"result":1}\n{"id":2,"result":1}\n')

    assert renamed(recorded).body == b'{"id":1234,"result":1}\n{"id":2,"result":1}\n'


@pytest.mark.parametrize(
    ("kind", "body"),
    [(STREAM, b'data: {"id":2,"result":1}\n\n'), (b"text/plain", b"id 1"), (STREAM, b"")],
)
def test_an_answer_without_the_name_stays_the_same_object(kind: bytes, body: bytes) -> None:
    recorded = answer(kind, body)

    assert renamed(recorded) is recorded
