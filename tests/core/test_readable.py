"""What a cassette holds of a coded body."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.http.content_codings import readable_request, readable_response
from tapeway.core.model.messages import Headers, Request, Response, ResponseChunk, ResponseHead
from tests.core.codings import PACKERS, flushed, pack

TEXT = b'{"text": "hello, hello, hello"}'


def answer(coding: bytes, *pieces: bytes, status: int = 200, more: Headers = ()) -> Response:
    headers = ((b"Content-Type", b"application/json"), (b"Content-Encoding", coding), *more)
    chunks = tuple([ResponseChunk(piece, 10.0 * at) for at, piece in enumerate(pieces, 1)])
    return Response(ResponseHead(status, "OK", headers, "chunked"), chunks, latency_ms=99.0)


@pytest.mark.parametrize("coding", [*PACKERS, b"gzip, br"])
def test_a_coded_answer_is_held_plain(coding: bytes) -> None:
    held = readable_response(answer(coding, pack(coding, TEXT)), "POST")

    assert held.chunks == (ResponseChunk(TEXT, 10.0),)
    assert held.headers == ((b"Content-Type", b"application/json"),)
    assert (held.status, held.head.framing, held.latency_ms) == (200, "chunked", 99.0)


@pytest.mark.parametrize("coding", PACKERS)
def test_a_coded_stream_keeps_its_chunks_and_when_they_came(coding: bytes) -> None:
    events = [b"data: %d\n\n" % number for number in range(5)]

    held = readable_response(answer(coding, *flushed(coding, events)), "POST")

    assert held.chunks == tuple(
        [ResponseChunk(event, 10.0 * at) for at, event in enumerate(events, 1)]
    )


def test_a_chunk_that_holds_nothing_readable_yet_joins_the_next() -> None:
    packed = pack(b"gzip", TEXT)

    held = readable_response(answer(b"gzip", packed[:3], packed[3:10], packed[10:]), "GET")

    assert held.chunks == (ResponseChunk(TEXT, 30.0),)


@given(body=st.binary(min_size=1), data=st.data())
@pytest.mark.parametrize("coding", PACKERS)
def test_however_it_was_cut_on_the_wire_the_body_is_whole_and_no_chunk_empty(
    coding: bytes, body: bytes, data: st.DataObject
) -> None:
    packed = pack(coding, body)
    cuts = data.draw(st.lists(st.integers(0, len(packed)), max_size=8).map(sorted))
    wire = [packed[start:end] for start, end in pairwise([0, *cuts, len(packed)])]
    came = answer(coding, *wire)

    held = readable_response(came, "GET")

    assert held.body == body
    assert all(chunk.data for chunk in held.chunks)
    assert {chunk.at_ms for chunk in held.chunks} <= {chunk.at_ms for chunk in came.chunks}


def test_digests_of_the_coded_form_go_and_all_else_stays() -> None:
    stays = ((b"ETag", b'W/"1"'), (b"Vary", b"Accept-Encoding"), (b"X-Request-Id", b"r"))
    goes = (
        (b"Content-MD5", b"x"),
        (b"digest", b"sha-256=x"),
        (b"Content-Digest", b"sha-256=:x:"),
        (b"Repr-Digest", b"sha-256=:x:"),
    )

    held = readable_response(answer(b"gzip", pack(b"gzip", TEXT), more=stays + goes), "GET")

    assert held.headers == ((b"Content-Type", b"application/json"), *stays)


def test_codings_named_in_several_fields_are_all_taken_off() -> None:
    more = ((b"content-encoding", b"br"),)

    held = readable_response(answer(b"gzip", pack(b"gzip, br", TEXT), more=more), "GET")

    assert held.body == TEXT
    assert held.headers == ((b"Content-Type", b"application/json"),)


@pytest.mark.parametrize(
    ("came", "method"),
    [
        (answer(b"gzip", pack(b"gzip", TEXT), status=206), "GET"),
        (answer(b"gzip"), "HEAD"),
        (answer(b"gzip"), "GET"),
        (answer(b"gzip", status=304), "GET"),
        (answer(b"unheard-of", TEXT), "GET"),
        (answer(b"gzip", pack(b"gzip", TEXT)[:-1]), "GET"),
        (answer(b"gzip", b"not packed at all"), "GET"),
        (answer(b"gzip", pack(b"gzip", bytes(40_000_000))), "GET"),
        (Response(ResponseHead(200), (ResponseChunk(TEXT),)), "GET"),
    ],
    ids=["a part", "HEAD", "no body", "304", "unknown", "cut", "broken", "a bomb", "plain"],
)
def test_what_cannot_be_read_is_held_as_it_came(came: Response, method: str) -> None:
    assert readable_response(came, method) is came


def test_an_answer_that_broke_off_is_held_as_far_as_it_can_be_read() -> None:
    wire = flushed(b"gzip", [b"first ", b"second "])
    came = answer(b"gzip", wire[0], wire[1])

    held = readable_response(came, "GET", cut=True)

    assert held.chunks == (ResponseChunk(b"first ", 10.0), ResponseChunk(b"second ", 20.0))
    assert readable_response(answer(b"gzip", b"not packed"), "GET", cut=True).body == b"not packed"


@pytest.mark.parametrize("coding", [*PACKERS, b"gzip, br"])
def test_a_coded_request_is_held_plain(coding: bytes) -> None:
    fields = ((b"content-type", b"text/plain"), (b"content-encoding", coding))
    request = Request("r", "POST", "/", fields, pack(coding, TEXT))

    held = readable_request(request)

    assert held == replace(request, headers=fields[:1], body=TEXT)
    cut = replace(request, body=request.body[:-1])
    assert readable_request(cut) is cut
