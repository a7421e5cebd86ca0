"""`Expect: 100-continue` is met by the proxy itself, and answers before the answer are not passed on."""

import asyncio
from typing import Literal

import pytest

from tapeway.core.model.control import Mode
from tapeway.server.proxy import ProxyOptions
from tests.server.in_process_proxy import MIB, RunningProxy, running_proxy
from tests.support.socket_upstream import OK, Peer

EXPECT = b"Expect: 100-continue"
GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n"
INTERIM = {
    "100": (b"HTTP/1.1 100 Continue\r\n\r\n",),
    "102": (b"HTTP/1.1 102 Processing\r\n\r\n",),
    "103": (HINTS,),
    "199": (b"HTTP/1.1 199 Whatever\r\n\r\n",),
    "several": (b"HTTP/1.1 100 Continue\r\n\r\n", HINTS, HINTS, b"HTTP/1.1 102 Processing\r\n\r\n"),
}


def head(proxy: RunningProxy, *fields: bytes, length: int = 5) -> bytes:
    """A request's header, its body still to come."""
    return proxy.request(b"POST /", *fields, b"Content-Length: %d" % length)


@pytest.mark.parametrize("expectation", [EXPECT, b"expect: 100-Continue"])
async def test_a_client_that_waits_is_told_to_go_on(expectation: bytes) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        interim = await app.ask(head(proxy, expectation))
        assert interim.head == GO_ON
        final = await app.ask(b"hello")

        assert final.status == 200
        assert peer.requests[0].endswith(b"\r\n\r\nhello")


async def test_a_chunked_upload_that_waits_is_told_to_go_on() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        sent = proxy.request(b"POST /", b"Transfer-Encoding: chunked", EXPECT)
        assert (await app.ask(sent)).head == GO_ON
        assert (await app.ask(b"5\r\nhello\r\n0\r\n\r\n")).status == 200

        assert peer.requests[0].endswith(b"\r\n\r\nhello")


async def test_the_expectation_goes_no_further() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        await proxy.send(head(proxy, EXPECT) + b"hello")

        assert b"expect" not in peer.requests[0].lower()


async def test_a_client_that_did_not_wait_is_told_nothing() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        assert (await proxy.send(head(proxy, EXPECT) + b"hello")).status == 200


async def test_a_client_without_a_body_is_told_nothing() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        assert (await proxy.ask(b"GET /", EXPECT)).status == 200


async def test_a_client_of_1_0_is_told_nothing() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        sent = b"POST / HTTP/1.0\r\n" + EXPECT + b"\r\nContent-Length: 5\r\n\r\n"
        answer = await proxy.send(sent, b"hello")

        assert answer.status == 200


@pytest.mark.parametrize(
    "value", [b"200-ok", b"100-continue, x", b"", b"100-continue;q=1", b"100 continue"]
)
@pytest.mark.parametrize("body", [b"", b"hello"])
async def test_any_other_expectation_fails(value: bytes, body: bytes) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        answer = await proxy.ask(b"POST /", b"Expect: " + value, body=body)

        assert answer.status == 417
        assert peer.connections == 0


async def test_a_body_that_is_not_wanted_is_not_asked_for() -> None:
    options = ProxyOptions(max_body=10, body_idle_s=5)
    async with (
        Peer() as peer,
        running_proxy(peer.url, options=options) as proxy,
        proxy.connect() as app,
    ):
        answer = await app.ask(head(proxy, EXPECT, length=11))

        assert answer.status == 413
        assert answer.value(b"connection") == b"close"
        assert peer.connections == 0


async def test_a_request_refused_for_its_header_is_not_asked_for_its_body() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        answer = await proxy.send(head(proxy, EXPECT, b"Host: b c"))

        assert answer.status == 400


@pytest.mark.parametrize("part", [b"", b"hel"])
async def test_a_body_that_never_comes_times_out(part: bytes) -> None:
    options = ProxyOptions(max_body=1000, body_idle_s=0.05)
    async with (
        Peer() as peer,
        running_proxy(peer.url, options=options) as proxy,
        proxy.connect() as app,
    ):
        assert (await app.ask(head(proxy, EXPECT))).head == GO_ON
        answer = await app.ask(part)

        assert answer.status == 408
        assert answer.value(b"connection") == b"close"
        assert peer.connections == 0
        assert await proxy.recorded() == []


async def test_a_body_that_only_drips_times_out_too() -> None:
    options = ProxyOptions(max_body=8 * MIB, body_idle_s=0.02)
    async with (
        Peer() as peer,
        running_proxy(peer.url, options=options) as proxy,
        proxy.connect() as app,
        asyncio.TaskGroup() as tasks,
    ):
        await app.send(head(proxy, length=8 * MIB))
        answer = tasks.create_task(app.answer())
        while not answer.done():
            await app.send(b"x")

        assert answer.result().status == 408
        assert peer.connections == 0


@pytest.mark.parametrize("end", ["stall", "close"])
@pytest.mark.parametrize("mode", ["record", "passthrough"])
async def test_an_upstream_that_refuses_a_large_upload_unread_is_heard(
    mode: Mode, end: Literal["stall", "close"]
) -> None:
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"
    async with (
        Peer(refusal, end, unasked=True) as peer,
        running_proxy(peer.url, mode=mode) as proxy,
    ):
        answer = await proxy.ask(b"POST /", body=b"x" * 8 * MIB)

        assert (answer.status, answer.body) == (413, b"no")


@pytest.mark.parametrize("status", [b"417 Expectation Failed", b"401 Unauthorized", b"200 OK"])
async def test_an_upstream_that_answers_before_the_body_is_heard(status: bytes) -> None:
    early = b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"
    async with Peer(early) as peer, running_proxy(peer.url) as proxy:
        answer = await proxy.send(head(proxy, EXPECT) + b"hello")

        assert b"%d" % answer.status == status[:3]
        assert answer.body == b"no"


@pytest.mark.parametrize("mode", ["record", "passthrough"])
@pytest.mark.parametrize("cut", ["together", "apart"])
@pytest.mark.parametrize("name", INTERIM)
async def test_an_interim_answer_is_not_taken_for_the_final_one(
    name: str, cut: str, mode: Mode
) -> None:
    steps = (*INTERIM[name], OK)
    async with (
        Peer(*([b"".join(steps)] if cut == "together" else steps)) as peer,
        running_proxy(peer.url, mode=mode) as proxy,
        proxy.connect() as app,
    ):
        first = await app.ask(proxy.request(b"POST /1", body=b"{}"))
        second = await app.ask(proxy.request(b"GET /2"))

        assert [(answer.status, answer.body) for answer in (first, second)] == [(200, b"ok")] * 2
        assert first.passed_on == []
        for interaction in await proxy.recorded():
            assert interaction.response.status == 200


async def test_a_switch_of_protocols_nobody_asked_for_is_an_error() -> None:
    switch = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nbytes"
    async with Peer(switch) as peer, running_proxy(peer.url) as proxy:
        answer = await proxy.ask()

        assert answer.status == 502
        assert b"upstream_protocol" in answer.body
        assert await proxy.recorded() == []


async def test_an_interim_answer_with_nothing_behind_it_is_no_answer() -> None:
    async with Peer(HINTS, "close") as peer, running_proxy(peer.url) as proxy:
        answer = await proxy.ask()

        assert answer.status == 502
        assert b"upstream_reset" in answer.body
