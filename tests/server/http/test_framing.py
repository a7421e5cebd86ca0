"""How bodies are marked off on both sides: made anew by the proxy, never copied."""

import gzip
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tapeway.core.model.control import Mode
from tests.server.in_process_proxy import RunningProxy, running_proxy, written_and_read
from tests.support.raw_client import Answer
from tests.support.reuse import REUSED
from tests.support.socket_upstream import Peer, Step

EVENTS = [b"data: one\n\n", b"data: tw", b"o\n\ndata: [DONE]\n\n"]
WHOLE = b"".join(EVENTS)
TYPE = b"Content-Type: text/event-stream\r\n"
LENGTH = b"HTTP/1.1 200 OK\r\n" + TYPE + b"Content-Length: %d\r\n\r\n" % len(WHOLE) + WHOLE
CHUNKED = (
    b"HTTP/1.1 200 OK\r\n" + TYPE + b"Transfer-Encoding: chunked\r\n\r\n",
    *(b"%x\r\n%b\r\n" % (len(event), event) for event in EVENTS),
    b"0\r\n\r\n",
)
CLOSED: tuple[Step, ...] = (
    b"HTTP/1.1 200 OK\r\n" + TYPE + b"\r\n" + EVENTS[0],
    WHOLE[len(EVENTS[0]) :],
    "close",
)
FRAMINGS: dict[str, tuple[Step, ...]] = {"length": (LENGTH,), "chunked": CHUNKED, "close": CLOSED}
TRAILERS = (*CHUNKED[:-1], b"0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n")


def framing(answer: Answer) -> list[bytes]:
    """The fields that mark off the body."""
    return [
        name.lower()
        for name, _ in answer.fields
        if name.lower() in (b"content-length", b"transfer-encoding")
    ]


@pytest.mark.parametrize("mode", ["record", "passthrough"])
@pytest.mark.parametrize("how", FRAMINGS)
async def test_a_live_answer_has_one_framing_and_the_same_body(how: str, mode: Mode) -> None:
    async with Peer(*FRAMINGS[how]) as peer, running_proxy(peer.url, mode=mode) as proxy:
        answer = await proxy.ask(b"POST /v1", body=b"{}")

        assert answer.complete
        assert answer.body == WHOLE
        assert framing(answer) == [b"content-length" if how == "length" else b"transfer-encoding"]
        assert answer.passed_on == [(b"Content-Type", b"text/event-stream")]


@pytest.mark.parametrize("how", FRAMINGS)
async def test_a_replay_has_the_framing_and_body_of_its_recording(how: str) -> None:
    async with Peer(*FRAMINGS[how]) as peer, running_proxy(peer.url) as proxy:
        live = await proxy.ask(b"POST /v1", body=b"{}")
        store = await written_and_read(proxy.store)
    async with running_proxy(store=store, mode="replay") as proxy:
        replayed = await proxy.ask(b"POST /v1", body=b"{}")
        assert proxy.client.connections == 0

    assert replayed.outcome == b"replayed"
    assert replayed.chunks == live.chunks
    assert replayed.passed_on == live.passed_on
    assert framing(replayed) == framing(live)


@pytest.mark.parametrize("mode", ["record", "passthrough"])
async def test_chunks_leave_where_the_upstream_cut_them(mode: Mode) -> None:
    async with Peer(*CHUNKED) as peer, running_proxy(peer.url, mode=mode) as proxy:
        assert (await proxy.ask()).chunks == EVENTS


async def test_chunks_that_come_in_one_segment_keep_their_ends() -> None:
    async with Peer(b"".join(CHUNKED)) as peer, running_proxy(peer.url) as proxy:
        assert (await proxy.ask()).chunks == EVENTS


async def test_ten_thousand_tiny_chunks_keep_their_ends() -> None:
    pieces = [b"%d;" % number for number in range(10_000)]
    sent = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    async with Peer(CHUNKED[0] + sent + b"0\r\n\r\n") as peer, running_proxy(peer.url) as proxy:
        assert (await proxy.ask()).chunks == pieces


@pytest.mark.parametrize("mode", ["record", "passthrough"])
async def test_trailers_do_not_disturb_the_framing(mode: Mode) -> None:
    async with (
        Peer(*TRAILERS) as peer,
        running_proxy(peer.url, mode=mode) as proxy,
        proxy.connect() as app,
    ):
        first = await app.ask(proxy.request(b"GET /1"))
        second = await app.ask(proxy.request(b"GET /2"))

        assert first.chunks == second.chunks == EVENTS
        assert b"X-Sum" not in first.head


async def test_neither_trailers_nor_their_announcement_are_recorded() -> None:
    announced = TRAILERS[0].replace(TYPE, TYPE + b"Trailer: X-Sum\r\n")
    async with Peer(announced, *TRAILERS[1:]) as peer, running_proxy(peer.url) as proxy:
        live = await proxy.ask()
        [recorded] = await proxy.recorded()

        assert live.values(b"trailer") == []
        assert [name for name, _ in recorded.response.headers] == [b"Content-Type"]


# Uploads.

BODY = b'{"model": "m", "input": "' + "ü".encode() * 600 + b'"}'


def chunks_of(body: bytes, *extensions: bytes) -> bytes:
    """A chunked body in two chunks."""
    extension = b"".join(extensions)
    first, second = body[:7], body[7:]
    return b"%x%b\r\n%b\r\n%X\r\n%b\r\n0\r\n\r\n" % (
        *(len(first), extension, first),
        *(len(second), second),
    )


UPLOADS: dict[str, tuple[list[bytes], bytes]] = {
    "chunked": ([b"Transfer-Encoding: chunked"], chunks_of(BODY)),
    "chunked, spelled otherwise": ([b"transfer-encoding:\tChunked"], chunks_of(BODY)),
    "chunked with an extension": ([b"Transfer-Encoding: chunked"], chunks_of(BODY, b";a=b")),
    "chunked with a trailer": (
        [b"Transfer-Encoding: chunked", b"Trailer: X-Sum"],
        chunks_of(BODY)[:-2] + b"X-Sum: 1\r\n\r\n",
    ),
    "length": ([b"Content-Length: %d" % len(BODY)], BODY),
}


@pytest.mark.parametrize("cut", ["whole", "by pieces"])
@pytest.mark.parametrize("how", UPLOADS)
async def test_an_upload_reaches_the_upstream_with_one_framing(how: str, cut: str) -> None:
    fields, sent = UPLOADS[how]
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        request = proxy.request(b"POST /v1", *fields) + sent
        step = len(request) if cut == "whole" else 100
        await proxy.send(*[request[at : at + step] for at in range(0, len(request), step)])

        head, _, body = peer.requests[0].partition(b"\r\n\r\n")
        assert body == BODY
        assert head.lower().count(b"content-length: %d" % len(BODY)) == 1
        assert b"transfer-encoding" not in head.lower()
        assert b"trailer" not in head.lower()
        assert b"X-Sum" not in head


async def test_a_chunked_upload_and_one_by_length_are_the_same_request() -> None:
    async with Peer() as peer, running_proxy(peer.url, mode="auto", rules=REUSED) as proxy:
        outcomes = [
            (
                await proxy.send(proxy.request(b"POST /v1", *UPLOADS[how][0]) + UPLOADS[how][1])
            ).outcome
            for how in ("chunked", "length")
        ]

        assert outcomes == [b"recorded", b"replayed"]


async def test_a_compressed_upload_stays_compressed() -> None:
    body = gzip.compress(BODY)
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        await proxy.ask(b"POST /v1", b"Content-Encoding: gzip", body=body)

        head, _, received = peer.requests[0].partition(b"\r\n\r\n")
        assert b"\r\nContent-Encoding: gzip\r\n" in head
        assert received == body


@pytest.mark.parametrize("method", [b"GET", b"DELETE", b"OPTIONS", b"FOO"])
@pytest.mark.parametrize("how", ["chunked", "length"])
async def test_a_body_is_carried_whatever_the_method(method: bytes, how: str) -> None:
    fields, sent = UPLOADS[how]
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        await proxy.send(proxy.request(method + b" /v1", *fields) + sent)

        assert peer.requests[0].startswith(method + b" /v1 HTTP/1.1\r\n")
        assert peer.requests[0].endswith(b"\r\n\r\n" + BODY)


Ask = Callable[[RunningProxy], Coroutine[Any, Any, Answer]]
EMPTY: dict[str, tuple[Ask, list[bytes]]] = {
    "GET": (lambda proxy: proxy.ask(b"GET /"), []),
    "DELETE": (lambda proxy: proxy.ask(b"DELETE /"), []),
    "FOO": (lambda proxy: proxy.ask(b"FOO /"), []),
    "GET with its own length": (lambda proxy: proxy.ask(b"GET /", b"Content-Length: 0"), [b"0"]),
    "POST": (lambda proxy: proxy.ask(b"POST /"), [b"0"]),
    "POST with its own length": (lambda proxy: proxy.ask(b"POST /", b"Content-Length: 0"), [b"0"]),
    "POST of no chunks": (
        lambda proxy: proxy.send(
            proxy.request(b"POST /", b"Transfer-Encoding: chunked") + b"0\r\n\r\n"
        ),
        [b"0"],
    ),
}


@pytest.mark.parametrize("how", EMPTY)
async def test_a_length_is_announced_only_where_a_body_is_expected(how: str) -> None:
    ask, expected = EMPTY[how]
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        await ask(proxy)

        lines = peer.requests[0].split(b"\r\n")
        lengths = [line for line in lines if line.lower().startswith(b"content-length")]
        assert [line.partition(b": ")[2] for line in lengths] == expected
