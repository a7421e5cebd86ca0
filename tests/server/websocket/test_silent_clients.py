"""Clients that say nothing, or nothing yet: whose opening they get, and what is stored."""

import asyncio
import json
from itertools import count

import pytest
from aiohttp import web
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from tapeway.core.model.control import Mode
from tapeway.engine.recording.selection import Policy
from tapeway.server.websocket import upgrades
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.server.websocket.conversing import call, connected, create, next_event, turn
from tests.server.websocket.json_rpc_service import news, notify
from tests.server.websocket.responses_service import answer_responses
from tests.server.websocket.websocket_service import serving

TICKS = ["tick 0", "tick 1", "tick 2"]


async def _tick(socket: web.WebSocketResponse) -> None:
    """Speak without being asked, until the client leaves."""
    for tick in TICKS:
        await socket.send_str(tick)
    await socket.receive()
    await socket.close(code=1000)


async def _all(client: ClientConnection) -> list[str | bytes | tuple[int | None, str | None]]:
    """Every message of the service, and how the connection ended."""
    found: list[str | bytes | tuple[int | None, str | None]] = []
    try:
        async with asyncio.timeout(60):
            while True:
                found.append(await client.recv())
    except ConnectionClosed:
        found.append((client.close_code, client.close_reason))
    return found


async def test_a_client_that_speaks_where_the_recorded_one_was_silent_gets_a_miss() -> None:
    async with (
        serving(_tick) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with connected(proxy.url, "/feed") as client:
            assert [await client.recv() for _ in TICKS] == TICKS
        await proxy.proxy.wait_until_idle()
        await proxy.broker.set_mode("replay")
        async with connected(proxy.url, "/feed") as client:
            assert [await client.recv() for _ in TICKS] == TICKS
            await client.send("hello")
            [reason] = [each[1] for each in await _all(client) if each[0] == 4424]
    assert str(reason).startswith("replay miss: the session /feed differs from #0")


async def _say_the_query(socket: web.WebSocketResponse, request: web.Request) -> None:
    await socket.send_json({"type": "session.created", "session": {"model": request.query_string}})
    while True:
        message = await socket.receive()
        if message.type is not web.WSMsgType.TEXT:
            await socket.close()
            return
        await socket.send_json({"type": "session.updated", "session": {}})


async def _begun(proxy: RunningProxy, path: str) -> str:
    """Open a session and say something; return what the service says of the session."""
    async with connected(proxy.url, path) as client:
        created = await next_event(client)
        await client.send('{"type":"session.update","session":{}}')
        assert (await next_event(client))["type"] == "session.updated"
    await proxy.proxy.wait_until_idle()
    return str(created["session"]["model"])


@pytest.mark.parametrize("modes", [("record", "replay"), ("auto", "replay"), ("auto", "auto")])
async def test_a_replayed_session_opens_as_the_recording_of_its_own_query(
    modes: tuple[Mode, Mode],
) -> None:
    queries = ["model=one", "model=two", "model=three"]
    paths = {f"/v1/realtime?{query}": query for query in queries}
    async with (
        serving(asking=_say_the_query) as service,
        running_proxy(service.url, mode=modes[0]) as proxy,
    ):
        assert {path: await _begun(proxy, path) for path in paths} == paths
        await proxy.broker.set_mode(modes[1])
        await proxy.broker.rewind()
        again = {path: await _begun(proxy, path) for path in reversed(paths)}
        assert again == paths
        assert len(service.handshakes) == 3


async def test_in_auto_a_used_up_silent_recording_keeps_no_client_from_a_recorded_session() -> None:
    path = "/v1/realtime?model=one"
    policy = Policy(repeats="miss")
    async with (
        serving(asking=_say_the_query) as service,
        running_proxy(service.url, mode="record", policy=policy) as proxy,
    ):
        async with connected(proxy.url, path) as client:
            await next_event(client)
        await proxy.proxy.wait_until_idle()
        assert await _begun(proxy, path) == "model=one"
        await proxy.broker.set_mode("auto")
        await proxy.broker.rewind()
        async with connected(proxy.url, path) as client:
            await next_event(client)
        await proxy.proxy.wait_until_idle()
        assert await _begun(proxy, path) == "model=one"
        assert len(service.handshakes) == 2


@pytest.mark.parametrize("path", ["/feed", "/v1/realtime?model=other"])
async def test_a_client_that_waits_for_an_unrecorded_service_gets_a_miss(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrades, "SILENCE_S", 0)
    async with (
        serving(asking=_say_the_query) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        await _begun(proxy, "/v1/realtime?model=one")
        await proxy.broker.set_mode("replay")
        async with connected(proxy.url, path) as client:
            [*said, ended] = await _all(client)
        await proxy.proxy.wait_until_idle()

    assert ended[0] == 4424
    assert str(ended[1]).startswith("replay miss: ")
    assert ["replay_miss" in str(each) for each in said] == [True] * path.startswith("/v1")
    assert proxy.journal.counts == {"recorded": 1, "miss": 1}


async def test_a_client_of_a_request_protocol_may_wait_before_its_first_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upgrades, "SILENCE_S", 0)
    async with (
        running_proxy("http://127.0.0.1:9", mode="replay") as proxy,
        connected(proxy.url) as client,
    ):
        await (await client.ping())
        [event] = await turn(client, create("hello"))
    assert event["error"]["code"] == "replay_miss"


async def _stored_lines(proxy: RunningProxy, counts: list[int]) -> None:
    """Return once the recordings have so many messages; the session of the last one runs."""
    while True:
        stored = [len(each.response.body.splitlines()) for each in await proxy.recorded()]
        if stored == counts:
            return
        # The recorder stores the messages after a pause, and tells nobody.
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("ends", ["client", "take"])
async def test_a_feed_is_stored_while_its_client_says_nothing(
    ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrades, "FEED_S", 0)
    async with (
        serving(_tick) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with connected(proxy.url, "/feed") as client:
            assert [await client.recv() for _ in TICKS] == TICKS
            await _stored_lines(proxy, [len(TICKS)])
            if ends == "take":
                await proxy.broker.eject("default")
        await proxy.proxy.wait_until_idle()
        [item] = await proxy.recorded()
        assert item.response.verdict == ("open" if ends == "take" else "complete")
        await proxy.broker.set_mode("replay")
        async with connected(proxy.url, "/feed") as client:
            assert [await client.recv() for _ in TICKS] == TICKS


@pytest.mark.parametrize("protocol", ["json_rpc", "responses"])
async def test_a_client_that_only_listens_to_a_greeting_may_still_make_a_request(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrades, "FEED_S", 0)
    is_json_rpc = protocol == "json_rpc"

    async def greet(socket: web.WebSocketResponse) -> None:
        if is_json_rpc:
            await socket.send_json(news("welcome"))
            await notify(socket, await socket.receive_json(), [])
            await socket.receive()
            await socket.close()
        else:
            await socket.send_json({"type": "session.created", "session": {}})
            await answer_responses(socket)

    async with (
        serving(greet) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with connected(proxy.url, "/rpc" if is_json_rpc else "/v1/responses") as client:
            await next_event(client)
            # A wrong end of the opening has time to show.
            for _ in range(50):
                await (await client.ping())
            await client.send(json.dumps(call(1) if is_json_rpc else create("hello")))
            await next_event(client)
        await proxy.proxy.wait_until_idle()
        assert [bool(item.request.body) for item in await proxy.recorded()] == [False, True]


@pytest.mark.parametrize("seconds", [[0, 0], [0, 1000], [1000, 0]])
async def test_a_session_is_found_whether_its_client_speaks_early_or_late(
    seconds: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        serving(asking=_say_the_query) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        for kind, feed_s in zip(("one", "two"), seconds, strict=True):
            monkeypatch.setattr(upgrades, "FEED_S", feed_s)
            async with connected(proxy.url, "/v1/realtime?model=m") as client:
                await next_event(client)
                if feed_s == 0:
                    await _stored_lines(proxy, [4] * (kind == "two") + [1])
                await client.send(json.dumps({"type": "session.update", "session": {"a": kind}}))
                await next_event(client)
            await proxy.proxy.wait_until_idle()
        await proxy.broker.set_mode("replay")
        for kind in ("two", "one"):
            async with connected(proxy.url, "/v1/realtime?model=m") as client:
                assert (await next_event(client))["type"] == "session.created"
                await client.send(json.dumps({"type": "session.update", "session": {"a": kind}}))
                assert (await next_event(client))["type"] == "session.updated"
            await proxy.proxy.wait_until_idle()
        assert proxy.journal.counts == {"recorded": 2, "replayed": 2}
        [report] = await proxy.broker.reports()
        assert report.unused == ()


async def test_each_of_two_sessions_is_replayed_whose_service_numbers_its_sessions() -> None:
    numbers = count(1)

    async def number(socket: web.WebSocketResponse) -> None:
        name, at = f"sess_{next(numbers)}", f"2026-11-27T10:00:0{next(numbers)}Z"
        session = {"id": name, "created_at": at, "voice": "alloy"}
        await socket.send_json({"type": "session.created", "session": session})
        while (message := await socket.receive()).type is web.WSMsgType.TEXT:
            own = message.json()["session"]
            await socket.send_json({"type": "session.updated", "session": {**own, "id": name}})
        await socket.close()

    async with (
        serving(number) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        modes: tuple[tuple[Mode, str], ...] = (("record", "ab"), ("replay", "ba"))
        for mode, order in modes:
            await proxy.broker.set_mode(mode)
            for each in order:
                async with connected(proxy.url, "/v1/realtime?model=m") as client:
                    created = await next_event(client)
                    update = {"type": "session.update", "session": {"instructions": each}}
                    await client.send(json.dumps(update))
                    updated = await next_event(client)
                assert updated["session"]["instructions"] == each
                assert updated["session"]["id"] == created["session"]["id"]
                await proxy.proxy.wait_until_idle()
        assert proxy.journal.counts == {"recorded": 2, "replayed": 2}
