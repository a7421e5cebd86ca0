"""Connections whose clients take the proxy for the service: a tunnel, TLS, and the cassette."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from tapeway.cli.run.authority import Authority
from tapeway.cli.run.forward_proxy import ForwardProxy, Interception, listening
from tapeway.core.http.routing import Route, RouteTable
from tapeway.providers.hosts import HostRoutes, RoutedHost
from tapeway.server.front import FrontServer
from tapeway.upstream.outer_proxy import proxy_choice
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.support.raw_client import Answer, RawClient
from tests.support.reuse import REUSED
from tests.support.socket_upstream import Peer

HOST = "api.openai.com"
LED = (
    b"HTTP/1.1 200 OK\r\nLocation: https://api.openai.com/next\r\n"
    b"Set-Cookie: a=b; Domain=api.openai.com; Path=/; Secure\r\nContent-Length: 2\r\n\r\nok"
)


class Tunnelled(RawClient):
    """A client that has gone through CONNECT, and speaks TLS with what answered."""

    def __init__(self, proxy: str, trust: ssl.SSLContext, host: str) -> None:
        super().__init__(proxy)
        self._trust = trust
        self._name = host

    async def __aenter__(self) -> "Tunnelled":
        await super().__aenter__()
        self.writer.write(f"CONNECT {self._name}:443 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        await self.writer.start_tls(self._trust, server_hostname=self._name)
        return self


class Intercepting:
    """A proxy, and the forward proxy in front of it."""

    def __init__(self, proxy: RunningProxy, forward: ForwardProxy, authority: Authority) -> None:
        self.proxy = proxy
        self.forward = forward
        self.trust = ssl.create_default_context(cadata=authority.pem.decode())

    def connect(self, host: str = HOST) -> Tunnelled:
        return Tunnelled(self.forward.url, self.trust, host)

    async def ask(self, line: bytes = b"GET /", *fields: bytes, body: bytes = b"") -> Answer:
        async with self.connect() as client:
            return await client.ask(request(line, *fields, body=body))


def request(line: bytes, *fields: bytes, body: bytes = b"") -> bytes:
    lines = [line + b" HTTP/1.1", b"Host: api.openai.com", *fields]
    if body:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([*lines, b"", body])


@asynccontextmanager
async def intercepting(upstream: str, *, offline: bool = False) -> AsyncIterator[Intercepting]:
    hosts = HostRoutes(RouteTable({"openai": Route("openai", upstream)}), {})
    authority = Authority(hosts.names())
    async with running_proxy(mode="auto", routes={"openai": upstream}, rules=REUSED) as proxy:

        def server_of(host: RoutedHost) -> FrontServer:
            return FrontServer(proxy.proxy.serving_for(host, hosts))

        interception = Interception(hosts, server_of, authority.context_for)
        forward = ForwardProxy(offline=offline, interception=interception)
        async with listening(forward):
            yield Intercepting(proxy, forward, authority)


async def test_requests_on_one_connection_are_recorded_and_replayed() -> None:
    async with Peer() as peer, intercepting(peer.url) as served, served.connect() as client:
        asked = [request(b"POST /v1/x", body=b'{"n":%d}' % (number % 2)) for number in range(4)]
        outcomes = [(await client.ask(sent)).outcome for sent in asked]

        assert outcomes == [b"recorded", b"recorded", b"replayed", b"replayed"]
        assert [sent.split(b"\r\n")[0] for sent in peer.requests] == [b"POST /v1/x HTTP/1.1"] * 2
        assert served.forward.hosts == ()


async def test_the_base_url_answers_from_the_same_recordings() -> None:
    async with Peer() as peer, intercepting(peer.url) as served:
        assert (await served.ask(b"GET /v1/models")).outcome == b"recorded"
        assert (await served.proxy.ask(b"GET /openai/v1/models")).outcome == b"replayed"
        [recorded] = await served.proxy.recorded()
        assert (recorded.request.route, recorded.request.target) == ("openai", "/v1/models")


async def test_the_header_picks_the_cassette_and_the_path_does_not() -> None:
    async with Peer() as peer, intercepting(peer.url) as served:
        picked = await served.ask(b"GET /a", b"Tapeway-Cassette: other")
        assert (picked.outcome, picked.value(b"Tapeway-Cassette")) == (b"recorded", b"other")
        assert (await served.ask(b"GET /@other/openai/a")).outcome == b"recorded"
        assert peer.requests[1].startswith(b"GET /@other/openai/a HTTP/1.1\r\n")
        assert b"apeway-" not in b"".join(peer.requests).split(b"Tapeway-Hops")[0]


async def test_addresses_and_cookies_stay_those_of_the_service() -> None:
    async with Peer(LED) as peer, intercepting(peer.url) as served:
        for outcome in (b"recorded", b"replayed"):
            answer = await served.ask()
            assert answer.outcome == outcome
            assert answer.value(b"Location") == b"https://api.openai.com/next"
            assert answer.value(b"Set-Cookie").startswith(b"a=b; Domain=api.openai.com; ")


@pytest.mark.parametrize("size", [100_000, 2_000_000])
async def test_large_bodies_pass_both_ways(size: int) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size
    async with Peer(head + b"x" * size) as peer, intercepting(peer.url) as served:
        for outcome in (b"recorded", b"replayed"):
            answer = await served.ask(b"POST /", body=b"y" * size)
            assert (answer.outcome, len(answer.body)) == (outcome, size)


async def test_a_target_with_the_service_s_whole_url_is_understood() -> None:
    async with Peer() as peer, intercepting(peer.url) as served:
        assert (await served.ask(b"GET https://api.openai.com/v1/models")).status == 200
        assert peer.requests[0].startswith(b"GET /v1/models ")


async def test_other_hosts_are_tunnelled_as_they_are() -> None:
    async with Peer() as peer, intercepting(peer.url) as served:
        async with RawClient(served.forward.url) as client:
            await client.send(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % peer.port)
            assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert (await client.ask(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")).body == b"ok"
        assert served.forward.hosts == (f"127.0.0.1:{peer.port}",)
        assert await served.proxy.recorded() == []


async def test_a_host_that_cannot_be_reached_is_named() -> None:
    async with Peer() as peer:
        pass
    async with (
        intercepting("http://127.0.0.1:9") as served,
        RawClient(served.forward.url) as client,
    ):
        answer = await client.ask(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n" % peer.port)
        assert answer.status == 502
        assert b"127.0.0.1:%d" % peer.port in answer.body


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
            "user and password of its URL (407)",
        ),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "answered 403"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "speaks no HTTP"),
        (b"HTTP/1.1 200", "broke off, or speaks no HTTP"),
        (b"x" * 100_000, "broke off, or speaks no HTTP"),
        (b"", "cannot be reached"),
    ],
)
async def test_why_another_proxy_does_not_connect_is_said_without_its_password(
    answer: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    place = "127.0.0.1:{1}".format(*server.sockets[0].getsockname())
    if not answer:
        server.close()
    choice = proxy_choice(f"http://bob:pass-word-1234@{place}", {})
    async with (
        server,
        listening(ForwardProxy(offline=False, outer=choice.proxy_for)) as forward,
        RawClient(forward.url) as client,
    ):
        refused = await client.ask(b"CONNECT telemetry.example.com:443 HTTP/1.1\r\n\r\n")

    assert refused.status == 502
    (logged,) = [
        record.getMessage() for record in caplog.records if "telemetry" in record.getMessage()
    ]
    for text in (refused.body.decode(), logged):
        assert why in text
        assert f"the proxy http://{place}" in text
        assert "pass-word-1234" not in text


@pytest.mark.parametrize(
    ("line", "status"),
    [(b"CONNECT example.com:443", 403), (b"GET http://example.com/", 403), (b"GET /", 403)],
)
async def test_offline_refuses_what_the_cassette_does_not_serve(line: bytes, status: int) -> None:
    async with (
        intercepting("http://127.0.0.1:9", offline=True) as served,
        RawClient(served.forward.url) as client,
    ):
        assert (await client.ask(line + b" HTTP/1.1\r\n\r\n")).status == status


async def test_only_connect_is_served_otherwise() -> None:
    async with (
        intercepting("http://127.0.0.1:9") as served,
        RawClient(served.forward.url) as client,
    ):
        answer = await client.ask(b"GET http://example.com/ HTTP/1.1\r\n\r\n")
        assert answer.status == 405


async def test_a_client_that_distrusts_the_authority_is_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with intercepting("http://127.0.0.1:9") as served:
        for _ in range(2):
            # A client of asyncio would break off without saying why.
            await asyncio.to_thread(distrust, served.forward.url)
        await served.ask()
        warnings = [record.getMessage() for record in caplog.records if HOST in record.getMessage()]
        assert [
            warning for warning in warnings if "refused the certificate of this run" in warning
        ] == [warnings[0]]


def distrust(proxy: str) -> None:
    parts = urlsplit(proxy)
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        connection.sendall(f"CONNECT {HOST}:443 HTTP/1.1\r\n\r\n".encode())
        assert connection.recv(1024).startswith(b"HTTP/1.1 200 ")
        with pytest.raises(ssl.SSLCertVerificationError):
            ssl.create_default_context().wrap_socket(connection, server_hostname=HOST)
