"""Any token is a method, and it reaches the upstream as it was written."""

import pytest

from tests.server.in_process_proxy import running_proxy
from tests.support.reuse import REUSED
from tests.support.socket_upstream import Peer

METHODS = (
    *("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "PROPFIND", "MKCOL", "M-SEARCH"),
    *("REPORT", "PURGE", "SOURCE", "LOCK", "FOO", "patch", "Get", "delete", "x", "G"),
    # Of another protocol, but the parser's list is not ours.
    *("DESCRIBE", "SETUP", "PLAY", "GET_PARAMETER", "RECORD", "FLUSH", "ANNOUNCE", "TEARDOWN"),
    *("!#$%&'*+-.^_`|~", "M" * 64),
)


async def test_a_method_arrives_as_written() -> None:
    async with Peer() as peer, running_proxy(peer.url, mode="auto") as proxy:
        lines = [method.encode() + b" /" for method in METHODS]
        live = [await proxy.ask(line) for line in lines]
        await proxy.broker.set_mode("replay")
        again = [await proxy.ask(line) for line in lines]

        assert [answer.outcome for answer in live] == [b"recorded"] * len(METHODS)
        assert [answer.outcome for answer in again] == [b"replayed"] * len(METHODS)

        sent = [request.split(b" ")[0].decode() for request in peer.requests]
        assert sent == [each.request.method for each in await proxy.recorded()] == [*METHODS]


async def test_methods_that_differ_in_case_are_different_requests() -> None:
    async with Peer() as peer, running_proxy(peer.url, mode="auto", rules=REUSED) as proxy:
        outcomes = [(await proxy.ask(name + b" /")).outcome for name in (b"PATCH", b"patch")]

        assert outcomes == [b"recorded", b"recorded"]


async def test_methods_of_all_kinds_share_a_connection() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        sent = [b"GET", b"FOO", b"patch", b"POST", b"SETUP", b"GET"]
        for method in sent:
            answer = await app.ask(proxy.request(method + b" /", body=b"FOO / HTTP/1.1\r\n\r\n"))
            assert answer.status == 200

        assert [request.split(b" ")[0] for request in peer.requests] == sent


async def test_methods_of_all_kinds_may_be_pipelined() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        sent = [b"GET", b"FOO", b"patch", b"POST", b"SETUP", b"GET"]
        await app.send(b"".join(proxy.request(method + b" /", body=b"12345") for method in sent))

        assert [(await app.answer()).status for _ in sent] == [200] * len(sent)
        assert [request.split(b" ")[0] for request in peer.requests] == sent


@pytest.mark.parametrize("method", [b"FOO", b"patch", b"GET", b"PROPFIND"])
async def test_a_method_may_come_letter_by_letter(method: bytes) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        sent = proxy.request(method + b" /")
        answer = await proxy.send(*[bytes([byte]) for byte in sent])

        assert answer.status == 200
        assert peer.requests[0].startswith(method + b" / ")


@pytest.mark.parametrize(
    "line", [b"CONNECT evil:443", b"CONNECT /", b"connect /", b"TRACE /", b"trace /", b"OPTIONS *"]
)
async def test_a_method_that_is_not_for_an_upstream_is_not_allowed(line: bytes) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        answer = await proxy.ask(line, b"X-Secret: reflected")

        assert answer.status in ((400, 405) if line == b"CONNECT /" else (405,))
        assert b"reflected" not in answer.head + answer.body
        assert peer.connections == 0
