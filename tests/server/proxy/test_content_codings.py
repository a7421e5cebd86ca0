"""Content codings: live the very bytes, in the cassette text, replayed to whatever client asks."""

import asyncio
import base64
import gzip
import logging
import os
from pathlib import Path

import pytest

from tapeway.core.json_text import Json, dump
from tapeway.core.model.control import Delivery
from tapeway.formats.native.document import load
from tapeway.server.proxy import ProxyOptions
from tapeway.stores.memory import MemoryStore
from tapeway.stores.opening import open_store
from tests.server.in_process_proxy import MIB, running_proxy, written_and_read
from tests.support.canary import canary
from tests.support.coded_bodies import PACKERS, flushed, pack
from tests.support.raw_client import Answer
from tests.support.reuse import REUSED
from tests.support.socket_upstream import Peer

GZIP = b"Accept-Encoding: gzip"
EVENTS = [b"data: %d\n\n" % number for number in range(4)]
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
TEXT = b'{"text": "hello, hello, hello"}'


def chunked(coding: bytes, wire: list[bytes]) -> list[bytes]:
    """The steps of a coded stream, a chunk each."""
    pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in wire]
    return [STREAM + b"Content-Encoding: %b\r\n\r\n" % coding, *pieces, b"0\r\n\r\n"]


def sized(coding: bytes, body: bytes, *fields: bytes, status: bytes = b"200 OK") -> bytes:
    head = [
        b"HTTP/1.1 " + status,
        b"Content-Type: application/json",
        b"Content-Encoding: " + coding,
        b"Content-Length: %d" % len(body),
        *fields,
    ]
    return b"\r\n".join([*head, b"", body])


@pytest.mark.parametrize("coding", PACKERS)
async def test_a_coded_stream_is_live_as_it_came_and_replayed_as_text_in_its_chunks(
    coding: bytes,
) -> None:
    wire = flushed(coding, EVENTS)
    async with Peer(*chunked(coding, wire)) as peer, running_proxy(peer.url) as proxy:
        live = await proxy.ask(b"GET /s", b"Accept-Encoding: " + coding)
        store = await written_and_read(proxy.store)
    async with running_proxy(store=store, mode="replay") as proxy:
        replayed = await proxy.ask(b"GET /s", b"Accept-Encoding: " + coding)

    assert (live.chunks, live.value(b"Content-Encoding")) == (wire, coding)
    assert replayed.complete
    assert replayed.chunks == EVENTS
    assert replayed.passed_on == [(b"Content-Type", b"text/event-stream")]


@pytest.mark.parametrize("coding", [*PACKERS, b"gzip, br"])
@pytest.mark.parametrize("accepted", [b"gzip", b"identity", b"identity;q=0, gzip", b""])
async def test_a_coded_answer_is_replayed_plain_whatever_the_client_takes(
    coding: bytes, accepted: bytes
) -> None:
    answer = sized(coding, pack(coding, TEXT), b'ETag: "x"', b"Vary: Accept-Encoding")
    async with Peer(answer) as peer, running_proxy(peer.url, mode="auto", rules=REUSED) as proxy:
        live = await proxy.ask(b"GET /x", b"Accept-Encoding: " + coding)
        replayed = await proxy.ask(b"GET /x", *[b"Accept-Encoding: " + accepted][: len(accepted)])
        (recorded,) = await proxy.recorded()

    assert live.body == answer.partition(b"\r\n\r\n")[2]
    assert live.value(b"Content-Encoding") == coding
    assert (replayed.outcome, replayed.body) == (b"replayed", TEXT)
    assert replayed.value(b"Content-Length") == b"%d" % len(TEXT)
    assert replayed.passed_on == [
        (b"Content-Type", b"application/json"),
        (b"ETag", b'"x"'),
        (b"Vary", b"Accept-Encoding"),
    ]
    assert recorded.response.body == TEXT


def bodies(answers: list[Answer]) -> list[tuple[bytes, bytes]]:
    """Content coding and body of each answer."""
    return [(answer.value(b"Content-Encoding"), answer.body) for answer in answers]


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
@pytest.mark.parametrize("stored", ["memory:", "{}", "sqlite:{}/x.db"])
@pytest.mark.parametrize(
    ("offered", "field"),
    [
        ((), b"ETag: a"),
        ((b"Accept-Encoding: br, identity",), b"ETag: a"),
        ((b"Accept-Encoding: gzip;q=0, *",), b"ETag: a"),
        ((GZIP,), b"x-goog-hash: md5=a"),
        ((GZIP,), b"X-Amz-Checksum-CRC32: a"),
        ((GZIP,), b"Content-MD5: a"),
        ((GZIP,), b"Content-Digest: sha-256=:a:"),
    ],
)
async def test_a_coded_object_is_replayed_as_it_came(
    offered: tuple[bytes, ...], field: bytes, stored: str, delivery: Delivery, tmp_path: Path
) -> None:
    packed = gzip.compress(TEXT)
    answer = sized(b"gzip", packed, field)
    options = ProxyOptions(max_body=MIB, body_idle_s=5, delivery=delivery)
    url = stored.format(tmp_path)
    async with Peer(answer) as peer:
        store = open_store(url)
        async with running_proxy(peer.url, store=store, options=options) as proxy:
            live = await proxy.ask(b"GET /x", *offered)
    again = store if url == "memory:" else open_store(url)
    async with running_proxy(mode="replay", store=again) as proxy:
        replayed = [await proxy.ask(b"GET /x", *offered) for _ in range(2)]

    assert bodies([live, *replayed]) == [(b"gzip", packed)] * 3
    assert [response.passed_on for response in replayed] == [live.passed_on] * 2


@pytest.mark.parametrize(
    "offered", [b"gzip", b"x-gzip", b"br, GZIP;q=0.1", b"*", b"deflate, *;q=0.5"]
)
async def test_a_coding_that_the_request_offered_is_taken_off(offered: bytes) -> None:
    async with Peer(sized(b"gzip", gzip.compress(TEXT))) as peer, running_proxy(peer.url) as proxy:
        await proxy.ask(b"GET /x", b"Accept-Encoding: " + offered)
        [recorded] = await proxy.recorded()

    assert recorded.response.body == TEXT


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
async def test_a_coded_object_with_a_secret_is_stored_plain_and_the_log_says_so(
    delivery: Delivery, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "tapeway.engine")
    key = canary().encode()
    packed = gzip.compress(b'{"text": "%b"}' % key)
    options = ProxyOptions(max_body=MIB, body_idle_s=5, delivery=delivery)
    async with (
        Peer(sized(b"gzip", packed, b"Content-MD5: a")) as peer,
        running_proxy(peer.url, options=options) as proxy,
    ):
        live = await proxy.ask(b"GET /x", b"Authorization: Bearer " + key)
        [recorded] = await proxy.recorded()

    assert live.body == packed
    assert b"REDACTED" in recorded.response.body
    assert recorded.response.headers == ((b"Content-Type", b"application/json"),)
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith(
        "cassette 'default': the response to GET /x in the coding gzip shows a secret"
    )


async def test_a_client_that_joins_a_call_gets_the_coded_object_as_it_came() -> None:
    packed = gzip.compress(TEXT)
    said, gate = sized(b"gzip", packed, b"Content-MD5: a"), asyncio.Event()
    async with (
        Peer(said[:9], gate, said[9:]) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
        asyncio.TaskGroup() as tasks,
    ):
        asking = [tasks.create_task(proxy.ask(b"GET /", GZIP)) for _ in range(2)]
        await peer.asked.wait()
        gate.set()
        answers = [await task for task in asking]

    assert bodies(answers) == [(b"gzip", packed)] * 2


BROKEN = {
    "broken": sized(b"gzip", b"no gzip at all"),
    "cut": sized(b"gzip", gzip.compress(TEXT)[:-1]),
    "unknown": sized(b"unheard-of", TEXT),
    "a bomb": sized(b"gzip", gzip.compress(bytes(40_000_000))),
    "a part": sized(
        b"gzip",
        gzip.compress(TEXT)[:9],
        b"Content-Range: bytes 0-8/50",
        status=b"206 Partial Content",
    ),
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
async def test_what_cannot_be_read_is_replayed_as_it_came(answer: bytes) -> None:
    async with Peer(answer) as peer, running_proxy(peer.url) as proxy:
        live = await proxy.ask(b"GET /x", b"Range: bytes=0-8")
        store = await written_and_read(proxy.store)
    async with running_proxy(store=store, mode="replay") as proxy:
        replayed = await proxy.ask(b"GET /x", b"Range: bytes=0-8")

    assert live.body == replayed.body == answer.partition(b"\r\n\r\n")[2]
    assert live.passed_on == replayed.passed_on
    assert replayed.values(b"Content-Encoding")


async def test_a_head_and_a_304_keep_what_they_say_of_a_body() -> None:
    said = b'Content-Encoding: gzip\r\nContent-MD5: x\r\nETag: W/"1"\r\n\r\n'
    for line, status in ((b"HEAD /x", b"200 OK"), (b"GET /x", b"304 Not Modified")):
        head = b"HTTP/1.1 " + status + b"\r\n" + said
        async with Peer(head) as peer, running_proxy(peer.url) as proxy:
            live = await proxy.ask(line, b'If-None-Match: W/"1"')
            store = await written_and_read(proxy.store)
        async with running_proxy(store=store, mode="replay") as proxy:
            replayed = await proxy.ask(line, b'If-None-Match: W/"1"')

        assert live.passed_on == replayed.passed_on
        assert replayed.value(b"Content-Encoding") == b"gzip"


async def test_an_upload_in_another_coding_is_another_request() -> None:
    def upload(coding: bytes) -> tuple[bytes, ...]:
        return (b"Content-Type: application/json", b"Content-Encoding: " + coding)

    async with Peer() as peer, running_proxy(peer.url, mode="auto", rules=REUSED) as proxy:
        answers = [
            await proxy.ask(b"POST /x", *upload(coding), body=pack(coding, TEXT))
            for coding in (b"gzip", b"br", b"zstd, gzip") * 2
        ]
        answers.append(await proxy.ask(b"POST /x", upload(b"")[0], body=TEXT))
        recorded = [exchange.request for exchange in await proxy.recorded()]

        assert peer.requests[0].endswith(pack(b"gzip", TEXT)[-20:])
    assert [answer.outcome for answer in answers] == [
        *([b"recorded"] * 3 + [b"replayed"] * 3),
        b"recorded",
    ]
    assert [answer.body for answer in recorded] == [TEXT] * 4
    assert [response.coding for response in recorded] == [b"gzip", b"br", b"zstd, gzip", b""]
    assert {answer.headers for answer in recorded} == {((b"Content-Type", b"application/json"),)}


async def test_a_coded_body_in_base64_replays_as_it_stands() -> None:
    body = gzip.compress(TEXT)
    document: Json = {
        "kind": "http",
        "request": {"method": "GET", "url": "http://h/x"},
        "response": {
            "status_code": 200,
            "headers": {"Content-Encoding": "gzip"},
            "body_b64": base64.b64encode(body).decode(),
        },
    }
    store = MemoryStore()
    text = b'{"version": "1", "interactions": [%b]}' % dump(document)
    await store.save("default", load(text))
    async with running_proxy(store=store, mode="replay") as proxy:
        replayed = await proxy.ask(b"GET /x")

    assert (replayed.body, replayed.value(b"Content-Encoding")) == (body, b"gzip")


async def test_a_client_that_joins_a_call_gets_a_large_answer_decoded() -> None:
    text = os.urandom(MIB).hex().encode()
    packed = gzip.compress(text, 1)  # Once: it says in which second it was made.
    said, gate = sized(b"gzip", packed), asyncio.Event()
    async with (
        Peer(said[:99], gate, said[99:]) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
        asyncio.TaskGroup() as tasks,
    ):
        asking = [tasks.create_task(proxy.ask(b"GET /", GZIP)) for _ in range(2)]
        await peer.asked.wait()
        gate.set()
        answers = [await task for task in asking]

    found = {answer.outcome: (answer.value(b"Content-Encoding"), answer.body) for answer in answers}
    assert found[b"recorded"] == (b"gzip", packed)
    assert found[b"replayed"] == (b"", text)
