"""`--delivery stream`: bytes are sent as they arrive, and the end once the recording is durable."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tapeway.core.model.control import Delivery, Mode
from tapeway.engine.recording.selection import Policy
from tapeway.errors import StoreFull
from tapeway.server.proxy import ProxyOptions
from tapeway.upstream.client import Limits
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.server.streaming import (
    LAST,
    chunk,
    closed_head,
    head,
    line,
    routes,
    sized_head,
    streaming,
)
from tests.support.fakes.broker import until
from tests.support.fakes.failing_store import FakeStore
from tests.support.reuse import REUSED
from tests.support.socket_upstream import OK, Peer, Step
from tests.support.streams import CHAT, ERRORS, SSE, STREAMS

DONE = b"data: [DONE]\n\n"
ASK = b"POST /openai/v1/chat/completions"
BODY = b'{"stream":true}'


@asynccontextmanager
async def streams(
    *steps: Step,
    mode: Mode = "auto",
    policy: Policy | None = None,
    options: ProxyOptions | None = None,
    limits: Limits | None = None,
) -> AsyncIterator[tuple[Peer, RunningProxy, FakeStore]]:
    """An upstream that answers with these steps behind a proxy that streams."""
    store = FakeStore()
    async with (
        Peer(*steps) as peer,
        running_proxy(
            mode=mode,
            rules=REUSED,
            routes=routes(peer.url),
            store=store,
            policy=policy,
            limits=limits,
            options=options or streaming(),
        ) as proxy,
    ):
        yield peer, proxy, store


def delivered(how: Delivery) -> ProxyOptions | None:
    """The options with this delivery; `streams` streams without any."""
    return None if how == "stream" else ProxyOptions(max_body=2**20, body_idle_s=10)


async def test_each_chunk_goes_out_while_the_rest_is_still_to_come() -> None:
    gates = [asyncio.Event() for _ in range(3)]
    steps: list[Step] = [head(SSE), gates[0]]
    steps += [chunk(CHAT), gates[1], chunk(CHAT), gates[2], chunk(DONE), LAST]
    async with streams(*steps) as (_, proxy, store), proxy.connect() as app:
        await app.send(proxy.request(ASK, body=BODY))
        said = await app.until(b"\r\n\r\n")
        assert b"Tapeway-Outcome: recorded" in said
        assert b"Tapeway-Interaction: 0" in said
        for gate in gates[:2]:
            gate.set()
            assert await app.until(CHAT + b"\r\n") == chunk(CHAT)
        assert "append default" not in store.calls
        gates[2].set()

        assert await app.until(LAST) == chunk(DONE) + LAST
        [recorded] = await proxy.recorded()
        assert recorded.response.pieces() == [CHAT, CHAT, DONE]
        assert (recorded.index, recorded.response.verdict) == (0, "marked")


async def test_a_part_of_an_event_goes_out_when_it_can_no_longer_be_the_end() -> None:
    gate = asyncio.Event()
    steps: list[Step] = [head(SSE), chunk(b'data: {"a"'), gate, chunk(b":1}\n\n" + DONE), LAST]
    async with streams(*steps) as (_, proxy, _), proxy.connect() as app:
        await app.send(proxy.request(ASK, body=BODY))

        await app.until(b'data: {"a"\r\n')
        gate.set()
        assert await app.until(LAST) == chunk(b":1}\n\n") + chunk(DONE) + LAST


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("whole", [True, False], ids=["one chunk", "two chunks"])
async def test_a_stream_does_not_end_before_it_is_durable(name: str, whole: bool) -> None:
    endpoint, media, first, last = STREAMS[name]
    pieces = [chunk(first + last)] if whole else [chunk(part) for part in (first, last) if part]
    async with streams(head(media), *pieces, LAST) as (_, proxy, store):
        store.fail("append", StoreFull("disk is full"))
        answer = await proxy.ask(line(endpoint), body=BODY)

        assert (answer.status, answer.body, answer.complete) == (200, first, False)
        [entry] = proxy.journal
        assert (entry.outcome, entry.status) == ("error", 507)
        assert proxy.journal.counts == {"error": 1}
        again = await proxy.ask(line(endpoint), body=BODY)
        assert (again.body, again.complete) == (first + last, True)


@pytest.mark.parametrize("name", STREAMS)
async def test_the_end_goes_out_when_the_recording_is_durable(name: str) -> None:
    endpoint, media, first, last = STREAMS[name]
    async with (
        streams(head(media), chunk(first + last), LAST) as (_, proxy, store),
        proxy.connect() as app,
    ):
        gate = store.shut("append")
        await app.send(proxy.request(line(endpoint), body=BODY))
        await store.reached("append default")
        assert await proxy.recorded() == []
        gate.set()
        answer = await app.answer()

        assert (answer.body, answer.complete) == (first + last, True)
        assert len(await proxy.recorded()) == 1


async def test_the_last_byte_of_a_sized_body_waits_for_durability() -> None:
    async with streams(OK) as (_, proxy, store):
        store.fail("append", StoreFull("disk is full"))
        answer = await proxy.ask(b"GET /openai/x")
        assert (answer.status, answer.body, answer.complete) == (200, b"o", False)

        again = await proxy.ask(b"GET /openai/x")
        assert (again.body, again.outcome) == (b"ok", b"recorded")
        assert (await proxy.ask(b"GET /openai/x")).outcome == b"replayed"


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (b"GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        (b"GET", b"HTTP/1.1 304 Not Modified\r\n\r\n"),
        (b"GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
    ],
)
async def test_a_response_without_a_body_waits_for_durability(ask: bytes, answer: bytes) -> None:
    async with streams(answer, mode="record") as (_, proxy, store):
        store.fail("append", StoreFull("disk is full"))

        assert (await proxy.ask(ask + b" /openai/x")).status == 507


async def test_without_chunks_an_answer_without_a_length_ends_with_the_connection() -> None:
    async with streams(head(SSE), chunk(CHAT), chunk(DONE), LAST) as (_, proxy, _):
        sent = proxy.request(ASK, body=BODY).replace(b"HTTP/1.1", b"HTTP/1.0")
        answer = await proxy.send(sent)

        assert (answer.body, answer.values(b"transfer-encoding")) == (CHAT + DONE, [])


@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
@pytest.mark.parametrize("end", ["close", "reset"])
async def test_an_upstream_that_dies_mid_way_breaks_the_client_s_connection(
    end: Step, version: bytes
) -> None:
    gate = asyncio.Event()
    async with streams(head(SSE), chunk(CHAT), gate, end) as (_, proxy, _), proxy.connect() as app:
        await app.send(proxy.request(ASK, body=BODY).replace(b"HTTP/1.1", version))
        await app.until(CHAT)
        gate.set()

        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)) as caught:
            await app.until(LAST)
        if version == b"HTTP/1.0":
            assert caught.type is ConnectionResetError, "an end in good order would be the body's"
        assert await proxy.recorded() == []
        [entry] = proxy.journal
        assert (entry.outcome, entry.status) == ("error", 502)


@pytest.mark.parametrize("mode", ["record", "auto"])
async def test_a_call_whose_client_has_left_is_recorded(mode: Mode) -> None:
    gate = asyncio.Event()
    steps = (head(SSE), chunk(CHAT), gate, chunk(CHAT), chunk(DONE), LAST)
    async with streams(*steps, mode=mode) as (peer, proxy, store):
        async with proxy.connect() as app:
            await app.send(proxy.request(ASK, body=BODY))
            await app.until(CHAT)
        gate.set()
        await store.reached("append default")
        await until(lambda: len(proxy.journal))

        [recorded] = await proxy.recorded()
        assert recorded.response.pieces() == [CHAT, CHAT, DONE]
        await proxy.broker.set_mode("replay")
        again = await proxy.ask(ASK, body=BODY)
        assert (again.outcome, again.chunks) == (b"replayed", [CHAT, CHAT, DONE])
        assert len(peer.requests) == 1


async def test_a_client_that_reads_nothing_holds_up_nobody() -> None:
    piece, count = b"x" * 2**16, 100
    steps = (head(b"audio/mpeg"), *[chunk(piece)] * count, LAST)
    async with streams(*steps) as (_, proxy, store), proxy.connect() as app:
        app.pause()
        await app.send(proxy.request(ASK, body=BODY))
        await store.reached("append default")
        await until(lambda: not proxy.broker.in_flight)

        assert len(proxy.journal) == 0, "it is still being given its answer"
        app.resume()
        answer = await app.answer()
        assert (answer.chunks, answer.complete) == ([piece] * count, True)


async def test_the_first_of_equal_calls_is_streamed_and_the_others_get_the_recording() -> None:
    gate = asyncio.Event()
    steps = (head(SSE), chunk(CHAT), gate, chunk(DONE), LAST)
    async with streams(*steps) as (peer, proxy, _):
        async with proxy.connect() as first, proxy.connect() as second:
            await first.send(proxy.request(ASK, body=BODY))
            await first.until(CHAT)
            await second.send(proxy.request(ASK, body=BODY))
            await until(lambda: proxy.proxy.in_flight == 2)
            gate.set()

            assert await first.until(LAST) == b"\r\n" + chunk(DONE) + LAST
            answer = await second.answer()
        assert (answer.outcome, answer.chunks) == (b"replayed", [CHAT, DONE])
        assert len(peer.requests) == 1


async def test_equal_calls_fail_alike() -> None:
    gate = asyncio.Event()
    async with (
        streams(head(SSE), chunk(CHAT), gate, "close") as (_, proxy, _),
        proxy.connect() as first,
        proxy.connect() as second,
    ):
        await first.send(proxy.request(ASK, body=BODY))
        await first.until(CHAT)
        await second.send(proxy.request(ASK, body=BODY))
        await until(lambda: proxy.proxy.in_flight == 2)
        gate.set()

        assert await first.rest() == b"\r\n"
        assert (await second.answer()).status == 502


@pytest.mark.parametrize("how", ["broker", "proxy"])
async def test_stopping_the_process_aborts_a_stream(how: str) -> None:
    async with streams(head(SSE), chunk(CHAT), "stall") as (_, proxy, _), proxy.connect() as app:
        await app.send(proxy.request(ASK, body=BODY))
        await app.until(CHAT + b"\r\n")
        proxy.broker.cancel()
        if how == "proxy":
            proxy.proxy.break_off()

        assert await app.rest() == b""
        await proxy.proxy.wait_until_idle()
        [entry] = proxy.journal
        assert (entry.outcome, entry.status) == ("error", 503)
        assert proxy.journal.counts == {"error": 1}


# Streams that end otherwise than their protocol says.


UNMARKED: dict[str, tuple[Step, ...]] = {
    "last chunk": (head(SSE), chunk(CHAT), LAST),
    "length": (sized_head(SSE, len(CHAT)), CHAT),
    "connection": (closed_head(SSE), CHAT, "close"),
}
"""A stream without its end mark, by what ends it."""


@pytest.mark.parametrize("mode", ["record", "auto"])
@pytest.mark.parametrize("delivery", ["buffer", "stream"])
@pytest.mark.parametrize("end", ["last chunk", "length"])
async def test_a_stream_whose_framing_alone_is_whole_is_recorded_and_named(
    end: str, delivery: Delivery, mode: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    async with streams(*UNMARKED[end], mode=mode, options=delivered(delivery)) as (_, proxy, _):
        first = await proxy.ask(ASK, body=BODY)
        await proxy.broker.set_mode("replay")
        second = await proxy.ask(ASK, body=BODY)

        assert (first.outcome, second.outcome) == (b"recorded", b"replayed")
        assert first.body == second.body == CHAT
        assert first.complete
        assert second.complete
        [recorded] = await proxy.recorded()
        assert recorded.response.verdict == "unmarked"
        replayed, entry = proxy.journal
        assert (entry.outcome, entry.interaction) == ("recorded", 0)
        assert "without the mark its protocol ends with" in (entry.message or "")
        assert replayed.message is None
        [warning] = [
            record.getMessage() for record in caplog.records if record.levelname == "WARNING"
        ]
        assert "'default' #0, POST /v1/chat/completions: the stream ended" in warning
        for report in await proxy.broker.reports():
            [named] = report.unmarked
            assert (named.index, named.method, named.path) == (0, "POST", "/v1/chat/completions")


@pytest.mark.parametrize("mode", ["record", "auto"])
@pytest.mark.parametrize("delivery", ["buffer", "stream"])
@pytest.mark.parametrize(
    ("end", "policy"),
    [
        ("connection", Policy()),
        ("last chunk", Policy(require_marks=True)),
        ("length", Policy(require_marks=True)),
        ("last chunk", Policy(require_marks=True, record_failures=True)),
    ],
)
async def test_a_stream_that_may_be_cut_is_passed_on_and_not_stored(
    end: str, policy: Policy, delivery: Delivery, mode: Mode
) -> None:
    options = delivered(delivery)
    async with streams(*UNMARKED[end], mode=mode, policy=policy, options=options) as served:
        _, proxy, store = served
        answer = await proxy.ask(ASK, body=BODY)

        assert (answer.body, answer.complete) == (CHAT, True)
        assert answer.outcome == (b"recorded" if delivery == "stream" else b"live")
        assert "append default" not in store.calls
        [entry] = proxy.journal
        assert (entry.outcome, entry.interaction) == ("live", None)
        assert "without the mark its protocol ends with" in (entry.message or "")


async def test_a_stream_without_its_end_mark_is_recorded_as_a_failure() -> None:
    steps = UNMARKED["connection"]
    async with streams(*steps, policy=Policy(record_failures=True)) as (_, proxy, _):
        first, second = [await proxy.ask(ASK, body=BODY) for _ in range(2)]

        assert (first.outcome, second.outcome) == (b"recorded", b"replayed")
        assert (second.chunks, second.complete) == ([CHAT], True)
        [recorded] = await proxy.recorded()
        assert (recorded.response.verdict, recorded.failure) == ("truncated", None)


@pytest.mark.parametrize("name", ERRORS)
async def test_an_error_inside_a_success_is_stored_where_errors_are(name: str) -> None:
    endpoint, media, first, last = ERRORS[name]
    steps = (head(media), *[chunk(part) for part in (first, last) if part], LAST)
    async with streams(*steps) as (_, proxy, _):
        answer = await proxy.ask(line(endpoint), body=BODY)
        assert (answer.body, await proxy.recorded()) == (first + last, [])
        assert "reported an error" in (next(iter(proxy.journal)).message or "")

        await proxy.broker.set_mode("record")
        await proxy.ask(line(endpoint), body=BODY)
        [recorded] = await proxy.recorded()
        assert recorded.response.verdict == "error"
