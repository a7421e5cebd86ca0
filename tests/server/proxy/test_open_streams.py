"""Streams that stay open: handed out as they come, recorded as far as they came, replayed so."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tapeway.core.model.control import Delivery, Mode
from tapeway.engine import open_streams
from tapeway.ports import CassetteStore
from tapeway.server import delivery as server_delivery
from tapeway.server.delivery import Outgoing
from tapeway.server.proxy import ProxyOptions
from tapeway.stores.memory import MemoryStore
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.server.streaming import LAST, chunk, head
from tests.support.fakes.broker import until
from tests.support.socket_upstream import Peer, Step

SSE = b"text/event-stream"
FIRST, SECOND = b"event: hello\ndata: one\n\n", b"data: answer\n\n"
PING = b": ping\n\n"
OPEN = b"GET /tools/sse"
POST = b"POST /tools/messages"
ACCEPTED = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
BOTH = pytest.mark.parametrize("delivery", ["buffer", "stream"])


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream has paused long enough as soon as nothing comes."""
    monkeypatch.setattr(open_streams, "PAUSE_S", 0.0)


@asynccontextmanager
async def serving(
    peer: Peer,
    delivery: Delivery = "stream",
    *,
    mode: Mode = "auto",
    store: CassetteStore | None = None,
) -> AsyncIterator[RunningProxy]:
    """A proxy with two routes to one service."""
    options = ProxyOptions(max_body=2**20, body_idle_s=10, delivery=delivery)
    routes = {"tools": peer.url, "other": f"{peer.url}/other"}
    async with running_proxy(mode=mode, routes=routes, store=store, options=options) as proxy:
        yield proxy


async def recorded(proxy: RunningProxy, count: int = 1) -> list[tuple[str, bytes, tuple[int, ...]]]:
    """Verdict, body and requests of each recording, once there are so many."""
    await until(lambda: not proxy.broker.in_flight)
    found = [exchange.response for exchange in await proxy.recorded()]
    assert len(found) == count
    return [(answer.verdict, answer.body, answer.after_requests) for answer in found]


@BOTH
async def test_a_stream_is_recorded_as_far_as_it_came_when_its_client_leaves(
    delivery: Delivery,
) -> None:
    store = MemoryStore()
    async with Peer(head(SSE), chunk(FIRST), "stall") as peer:
        async with serving(peer, delivery, store=store) as proxy:
            async with proxy.connect() as app:
                await app.send(proxy.request(OPEN))
                said = await app.until(FIRST + b"\r\n")
                assert b"Tapeway-Outcome: recorded" in said
            assert await recorded(proxy) == [("open", FIRST, (1, 1))]
            assert [answer.outcome for answer in proxy.journal] == ["recorded"]
        # The connection to the service was closed too.
        async with asyncio.timeout(60):
            await peer.left.wait()

        async with serving(peer, mode="replay", store=store) as proxy:
            async with proxy.connect() as app:
                await app.send(proxy.request(OPEN))
                assert b"Tapeway-Outcome: replayed" in await app.until(FIRST + b"\r\n")
                assert proxy.proxy.in_flight == 1
            async with asyncio.timeout(60):
                await proxy.proxy.wait_until_idle()
            assert [answer.outcome for answer in proxy.journal] == ["replayed"]


@BOTH
@pytest.mark.parametrize("how", ["eject", "rewind", "drain", "mode"])
async def test_the_end_of_a_take_ends_its_streams(delivery: Delivery, how: str) -> None:
    store = MemoryStore()
    async with (
        Peer(head(SSE), chunk(FIRST), "stall") as peer,
        serving(peer, delivery, store=store) as proxy,
        proxy.connect() as app,
    ):
        await app.send(proxy.request(OPEN))
        await app.until(FIRST + b"\r\n")
        match how:
            case "eject":
                assert (await proxy.broker.eject()).recorded == 1
            case "rewind":
                await proxy.broker.rewind()
            case "mode":
                await proxy.broker.set_mode("replay")
            case "drain":
                proxy.broker.drain()

        assert await app.until(LAST) == LAST
        assert await recorded(proxy) == [("open", FIRST, (1, 1))]


async def test_a_stop_ends_replayed_streams() -> None:
    store = MemoryStore()
    async with Peer(head(SSE), chunk(FIRST), "stall") as peer:
        async with serving(peer, store=store) as proxy, proxy.connect() as app:
            await app.send(proxy.request(OPEN))
            await app.until(FIRST + b"\r\n")
        async with serving(peer, mode="replay", store=store) as proxy, proxy.connect() as app:
            await app.send(proxy.request(OPEN))
            await app.until(FIRST + b"\r\n")
            proxy.proxy.drain()
            assert await app.until(LAST) == LAST


async def test_comments_are_no_events_that_a_pause_waits_for() -> None:
    more = asyncio.Event()
    steps: list[Step] = [head(SSE), chunk(PING), more, chunk(PING), chunk(FIRST), "stall"]
    async with (
        Peer(*steps) as peer,
        serving(peer, "buffer") as proxy,
        proxy.connect() as app,
    ):
        await app.send(proxy.request(OPEN))
        await app.until(PING + b"\r\n")
        more.set()
        assert await app.until(FIRST + b"\r\n") == chunk(PING) + chunk(FIRST)


@BOTH
async def test_an_event_waits_for_the_requests_that_came_before_it(
    delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    posted, store = asyncio.Event(), MemoryStore()
    async with (
        Peer(ACCEPTED).then(head(SSE), chunk(FIRST), posted, chunk(SECOND), "stall") as peer,
        serving(peer, delivery, store=store) as proxy,
        proxy.connect() as app,
    ):
        await app.send(proxy.request(OPEN))
        await app.until(FIRST + b"\r\n")
        assert (await proxy.ask(b"GET /other/x")).status == 202
        assert (await proxy.ask(POST, body=b"ask")).status == 202
        posted.set()
        await app.until(SECOND + b"\r\n")
        await proxy.broker.eject()

    log: list[object] = []
    send = Outgoing.send

    async def noted(self: Outgoing, piece: bytes) -> None:
        log.append(piece)
        await send(self, piece)

    monkeypatch.setattr(Outgoing, "send", noted)
    async with (
        serving(peer, mode="replay", store=store) as proxy,
        proxy.connect() as app,
    ):
        requests = proxy.broker.requests("default", "tools")
        with requests.listening(lambda: log.append(requests.count)):
            await app.send(proxy.request(OPEN))
            await app.until(FIRST + b"\r\n")
            assert (await proxy.ask(b"GET /other/x")).outcome == b"replayed"
            assert (await proxy.ask(POST, body=b"ask")).outcome == b"replayed"
            await app.until(SECOND + b"\r\n")

    assert log == [1, FIRST, 2, SECOND]


async def test_requests_that_are_answered_at_once_are_counted() -> None:
    store = MemoryStore()
    async with Peer(ACCEPTED) as peer, serving(peer, store=store) as proxy:
        await proxy.ask(POST, body=b"ask")
        await proxy.broker.set_mode("replay")
        for _ in range(3):
            assert (await proxy.ask(POST, body=b"ask")).outcome == b"replayed"

        assert proxy.broker.requests("default", "tools").count == 3


async def test_a_stream_that_ended_by_itself_ends_after_the_same_requests() -> None:
    closed, store = asyncio.Event(), MemoryStore()
    async with (
        Peer(ACCEPTED).then(head(SSE), chunk(FIRST), closed, LAST) as peer,
        serving(peer, store=store) as proxy,
        proxy.connect() as app,
    ):
        await app.send(proxy.request(OPEN))
        await app.until(FIRST + b"\r\n")
        await proxy.ask(b"DELETE /tools/sse")
        closed.set()
        await app.until(LAST)
        assert (await recorded(proxy, 2))[0] == ("complete", FIRST, (1, 1, 2))

        await proxy.broker.set_mode("replay")
        async with proxy.connect() as again:
            await again.send(proxy.request(OPEN))
            await again.until(FIRST + b"\r\n")
            assert proxy.proxy.in_flight == 1
            await proxy.ask(b"DELETE /tools/sse")
            assert await again.until(LAST) == LAST


async def test_requests_that_never_come_again_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_delivery, "PATIENCE_S", 0.0)
    store = MemoryStore()
    async with Peer(ACCEPTED) as peer, serving(peer, store=store) as proxy:
        await proxy.ask(POST, body=b"before")
        peer.then(head(SSE), chunk(FIRST), "stall")
        async with proxy.connect() as app:
            await app.send(proxy.request(OPEN))
            await app.until(FIRST + b"\r\n")
        assert (await recorded(proxy, 2))[1] == ("open", FIRST, (2, 2))

        await proxy.broker.set_mode("replay")
        async with proxy.connect() as app:
            await app.send(proxy.request(OPEN))
            await app.until(FIRST + b"\r\n")


async def test_who_listens_at_the_same_time_gets_a_stream_of_their_own() -> None:
    gate = asyncio.Event()
    async with (
        Peer(head(SSE), chunk(SECOND), "stall").then(
            gate, head(SSE), chunk(FIRST), "stall"
        ) as peer,
        serving(peer) as proxy,
        proxy.connect() as one,
        proxy.connect() as other,
    ):
        await one.send(proxy.request(OPEN))
        await peer.asked.wait()
        await other.send(proxy.request(OPEN))
        await until(lambda: proxy.proxy.in_flight == 2)
        gate.set()
        await one.until(FIRST + b"\r\n")
        await other.until(SECOND + b"\r\n")


async def test_a_stream_of_this_take_is_asked_for_again() -> None:
    async with Peer(head(SSE), chunk(FIRST), "stall") as peer, serving(peer) as proxy:
        for count in (1, 2):
            async with proxy.connect() as app:
                await app.send(proxy.request(OPEN))
                assert b"Tapeway-Outcome: recorded" in await app.until(FIRST + b"\r\n")
            await recorded(proxy, count)


async def test_a_stream_that_passes_through_ends_when_its_client_leaves() -> None:
    async with (
        Peer(head(SSE), chunk(FIRST), "stall") as peer,
        serving(peer, mode="passthrough") as proxy,
    ):
        async with proxy.connect() as app:
            await app.send(proxy.request(OPEN))
            await app.until(FIRST + b"\r\n")
        async with asyncio.timeout(60):
            await peer.left.wait()
            await proxy.proxy.wait_until_idle()


async def test_a_stream_that_breaks_off_is_not_stored() -> None:
    async with (
        Peer(head(SSE), chunk(FIRST), "close") as peer,
        serving(peer) as proxy,
    ):
        assert not (await proxy.ask(OPEN)).complete
        assert await proxy.recorded() == []


LINES = b'{"type":"ADDED","object":{"name":"p0"}}\n{"type":"ADDED","object":{"name":"p1"}}\n'
ERROR, LATER = b'event: error\ndata: {"message":"try again"}\n\n', b"data: later\n\n"


@BOTH
@pytest.mark.parametrize("media", [b"application/json", b"application/x-ndjson"])
async def test_lines_of_json_that_pause_are_a_stream_that_stays_open(
    delivery: Delivery, media: bytes
) -> None:
    store = MemoryStore()
    async with Peer(head(media), chunk(LINES), chunk(b"\n"), "stall") as peer:
        async with serving(peer, delivery, store=store) as proxy:
            async with proxy.connect() as app:
                await app.send(proxy.request(OPEN))
                assert b"Tapeway-Outcome: recorded" in await app.until(LINES + b"\r\n")
            ((verdict, body, requests),) = await recorded(proxy)
            assert (verdict, body, requests) == ("open", LINES + b"\n", (1, 1, 1))

        async with (
            serving(peer, mode="replay", store=store) as proxy,
            proxy.connect() as app,
        ):
            await app.send(proxy.request(OPEN))
            assert b"Tapeway-Outcome: replayed" in await app.until(b'"p1"}}\n')
            assert proxy.proxy.in_flight == 1


@BOTH
@pytest.mark.parametrize("pieces", [(b'{"a": 1,', b' "b": 2}'), (b"[\n", b"{}\n", b"]\n")])
async def test_a_document_of_json_that_pauses_is_held_until_it_ends(
    delivery: Delivery, pieces: tuple[bytes, ...]
) -> None:
    body = b"".join(pieces)
    async with (
        Peer(head(b"application/json"), *map(chunk, pieces), LAST) as peer,
        serving(peer, delivery) as proxy,
    ):
        assert (await proxy.ask(OPEN)).body == body
        assert await recorded(proxy) == [("complete", body, ())]


@BOTH
async def test_lines_that_end_are_an_answer_like_any_other(delivery: Delivery) -> None:
    async with (
        Peer(head(b"application/json"), chunk(LINES), LAST) as peer,
        serving(peer, delivery) as proxy,
    ):
        assert (await proxy.ask(OPEN)).body == LINES
        assert await recorded(proxy) == [("complete", LINES, ())]


@BOTH
async def test_a_stream_that_reports_an_error_goes_on_and_is_not_kept(delivery: Delivery) -> None:
    async with (
        Peer(head(SSE), chunk(FIRST), chunk(ERROR), chunk(LATER), "stall") as peer,
        serving(peer, delivery) as proxy,
    ):
        async with proxy.connect() as app:
            await app.send(proxy.request(OPEN))
            await app.until(LATER + b"\r\n")
        await until(lambda: not proxy.broker.in_flight)
        assert await proxy.recorded() == []
