"""The bytes of a response."""

from tapeway.core.model.messages import Response, ResponseChunk, ResponseHead
from tapeway.server.wire import serialise


def test_an_empty_chunk_does_not_end_a_body() -> None:
    chunks = tuple(map(ResponseChunk, (b"one", b"", b"0123456789abcdef")))
    response = Response(ResponseHead(200, "OK", framing="chunked"), chunks)

    assert serialise(response, (), method="GET", version=(1, 1), keep_alive=True) == [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\none\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n"
    ]
