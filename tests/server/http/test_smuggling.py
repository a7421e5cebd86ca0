"""Requests two servers could read differently: refused, or read the one way there is.

Each malformed one is followed by a good request in the same segment, which must not be answered:
where one message ended is no longer known.
"""

import pytest

from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.support.socket_upstream import Peer

HOST = b"Host: a\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
END = b"0\r\n\r\n"
NEXT = b"GET /next HTTP/1.1\r\n" + HOST + b"\r\n"


def post(*lines: bytes, body: bytes = b"") -> bytes:
    """A POST with exactly these lines."""
    return b"POST /first HTTP/1.1\r\n" + b"".join(lines) + b"\r\n" + body


def coding(value: bytes, *, name: bytes = b"Transfer-Encoding:", more: bytes = b"") -> bytes:
    """A chunked body under this spelling of its announcement."""
    return post(HOST, name + value + b"\r\n" + more, body=END)


LENGTHS = {
    "plus": b"+5",
    "minus": b"-1",
    "list": b"5,5",
    "list with space": b"5, 5",
    "hexadecimal": b"0x5",
    "space inside": b"5 5",
    "empty": b"",
    "quoted": b'"5"',
    "point": b"5.0",
    "exponent": b"1e1",
    "underscore": b"1_0",
    "Arabic digits": "\u0665".encode(),
    "20 digits": b"99999999999999999999",
    "2^64": b"18446744073709551616",
    "2^64-1": b"18446744073709551615",
    "2^63+1": b"9223372036854775809",
}
FRAMING = {
    "length and coding": post(HOST, b"Content-Length: 5\r\n", CHUNKED, body=END),
    "coding and length": post(HOST, CHUNKED, b"Content-Length: 5\r\n", body=END),
    "two lengths": post(HOST, b"Content-Length: 5\r\n", b"Content-Length: 6\r\n", body=b"hello"),
    "the same length twice": post(HOST, b"Content-Length: 5\r\n" * 2, body=b"hello"),
    "coding twice": post(HOST, CHUNKED, CHUNKED, body=END),
    **{
        f"length: {name}": post(HOST, b"Content-Length: " + value + b"\r\n", body=b"hello")
        for name, value in LENGTHS.items()
    },
}
CODINGS = {
    "xchunked": coding(b" xchunked"),
    "chunkedx": coding(b" chunkedx"),
    "identity": coding(b" identity"),
    "chunked, identity": coding(b" chunked, identity"),
    "identity, chunked": coding(b" identity, chunked"),
    "gzip, chunked": coding(b" gzip, chunked"),
    "chunked, chunked": coding(b" chunked, chunked"),
    "chunked, ": coding(b" chunked, "),
    ", chunked": coding(b" , chunked"),
    "parameter": coding(b" chunked;q=1"),
    "quoted": coding(b' "chunked"'),
    "vertical tab": coding(b"\x0bchunked"),
    "form feed": coding(b"\x0cchunked"),
    "NUL": coding(b" chunked\x00"),
    "no-break space": coding(b"\xa0chunked"),
    "DEL": coding(b" chunked\x7f"),
    "space before colon": coding(b" chunked", name=b"Transfer-Encoding :"),
    "tab before colon": coding(b" chunked", name=b"Transfer-Encoding\t:"),
    "space before name": coding(b" chunked", name=b" Transfer-Encoding:"),
    "folded": coding(b"\r\n chunked"),
    "behind a bare CR": coding(b" chunked", name=b"X: a\rTransfer-Encoding:"),
    "behind a bare LF": coding(b" chunked", name=b"X: a\nTransfer-Encoding:"),
    "ended by a bare LF": coding(b" chunked\nX: a"),
    "other first": coding(b" identity", more=CHUNKED),
    "other last": coding(b" chunked", more=b"Transfer-Encoding: identity\r\n"),
}
LINES = {
    "bare LF after the request line": b"GET / HTTP/1.1\n" + HOST + b"\r\n",
    "bare LF after a header": b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
    "bare LF at the end": b"GET / HTTP/1.1\r\nHost: a\r\n\n",
    "bare CR after a header": b"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
    "CR in a value": post(HOST, b"X: a\rb\r\n"),
    "NUL in a value": post(HOST, b"X: a\x00b\r\n"),
    "control character in a value": post(HOST, b"X: a\x01b\r\n"),
    "DEL in a value": post(HOST, b"X: a\x7fb\r\n"),
    "folded with a space": post(HOST, b"X: a\r\n b\r\n"),
    "folded with a tab": post(HOST, b"X: a\r\n\tb\r\n"),
    "folded first line": b"GET / HTTP/1.1\r\n X: a\r\n" + HOST + b"\r\n",
    "space before the colon": post(HOST, b"X : a\r\n"),
    "no name": post(HOST, b": a\r\n"),
    "no colon": post(HOST, b"X\r\n"),
    "name in parentheses": post(HOST, b"X(): a\r\n"),
    "name with a quote": post(HOST, b'X": a\r\n'),
    "name beyond ASCII": post(HOST, "Ü: a\r\n".encode()),
    "name with NUL": post(HOST, b"X\x00: a\r\n"),
    "space before the method": b" GET / HTTP/1.1\r\n" + HOST + b"\r\n",
    "tab after the method": b"GET\t/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "method in parentheses": b"G() / HTTP/1.1\r\n" + HOST + b"\r\n",
    "method beyond ASCII": "ÜT / HTTP/1.1\r\n".encode() + HOST + b"\r\n",
    "method of 65 letters": b"M" * 65 + b" / HTTP/1.1\r\n" + HOST + b"\r\n",
    "space after the version": b"GET / HTTP/1.1 \r\n" + HOST + b"\r\n",
    "target beyond ASCII": "GET /ü HTTP/1.1\r\n".encode() + HOST + b"\r\n",
    "control character in the target": b"GET /\x01 HTTP/1.1\r\n" + HOST + b"\r\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Hosts": post(HOST, HOST),
    "two Hosts that differ": post(HOST, b"Host: b\r\n"),
}
WORDS = {
    "fragment in the target": b"GET /a#b HTTP/1.1\r\n" + HOST + b"\r\n",
    "Host with user": post(b"Host: user@a\r\n"),
    "Host with path": post(b"Host: a/b\r\n"),
    "Host with query": post(b"Host: a?b\r\n"),
    "Host with port that is none": post(b"Host: a:b\r\n"),
    "Host with port too long": post(b"Host: a:123456\r\n"),
    "Host with space": post(b"Host: a b\r\n"),
    "Host with list": post(b"Host: a, b c\r\n"),
    "Host with open bracket": post(b"Host: [::1\r\n"),
}
BODIES = {
    "size with a sign": b"+2\r\nok\r\n" + END,
    "size with a prefix": b"0x2\r\nok\r\n" + END,
    "size that is no number": b"zz\r\nok\r\n" + END,
    "size with a space before": b" 2\r\nok\r\n" + END,
    "size with a space behind": b"2 \r\nok\r\n" + END,
    "size of 17 digits": b"10000000000000002\r\nok\r\n" + END,
    "negative size": b"-2\r\nok\r\n" + END,
    "empty size": b"\r\nok\r\n" + END,
    "bare LF behind the size": b"2\nok\r\n" + END,
    "bare CR behind the size": b"2\rok\r\n" + END,
    "bare LF in an extension": b"2;a\nb\r\nok\r\n" + END,
    "too much data": b"2\r\nokay\r\n" + END,
    "bare LF behind the data": b"2\r\nok\n" + END,
    "bare LF behind the last chunk": b"2\r\nok\r\n0\n\r\n",
    "a trailer with a bare LF": b"2\r\nok\r\n0\r\nX: a\nY: b\r\n\r\n",
    "a trailer with no name": b"2\r\nok\r\n0\r\n: a\r\n\r\n",
}


async def refused(proxy: RunningProxy, *segments: bytes) -> int:
    """The status of the only answer to what is sent, after which the connection ends."""
    async with proxy.connect() as app:
        [answer] = await app.converse(*segments, answers=1)
        assert await app.rest() == b""
    assert answer.value(b"connection") == b"close"
    assert answer.outcome == b"error"
    return answer.status


async def test_a_malformed_request_ends_the_connection() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        for name, sent in (FRAMING | LINES).items():
            assert await refused(proxy, sent + NEXT) == 400, name
        assert peer.connections == 0
        assert await proxy.recorded() == []


async def test_a_request_refused_for_its_words_leaves_the_connection_in_step() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        for name, sent in WORDS.items():
            first = await app.ask(sent + NEXT, method=b"GET")
            assert (first.status, (await app.answer()).status) == (400, 200), name

        asked = [request.split(b" ", 2)[1] for request in peer.requests]
        assert asked == [b"/next"] * len(WORDS)


async def test_a_coding_that_is_not_plainly_chunked_is_refused() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        for name, sent in CODINGS.items():
            async with proxy.connect() as app:
                assert (await app.ask(sent, method=b"GET")).status in (400, 501), name
        assert peer.connections == 0
        assert await proxy.recorded() == []


@pytest.mark.parametrize("segments", ["together", "body apart", "byte by byte"])
async def test_a_malformed_chunk_ends_the_connection_at_once(segments: str) -> None:
    head = post(HOST, CHUNKED)
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        for name, body in BODIES.items():
            sent = {
                "together": [head + body + NEXT],
                "body apart": [head, body + NEXT],
                "byte by byte": [head, *(bytes([byte]) for byte in body), NEXT],
            }[segments]
            assert await refused(proxy, *sent) == 400, name
        assert peer.connections == 0
        assert await proxy.recorded() == []


async def test_a_body_cut_short_by_the_client_is_not_forwarded() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        for head in (
            post(HOST, CHUNKED, body=b"5\r\nhel"),
            post(HOST, b"Content-Length: 9\r\n\r\nhel"),
        ):
            async with proxy.connect() as app:
                await app.send(head)
        await proxy.ask(b"GET /last")

        assert [request.split(b" ", 2)[1] for request in peer.requests] == [b"/last"]


@pytest.mark.parametrize(
    "field",
    [
        b"Transfer-Encoding: chunked",
        b"TRANSFER-ENCODING:chunked ",
        b"transfer-encoding:  Chunked ",
    ],
)
async def test_a_spelling_that_means_chunked_is_read_as_chunked(field: bytes) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        first = await app.ask(proxy.request(b"POST /1", field) + b"2\r\nok\r\n" + END)
        second = await app.ask(proxy.request(b"GET /2"))

        assert (first.status, second.status) == (200, 200)
        assert peer.requests[0].endswith(b"\r\n\r\nok")
        assert peer.requests[1].startswith(b"GET /2 ")


async def test_a_name_that_only_looks_like_framing_is_an_ordinary_field() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        await proxy.ask(b"GET /", b"Transfer_Encoding: chunked", b"X-Content-Length: 5")

        assert b"\r\nTransfer_Encoding: chunked\r\nX-Content-Length: 5\r\n" in peer.requests[0]
