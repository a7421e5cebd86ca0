"""A connection, and requests that are handed to aiohttp: whole, or as they come; byte for byte the same."""

import asyncio
import errno
import random
import re
import socket

import pytest

from tapeway.server import front
from tapeway.server.proxy import ProxyOptions
from tests.server.front_without_socket import SocketlessFront
from tests.server.http.test_smuggling import CODINGS, FRAMING, LINES, WORDS
from tests.server.in_process_proxy import HitsOn, running_proxy
from tests.server.test_hits import mutated
from tests.server.test_hits import said as heard
from tests.support.fakes.broker import until
from tests.support.socket_upstream import OK, Peer
from tests.support.thoroughness import examples

POST = (
    b"POST /ask?b=1 HTTP/1.1\r\nHost: a\r\nContent-LENGTH:3\r\nX-One: 1\r\n\r\nabc",
    b"POST /ask HTTP/1.1\r\nHost: a\r\nX-A: 1\r\ncontent-length: 2\r\nX-B:2\r\n\r\n{}",
    b"PUT /ask HTTP/1.1\r\nContent-Length: 2\r\nHost: a\r\nUser-Agent: x y\r\n\r\n{}",
    b"POST /empty HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
    b"DELETE /gone HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer b\r\nConnection: keep-alive\r\n\r\n",
    b"GET /@named/x HTTP/1.1\r\nHost: a\r\nTapeway-Cassette: other\r\n\r\n",
)
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
TAKES_TIME = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate"


def without_ids(data: bytes) -> bytes:
    return re.sub(rb"tw-[0-9a-z-]+|127.0.0.1:\d+", b"ID", data)


async def said(upstream: Peer, *, hits: HitsOn, mode: str) -> list[bytes]:
    """What the client and the upstream got."""
    answers: list[bytes] = []
    async with (
        running_proxy(upstream.url, mode=mode, hits=hits) as proxy,  # type: ignore[arg-type]
        proxy.connect() as client,
    ):
        for request in POST:
            answer = await client.ask(request)
            answers += [answer.head, answer.body]
    return [without_ids(response) for response in (*answers, *upstream.requests)]


@pytest.mark.parametrize("mode", ["record", "auto", "passthrough", "replay"])
async def test_client_and_upstream_get_the_same_bytes_for_whole_requests_as_for_others(
    mode: str,
) -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 0\r\n\r\n"
    async with Peer() as one, Peer() as other:
        for peer in (one, other):
            peer.then(OK).then(moved).then(b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nno")
        plain = await said(one, hits="front", mode=mode)
        ordinary = await said(other, hits="nowhere", mode=mode)

    assert plain == ordinary


async def test_client_and_upstream_get_the_same_bytes_for_damaged_and_divided_requests() -> None:
    source = random.Random(20261125)
    next_one = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"
    broken = [*FRAMING.values(), *CODINGS.values(), *LINES.values(), *WORDS.values()]
    rows = [
        *([request + next_one] for request in broken[::3]),
        *([next_one, request] for request in broken[1::3]),
        *(mutated(source) for _ in range(examples(150))),
    ]
    async with (
        Peer() as one,
        Peer() as other,
        running_proxy(one.url, mode="passthrough") as plain,
        running_proxy(other.url, mode="passthrough", hits="nowhere") as ordinary,
    ):
        for row in rows:
            assert without_ids(await heard(plain, row)) == without_ids(await heard(ordinary, row))
            got = [[without_ids(request) for request in peer.requests] for peer in (one, other)]
            assert got[0] == got[1], row
            one.requests.clear()
            other.requests.clear()


async def test_a_request_that_comes_before_the_end_of_the_one_before_is_answered_after_it() -> None:
    go_on = asyncio.Event()
    async with (
        Peer().then(go_on, TAKES_TIME) as peer,
        running_proxy(peer.url) as proxy,
        proxy.connect() as client,
    ):
        await client.send(GET)
        await peer.asked.wait()
        await client.send(GET[:10])
        await client.send(GET[10:])
        assert len(peer.requests) == 1
        go_on.set()

        assert [(await client.answer()).body for _ in range(2)] == [b"late", b"ok"]
        # What came in two pieces was parsed by aiohttp; the connection is as before.
        assert (await client.ask(GET)).body == b"ok"


async def test_what_a_client_sent_before_it_finished_is_answered() -> None:
    go_on = asyncio.Event()
    async with (
        Peer().then(go_on, TAKES_TIME) as peer,
        running_proxy(peer.url) as proxy,
        proxy.connect() as client,
    ):
        await client.send(GET)
        await peer.asked.wait()
        await client.send(GET)
        client.finish()
        go_on.set()

        assert [(await client.answer()).body for _ in range(2)] == [b"late", b"ok"]
        assert await client.rest() == b""


async def test_a_recording_is_completed_when_its_client_leaves() -> None:
    go_on = asyncio.Event()
    async with Peer().then(go_on, TAKES_TIME) as peer, running_proxy(peer.url) as proxy:
        async with proxy.connect() as client:
            await client.send(GET)
            await peer.asked.wait()
            client.reset()
        await until(lambda: not proxy.connections())
        go_on.set()
        await until(lambda: proxy.journal.counts["recorded"])

        (recorded,) = await proxy.recorded()
        assert recorded.response.body == b"late"


async def test_a_refused_client_that_has_left_ends_its_connection_without_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def not_connected(*_: object) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    # What a socket says whose client has reset the connection; uvloop has no such call.
    monkeypatch.setattr(socket.socket, "shutdown", not_connected)
    monkeypatch.setattr(front, "LINGER_S", 0.01)
    async with running_proxy("http://127.0.0.1:9") as proxy, proxy.connect() as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n")

        assert (await client.answer()).status == 400
        await until(lambda: not proxy.connections())

    assert not caplog.records


async def test_a_connection_is_not_idle_while_its_request_is_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front, "IDLE_S", 0.01)
    go_on = asyncio.Event()
    async with (
        Peer().then(go_on, TAKES_TIME) as peer,
        running_proxy(peer.url) as proxy,
        proxy.connect() as client,
    ):
        await client.send(GET)
        await peer.asked.wait()
        loop = asyncio.get_running_loop()
        late = loop.time() + 0.05
        await until(lambda: loop.time() > late)
        go_on.set()

        assert (await client.answer()).body == b"late"
        assert await client.rest() == b""


async def test_a_stop_waits_for_the_answer_and_closes_the_connection() -> None:
    go_on = asyncio.Event()
    async with (
        Peer().then(go_on, TAKES_TIME) as peer,
        running_proxy(peer.url) as proxy,
        proxy.connect() as client,
    ):
        await client.send(GET)
        await peer.asked.wait()
        async with asyncio.TaskGroup() as tasks:
            stopping = tasks.create_task(proxy.server.shutdown(30))
            await asyncio.sleep(0)
            assert not stopping.done()
            go_on.set()

        assert (await client.answer()).body == b"late"
        assert await client.rest() == b""


async def test_a_stop_that_waited_long_enough_aborts_the_request() -> None:
    async with (
        Peer("stall") as peer,
        running_proxy(peer.url, mode="passthrough") as proxy,
        proxy.connect() as client,
    ):
        await client.send(GET)
        await peer.asked.wait()
        await proxy.server.shutdown(0.01)

        assert await client.rest() == b""
        await until(lambda: not proxy.proxy.in_flight)


async def test_a_live_stream_is_passed_on_as_it_comes() -> None:
    go_on = asyncio.Event()
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    options = ProxyOptions(max_body=1 << 20, body_idle_s=30, delivery="stream")
    async with (
        Peer(head, b"3\r\none\r\n", go_on, b"3\r\ntwo\r\n0\r\n\r\n") as peer,
        running_proxy(peer.url, options=options) as proxy,
        proxy.connect() as client,
    ):
        await client.send(GET)
        assert (await client.until(b"one\r\n")).endswith(b"\r\n\r\n3\r\none\r\n")
        go_on.set()
        assert await client.until(b"0\r\n\r\n") == b"3\r\ntwo\r\n0\r\n\r\n"
        assert (await client.ask(GET)).body == b"onetwo"


LOST = {
    "before anything": b"",
    "in a head": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Le",
    "before a body": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n",
    "in a body": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc",
    "in a chunk": b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc",
    "after a request": GET,
}


@pytest.mark.parametrize("where", LOST)
@pytest.mark.parametrize("before", [b"", GET], ids=["first", "later"])
def test_a_connection_may_be_lost_at_any_turn_of_the_loop(
    caplog: pytest.LogCaptureFixture, where: str, before: bytes
) -> None:
    for turns in range(8):
        front = SocketlessFront()
        front.receive([before])

        assert front.lose(LOST[where], turns) == [], turns
        assert [record.getMessage() for record in caplog.records] == [], turns
        front.close()
