"""One client for all: it asks once, keeps nothing of one request for the next, and counts."""

import asyncio
from ipaddress import ip_network
from pathlib import Path

import pytest

from tapeway.core.model.control import Mode
from tapeway.core.model.messages import Request
from tapeway.errors import UpstreamError
from tapeway.upstream.address_guard import AddressGuard
from tapeway.upstream.client import Limits
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.support.fakes.broker import until
from tests.support.raw_client import Answer
from tests.support.socket_upstream import OK, Peer
from tests.upstream.name_service import Names

COOKIE = b"HTTP/1.1 200 OK\r\nSet-Cookie: sid=tenantA; Path=/\r\nContent-Length: 2\r\n\r\nok"


def code(answer: Answer) -> tuple[int, str]:
    """Status and code of an error."""
    return answer.status, answer.body.partition(b'"code":"')[2].partition(b'"')[0].decode()


@pytest.mark.parametrize("mode", ["record", "passthrough"])
async def test_a_cookie_set_for_one_client_is_not_sent_for_another(mode: Mode) -> None:
    # By name: a cookie jar would keep none of a host that is an address.
    guard = AddressGuard(frozenset(), [ip_network("127.0.0.1")], Names("127.0.0.1"))
    async with (
        Peer(COOKIE) as peer,
        running_proxy(f"http://api.example:{peer.port}", mode=mode, guard=guard) as proxy,
    ):
        first = await proxy.ask(b"GET /1")
        await proxy.ask(b"GET /2")

        assert first.value(b"set-cookie") == b"sid=tenantA; Path=/"
        assert b"cookie" not in peer.requests[1].lower()


async def test_proxies_and_logins_of_the_environment_are_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with Peer() as other, Peer() as peer:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, other.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        netrc = tmp_path / "netrc"
        netrc.write_text("default login somebody password something\n")
        netrc.chmod(0o600)
        monkeypatch.setenv("NETRC", str(netrc))
        async with running_proxy(peer.url) as proxy:
            assert (await proxy.ask()).status == 200

        assert other.connections == 0
        assert b"authorization" not in peer.requests[0].lower()
        assert b"proxy" not in peer.requests[0].lower()


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("line", [b"GET /2", b"PUT /2", b"DELETE /2", b"POST /2"])
async def test_a_reused_connection_that_breaks_is_not_tried_again(line: bytes, how: str) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        await proxy.ask(b"GET /1")
        peer.then("close" if how == "close" else "reset")
        answer = await proxy.ask(line)

        assert code(answer) == (502, "upstream_reset")
        assert [request.split(b" ")[1] for request in peer.requests] == [b"/1", b"/2"]
        assert peer.connections == 1


async def test_a_connection_the_upstream_closed_while_idle_is_replaced() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        peer.then(OK, "close")
        first = await proxy.ask(b"GET /1")
        await peer.left.wait()
        second = await proxy.ask(b"GET /2")

        assert (first.status, second.status) == (200, 200)
        assert peer.connections == proxy.client.connections == 2


@pytest.mark.parametrize("mode", ["record", "passthrough"])
async def test_an_answer_nobody_asked_for_is_given_to_nobody(mode: Mode) -> None:
    evil = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
    async with Peer() as peer, running_proxy(peer.url, mode=mode) as proxy:
        peer.then(OK, evil)
        first = await proxy.ask(b"GET /1")
        second = await proxy.ask(b"GET /2")

        assert (first.body, second.body) == (b"ok", b"ok")
        assert peer.connections == 2


async def test_an_answer_with_another_behind_it_uses_its_connection_up() -> None:
    evil = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        peer.then(OK + evil)
        answers = [await proxy.ask(b"GET /%d" % number) for number in range(2)]

        assert [answer.body for answer in answers] == [b"ok", b"ok"]
        assert peer.connections == 2


async def test_connections_are_reused_and_counted() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        for number in range(5):
            await proxy.ask(b"GET /%d" % number)

        assert proxy.client.connections == peer.connections == 1
        assert proxy.client.open_connections == (0, 1)


async def all_at_once(proxy: RunningProxy, lines: list[bytes]) -> list[Answer]:
    """The answers to requests each on a connection of its own."""
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(proxy.ask(line)) for line in lines]
    return [task.result() for task in asked]


def different(number: int) -> list[bytes]:
    return [b"GET /%d" % position for position in range(number)]


@pytest.mark.slow
async def test_two_hundred_different_misses_are_asked_at_the_same_time() -> None:
    all_here = asyncio.Event()
    async with Peer(all_here, OK) as peer, running_proxy(peer.url) as proxy:

        async def let_go() -> None:
            while len(peer.requests) < 200:
                peer.asked.clear()
                await peer.asked.wait()
            all_here.set()

        async with asyncio.TaskGroup() as tasks:
            letting_go = tasks.create_task(let_go())
            answers = await all_at_once(proxy, different(200))
            # If one was not asked, nobody else is waited for without end.
            letting_go.cancel()

        assert {answer.status for answer in answers} == {200}
        assert peer.connections == 200


async def test_equal_misses_at_the_same_time_are_one_request() -> None:
    go = asyncio.Event()
    async with Peer(go, OK) as peer, running_proxy(peer.url, mode="auto") as proxy:
        async with asyncio.TaskGroup() as tasks:
            answers = tasks.create_task(all_at_once(proxy, [b"GET /same"] * 50))
            await peer.asked.wait()
            await until(lambda: proxy.proxy.in_flight == 50)
            assert proxy.client.open_connections == (1, 0)
            go.set()

        outcomes = [answer.outcome for answer in answers.result()]
        assert sorted(outcomes) == [b"recorded"] + [b"replayed"] * 49
        assert len(peer.requests) == 1


async def test_more_requests_than_connections_wait_for_one() -> None:
    limits = Limits(connect_s=10, idle_s=30, connections=3)
    async with Peer() as peer, running_proxy(peer.url, limits=limits) as proxy:
        answers = await all_at_once(proxy, different(20))

        assert {answer.status for answer in answers} == {200}
        assert peer.connections <= 3


async def test_a_login_in_the_upstreams_url_becomes_a_field_unless_the_client_has_one() -> None:
    async with Peer() as peer:
        url = peer.url.replace("http://", "http://user:p%40ss@")
        async with running_proxy(url) as proxy:
            await proxy.ask(b"GET /1")
            await proxy.ask(b"GET /2", b"Authorization: Bearer own")

        assert b"\r\nAuthorization: Basic dXNlcjpwQHNz\r\n" in peer.requests[0]
        assert peer.requests[1].count(b"uthorization") == 1
        assert b"Bearer own" in peer.requests[1]


@pytest.mark.parametrize(
    ("url", "to_do"),
    [
        ("http://127.0.0.1:1", b"127.0.0.1:1 cannot be reached; is it running"),
        ("https://127.0.0.1:1", b"127.0.0.1:1 cannot be reached; is it running"),
        ("http://127.1", b"write it out in full"),
        ("http://2130706433", b"write it out in full"),
    ],
)
async def test_an_upstream_that_is_not_there_is_said_to_be_unreachable(
    url: str, to_do: bytes
) -> None:
    async with running_proxy(url) as proxy:
        answer = await proxy.ask()

        assert code(answer) == (502, "upstream_unreachable")
        assert to_do in answer.body
        assert await proxy.recorded() == []


@pytest.mark.parametrize("mode", ["record", "passthrough"])
async def test_an_upload_nobody_reads_ends_in_a_timeout(mode: Mode) -> None:
    limits = Limits(connect_s=10, idle_s=0.2)
    async with (
        Peer("stall", unasked=True) as deaf,
        running_proxy(deaf.url, mode=mode, limits=limits) as proxy,
    ):
        answer = await proxy.ask(b"POST /", body=b"x" * 8_000_000)

        assert code(answer) == (504, "upstream_timeout")


async def test_who_gets_the_connection_of_another_is_answered_or_told_of_silence() -> None:
    limits = Limits(connect_s=10, idle_s=0.3, connections=1)
    async with Peer("stall") as peer, running_proxy(peer.url, limits=limits) as proxy:
        peer.then(OK)
        answers = await all_at_once(proxy, different(2))

        assert sorted(answer.status for answer in answers) == [200, 504]


@pytest.mark.parametrize("field", [(b"X", b"a\r\nY: b"), (b"X", b"a\0"), (b"X\nY", b"a")])
async def test_a_field_that_would_become_two_is_not_sent(field: tuple[bytes, bytes]) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        request = Request("default", "GET", "/", (field,), base=peer.url)
        with pytest.raises(UpstreamError, match="cannot be sent on"):
            async with proxy.client.ask(request):
                pass

        assert peer.requests == []


async def test_a_request_goes_out_as_its_client_wrote_it_but_for_host_and_length() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        fields = (b"x-a: 1", b"X-A: 2", b"accept: */*", b"Transfer-Encoding: chunked")
        await proxy.send(proxy.request(b"post /x?", *fields) + b"2\r\nhi\r\n0\r\n\r\n")

        head = b"post /x? HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % peer.port
        sent = b"x-a: 1\r\nX-A: 2\r\naccept: */*\r\nContent-Length: 2\r\n\r\nhi"
        assert peer.requests == [head + sent]


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("API.Example:{port}/v1", "api.example:{port}"),
        ("bücher.example:{port}", "xn--bcher-kva.example:{port}"),
        ("api.example.:{port}/a//b", "api.example:{port}"),
    ],
)
async def test_an_upstream_may_be_written_in_many_ways(written: str, host: str) -> None:
    guard = AddressGuard(frozenset(), [ip_network("127.0.0.1")], Names("127.0.0.1"))
    async with (
        Peer() as peer,
        running_proxy("http://" + written.format(port=peer.port), guard=guard) as proxy,
    ):
        assert (await proxy.ask(b"GET /x")).status == 200
        line, named = peer.requests[0].decode().split("\r\n")[:2]
        assert line == f"GET {written.partition('/')[1]}{written.partition('/')[2]}/x HTTP/1.1"
        assert named == f"Host: {host.format(port=peer.port)}"
