"""`--pace`: a replay sends each piece when it came, and never before."""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import pytest

from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import (
    Failure,
    Framing,
    Request,
    Response,
    ResponseHead,
)
from tapeway.core.streams.pacing import AS_RECORDED, AT_ONCE, Pace
from tapeway.server.proxy import ProxyOptions
from tapeway.stores.memory import MemoryStore
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.server.streaming import LAST, chunk
from tests.support.fakes.broker import until

HOUR_MS = 3_600_000.0
GRAIN_S = 0.01
"""The loops' clocks and timers do not agree to the millisecond."""
CUT = Failure("cut", "it broke off")


async def holding(
    *pieces: tuple[float, bytes],
    framing: Framing = "chunked",
    latency_ms: float = 0.0,
    failure: Failure | None = None,
    status: int = 200,
) -> MemoryStore:
    """A store with one answer to `GET /x` that came so."""
    store = MemoryStore()
    chunks = [(data, at_ms) for at_ms, data in pieces]
    response = Response.of_chunks(ResponseHead(status, "OK", (), framing), chunks)
    interaction = Interaction(0, Request("a", "GET", "/x"), response, latency_ms=latency_ms)
    recording = Recording(replace(interaction, failure=failure))
    await store.append("default", CassetteHead("", "run"), recording)
    return store


def replaying(
    store: MemoryStore, pace: Pace = AS_RECORDED
) -> AbstractAsyncContextManager[RunningProxy]:
    """A proxy that replays what the store holds."""
    options = ProxyOptions(max_body=2**20, body_idle_s=10, pace=pace)
    return running_proxy(mode="replay", routes={"a": "http://never"}, store=store, options=options)


@pytest.mark.parametrize(("pace", "stretched"), [(AS_RECORDED, 1.0), (Pace(0.5), 0.5)])
async def test_no_piece_comes_before_its_time(pace: Pace, stretched: float) -> None:
    store = await holding((60, b"one"), (120, b"two"), latency_ms=180)
    now = asyncio.get_running_loop().time
    async with (
        replaying(store, pace) as proxy,
        proxy.connect() as app,
    ):
        asked = now()
        await app.send(proxy.request(b"GET /a/x"))
        for ends, due_s in ((b"\r\n\r\n", 0.06), (chunk(b"one"), 0.06), (chunk(b"two"), 0.12)):
            await app.until(ends)
            assert now() - asked >= due_s * stretched - GRAIN_S
        assert await app.until(LAST) == LAST
        assert now() - asked >= 0.18 * stretched - GRAIN_S
        assert proxy.journal.counts["replayed"] == 1


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
async def test_a_paced_answer_is_the_answer(framing: Framing, version: bytes) -> None:
    pieces = ((1.0, b"onetwo"),) if framing == "length" else ((1.0, b"one"), (2.0, b"two"))
    store = await holding(*pieces, framing=framing)
    answers = []
    for pace in (AT_ONCE, Pace(0.001)):
        async with replaying(store, pace) as proxy:
            sent = proxy.request(b"GET /a/x").replace(b"HTTP/1.1", version)
            answers.append(await proxy.send(sent))

    assert answers[0] == answers[1]
    assert (answers[0].body, answers[0].complete) == (b"onetwo", True)


@pytest.mark.parametrize(
    "pieces", [(), ((HOUR_MS, b"late"),), ((1.0, b"soon"), (HOUR_MS, b"late"))]
)
async def test_a_client_that_leaves_is_not_waited_for(
    pieces: tuple[tuple[float, bytes], ...],
) -> None:
    store = await holding(*pieces, latency_ms=HOUR_MS)
    async with replaying(store) as proxy:
        async with proxy.connect() as app:
            await app.send(proxy.request(b"GET /a/x"))
            await until(lambda: proxy.proxy.in_flight)
            app.reset()
        await proxy.proxy.wait_until_idle()

        [entry] = proxy.journal
        assert (entry.outcome, entry.message) == (
            "error",
            "bad_request: the client left before the answer ended",
        )


async def test_stopping_the_process_aborts_a_paced_pause() -> None:
    store = await holding((1.0, b"soon"), (HOUR_MS, b"late"))
    async with (
        replaying(store) as proxy,
        proxy.connect() as app,
    ):
        await app.send(proxy.request(b"GET /a/x"))
        await app.until(chunk(b"soon"))
        proxy.proxy.break_off()

        assert await app.rest() == b""
        await proxy.proxy.wait_until_idle()


async def test_an_answer_that_has_not_begun_is_refused_when_the_process_stops() -> None:
    store = await holding((HOUR_MS, b"late"))
    async with (
        replaying(store) as proxy,
        proxy.connect() as app,
    ):
        await app.send(proxy.request(b"GET /a/x"))
        await until(lambda: proxy.proxy.in_flight)
        proxy.proxy.break_off()

        answer = await app.answer()
        assert (answer.status, answer.outcome) == (503, b"error")


@pytest.mark.parametrize(
    ("failure", "status"),
    [(Failure("timeout", "late"), 0), (Failure("reset", "gone"), 0), (CUT, 200)],
)
async def test_a_failure_is_replayed_at_its_recorded_time(failure: Failure, status: int) -> None:
    pieces = ((10.0, b"part"),) if status else ()
    store = await holding(*pieces, latency_ms=120, failure=failure, status=status)
    now = asyncio.get_running_loop().time
    async with (
        replaying(store) as proxy,
        proxy.connect() as app,
    ):
        asked = now()
        await app.send(proxy.request(b"GET /a/x", b"Connection: close"))
        said = await app.rest()

        assert now() - asked >= 0.12 - GRAIN_S
        assert said.startswith(
            {"timeout": b"HTTP/1.1 504", "cut": b"HTTP/1.1 200", "reset": b""}[failure.kind]
        )
