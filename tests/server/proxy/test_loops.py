"""Tapeways that are each other's upstream: the request that comes back is 508, whatever is between."""

import asyncio
import weakref
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tapeway.core.model.control import Mode
from tapeway.core.model.messages import Request
from tapeway.loop_guard import LoopGuard
from tapeway.server.proxy import ProxyOptions
from tests.server.in_process_proxy import MIB, RunningProxy, running_proxy
from tests.support.listening import Listening
from tests.support.reuse import REUSED
from tests.support.socket_upstream import OK, Peer

MODES: tuple[Mode, ...] = ("auto", "record", "passthrough")
POST = (b"POST /v1/x?y=1", b"Content-Type: application/json", b"Authorization: Bearer abc")


class Forwarder:
    """An address that leads to a port that is known later, such as that of a port mapping."""

    def __init__(self) -> None:
        self.port = 0
        self._listening = Listening(self._forward, unasked=True)

    async def __aenter__(self) -> str:
        return f"http://127.0.0.1:{await self._listening.start()}"

    async def __aexit__(self, *_: object) -> None:
        await self._listening.stop()

    async def _forward(
        self, _: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        writer.transport.resume_reading()  # type: ignore[attr-defined] # a socket's can
        there, back = await asyncio.open_connection("127.0.0.1", self.port)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_copy(reader, back))
            tasks.create_task(_copy(there, writer))
        return False


async def _copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    try:
        while piece := await source.read(65536):
            to.write(piece)
    except ConnectionError:
        pass
    to.close()


@asynccontextmanager
async def ring(
    count: int, mode: Mode = "auto", *, path: str = "", options: ProxyOptions | None = None
) -> AsyncIterator[list[RunningProxy]]:
    """Each is the upstream of the one before it, the first that of the last."""
    async with AsyncExitStack() as stack:
        forwarder = Forwarder()
        upstream = await stack.enter_async_context(forwarder)
        proxies: list[RunningProxy] = []
        for _ in range(count):
            running = running_proxy(
                upstream + path, mode=mode, options=options, loops=LoopGuard(late_s=0.01)
            )
            proxies.append(await stack.enter_async_context(running))
            upstream = proxies[-1].url
        forwarder.port = proxies[-1].port
        yield proxies


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("mode", MODES)
async def test_a_request_that_comes_back_is_refused_at_its_first_return(
    mode: Mode, count: int
) -> None:
    async with asyncio.timeout(60), ring(count, mode) as proxies:
        answer = await proxies[-1].ask(*POST, body=b"{}")

        assert answer.status == 508
        assert b'"code":"upstream_loop"' in answer.body
        assert [proxy.client.connections for proxy in proxies] == [1] * count
        assert [await proxy.recorded() for proxy in proxies] == [[]] * count


@pytest.mark.parametrize("mode", MODES)
async def test_the_next_one_is_refused_too_and_so_is_another_path(mode: Mode) -> None:
    async with asyncio.timeout(60), ring(3, mode) as proxies:
        for line in (b"GET /a", b"GET /a", b"GET /b"):
            answer = await proxies[0].ask(line)

            assert answer.status == 508
        assert max(proxy.client.connections for proxy in proxies) <= 3


async def test_streaming_does_not_change_that() -> None:
    options = ProxyOptions(max_body=8 * MIB, body_idle_s=10, delivery="stream")
    async with asyncio.timeout(60), ring(2, "record", options=options) as proxies:
        assert (await proxies[0].ask(*POST, body=b"{}")).status == 508


async def test_a_path_that_grows_at_each_round_is_recognised() -> None:
    async with asyncio.timeout(60), ring(2, "passthrough", path="/base") as proxies:
        assert (await proxies[0].ask(b"GET /v1/x")).status == 508
        assert max(proxy.client.connections for proxy in proxies) <= 2


async def test_a_large_body_that_comes_back_is_refused() -> None:
    async with asyncio.timeout(60), ring(2, "passthrough") as proxies:
        assert (await proxies[0].ask(*POST, body=b"x" * 2 * MIB)).status == 508


async def test_equal_requests_that_go_round_together_are_all_refused() -> None:
    async with asyncio.timeout(60), ring(2, "passthrough") as proxies, asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(proxy.ask(b"GET /x")) for proxy in (*proxies, *proxies)]

    assert {task.result().status for task in asked} == {508}


@pytest.mark.parametrize("mode", MODES)
async def test_a_service_sees_neither_a_header_nor_a_request_of_ours(mode: Mode) -> None:
    go = asyncio.Event()
    async with (
        asyncio.timeout(60),
        Peer(go, OK) as peer,
        running_proxy(peer.url, mode=mode, loops=LoopGuard(late_s=0.01)) as proxy,
        proxy.connect() as first,
        proxy.connect() as second,
    ):
        await first.send(proxy.request(b"GET /x", b"A: b"))
        await peer.asked.wait()
        await second.send(proxy.request(b"GET /x", b"A: b"))
        # It may be the first one, come back.
        interim = await second.any_answer()
        go.set()
        answers = [await first.answer(), await second.answer()]

    assert interim.head.startswith(b"HTTP/1.1 100 Continue\r\nTapeway-Hops: ")
    assert [(answer.status, answer.body) for answer in answers] == [(200, b"ok")] * 2
    host = b"127.0.0.1:%d" % peer.port
    expected = b"GET /x HTTP/1.1\r\nHost: " + host + b"\r\nA: b\r\n\r\n"
    assert peer.requests == [expected] * (1 if mode == "auto" else 2)


async def test_a_service_that_has_responded_is_searched_no_more() -> None:
    async with Peer() as peer, running_proxy(peer.url, mode="passthrough") as proxy:
        await proxy.ask(b"GET /x")
        go = asyncio.Event()
        peer.then(go, OK)
        async with proxy.connect() as first, proxy.connect() as second:
            peer.asked.clear()
            await first.send(proxy.request(b"GET /x"))
            await peer.asked.wait()
            assert (await second.ask(proxy.request(b"GET /x"))).status == 200
            go.set()
            assert (await first.answer()).status == 200


async def test_a_client_of_1_0_gets_no_interim_response() -> None:
    go = asyncio.Event()
    async with (
        Peer(go, OK) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED, loops=LoopGuard(late_s=0.01)) as proxy,
        proxy.connect() as first,
        proxy.connect() as second,
    ):
        await first.send(proxy.request(b"GET /x"))
        await peer.asked.wait()
        await second.send(b"GET /x HTTP/1.0\r\n\r\n")
        go.set()
        assert (await second.any_answer()).status == 200


async def test_a_tapeway_before_another_passes_on_who_was_asked_and_its_service_does_not_see_it() -> (
    None
):
    async with (
        Peer() as peer,
        running_proxy(peer.url, mode="passthrough") as second,
        running_proxy(second.url, mode="passthrough") as first,
    ):
        for _ in range(3):
            assert (await first.ask(b"GET /x")).body == b"ok"

    assert all(b"hops" not in request.lower() for request in peer.requests)


async def test_a_loop_on_one_path_is_found_where_another_path_has_a_service() -> None:
    forwarder = Forwarder()
    async with (
        asyncio.timeout(60),
        Peer() as peer,
        forwarder as back,
        running_proxy(back, routes={"s": peer.url}, mode="passthrough") as second,
        running_proxy(second.url, mode="passthrough") as first,
    ):
        forwarder.port = first.port
        assert (await first.ask(b"GET /s/x")).body == b"ok"
        assert (await first.ask(b"GET /other")).status == 508
        assert (await first.ask(b"GET /s/x")).body == b"ok"
        assert second.client.connections <= 2


async def test_a_request_to_a_known_service_is_forgotten_with_its_response() -> None:
    guard = LoopGuard()
    request = Request("r", "POST", "/", body=b"large", base="http://service")
    guard.answered(request, 200, ())

    with guard.passing(request, lambda ids: None) as passage:
        await guard.search(passage, joins=True)
    held = weakref.ref(passage)
    del passage

    assert held() is None
