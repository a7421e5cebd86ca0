"""Fields that speak of one connection stay on it, in both directions and out of the cassette."""

import pytest

from tapeway.core.model.control import Mode
from tests.server.in_process_proxy import running_proxy
from tests.support.socket_upstream import Peer

CONNECTION_OF_ITS_OWN = (
    b"Connection: keep-alive, X-Foo , close-ish",
    b"Connection: X-bar",
    b"X-Foo: 1",
    b"X-Bar: 2",
    b"Keep-Alive: timeout=5",
    b"Proxy-Connection: keep-alive",
    b"TE: trailers",
    b"Trailer: X-Sum",
    b"Upgrade: h2c",
    b"HTTP2-Settings: AAMAAABkAAQAAP__",
)
END_TO_END = (
    b"X-Kept: 1",
    b"Authorization: Bearer key",
    b"Proxy-Authorization: Basic b",
    b"Via: 1.1 a",
)


async def test_of_a_request_only_end_to_end_fields_reach_the_upstream() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        await proxy.ask(b"GET /", *CONNECTION_OF_ITS_OWN, *END_TO_END)

        lines = peer.requests[0].removesuffix(b"\r\n\r\n").split(b"\r\n")
        assert lines == [b"GET / HTTP/1.1", b"Host: " + peer.url[7:].encode(), *END_TO_END]


@pytest.mark.parametrize("field", [name for name in CONNECTION_OF_ITS_OWN if b"X-" not in name])
async def test_a_field_of_a_connection_needs_no_naming_to_stay_on_it(field: bytes) -> None:
    head = (b"HTTP/1.1 200 OK", field, b"Content-Length: 2", b"", b"ok")
    async with Peer(b"\r\n".join(head)) as peer, running_proxy(peer.url) as proxy:
        answer = await proxy.ask(b"GET /", field)

        assert field not in peer.requests[0]
        assert answer.passed_on == []


async def test_a_request_that_asks_for_another_protocol_is_answered_in_this_one() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        upgrade = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: A")
        first = await app.ask(proxy.request(b"GET /1", *upgrade) + proxy.request(b"GET /2"))
        second = await app.answer()

        assert (first.status, second.status) == (200, 200)
        assert b"pgrade" not in b"".join(peer.requests)


@pytest.mark.parametrize("mode", ["record", "passthrough"])
async def test_of_an_answer_only_end_to_end_fields_reach_the_client(mode: Mode) -> None:
    kept = (b"X-Kept: 1", b"Via: 1.1 b", b"Server: s", b"Date: d")
    head = (b"HTTP/1.1 200 OK", b"Content-Length: 2", *CONNECTION_OF_ITS_OWN, *kept)
    more = (b"Proxy-Authenticate: Basic", b"Proxy-Authentication-Info: a")
    async with (
        Peer(b"\r\n".join([*head, *more, b"", b"ok"])) as peer,
        running_proxy(peer.url, mode=mode) as proxy,
    ):
        answer = await proxy.ask()

        assert [b": ".join(field) for field in answer.passed_on] == list(kept)
        for interaction in await proxy.recorded():
            assert [b": ".join(field) for field in interaction.response.headers] == list(kept)


async def test_connection_fields_of_a_request_are_not_recorded() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        await proxy.ask(b"GET /", *CONNECTION_OF_ITS_OWN, b"Connection: accept", b"Accept: a/b")
        [recorded] = await proxy.recorded()

        names = {name.lower() for name, _ in recorded.request.headers}
        assert names <= {b"accept"}


@pytest.mark.parametrize("end", ["close", "stay"])
async def test_the_upstream_closing_its_connection_does_not_close_the_clients(end: str) -> None:
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
    steps = (closing, "close") if end == "close" else (closing,)
    async with Peer(*steps) as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        first = await app.ask(proxy.request(b"GET /1"))
        second = await app.ask(proxy.request(b"GET /2"))

        assert (first.status, second.status) == (200, 200)
        assert first.values(b"connection") == []
        assert peer.connections == 2


async def test_the_client_closing_its_connection_does_not_close_the_upstreams() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        for path in (b"/1", b"/2"):
            async with proxy.connect() as app:
                answer = await app.ask(proxy.request(b"GET " + path, b"Connection: close"))
                assert answer.value(b"connection") == b"close"
                assert await app.rest() == b""

        assert len(peer.requests) == 2
        assert peer.connections == 1
