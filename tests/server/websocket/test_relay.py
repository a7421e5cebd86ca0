"""A WebSocket connection in mode passthrough: what one side sends, the other one gets."""

import asyncio
from dataclasses import replace
from pathlib import Path
from socket import SHUT_RDWR, SO_LINGER, SOL_SOCKET
from struct import pack

import aiohttp
import pytest
from aiohttp import web
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tapeway.core.model.control import Mode
from tapeway.core.model.interaction import Interaction
from tapeway.server.proxy import ProxyOptions
from tapeway.stores.file.store import FileStore
from tapeway.upstream.client import Limits
from tests.server.in_process_proxy import running_proxy
from tests.server.websocket.conversing import connected
from tests.server.websocket.websocket_service import serving

MODES: tuple[Mode, ...] = ("record", "replay")
HANDSHAKE = (
    *(b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13"),
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)


def _ws(url: str, path: str = "/chat") -> str:
    return url.replace("http://", "ws://") + path


async def test_websocket_connections_do_not_count_as_connections_of_calls() -> None:
    limits = Limits(connect_s=60, idle_s=60, connections=1)
    async with (
        serving() as service,
        running_proxy(service.url, mode="passthrough", limits=limits) as proxy,
        connect(_ws(proxy.url)) as one,
        connect(_ws(proxy.url)) as two,
    ):
        for client in (one, two):
            await client.send("hello")
            assert await client.recv() == "hello"


async def test_text_binary_and_fragments_come_back_as_they_were_sent() -> None:
    async with serving() as service, running_proxy(service.url, mode="passthrough") as proxy:
        async with connect(_ws(proxy.url)) as client:
            await client.send("grüße")
            await client.send(b"\x00\xff")
            await client.send(["in ", "three ", "parts"])

            assert [await client.recv() for _ in range(3)] == [
                "grüße",
                b"\x00\xff",
                "in three parts",
            ]
            assert await (await client.ping(b"x")) >= 0

        assert proxy.journal.counts["live"] == 1


async def test_the_handshake_reaches_the_upstream_as_the_client_wrote_it() -> None:
    headers = {"X-Answer": "yes"}
    async with (
        serving(headers=headers) as service,
        running_proxy(service.url, mode="passthrough") as proxy,
        connect(
            _ws(proxy.url, "/v1/realtime?model=a%2Fb"),
            additional_headers={"Authorization": "Bearer k", "X-Own": "1"},
            user_agent_header=None,
        ) as client,
    ):
        [request] = service.handshakes
        assert request.raw_path == "/v1/realtime?model=a%2Fb"
        assert (request.headers["authorization"], request.headers["x-own"]) == ("Bearer k", "1")
        assert "user-agent" not in request.headers
        assert request.headers["host"] == service.url.removeprefix("http://")
        assert client.response is not None
        assert client.response.headers["x-answer"] == "yes"
        assert client.response.headers["tapeway-outcome"] == "live"


@pytest.mark.parametrize("target", ["//other.invalid/ws/live?key=k", "//ws//live"])
async def test_a_path_that_begins_with_two_slashes_names_no_other_host(target: str) -> None:
    async with (
        serving() as service,
        running_proxy(service.url, mode="passthrough") as proxy,
        connect(_ws(proxy.url, target)),
    ):
        assert [handshake.raw_path for handshake in service.handshakes] == [target]


@pytest.mark.parametrize("route", ["/@x/up", "/up"])
async def test_a_connection_goes_to_its_route(route: str) -> None:
    async with (
        serving() as service,
        running_proxy(routes={"up": f"{service.url}/base"}, mode="passthrough") as proxy,
        connect(_ws(proxy.url, f"{route}/chat")) as client,
    ):
        await client.send("a")
        assert await client.recv() == "a"
        assert service.handshakes[0].path == "/base/chat"


async def test_the_upstream_chooses_the_subprotocol() -> None:
    async with (
        serving(protocols=("b", "c")) as service,
        running_proxy(service.url, mode="passthrough") as proxy,
        connect(_ws(proxy.url), subprotocols=["a", "b"]) as client,  # type: ignore[list-item]
    ):
        assert client.subprotocol == "b"
        assert service.handshakes[0].headers["sec-websocket-protocol"] == "a,b"


async def test_an_upstream_that_chooses_none_of_the_subprotocols_gives_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    offered = ["realtime", "openai-insecure-api-key.sk-canary-1234567890"]
    async with (
        serving() as service,
        running_proxy(service.url, mode="passthrough") as proxy,
        connect(_ws(proxy.url), subprotocols=offered) as client,  # type: ignore[arg-type]
    ):
        assert client.subprotocol is None

    assert "canary" not in caplog.text


@pytest.mark.parametrize(("known", "chosen"), [((), None), (("b",), "b")])
async def test_a_replay_has_the_subprotocol_of_the_recording(
    known: tuple[str, ...], chosen: str | None
) -> None:
    async with (
        serving(protocols=known) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        for mode in MODES:
            await proxy.broker.set_mode(mode)
            async with connected(proxy.url, "/feed", protocols=("a", "b")) as client:
                await client.send("hello")
                assert await client.recv() == "hello"
                assert client.subprotocol == chosen
            await proxy.proxy.wait_until_idle()
        assert len(service.handshakes) == 1


async def test_a_replay_of_a_recording_without_a_subprotocol_takes_the_first_on_offer(
    tmp_path: Path,
) -> None:
    store = FileStore(tmp_path)
    async with serving() as service, running_proxy(service.url, store=store) as proxy:
        async with connected(proxy.url, "/feed") as client:
            await client.send("hello")
            assert await client.recv() == "hello"
        await proxy.proxy.wait_until_idle()
    await store.open()
    stored = await store.load("default", writable=False)
    assert stored is not None
    (item,) = stored.interactions
    assert isinstance(item, Interaction)
    by_hand = {name: value for name, value in item.metadata.items() if name != "websocket"}
    assert by_hand != item.metadata
    await store.save("default", replace(stored, interactions=(replace(item, metadata=by_hand),)))
    await store.close()

    async with (
        running_proxy(service.url, store=store, mode="replay") as proxy,
        connected(proxy.url, "/feed", protocols=("a", "b")) as client,
    ):
        assert client.subprotocol == "a"


@pytest.mark.parametrize("offered", ["deflate", None])
async def test_each_connection_compresses_by_itself(offered: str | None) -> None:
    async with (
        serving() as service,
        running_proxy(service.url, mode="passthrough") as proxy,
        connect(_ws(proxy.url), compression=offered) as client,
    ):
        await client.send("a" * 100_000)
        assert await client.recv() == "a" * 100_000
        extensions = service.handshakes[0].headers.get("sec-websocket-extensions", "")
        assert ("permessage-deflate" in extensions) is (offered is not None)


@pytest.mark.parametrize("mode", ["passthrough", "record"])
@pytest.mark.parametrize("code", [1000, 1001, 1008, 1011, 3000, 4321])
async def test_the_client_s_close_code_reaches_the_upstream_and_comes_back(
    code: int, mode: Mode
) -> None:
    async with serving() as service, running_proxy(service.url, mode=mode) as proxy:
        async with connect(_ws(proxy.url)) as client:
            await client.close(code, "why")
        assert (client.close_code, client.close_reason) == (code, "why")
        await proxy.proxy.wait_until_idle()
        assert service.closes == [code]


@pytest.mark.parametrize("code", [1000, 1001, 1008, 1011, 1012, 1013, 3000, 4321])
async def test_the_upstream_s_close_code_is_the_client_s(code: int) -> None:
    async def close(socket: web.WebSocketResponse) -> None:
        await socket.close(code=code, message=b"because")

    async with (
        serving(close) as service,
        running_proxy(service.url, mode="passthrough") as proxy,
        connect(_ws(proxy.url)) as client,
    ):
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert (client.close_code, client.close_reason) == (code, "because")


async def test_a_close_without_a_code_stays_without_one() -> None:
    async with serving() as service, running_proxy(service.url, mode="passthrough") as proxy:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(_ws(proxy.url), autoclose=False) as client,
        ):
            await client.send_frame(b"", aiohttp.WSMsgType.CLOSE)
            message = await client.receive()

        # The service answers with the code that aiohttp reads out of an empty frame.
        assert message.type is aiohttp.WSMsgType.CLOSE
        await proxy.proxy.wait_until_idle()
        assert service.closes == [0]


async def test_an_upstream_that_breaks_off_costs_the_client_its_connection() -> None:
    async def abort(socket: web.WebSocketResponse) -> None:
        # Without lingering, a close resets the connection.
        raw = socket.get_extra_info("socket")
        raw.setsockopt(SOL_SOCKET, SO_LINGER, pack("ii", 1, 0))
        raw.shutdown(SHUT_RDWR)

    async with (
        serving(abort) as service,
        running_proxy(service.url, mode="passthrough") as proxy,
        connect(_ws(proxy.url)) as client,
    ):
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert client.close_code == 1006


async def test_a_client_that_breaks_off_costs_the_upstream_its_connection() -> None:
    async with serving() as service, running_proxy(service.url, mode="passthrough") as proxy:
        async with connect(_ws(proxy.url)) as client:
            await client.send("a")
            await client.recv()
            client.transport.abort()
        await proxy.proxy.wait_until_idle()
        assert service.closes == [None]


async def test_text_that_is_no_utf_8_ends_the_connection_with_1007() -> None:
    async with serving() as service, running_proxy(service.url, mode="passthrough") as proxy:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(_ws(proxy.url), autoclose=False) as client,
        ):
            await client.send_frame(b"\xff\xfe", aiohttp.WSMsgType.TEXT)
            message = await client.receive()

        assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, 1007)
        await proxy.proxy.wait_until_idle()
        assert service.received == []
        assert service.closes == [1007]


async def test_a_message_beyond_the_largest_body_ends_the_connection_with_1009() -> None:
    options = ProxyOptions(max_body=1000, body_idle_s=10)
    async with (
        serving() as service,
        running_proxy(service.url, mode="passthrough", options=options) as proxy,
        connect(_ws(proxy.url)) as client,
    ):
        await client.send("a" * 900)
        assert await client.recv() == "a" * 900
        await client.send("a" * 1100)
        with pytest.raises(ConnectionClosed):
            await client.recv()
        assert client.close_code == 1009


@pytest.mark.parametrize("status", [401, 403, 404, 426, 429, 500, 302, 200])
async def test_a_refusal_is_passed_on_as_the_answer_that_it_is(status: int) -> None:
    def refuse(request: web.Request) -> web.Response:
        fields = {"X-Request-Id": "r1", "Location": "/elsewhere"}
        return web.Response(status=status, text='{"error":"no"}', headers=fields)

    async with (
        serving(refusal=refuse) as service,
        running_proxy(service.url, mode="passthrough") as proxy,
    ):
        answer = await proxy.ask(b"GET /chat", *HANDSHAKE)

        assert (answer.status, answer.body) == (status, b'{"error":"no"}')
        assert (b"X-Request-Id", b"r1") in answer.fields
        assert (b"Tapeway-Outcome", b"live") in answer.fields
        assert len(service.handshakes) == 1
        [entry] = [*proxy.journal]
        assert (entry.outcome, entry.status) == ("live", status)


async def test_an_upstream_that_cannot_be_reached_is_an_error() -> None:
    async with running_proxy("http://127.0.0.1:1", mode="passthrough") as proxy:
        with pytest.raises(InvalidStatus) as refused:
            async with connect(_ws(proxy.url), process_exception=lambda exc: exc):
                pass
        assert refused.value.response.status_code == 502
        assert b"upstream_unreachable" in refused.value.response.body


async def test_a_request_that_is_no_handshake_is_refused_before_the_upstream_is_asked() -> None:
    fields = (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13")
    async with serving() as service, running_proxy(service.url, mode="passthrough") as proxy:
        answer = await proxy.ask(b"GET /chat", *fields)
        assert (answer.status, service.handshakes) == (400, [])
        assert b"bad_handshake" in answer.body


async def test_a_drain_closes_connections_with_1001() -> None:
    async with (
        serving() as service,
        running_proxy(service.url, mode="passthrough") as proxy,
        connect(_ws(proxy.url)) as client,
    ):
        await client.send("a")
        await client.recv()
        proxy.proxy.drain()
        with pytest.raises(ConnectionClosed):
            await asyncio.wait_for(client.recv(), 30)
        assert client.close_code == 1001
        await proxy.proxy.wait_until_idle()
        assert service.closes == [1001]
