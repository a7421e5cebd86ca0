"""Error pages never repeat what was sent, and say which errors an SDK should not retry."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest

from tapeway.core.misses.miss import Miss
from tapeway.core.model.control import Mode
from tapeway.core.model.messages import Request
from tapeway.engine.request_log import log_miss
from tapeway.errors import Draining, StoreError, StoreFull, TapewayError, UpstreamError
from tapeway.server.error_responses import error_response
from tapeway.upstream.client import UpstreamClient
from tapeway.upstream.response import UpstreamAnswer
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.support.canary import canary
from tests.support.socket_upstream import OK, Peer

CHUNKED = b"Transfer-Encoding: chunked"


def requests(key: bytes, host: bytes) -> dict[str, bytes]:
    """Requests that fail, each with a key in it, somewhere near the fault."""

    def get(*lines: bytes, target: bytes = b"/") -> bytes:
        head = (b"GET " + target + b" HTTP/1.1", b"Host: " + host, *lines)
        return b"\r\n".join([*head, b"", b""])

    bearer = b"Authorization: Bearer " + key
    return {
        "control character behind it": get(bearer + b"\x01"),
        "in a name": get(key + b" : a"),
        "in a folded line": get(b"X: a", b" " + key),
        "in a line without a colon": get(key),
        "in the method": key + b"() / HTTP/1.1\r\nHost: a\r\n\r\n",
        "in the target": get(target=b"/?api_key=" + key + b"\x01"),
        "in a long target": get(target=b"/?api_key=" + key + b"x" * 20_000),
        "in a long field": get(b"X-Api-Key: " + key + b"x" * 40_000),
        "in the version": b"GET / HTTP/" + key + b"\r\n\r\n",
        "in Host": b"GET / HTTP/1.1\r\nHost: " + key + b"@a\r\n\r\n",
        "in a value that is not UTF-8": get(bearer + b"\xe9"),
        "as a password in the address": get(target=b"http://user:" + key + b"@evil.example/"),
        "in the address of a tunnel": b"CONNECT u:" + key + b"@a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
        "in a traced request": b"TRACE /?api_key=" + key + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        "in a length": get(b"Content-Length: " + key),
        "in a coding": get(b"Transfer-Encoding: " + key),
        "in a chunk size": get(CHUNKED) + key + b"\r\n",
        "in an expectation": get(b"Expect: " + key),
        "in the query of a miss": get(bearer, target=b"/miss?api_key=" + key),
        "beside a fragment": get(target=b"/?api_key=" + key + b"#a"),
        "in a cassette's name": get(b"Tapeway-Cassette: ../" + key),
    }


NAMES = tuple(requests(b"", b""))


def journal_bytes(proxy: RunningProxy) -> bytes:
    """All entries of the journal."""
    return b"\n".join(repr(entry).encode() for entry in proxy.journal)


@pytest.mark.parametrize("name", NAMES)
async def test_a_refused_request_is_not_repeated(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key = canary().encode()
    async with (
        Peer() as peer,
        running_proxy(peer.url, mode="replay") as proxy,
        proxy.connect() as app,
    ):
        [answer] = await app.converse(requests(key, proxy.host)[name], answers=1)

        assert 400 <= answer.status < 600
        assert orjson.loads(answer.body)["error"]["code"]
        assert key not in answer.head + answer.body
        assert key not in journal_bytes(proxy)
        assert key.decode() not in caplog.text
        assert peer.connections == 0


ANSWERS = {
    "no HTTP": b"KEY\r\n\r\n",
    "a bad field": b"HTTP/1.1 200 OK\r\nX: KEY\x00\r\n\r\n",
    "a bad length": b"HTTP/1.1 200 OK\r\nContent-Length: KEY\r\n\r\n",
    "a bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nKEY\r\n",
    "a long field": b"HTTP/1.1 200 OK\r\nX: KEY" + b"x" * 70_000 + b"\r\n\r\n",
    "a bad reason": b"HTTP/1.1 200 KEY\x01\r\n\r\n",
    "a bad status": b"HTTP/1.1 999 KEY\r\n\r\n",
    "a cut body": b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nKEY",
}


@pytest.mark.parametrize("mode", ["record", "passthrough"])
@pytest.mark.parametrize("name", ANSWERS)
async def test_neither_what_was_asked_nor_what_came_is_repeated_when_the_upstream_fails(
    name: str, mode: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asked, came = canary().encode(), canary().encode()
    async with (
        Peer(ANSWERS[name].replace(b"KEY", came), "close") as peer,
        running_proxy(peer.url, mode=mode) as proxy,
    ):
        answer = await proxy.ask(
            b"POST /v1?api_key=" + asked, b"Authorization: Bearer " + asked, body=b"{}"
        )

        assert answer.status == 502 or not answer.complete
        said = answer.head + journal_bytes(proxy) + caplog.text.encode()
        assert asked not in said + answer.body
        assert came not in (said if mode == "passthrough" else said + answer.body)


@asynccontextmanager
async def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> AsyncIterator[RunningProxy]:
    """A proxy in which a live call fails with an error that nobody expected."""

    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(UpstreamClient, "ask", broken)
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        yield proxy


async def test_a_fault_of_our_own_is_told_by_its_place_and_not_by_its_text(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = canary()
    async with failing(monkeypatch, ValueError(f"Bearer {key}")) as proxy:
        answer = await proxy.ask()

    assert answer.status == 500
    assert key not in answer.body.decode() + caplog.text
    assert "ValueError at" in caplog.text


async def test_a_fault_in_the_handler_closes_the_connection_with_an_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = canary()
    async with Peer() as peer, running_proxy(peer.url) as proxy, proxy.connect() as app:

        def broken(*_: object) -> None:
            raise KeyError(key)

        monkeypatch.setattr(proxy.broker, "decide", broken)
        answer = await app.ask(proxy.request() + proxy.request())

        assert (answer.status, answer.value(b"connection")) == (500, b"close")
        assert await app.rest() == b""
        assert key not in answer.body.decode() + caplog.text


async def test_a_fault_in_the_middle_of_an_answer_ends_the_connection_and_adds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(_: UpstreamAnswer) -> AsyncIterator[bytes]:
        yield b"o"
        raise ValueError

    monkeypatch.setattr(UpstreamAnswer, "pieces", broken)
    async with (
        Peer() as peer,
        running_proxy(peer.url, mode="passthrough") as proxy,
        proxy.connect() as app,
    ):
        await app.send(proxy.request() + proxy.request())

        assert (await app.rest()).endswith(b"\r\n\r\no")


async def test_no_line_is_logged_for_a_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with Peer(OK) as peer, running_proxy(peer.url, mode="auto") as proxy:
        for _ in range(2):
            await proxy.ask(b"GET /?api_key=" + canary().encode(), b"Referer: http://a/?key=b")

    assert [record for record in caplog.records if record.name != "asyncio"] == []


SHAPE = ("type", "error", "message", "request_id", "tapeway")


@pytest.mark.parametrize(
    ("line", "status", "error"),
    [
        (b"TRACE /", 405, "method_not_allowed"),
        (b"GET http://evil.example/", 421, "misdirected"),
        (b"GET /@../x", 400, "bad_cassette_name"),
    ],
)
async def test_a_refusal_has_the_shape_of_every_error(line: bytes, status: int, error: str) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        answer = await proxy.ask(line)

        said = orjson.loads(answer.body)
        assert answer.status == status
        assert answer.outcome == b"error"
        assert answer.value(b"content-type") == b"application/json"
        assert set(said) == set(SHAPE)
        assert said["error"]["code"] == said["error"]["type"] == error
        assert said["request_id"].encode() == answer.value(b"x-request-id") != b""


async def test_also_what_is_no_request_gets_the_shape_of_every_error() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        answer = await proxy.send(b"nonsense\r\n\r\n")

        assert set(orjson.loads(answer.body)) == set(SHAPE)
        assert answer.outcome == b"error"


@pytest.mark.parametrize(
    ("error", "retries"),
    [
        (StoreError("the cassette cannot be written"), [b"false"]),
        (StoreFull("the disk is full"), [b"false"]),
        (UpstreamError("it cannot be reached"), []),
        (Draining("tapeway is stopping"), []),
    ],
    ids=lambda error: type(error).__name__,
)
def test_only_an_answer_that_could_not_be_kept_is_not_to_be_asked_for_again(
    error: TapewayError, retries: list[bytes]
) -> None:
    answer = error_response(error, (), request_id="tw-1", tapeway={}, ollama=False)

    assert [value for name, value in answer.headers if name == b"x-should-retry"] == retries


def test_the_log_of_a_miss_names_the_address_that_shows_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    request = Request("default", "GET", "/v1/models")
    miss = Miss("default", request, b"default\0key")

    log_miss(miss, "tw-1", None)
    log_miss(miss, "tw-1", "http://127.0.0.1:8081/")
    log_miss(miss, "tw-1", "file:///app/.tapeway/last.html")

    assert [record.getMessage() for record in caplog.records] == [
        miss.message,
        f"{miss.message}; see http://127.0.0.1:8081/#/journal/tw-1",
        f"{miss.message}; see file:///app/.tapeway/last.html#/journal/tw-1",
    ]
