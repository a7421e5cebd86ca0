"""The proxy listener over TLS answers as it does without."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest

from tapeway.server.proxy import ProxyOptions
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.support.raw_client import RawClient
from tests.support.reuse import REUSED
from tests.support.socket_upstream import Peer
from tests.upstream.certificate_authority import client, server

LED = (
    b"HTTP/1.1 200 OK\r\nLocation: http://127.0.0.1:%d/next\r\n"
    b"Set-Cookie: a=b; Path=/; Secure\r\nContent-Length: 2\r\n\r\nok"
)
OPTIONS = ProxyOptions(max_body=8 * 2**20, body_idle_s=10, scheme="https")


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with Peer() as serving:
        yield serving


def over_tls(peer: Peer) -> AbstractAsyncContextManager[RunningProxy]:
    tls = (server("good"), client())
    return running_proxy(peer.url, mode="auto", rules=REUSED, options=OPTIONS, listener_tls=tls)


async def test_requests_are_recorded_and_replayed_on_one_connection(peer: Peer) -> None:
    async with over_tls(peer) as proxy, proxy.connect() as connection:
        asked = [
            proxy.request(b"POST /v1/x", body=b'{"n":%d}' % (number % 3)) for number in range(9)
        ]
        outcomes = [(await connection.ask(request)).outcome for request in asked]

        assert outcomes == [b"recorded"] * 3 + [b"replayed"] * 6
        # By the quick way too.
        assert proxy.proxy.hits is not None
        assert proxy.proxy.hits.count == 6


async def test_pipelined_requests_are_answered_in_order(peer: Peer) -> None:
    async with over_tls(peer) as proxy, proxy.connect() as connection:
        await connection.ask(proxy.request(b"GET /1"))
        answers = await connection.converse(
            proxy.request(b"GET /1") + proxy.request(b"GET /2") + proxy.request(b"GET /1"),
            answers=3,
        )

        assert [answer.outcome for answer in answers] == [b"replayed", b"recorded", b"replayed"]


@pytest.mark.parametrize("size", [10, 100_000, 3_000_000])
async def test_bodies_of_any_size_pass_both_ways(size: int) -> None:
    body = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size
    async with Peer(body) as peer, over_tls(peer) as proxy:
        for outcome in (b"recorded", b"replayed"):
            answer = await proxy.ask(b"POST /", body=b"y" * size)

            assert (answer.outcome, answer.body == b"x" * size) == (outcome, True)
        assert peer.requests[0].endswith(b"y" * size)


async def test_addresses_lead_back_over_tls_and_cookies_stay_secure(peer: Peer) -> None:
    peer.then(LED % peer.port)
    async with over_tls(peer) as proxy:
        for outcome in (b"recorded", b"replayed", b"replayed"):
            answer = await proxy.ask()

            assert answer.outcome == outcome
            assert answer.value(b"Location") == b"https://%b/next" % proxy.host
            assert answer.value(b"Set-Cookie") == b"a=b; Path=/; Secure"


async def test_a_target_in_absolute_form_is_the_listener_s_own(peer: Peer) -> None:
    async with over_tls(peer) as proxy:
        answer = await proxy.ask(b"GET https://%b/x" % proxy.host)

        assert answer.status == 200
        assert peer.requests[0].startswith(b"GET /x ")


async def test_a_wrong_base_url_is_named_with_https() -> None:
    tls = (server("good"), client())
    routes = {"openai": "https://api.openai.com"}
    async with running_proxy(routes=routes, options=OPTIONS, listener_tls=tls) as proxy:
        answer = await proxy.ask(b"POST /openai/v1/v1/chat/completions", body=b"{}")

        assert answer.status == 404
        assert b"https://%b/openai/v1" % proxy.host in answer.body


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"nonsense\r\n\r\n"]
)
async def test_malformed_input_is_refused_and_the_connection_ends(peer: Peer, sent: bytes) -> None:
    async with over_tls(peer) as proxy, proxy.connect() as connection:
        answer = await connection.ask(sent)

        assert answer.status == 400
        assert await connection.rest() == b""


async def test_a_client_that_ends_its_side_leaves(peer: Peer) -> None:
    async with over_tls(peer) as proxy:
        async with proxy.connect() as connection:
            await connection.ask(proxy.request(b"GET /1"))
        assert (await proxy.ask(b"GET /1")).outcome == b"replayed"


async def test_plain_http_is_not_served(peer: Peer) -> None:
    async with over_tls(peer) as proxy:
        async with RawClient(proxy.url) as connection:
            await connection.send(proxy.request(b"GET /"))
            assert await connection.rest() == b""
        assert peer.requests == []
