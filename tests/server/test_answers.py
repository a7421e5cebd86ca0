"""The bytes of a response."""

from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model.messages import Response, ResponseHead
from tapeway.server.answers import serialise, serialise_parts


def test_an_empty_chunk_does_not_end_a_body() -> None:
    chunks = [(b"one", 0.0), (b"", 0.0), (b"0123456789abcdef", 0.0)]
    response = Response.of_chunks(ResponseHead(200, "OK", framing="chunked"), chunks)

    assert serialise(response, (), method="GET", version=(1, 1), keep_alive=True) == [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\none\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n"
    ]


@given(st.lists(st.binary(max_size=40)))
def test_each_chunk_stands_behind_its_size(pieces: list[bytes]) -> None:
    chunks = [(piece, 0.0) for piece in pieces]
    response = Response.of_chunks(ResponseHead(200, "OK", framing="chunked"), chunks)
    _, body = serialise_parts(response, ())

    assert body == b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece) + (
        b"0\r\n\r\n"
    )


def test_a_large_answer_in_many_chunks_is_written_in_two_pieces() -> None:
    chunks = [(b"x" * 1000, 0.0)] * 300
    response = Response.of_chunks(ResponseHead(200, "OK", framing="chunked"), chunks)

    written = serialise(response, (), method="GET", version=(1, 1), keep_alive=True)
    assert [len(piece) > 300_000 for piece in written] == [False, True]
