"""Answers that have no body: none is sent, and the next answer on the connection is the right one."""

import pytest

from tapeway.core.model.control import Mode
from tapeway.engine.recording.selection import Policy
from tests.server.in_process_proxy import RunningProxy, running_proxy, written_and_read
from tests.support.raw_client import RawClient
from tests.support.socket_upstream import Peer

EVERYTHING = Policy(record_statuses=frozenset(range(200, 600)))
LONG = b"Content-Length: 1234\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
# Method, what the upstream says, and the framing fields the client must get.
CASES: dict[str, tuple[bytes, bytes, list[bytes]]] = {
    "HEAD with a length": (b"HEAD", b"HTTP/1.1 200 OK\r\n" + LONG, [b"Content-Length: 1234"]),
    "HEAD with chunks": (b"HEAD", b"HTTP/1.1 200 OK\r\n" + CHUNKED, []),
    "HEAD with neither": (b"HEAD", b"HTTP/1.1 200 OK\r\n", []),
    "HEAD of nothing": (
        b"HEAD",
        b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n",
        [b"Content-Length: 0"],
    ),
    "204": (b"GET", b"HTTP/1.1 204 No Content\r\n", []),
    "204 with a length": (b"GET", b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n", []),
    "304": (b"GET", b"HTTP/1.1 304 Not Modified\r\n", []),
    "304 with a length": (
        b"GET",
        b"HTTP/1.1 304 Not Modified\r\n" + LONG,
        [b"Content-Length: 1234"],
    ),
    "304 with chunks": (b"GET", b"HTTP/1.1 304 Not Modified\r\n" + CHUNKED, []),
    "205": (b"GET", b"HTTP/1.1 205 Reset\r\nContent-Length: 0\r\n", [b"Content-Length: 0"]),
    "205 with chunks": (
        *(b"GET", b"HTTP/1.1 205 Reset\r\n" + CHUNKED + b"\r\n0\r\n"),
        [b"Content-Length: 0"],
    ),
}
NEXT = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext"


async def in_step(proxy: RunningProxy, app: RawClient, name: str) -> bytes:
    """The outcome of a bodiless answer, once the one behind it was shown to be the right one."""
    method, _, framing = CASES[name]
    sent = proxy.request(method + b" /1", b"If-None-Match: 1") + proxy.request(b"GET /2")
    answer = await app.ask(sent, method=method)
    following = await app.answer()

    lengths = (b"content-length", b"transfer-encoding")
    assert [b": ".join(pair) for pair in answer.fields if pair[0].lower() in lengths] == framing
    assert answer.body == b""
    assert following.body == b"next"
    return answer.outcome


@pytest.mark.parametrize("mode", ["record", "passthrough"])
@pytest.mark.parametrize("name", CASES)
async def test_a_live_answer_without_a_body_keeps_the_connection_in_step(
    name: str, mode: Mode
) -> None:
    async with Peer(NEXT) as peer, running_proxy(peer.url, mode=mode, policy=EVERYTHING) as proxy:
        peer.then(CASES[name][1] + b"\r\n")
        async with proxy.connect() as app:
            assert await in_step(proxy, app, name) in (b"recorded", b"live")

        assert len(peer.requests) == 2


@pytest.mark.parametrize("name", CASES)
async def test_a_replay_without_a_body_keeps_the_connection_in_step(name: str) -> None:
    async with Peer(NEXT) as peer, running_proxy(peer.url, policy=EVERYTHING) as proxy:
        peer.then(CASES[name][1] + b"\r\n")
        async with proxy.connect() as app:
            await in_step(proxy, app, name)
        store = await written_and_read(proxy.store)
    async with running_proxy(store=store, mode="replay") as proxy, proxy.connect() as app:
        assert await in_step(proxy, app, name) == b"replayed"
        assert proxy.client.connections == 0


async def test_errors_of_our_own_have_no_body_for_head() -> None:
    async with (
        running_proxy(mode="replay", routes={"a": "http://a"}) as proxy,
        proxy.connect() as app,
    ):
        first = await app.ask(proxy.request(b"HEAD /a/x"))
        second = await app.ask(proxy.request(b"GET /a/x"))

    assert (first.status, second.status) == (400, 400)
    assert b"replay_miss" in second.body


async def test_a_head_answer_ends_also_where_nobody_says_so() -> None:
    async with (
        Peer(b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\n\r\n") as peer,
        running_proxy(peer.url) as proxy,
    ):
        answers = [await proxy.ask(b"HEAD /%d" % number) for number in range(3)]

        assert [answer.status for answer in answers] == [200, 200, 200]


async def test_a_body_that_came_where_none_may_be_is_given_to_nobody() -> None:
    async with Peer(NEXT) as peer, running_proxy(peer.url) as proxy:
        peer.then(b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n", b"evil")
        first = await proxy.ask(b"GET /1")
        second = await proxy.ask(b"GET /2")

        assert first.status == 204
        assert second.body == b"next"
