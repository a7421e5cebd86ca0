"""Requests sent without waiting for answers, and what comes after one that is refused."""

import pytest

from tapeway.server.proxy import ProxyOptions
from tests.server.in_process_proxy import running_proxy
from tests.support.reuse import REUSED
from tests.support.socket_upstream import Peer

BAD = b"GET / HTTP/1.1\r\nHost: a\r\n: no name\r\n\r\n"


def paths(requests: list[bytes]) -> list[bytes]:
    return [request.split(b" ", 2)[1] for request in requests]


@pytest.mark.parametrize("mode", ["record", "passthrough"])
async def test_pipelined_requests_are_answered_in_order(mode: str) -> None:
    async with Peer() as peer, running_proxy(peer.url, mode=mode) as proxy, proxy.connect() as app:  # type: ignore[arg-type]
        for number in range(5):
            body = b"%d" % number
            peer.then(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + body)
        await app.send(b"".join(proxy.request(b"POST /", body=b"%d" % n) for n in range(5)))

        assert [(await app.answer()).body for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]


async def test_hundreds_of_pipelined_requests_are_answered() -> None:
    async with (
        Peer() as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
        proxy.connect() as app,
    ):
        await app.send(proxy.request(b"GET /") * 300)

        assert [(await app.answer()).status for _ in range(300)] == [200] * 300
        assert len(peer.requests) == 1


async def test_what_comes_before_a_malformed_request_is_answered_and_nothing_behind_it() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        await app.send(proxy.request(b"GET /1") + BAD + proxy.request(b"GET /3"))

        assert (await app.answer()).status == 200
        assert (await app.answer()).status == 400
        assert await app.rest() == b""
        assert paths(peer.requests) == [b"/1"]


@pytest.mark.parametrize(
    "first",
    [
        b"POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
        b"POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"FOO /1 HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
    ids=["length", "chunked", "method"],
)
@pytest.mark.parametrize("cut", [1, 20, 10_000])
async def test_a_malformed_request_behind_a_body_spoils_nothing(first: bytes, cut: int) -> None:
    sent = first + BAD
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        pieces = [sent[at : at + cut] for at in range(0, len(sent), cut)]
        answers = await app.converse(*pieces, answers=2)

        assert [answer.status for answer in answers] == [200, 400]
        assert await app.rest() == b""
        assert paths(peer.requests) == [b"/1"]


async def test_nothing_is_read_behind_a_request_that_closes() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        closing = proxy.request(b"GET /1", b"Connection: close")
        await app.send(closing + proxy.request(b"GET /2"))

        assert (await app.answer()).value(b"connection") == b"close"
        assert await app.rest() == b""
        assert paths(peer.requests) == [b"/1"]


async def test_a_body_refused_unread_is_not_taken_for_the_next_request() -> None:
    body = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n".ljust(200_000, b"x")
    options = ProxyOptions(max_body=1000, body_idle_s=5)
    async with (
        Peer() as peer,
        running_proxy(peer.url, options=options) as proxy,
        proxy.connect() as app,
    ):
        sent = proxy.request(b"POST /", body=body)
        answer = await app.ask(sent[:1000])
        await app.send(sent[1000:])

        assert answer.status == 413
        assert answer.value(b"connection") == b"close"
        assert await app.rest() == b""
        assert peer.requests == []


async def test_a_body_refused_after_it_came_leaves_the_connection_in_step() -> None:
    options = ProxyOptions(max_body=10, body_idle_s=5)
    async with (
        Peer() as peer,
        running_proxy(peer.url, options=options) as proxy,
        proxy.connect() as app,
    ):
        first = await app.ask(proxy.request(b"POST /", body=b"x" * 11))
        second = await app.ask(proxy.request(b"GET /2"))

        assert (first.status, second.status) == (413, 200)
        assert paths(peer.requests) == [b"/2"]


async def test_a_header_cut_anywhere_is_one_header() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        sent = proxy.request(b"GET /", b"X-Words: FOO / HTTP/1.1 BAR baz")
        for at in range(1, len(sent)):
            answer = await proxy.send(sent[:at], sent[at:])
            assert answer.status == 200, sent[:at]

        assert len(set(peer.requests)) == 1


LENGTH = b"POST /cut HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhello"
CHUNKED = b"POST /cut HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"
PARTS = {
    "a letter": b"G",
    "half a line": b"GET /cut HT",
    "half a header": b"GET /cut HTTP/1.1\r\nHo",
    "no body": LENGTH.removesuffix(b"hello"),
    "half a body": LENGTH,
    "half a chunk": CHUNKED,
    "no last chunk": CHUNKED + b"lo\r\n",
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("together", [True, False])
async def test_every_complete_request_is_answered_when_the_client_stops_sending(
    part: str, count: int, together: bool
) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        whole = [proxy.request(b"POST /%d" % number, body=b"{}") for number in range(count)]
        sent = [*whole, PARTS[part]]
        await app.send(*([b"".join(sent)] if together else sent))
        app.finish()
        answers = [await app.answer() for _ in range(count)]

        assert [answer.status for answer in answers] == [200] * count
        rest = await app.rest()
        # Of a body that is missing its client is told.
        assert rest.startswith(b"HTTP/1.1 400 ") if "bod" in part or "chunk" in part else not rest
        assert paths(peer.requests) == [b"/%d" % number for number in range(count)]


@pytest.mark.parametrize("part", [b"", b"GET /cut HTTP/1.1\r\nHo", LENGTH])
async def test_hundreds_of_requests_are_answered_when_the_client_stops_sending(part: bytes) -> None:
    async with (
        Peer() as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
        proxy.connect() as app,
    ):
        await app.send(proxy.request(b"GET /") * 300 + part)
        app.finish()

        assert [(await app.answer()).status for _ in range(300)] == [200] * 300
        assert (await app.rest()).startswith(b"HTTP/1.1 400 ") is (part == LENGTH)
        assert len(peer.requests) == 1


@pytest.mark.parametrize("part", [LENGTH, CHUNKED])
async def test_a_body_that_its_client_does_not_finish_is_refused_at_once(part: bytes) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        await app.send(part)
        app.finish()

        assert (await app.answer()).status == 400
        assert await app.rest() == b""
        assert peer.requests == []
