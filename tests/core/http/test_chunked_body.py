"""The end of a chunked body is where aiohttp's parser finds it."""

import asyncio
import random

import pytest
from aiohttp import web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser

from tapeway.core.http.chunks import ChunkedBody, MalformedChunks
from tests.support.thoroughness import examples

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
GOOD = [
    b"0\r\n\r\n",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"00005\r\nhello\r\n0\r\n\r\n",
    b"A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n",
    b"2;a\r\n\r\n\r\n0;b=c\r\n\r\n",
    b'2;a="b c";d\r\nok\r\n0\r\n\r\n',
    b"2\r\nok\r\n0\r\nX-Sum: 1\r\nX-More:\t2 \r\n\r\n",
]
PIECES = [
    b"\r\n",
    b"\n",
    b"\r",
    b";",
    b"a=b",
    b'"',
    b"0",
    b"f",
    b" ",
    b"\t",
    b"\x00",
    b"\xff",
    b":",
]


def ours(data: bytes, cut: int) -> int | None:
    """Where the body ends, -1 where it has not ended yet, None where it is malformed."""
    body, taken = ChunkedBody(), 0
    for start in range(0, len(data), cut):
        piece = data[start : start + cut]
        try:
            taken += body.take(piece)
        except MalformedChunks:
            return None
        if body.ended:
            return taken
    return -1


def theirs(data: bytes) -> int | None:
    """The same of aiohttp's parser, which is given byte for byte."""
    loop = asyncio.new_event_loop()
    parser = HttpRequestParser(
        *(BaseProtocol(loop), loop, 2**16),
        payload_exception=web.RequestPayloadError,
        auto_decompress=False,
    )
    loop.close()
    [(_, content)], _, _ = parser.feed_data(HEAD)
    for at in range(len(data)):
        try:
            parser.feed_data(data[at : at + 1])
        except HttpProcessingError:
            return None
        if content.is_eof():
            return at + 1
    return -1


def mutated(source: random.Random) -> bytes:
    data = bytearray(source.choice(GOOD))
    for _ in range(source.choice((0, 1, 1, 2))):
        at = source.randrange(len(data) + 1)
        match source.randrange(3):
            case 0:
                data[at : at + 1] = b""
            case 1:
                data[at:at] = source.choice(PIECES)
            case _:
                data[at : at + 1] = source.choice(PIECES)
    return bytes(data)


@pytest.mark.parametrize("cut", [1, 3, 1000])
@pytest.mark.parametrize("data", GOOD)
def test_what_is_well_formed_ends_at_its_end(data: bytes, cut: int) -> None:
    assert ours(data + b"GET / HTTP/1.1\r\n", cut) == len(data) == theirs(data)


def test_what_aiohttp_refuses_is_refused_and_what_it_accepts_ends_where_it_says() -> None:
    source = random.Random(20261126)
    accepted = 0
    for _ in range(examples(2000)):
        data = mutated(source)
        expected = theirs(data)
        found = {ours(data, cut) for cut in (1, 2, 1000)}
        if expected is None:
            # A line is looked at when it is whole.
            assert found <= {None, -1}, data
            assert ours(data + b"\n", 1000) is None, data
        elif None not in found:
            assert found == {expected}, data
            accepted += 1

    assert accepted > 100


def test_a_line_without_an_end_is_refused() -> None:
    assert ours(b"1;" + b"a" * 20_000, 1000) is None
