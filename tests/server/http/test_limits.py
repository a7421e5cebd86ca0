"""How much a message may hold and how long a connection may be silent, and what is said beyond it."""

import asyncio
from pathlib import Path

import pytest

from tapeway.core.model.control import Mode
from tapeway.engine.recording.selection import Policy
from tapeway.server import front
from tapeway.server.front import (
    HEAD_S,
    IDLE_S,
    LINGER_S,
    MAX_FIELD,
    MAX_FIELDS,
    MAX_HEADER,
    MAX_LINE,
)
from tapeway.server.proxy import ProxyOptions
from tapeway.upstream import connection
from tests.server.in_process_proxy import KIB, MIB, running_proxy
from tests.support.socket_upstream import OK, Peer

FIELD = b"X-Long: " + b"x" * (MAX_FIELD - len(b"X-Long"))
LONGER = b"X-Long: " + b"x" * (MAX_FIELD + 1)
TARGET = b"GET /" + b"x" * (MAX_LINE - 1)
MANY = [b"X-%d: a" % number for number in range(MAX_FIELDS - 1)]


async def test_what_the_limits_allow_passes() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        assert (await proxy.ask(b"GET /", FIELD)).status == 200
        assert (await proxy.ask(TARGET)).status == 200
        assert (await proxy.ask(b"GET /", *MANY)).status == 200

        assert FIELD in peer.requests[0]
        assert peer.requests[1].startswith(TARGET)
        assert b"\r\n".join(MANY) in peer.requests[2]


@pytest.mark.parametrize(
    ("line", "fields", "status", "code"),
    [
        (b"GET /", (LONGER,), 431, b"header_too_large"),
        (b"GET /", (b"X" * MAX_FIELD + b"Y: a",), 431, b"header_too_large"),
        (TARGET + b"x", (), 414, b"uri_too_long"),
        (b"GET /" + b"x" * 64 * KIB, (), 414, b"uri_too_long"),
        (b"GET /", (*MANY, b"X-One-More: a"), 431, b"too_many_headers"),
        (b"GET /", (FIELD,) * 4, 431, b"header_too_large"),
        (b"POST /", (b"Content-Length: 0", *(FIELD,) * 4), 431, b"header_too_large"),
        (b"FOO /" + b"x" * 64 * KIB, (), 414, b"uri_too_long"),
    ],
    ids=[
        *("field", "name", "target", "long target", "fields", "all fields", "all of an upload"),
        "target of another method",
    ],
)
async def test_a_header_beyond_the_limits_is_refused(
    line: bytes, fields: tuple[bytes, ...], status: int, code: bytes
) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        [answer] = await app.converse(proxy.request(line, *fields), answers=1)

        assert answer.status == status
        assert b'"code":"' + code + b'"' in answer.body
        assert await app.rest() == b""
        assert peer.connections == 0


async def test_as_much_header_as_may_be_passes_in_pieces() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        sent = proxy.request(b"GET /", *(FIELD,) * 3)
        answer = await proxy.send(*[sent[at : at + 9000] for at in range(0, len(sent), 9000)])

        assert answer.status == 200
        assert peer.requests[0].count(FIELD) == 3


def test_the_limits_are_those_that_are_written_down() -> None:
    page = (Path(__file__).parents[3] / "docs" / "http.md").read_text()
    rows = {
        f"| request line | {MAX_LINE // KIB} KiB target | 414 |",
        f"| one header field of a request | {MAX_FIELD // KIB} KiB | 431 |",
        f"| header fields of a request | {MAX_FIELDS}, together {MAX_HEADER // KIB} KiB | 431 |",
        f"| one header field of a response | {connection.MAX_FIELD // KIB} KiB | 502 |",
        f"| header fields of a response | {connection.MAX_FIELDS} | 502 |",
        f"| idle client connection | {IDLE_S:.0f} s | closed |",
        f"| header of a request, from its first byte to its last | {HEAD_S:.0f} s | closed |",
    }
    assert {row for row in rows if row not in page} == set()


@pytest.mark.parametrize("start", [b"GET /", b"GET / HTTP/1.1\r\nHost: a\r\nX: "])
async def test_a_header_that_never_ends_is_refused_while_it_comes(start: bytes) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        [answer] = await app.converse(start, *[b"x" * 1000] * 100, answers=1)

        assert answer.status in (414, 431)
        assert peer.connections == 0


async def test_an_endless_chunked_upload_is_refused_at_the_limit() -> None:
    options = ProxyOptions(max_body=MIB, body_idle_s=5)
    async with (
        Peer() as peer,
        running_proxy(peer.url, options=options) as proxy,
        proxy.connect() as app,
    ):
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        sent = proxy.request(b"POST /", b"Transfer-Encoding: chunked")
        [answer] = await app.converse(sent, *[chunk] * 17, answers=1)

        assert answer.status == 413
        assert answer.value(b"connection") == b"close"
        assert peer.connections == 0


@pytest.mark.parametrize("size", [MIB, MIB + 1])
async def test_a_body_may_be_as_large_as_the_limit(size: int) -> None:
    options = ProxyOptions(max_body=MIB, body_idle_s=5)
    async with (
        Peer() as peer,
        running_proxy(peer.url, options=options) as proxy,
        proxy.connect() as app,
    ):
        [answer] = await app.converse(proxy.request(b"POST /", body=b"x" * size), answers=1)

        assert answer.status == (200 if size == MIB else 413)
        assert len(peer.requests) == (1 if size == MIB else 0)


@pytest.mark.parametrize("mode", ["record", "passthrough"])
@pytest.mark.parametrize(
    "lines",
    [
        b"X: " + b"x" * connection.MAX_FIELD + b"\r\n",
        b"X: a\r\n" * (connection.MAX_FIELDS + 1),
        b"X" * (connection.MAX_FIELD + 1) + b": a\r\n",
    ],
    ids=["field", "fields", "name"],
)
async def test_an_answer_with_too_much_header_is_an_error_that_says_so(
    lines: bytes, mode: Mode
) -> None:
    async with Peer() as peer, running_proxy(peer.url, mode=mode) as proxy, proxy.connect() as app:
        peer.then(b"HTTP/1.1 200 OK\r\n" + lines + b"Content-Length: 2\r\n\r\nok")
        first = await app.ask(proxy.request(b"GET /1"))
        second = await app.ask(proxy.request(b"GET /2"))

        assert (first.status, second.status) == (502, 200)
        assert b'"code":"upstream_header_too_large"' in first.body


async def test_an_answer_with_much_header_passes() -> None:
    lines = b"X: " + b"x" * (connection.MAX_FIELD - 1) + b"\r\n" + b"Y: a\r\n" * 200
    head = b"HTTP/1.1 200 OK\r\n" + lines + b"Content-Length: 2\r\n\r\n"
    async with Peer(head + b"ok") as peer, running_proxy(peer.url) as proxy:
        assert len((await proxy.ask()).passed_on) == 201


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
async def test_an_answer_beyond_the_limit_is_not_recorded(framing: str) -> None:
    body = b"x" * (MIB + 1)
    head = b"HTTP/1.1 200 OK\r\n"
    steps = {
        "length": (head + b"Content-Length: %d\r\n\r\n" % len(body), body),
        "chunked": (head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body), body, b"\r\n"),
        "close": (head + b"\r\n", body),
    }
    async with Peer(OK) as peer, running_proxy(peer.url, policy=Policy(max_body=MIB)) as proxy:
        peer.then(*steps[framing], "close")
        answer = await proxy.ask(b"GET /1")

        assert answer.status == 502
        assert b'"code":"upstream_too_large"' in answer.body
        assert (await proxy.ask(b"GET /2")).body == b"ok"
        assert [exchange.request.target for exchange in await proxy.recorded()] == ["/2"]


async def test_no_limit_holds_for_what_only_passes_through() -> None:
    body = b"x" * (3 * MIB)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with (
        Peer(head, body) as peer,
        running_proxy(peer.url, mode="passthrough", policy=Policy(max_body=MIB)) as proxy,
    ):
        assert (await proxy.ask()).body == body


@pytest.mark.parametrize(
    "sent",
    [b"", b"G", b"GET / HTTP/1.1", b"GET / HTTP/1.1\r\nHost: a\r\n", b"\r\n", b"FOO"],
    ids=["nothing", "a letter", "half a line", "half a header", "an empty line", "a method"],
)
async def test_a_client_that_sends_no_whole_header_is_not_waited_for(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "IDLE_S", 0.05)
    monkeypatch.setattr(front, "HEAD_S", 0.05)
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        await app.send(sent)

        assert await app.rest() == b""
        assert peer.connections == 0


async def test_a_client_that_drips_its_header_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front, "IDLE_S", 0.05)
    monkeypatch.setattr(front, "HEAD_S", 0.05)
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        await app.send(b"GET / HTTP/1.1\r\nX: ")

        async def drip() -> None:
            while True:
                await app.send(b"x")

        # A header that became too large would be refused, and its sender heard for as long as this.
        async with asyncio.timeout(LINGER_S):
            with pytest.raises(ConnectionError):
                await drip()

        assert peer.connections == 0


async def test_a_connection_is_closed_some_time_after_its_last_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front, "IDLE_S", 0.05)
    monkeypatch.setattr(front, "HEAD_S", 0.05)
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:
        assert (await app.ask(proxy.request())).status == 200
        assert await app.rest() == b""
