"""HTTP/1.0 clients, and versions that are not supported."""

import json

import pytest

from tapeway.core.model.control import Mode
from tests.server.http.test_framing import FRAMINGS, LENGTH, WHOLE
from tests.server.in_process_proxy import running_proxy, written_and_read
from tests.support.reuse import REUSED
from tests.support.socket_upstream import Peer


@pytest.mark.parametrize("mode", ["record", "passthrough"])
@pytest.mark.parametrize("how", FRAMINGS)
async def test_a_client_of_1_0_gets_no_chunks(how: str, mode: Mode) -> None:
    async with Peer(*FRAMINGS[how]) as peer, running_proxy(peer.url, mode=mode) as proxy:
        async with proxy.connect() as app:
            answer = await app.ask(b"GET / HTTP/1.0\r\n\r\n")
            assert await app.rest() == b""

        assert answer.body == WHOLE
        assert answer.values(b"transfer-encoding") == []
        assert peer.requests[0].startswith(b"GET / HTTP/1.1\r\nHost: ")


@pytest.mark.parametrize("how", FRAMINGS)
async def test_a_recorded_stream_is_replayed_to_1_0_under_a_length(how: str) -> None:
    async with Peer(*FRAMINGS[how]) as peer, running_proxy(peer.url) as proxy:
        await proxy.ask()
        store = await written_and_read(proxy.store)
    async with running_proxy(store=store, mode="replay") as proxy:
        answer = await proxy.send(b"GET / HTTP/1.0\r\n\r\n")

    assert answer.outcome == b"replayed"
    assert answer.body == WHOLE
    assert answer.value(b"content-length") == b"%d" % len(WHOLE)


@pytest.mark.parametrize("how", ["length", "chunked", "close"])
async def test_a_connection_of_1_0_stays_open_if_it_asks_to(how: str) -> None:
    async with (
        Peer(*FRAMINGS[how]) as peer,
        running_proxy(peer.url) as proxy,
        proxy.connect() as app,
    ):
        sent = b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"
        first, second = await app.ask(sent), await app.ask(sent)

        assert first.value(b"connection") == second.value(b"connection") == b"keep-alive"
        assert first.body == second.body == WHOLE


async def test_a_stream_passed_on_to_1_0_ends_with_the_connection() -> None:
    sent = b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"
    async with (
        Peer(*FRAMINGS["chunked"]) as peer,
        running_proxy(peer.url, mode="passthrough") as proxy,
    ):
        answer = await proxy.send(sent)

        assert answer.values(b"connection") == answer.values(b"content-length") == []
        assert answer.body == WHOLE


async def test_a_stream_passed_on_to_1_0_that_breaks_off_does_not_end_cleanly() -> None:
    head, first, *_ = FRAMINGS["chunked"]
    async with (
        Peer(head, first, "close") as peer,
        running_proxy(peer.url, mode="passthrough") as proxy,
    ):
        answer = await proxy.send(b"GET / HTTP/1.0\r\n\r\n")

        assert not answer.complete


async def test_an_answer_of_known_length_passed_on_to_1_0_keeps_the_connection() -> None:
    sent = b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"
    async with (
        Peer(LENGTH) as peer,
        running_proxy(peer.url, mode="passthrough") as proxy,
        proxy.connect() as app,
    ):
        assert (await app.ask(sent)).value(b"connection") == b"keep-alive"
        assert (await app.ask(sent)).body == WHOLE


async def test_a_client_of_1_0_may_send_a_body_and_a_host() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        await proxy.send(b"POST / HTTP/1.0\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")

        assert peer.requests[0].endswith(b"\r\nContent-Length: 5\r\n\r\nhello")


async def test_a_coding_in_1_0_is_faulty_framing() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        sent = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        answer = await app.ask(sent + b"GET /next HTTP/1.0\r\n\r\n")

        assert answer.status == 400
        assert await app.rest() == b""
        assert peer.connections == 0


HOST = b"Host: a\r\n\r\n"
UNSPOKEN = {
    "0.9 line": (b"GET /\r\n\r\n", 505),
    "0.9 alone": (b"GET /\r\n", 505),
    "0.9 alone, of a terminal": (b"GET /a?b\n", 505),
    "0.9": (b"GET / HTTP/0.9\r\n" + HOST, 505),
    "1.2": (b"GET / HTTP/1.2\r\n" + HOST, 505),
    "2.0": (b"GET / HTTP/2.0\r\n" + HOST, 505),
    "3": (b"GET / HTTP/3\r\n" + HOST, 400),
    "11.1": (b"GET / HTTP/11.1\r\n" + HOST, 400),
    "lower case": (b"GET / http/1.1\r\n" + HOST, 400),
    "no number": (b"GET / HTTP/x.y\r\n" + HOST, 400),
    "no version": (b"GET / \r\n" + HOST, 400),
    "preface of 2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "SOCKS": (b"\x05\x01\x00", 400),
}


@pytest.mark.parametrize("name", UNSPOKEN)
async def test_another_protocol_is_refused(name: str) -> None:
    sent, status = UNSPOKEN[name]
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        answer = await proxy.send(sent)

        assert answer.status == status
        assert answer.head.startswith(b"HTTP/1.1 ")
        request_id = answer.value(b"x-request-id")
        assert request_id.startswith(b"tw-")
        assert json.loads(answer.body)["request_id"] == request_id.decode()
        assert peer.connections == 0


async def test_an_answer_says_1_1_whatever_the_upstream_spoke() -> None:
    async with (
        Peer(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "close") as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
        proxy.connect() as app,
    ):
        first, second = [await app.ask(proxy.request()) for _ in range(2)]

        assert first.head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert (first.outcome, second.outcome) == (b"recorded", b"replayed")
        assert (await proxy.recorded())[0].response.head.version == "HTTP/1.0"
