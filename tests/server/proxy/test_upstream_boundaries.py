"""Nothing a client writes leads the proxy anywhere but to its configured upstreams."""

import json

import pytest

from tapeway.core.model.control import MODE_POLICIES, Mode
from tapeway.server.proxy import ProxyOptions
from tests.server.http.test_targets import target_of
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.support.socket_upstream import Peer

FOREIGN = (
    b"http://169.254.169.254/latest/meta-data/",
    b"http://evil.example/",
    b"http://evil.example:80/?a=b",
    b"https://evil.example/",
    b"HTTP://EVIL.example/",
    b"http://user:password-of-mine@evil.example/",
    b"ftp://evil.example/",
    b"http://127.0.0.1:1/",
    b"http://[::1]:1/",
)


@pytest.mark.parametrize("named", ["in Host too", "not in Host"])
@pytest.mark.parametrize("target", FOREIGN)
async def test_an_address_in_the_request_line_is_not_followed(target: bytes, named: str) -> None:
    host = target.split(b"/")[2].rpartition(b"@")[2] if named == "in Host too" else b"a"
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        sent = b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
        first, second = await app.ask(sent), await app.ask(proxy.request(b"GET /own"))

        assert (first.status, second.status) == (421, 200)
        assert b"password-of-mine" not in first.body
        assert [target_of(request) for request in peer.requests] == ["/own"]
        assert peer.connections == proxy.client.connections == 1


@pytest.mark.parametrize("target", [b"@evil/x", b"evil/x", b"evil:80", b"?x", b"*", b"http:/x"])
async def test_a_target_that_is_no_path_is_refused(target: bytes) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        assert (await proxy.ask(b"GET " + target)).status in (400, 421)
        assert peer.connections == proxy.client.connections == 0


@pytest.mark.parametrize("name", ["address", "localhost", "localhost in capitals"])
async def test_the_proxys_own_address_may_stand_in_the_request_line(name: str) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        authority = {
            "address": proxy.host,
            "localhost": b"localhost:%d" % proxy.port,
            "localhost in capitals": b"LOCALHOST:%d" % proxy.port,
        }[name]
        answers = [
            await proxy.ask(b"GET http://" + authority + rest)
            for rest in (b"/a/b?c=d", b"/", b"//x")
        ]

        assert [answer.status for answer in answers] == [200, 200, 200]
        assert [target_of(request) for request in peer.requests] == ["/a/b?c=d", "/", "//x"]


@pytest.mark.parametrize(
    "target",
    [
        *("//evil.example/x", "///evil.example", "/\\evil.example/x", "/%2f%2fevil.example"),
        *("/x@evil.example/", "/:80@evil.example", "/.evil.example", "/@", "/%40evil.example"),
        *("/http://evil.example/", "/..//evil.example", "/;@evil.example"),
    ],
)
async def test_what_looks_like_an_address_is_a_path_of_the_upstream(target: str) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        answer = await proxy.ask(b"GET " + target.encode())

        if target == "/@":
            assert answer.status == 400
        else:
            assert target_of(peer.requests[0]) == target
        assert proxy.client.connections == peer.connections == len(peer.requests)


async def test_a_host_of_somebody_else_changes_nothing() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        await proxy.send(b"GET /x HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n")

        assert peer.requests[0].split(b"\r\n")[1] == b"Host: " + peer.url[7:].encode()


FORWARDING = (
    b"X-Forwarded-Host: evil.example",
    b"Forwarded: host=evil.example",
    b"X-Original-URL: /admin",
    b"X-HTTP-Method-Override: TRACE",
    b"Origin: http://page.internal",
)


async def test_fields_that_steer_other_proxies_are_ordinary_ones() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        await proxy.ask(b"GET /x", *FORWARDING)

        assert peer.requests[0].startswith(b"GET /x HTTP/1.1\r\n")
        assert peer.requests[0].split(b"\r\n")[2:-2] == list(FORWARDING)


async def answers_405(proxy: RunningProxy, sent: bytes) -> bool:
    async with proxy.connect() as app:
        answer = await app.ask(sent, method=b"GET")
        return answer.status == 405 and b"secret-of-mine" not in answer.head + answer.body


@pytest.mark.parametrize(
    "line", [b"CONNECT evil.example:443", b"OPTIONS *", b"TRACE /", b"trace /", b"TRACE /?a=b"]
)
async def test_connect_and_trace_are_refused(line: bytes) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        assert await answers_405(proxy, proxy.request(line, b"Authorization: secret-of-mine"))
        assert peer.connections == proxy.client.connections == 0


async def test_bytes_sent_after_connect_reach_nobody() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        await app.send(proxy.request(b"CONNECT evil.example:443"), b"\x16\x03\x01\x02\x00")

        assert (await app.answer()).status == 405
        assert peer.connections == proxy.client.connections == 0


@pytest.mark.parametrize("mode", MODE_POLICIES)
async def test_where_web_sockets_are_off_they_get_the_status_at_which_clients_use_http(
    mode: Mode,
) -> None:
    options = ProxyOptions(max_body=1000, body_idle_s=10, websocket=False)
    fields = (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13")
    async with (
        Peer() as peer,
        running_proxy(peer.url, mode=mode, options=options) as proxy,
        proxy.connect() as app,
    ):
        answer = await app.ask(proxy.request(b"GET /@runs%2Fone/v1/responses", *fields))

        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (
            426,
            "websocket_off",
        )
        assert (b"upgrade", b"HTTP/1.1") in answer.fields
        assert (b"Connection", b"close") in answer.fields
        assert peer.requests == []
        (entry,) = proxy.journal
        assert (entry.cassette, entry.path, entry.outcome, entry.status) == (
            *("runs/one", "/v1/responses"),
            *("error", 426),
        )
        assert proxy.journal.counts["miss"] == 0


async def test_a_web_socket_through_a_slot_is_noted_with_the_slot() -> None:
    fields = (b"Connection: Upgrade", b"Upgrade: websocket")
    async with running_proxy("http://up.invalid") as proxy:
        await proxy.broker.set_slot("w0", "runs/one")

        await proxy.ask(b"GET /@~w0/v1/responses", *fields)
        await proxy.ask(b"GET /@~w1/v1/responses", *fields)

        last, first = proxy.journal
        assert (first.slot, first.cassette, first.take) == ("w0", "runs/one", 2)
        assert (last.slot, last.cassette, last.take) == ("w1", "default", None)
