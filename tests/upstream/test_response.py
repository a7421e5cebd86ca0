"""Answers that are whole and sane are taken in; of any other nothing is stored."""

import asyncio
from collections.abc import Sequence

import pytest

from tapeway.core.model.control import Mode
from tapeway.core.model.messages import Request
from tapeway.errors import UpstreamError
from tapeway.upstream.client import Limits
from tests.server.in_process_proxy import running_proxy
from tests.support.fakes.broker import until
from tests.support.raw_client import Answer
from tests.support.socket_upstream import OK, Peer, Step

HEAD = b"HTTP/1.1 200 OK\r\n"
LENGTH = HEAD + b"Content-Length: 10\r\n\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
CLOSED = HEAD + b"\r\n"
FRAMINGS = {
    "length": (LENGTH, b"hello", b"world"),
    "chunked": (CHUNKED, b"5\r\nhello\r\n", b"5\r\nworld\r\n0\r\n\r\n"),
    "close": (CLOSED, b"hello", b"world"),
}


def code(answer: Answer) -> tuple[int, str]:
    """Status and code of an error."""
    return answer.status, answer.body.partition(b'"code":"')[2].partition(b'"')[0].decode()


# Cut short.

CUTS: dict[str, tuple[tuple[Step, ...], str]] = {
    "nothing at all": (("close",), "upstream_reset"),
    "reset at once": (("reset",), "upstream_reset"),
    "half a status line": ((b"HTTP/1.1 20", "close"), "upstream_reset"),
    "half a header": ((HEAD + b"Content-Le", "close"), "upstream_reset"),
    "half a header, reset": ((HEAD + b"Content-Le", "reset"), "upstream_reset"),
    "a length and no body": ((LENGTH, "close"), "upstream_truncated"),
    "a short body": ((LENGTH, b"hello", "close"), "upstream_truncated"),
    "a short body, reset": ((LENGTH, b"hello", "reset"), "upstream_truncated"),
    "no chunk": ((CHUNKED, "close"), "upstream_truncated"),
    "half a chunk": ((CHUNKED, b"5\r\nhe", "close"), "upstream_truncated"),
    "half a chunk, reset": ((CHUNKED, b"5\r\nhe", "reset"), "upstream_truncated"),
    "no last chunk": ((CHUNKED, b"5\r\nhello\r\n", "close"), "upstream_truncated"),
    "half a last chunk": ((CHUNKED, b"5\r\nhello\r\n0\r\n", "close"), "upstream_truncated"),
    "half a trailer": ((CHUNKED, b"5\r\nhello\r\n0\r\nX-Su", "close"), "upstream_truncated"),
    "a body without a length, reset": ((CLOSED, b"hello", "reset"), "upstream_truncated"),
    "no body without a length, reset": ((CLOSED, "reset"), "upstream_truncated"),
}


@pytest.mark.parametrize("name", CUTS)
async def test_an_answer_cut_short_is_an_error_and_not_stored(name: str) -> None:
    steps, expected = CUTS[name]
    async with Peer(OK) as peer, running_proxy(peer.url, mode="auto") as proxy:
        peer.then(*steps)
        first = await proxy.ask(b"GET /1")
        second = await proxy.ask(b"GET /1")

        assert code(first) == (502, expected)
        assert (second.outcome, second.body) == (b"recorded", b"ok")
        assert len(peer.requests) == 2
        assert len(await proxy.recorded()) == 1


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("how", ["length", "chunked"])
async def test_an_answer_passed_on_breaks_off_where_the_upstream_did(how: str, end: str) -> None:
    head, first, _ = FRAMINGS[how]
    step: Step = "close" if end == "close" else "reset"
    async with (
        Peer(head, first, step) as peer,
        running_proxy(peer.url, mode="passthrough") as proxy,
    ):
        answer = await proxy.ask()

        assert answer.status == 200
        assert not answer.complete
        assert answer.body == b"hello"


async def test_a_body_without_a_length_passed_on_breaks_off_at_a_reset() -> None:
    steps: tuple[Step, ...] = (CLOSED, b"hello", "reset")
    async with Peer(*steps) as peer, running_proxy(peer.url, mode="passthrough") as proxy:
        assert not (await proxy.ask()).complete


# Late.


@pytest.mark.parametrize("how", FRAMINGS)
@pytest.mark.parametrize("after", ["the request", "the head", "a piece"])
async def test_an_answer_that_stops_coming_is_a_timeout_and_not_stored(
    how: str, after: str
) -> None:
    head, first, _ = FRAMINGS[how]
    steps: dict[str, tuple[Step, ...]] = {
        "the request": ("stall",),
        "the head": (head, "stall"),
        "a piece": (head, first, "stall"),
    }
    limits = Limits(connect_s=10, idle_s=0.1)
    async with Peer(*steps[after]) as peer, running_proxy(peer.url, limits=limits) as proxy:
        assert code(await proxy.ask()) == (504, "upstream_timeout")
        assert await proxy.recorded() == []


async def test_an_answer_passed_on_that_stops_coming_breaks_off() -> None:
    limits = Limits(connect_s=10, idle_s=0.1)
    async with (
        Peer(CHUNKED, b"5\r\nhello\r\n", "stall") as peer,
        running_proxy(peer.url, mode="passthrough", limits=limits) as proxy,
    ):
        answer = await proxy.ask()

        assert not answer.complete
        assert answer.body == b"hello"


async def test_an_answer_may_take_as_long_as_it_keeps_coming() -> None:
    limits = Limits(connect_s=10, idle_s=1)
    pieces = [b"1\r\nx\r\n"] * 30
    steps = (CHUNKED, *pieces, b"0\r\n\r\n")
    async with Peer(*steps) as peer, running_proxy(peer.url, limits=limits) as proxy:
        assert (await proxy.ask()).body == b"x" * 30


@pytest.mark.parametrize("greeting", [OK, b"SSH-2.0-OpenSSH_9.6\r\n"])
async def test_a_server_that_speaks_before_it_is_asked_is_asked_once(greeting: bytes) -> None:
    async with Peer(greeting, "stall", unasked=True) as peer, running_proxy(peer.url) as proxy:
        answer = await proxy.ask()

        assert answer.status == (200 if greeting == OK else 502)
        assert peer.connections == 1


async def test_what_passes_through_leaves_as_it_comes() -> None:
    go = asyncio.Event()
    async with (
        Peer(CHUNKED, b"5\r\nhello\r\n", go, b"5\r\nworld\r\n0\r\n\r\n") as peer,
        running_proxy(peer.url, mode="passthrough") as proxy,
        proxy.connect() as app,
    ):
        await app.send(proxy.request())
        assert (await app.until(b"5\r\nhello\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        go.set()
        assert await app.until(b"0\r\n\r\n") == b"5\r\nworld\r\n0\r\n\r\n"


async def test_what_is_recorded_leaves_only_when_it_is_whole() -> None:
    go = asyncio.Event()
    async with (
        Peer(CHUNKED, b"5\r\nhello\r\n", go, b"5\r\nworld\r\n", "close") as peer,
        running_proxy(peer.url) as proxy,
        proxy.connect() as app,
    ):
        await app.send(proxy.request())
        await peer.asked.wait()
        go.set()

        assert (await app.answer()).status == 502


# No answer that could be given to anybody.

SENSELESS = {
    "not HTTP": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "HTML alone": b"<html></html>\r\n\r\n",
    "status 99": b"HTTP/1.1 099 X\r\nContent-Length: 0\r\n\r\n",
    "status of two digits": b"HTTP/1.1 99 X\r\nContent-Length: 0\r\n\r\n",
    "status 600": b"HTTP/1.1 600 X\r\nContent-Length: 0\r\n\r\n",
    "status 999": b"HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n",
    "status of four digits": b"HTTP/1.1 1000 X\r\nContent-Length: 0\r\n\r\n",
    "status in words": b"HTTP/1.1 OK\r\nContent-Length: 0\r\n\r\n",
    "NUL in the reason": b"HTTP/1.1 200 a\x00b\r\nContent-Length: 0\r\n\r\n",
    "control character in the reason": b"HTTP/1.1 200 a\x01b\r\nContent-Length: 0\r\n\r\n",
    "bare CR in the reason": b"HTTP/1.1 200 a\rb\r\nContent-Length: 0\r\n\r\n",
    "version 2": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    "the same length twice": HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok",
    "a list of lengths": HEAD + b"Content-Length: 2, 2\r\n\r\nok",
    "a signed length": HEAD + b"Content-Length: +2\r\n\r\nok",
    "a length of 20 digits": HEAD + b"Content-Length: 99999999999999999999\r\n\r\nok",
    "a length of 2^64-1": HEAD + b"Content-Length: 18446744073709551615\r\n\r\nok",
    "length and chunks": HEAD + b"Content-Length: 2\r\n" + CHUNKED[len(HEAD) :] + b"0\r\n\r\n",
    "chunks and length": CHUNKED[:-2] + b"Content-Length: 2\r\n\r\n0\r\n\r\n",
    "compressed chunks": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "compressed up to the end": HEAD + b"Transfer-Encoding: gzip\r\n\r\nok",
    "chunks twice": HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "a chunk size that is none": CHUNKED + b"zz\r\nok\r\n0\r\n\r\n",
    "a chunk longer than it says": CHUNKED + b"2\r\nokay\r\n0\r\n\r\n",
    "an oversize chunk size": CHUNKED + b"10000000000000002\r\nok\r\n0\r\n\r\n",
    "bytes behind the end": OK + b"EXTRA",
    "switching protocols": b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
}


@pytest.mark.parametrize("mode", ["record", "passthrough"])
@pytest.mark.parametrize("name", SENSELESS)
async def test_a_senseless_answer_is_an_error_and_its_connection_used_up(
    name: str, mode: Mode
) -> None:
    async with Peer(OK) as peer, running_proxy(peer.url, mode=mode) as proxy:
        peer.then(SENSELESS[name], "close")
        first = await proxy.ask(b"GET /1")
        second = await proxy.ask(b"GET /2")

        assert code(first) == (502, "upstream_protocol")
        assert (second.status, second.body) == (200, b"ok")
        assert peer.connections == 2
        assert all(exchange.request.target == "/2" for exchange in await proxy.recorded())


@pytest.mark.parametrize("later", [b"zz\r\n", b"2\r\nokay\r\n", b"\x00"])
async def test_a_body_that_becomes_senseless_is_an_error_at_once(later: bytes) -> None:
    async with Peer(CHUNKED + b"5\r\nhello\r\n", later, "stall") as peer:
        async with running_proxy(peer.url) as proxy:
            assert code(await proxy.ask()) == (502, "upstream_protocol")
            assert await proxy.recorded() == []
        async with running_proxy(peer.url, mode="passthrough") as proxy:
            answer = await proxy.ask()
            assert answer.body.startswith(b"hello")
            assert not answer.complete


UNUSUAL: dict[str, tuple[tuple[Step, ...], bytes]] = {
    "no reason": ((b"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok",), b"ok"),
    "no space behind the status": ((b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok",), b"ok"),
    "bare line feeds": ((b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",), b"ok"),
    "an empty line first": ((b"\r\n" + OK,), b"ok"),
    "byte by byte": (tuple(OK[at : at + 1] for at in range(len(OK))), b"ok"),
    "a coding that is none": ((HEAD + b"Transfer-Encoding: identity\r\n\r\nok", "close"), b"ok"),
    "a folded field": ((HEAD + b"X: a\r\n b\r\nContent-Length: 2\r\n\r\nok",), b"ok"),
    "an empty chunked body": ((CHUNKED + b"0\r\n\r\n",), b""),
    "an empty body up to the end": ((CLOSED, "close"), b""),
    "two types": ((HEAD + b"Content-Type: a/b\r\n" * 2 + b"Content-Length: 2\r\n\r\nok",), b"ok"),
    "chunk extensions": ((CHUNKED + b'2;a="b"\r\nok\r\n0;c\r\n\r\n',), b"ok"),
    "a size with zeros before it": ((CHUNKED + b"0002\r\nok\r\n0\r\n\r\n",), b"ok"),
}


@pytest.mark.parametrize("mode", ["record", "passthrough"])
@pytest.mark.parametrize("name", UNUSUAL)
async def test_an_unusual_answer_that_has_one_meaning_is_passed_on(name: str, mode: Mode) -> None:
    steps, body = UNUSUAL[name]
    async with Peer(*steps) as peer, running_proxy(peer.url, mode=mode) as proxy:
        answer = await proxy.ask()

        assert (answer.status, answer.body, answer.complete) == (200, body, True)


@pytest.mark.parametrize("status", [200, 201, 299, 300, 400, 404, 429, 500, 503, 529, 599])
async def test_any_status_is_passed_on_and_replayed(status: int) -> None:
    sent = b"HTTP/1.1 %d Some Words\r\nContent-Length: 2\r\n\r\nok" % status
    async with Peer(sent) as peer, running_proxy(peer.url) as proxy:
        live = await proxy.ask()
        await proxy.broker.set_mode("replay")
        replayed = await proxy.ask()

    assert (live.outcome, replayed.outcome) == (b"recorded", b"replayed")
    for answer in (live, replayed):
        assert (answer.status, answer.reason, answer.body) == (status, b"Some Words", b"ok")


@pytest.mark.parametrize("name", ["length", "chunked"])
@pytest.mark.parametrize("end", ["close", "reset"])
async def test_what_came_while_nobody_read_comes_before_the_news_that_it_broke_off(
    name: str, end: Step
) -> None:
    head, first, _ = FRAMINGS[name]
    second = b"5\r\nwor" if name == "chunked" else b"wor"
    go, came = asyncio.Event(), list[bytes]()
    async with Peer(head, first, go, second, end) as peer, running_proxy(peer.url) as proxy:
        request = Request("default", "GET", "/", base=peer.url)

        def pause_at_the_first(pieces: Sequence[bytes], _at_ms: float) -> bool:
            came.extend(pieces)
            return not go.is_set()

        async def read() -> None:
            async with proxy.client.ask(request) as live:
                while await live.receive(100, pause_at_the_first):
                    go.set()
                    await until(lambda: proxy.client.open_connections == (0, 0))

        with pytest.raises(UpstreamError, match="broke off"):
            await read()

    assert came == [b"hello", b"wor"]
