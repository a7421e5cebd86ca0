"""Faults laid over turns and sessions: what the client gets, and how the connection ends."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import WSMsgType, web
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from tapeway.core.model.faults import parse_faults
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.server.websocket.conversing import Event, connected, create, next_event, turn
from tests.server.websocket.responses_service import answer_responses
from tests.server.websocket.websocket_service import serving

HELLO = create("hello")


@asynccontextmanager
async def recorded_turn() -> AsyncIterator[tuple[RunningProxy, list[Event]]]:
    """A proxy that replays one turn, and the turn."""
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with connected(proxy.url) as client:
            events = await turn(client, HELLO)
        await proxy.broker.set_mode("replay")
        yield proxy, events


async def _answer_twice(socket: web.WebSocketResponse) -> None:
    """Speak first, and answer each text by two."""
    await socket.send_str('{"said":"first"}')
    while (message := await socket.receive()).type is WSMsgType.TEXT:
        for number in (1, 2):
            await socket.send_str(json.dumps({"said": f"{message.data} {number}"}))
    await socket.close(code=1000)


@asynccontextmanager
async def recorded_session() -> AsyncIterator[tuple[RunningProxy, list[str]]]:
    """A proxy that replays one session, and the service's messages."""
    async with (
        serving(_answer_twice) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with connected(proxy.url, "/feed") as client:
            said = await talk(client)
        await proxy.proxy.wait_until_idle()
        await proxy.broker.set_mode("replay")
        yield proxy, said


async def talk(client: ClientConnection) -> list[str]:
    """Say two things, and return what the service has said."""
    said = [str(await asyncio.wait_for(client.recv(), 60))]
    for text in ("a", "b"):
        await client.send(text)
        said += [str(await asyncio.wait_for(client.recv(), 60)) for _ in range(2)]
    return said


async def lay(proxy: RunningProxy, **fault: object) -> None:
    await proxy.broker.set_faults(parse_faults([{"name": "f", **fault}]))


async def until_closed(client: ClientConnection) -> tuple[list[Any], int | None]:
    """The messages that come until the connection has ended, and its close code."""
    found: list[Any] = []
    try:
        while True:
            found.append(json.loads(await asyncio.wait_for(client.recv(), 60)))
    except ConnectionClosed:
        return found, client.close_code


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ({"do": "close", "code": 1011}, 1011),
        ({"do": "close"}, 1011),
        ({"do": "end"}, 1000),
        ({"do": "reset"}, 1006),
        ({"do": "timeout", "seconds": 0.05}, 1006),
    ],
)
async def test_a_turn_ends_behind_a_message_and_the_next_connection_gets_it_whole(
    fault: dict[str, object], code: int
) -> None:
    async with recorded_turn() as (proxy, events):
        await lay(proxy, after="2 events", **fault)
        async with connected(proxy.url) as client:
            await client.send(json.dumps(HELLO))
            cut = await until_closed(client)
        async with connected(proxy.url) as client:
            whole = await turn(client, HELLO)
        await proxy.proxy.wait_until_idle()

        assert cut == (events[:2], code)
        assert whole == events
        faulted, replayed = sorted(proxy.journal, key=lambda entry: entry.at)[-2:]
        assert (faulted.fault is not None, replayed.fault) == (True, None)
        [report] = await proxy.broker.reports()
        assert [(call.do, call.next) for call in report.faulted] == [(fault["do"], "retried")]


async def test_a_turn_ends_with_an_error_and_the_connection_stays() -> None:
    async with recorded_turn() as (proxy, events), connected(proxy.url) as client:
        await lay(proxy, do="error_event", after="1 event")
        failed = await turn(client, {**HELLO, "stream_id": "x"})
        whole = await turn(client, HELLO)

    assert [each["type"] for each in failed] == ["response.created", "error"]
    assert (failed[1]["stream_id"], failed[1]["error"]["code"]) == ("x", "server_error")
    assert whole == events


async def test_a_message_of_a_turn_comes_twice_or_broken() -> None:
    async with recorded_turn() as (proxy, events), connected(proxy.url) as client:
        await lay(proxy, do="repeat", after="2 events")
        twice = await turn(client, HELLO)
        await lay(proxy, do="corrupt", after="1 event")
        await client.send(json.dumps(HELLO))
        first, broken = await next_event(client), str(await asyncio.wait_for(client.recv(), 60))
        rest = [await next_event(client) for _ in events[2:]]

    assert twice == [*events[:2], *events[1:]]
    assert [first, *rest] == [events[0], *events[2:]]
    assert json.dumps(events[1]).startswith(broken)
    assert broken != json.dumps(events[1])


@pytest.mark.parametrize("do", ["stall", "slow"])
async def test_a_turn_pauses_and_goes_on(do: str) -> None:
    async with recorded_turn() as (proxy, events), connected(proxy.url) as client:
        await lay(proxy, do=do, after="2 events", seconds=0.2)
        loop = asyncio.get_running_loop()
        began = loop.time()
        found = await turn(client, HELLO)
        took_s = loop.time() - began

    assert found == events
    assert took_s >= 0.19 * (1 if do == "stall" else len(events) - 2)


async def test_nothing_more_of_a_turn_comes_until_the_client_leaves() -> None:
    async with recorded_turn() as (proxy, events):
        await lay(proxy, do="timeout", after="1 event")
        async with connected(proxy.url) as client:
            await client.send(json.dumps(HELLO))
            assert await next_event(client) == events[0]
        await proxy.proxy.wait_until_idle()


async def test_a_connection_names_a_fault_for_its_turns() -> None:
    async with recorded_turn() as (proxy, events):
        await lay(proxy, do="close", code=4000, times=0)
        async with connected(proxy.url) as client:
            assert await turn(client, HELLO) == events
        async with connected(proxy.url, headers={"Tapeway-Fault": "f"}) as client:
            await client.send(json.dumps(HELLO))
            assert await until_closed(client) == ([], 4000)
        async with connected(proxy.url, headers={"Tapeway-Fault": "other"}) as client:
            [refused] = await turn(client, HELLO)
            assert refused["error"]["code"] == "no_fault"


async def test_a_status_waits_for_an_answer_over_http() -> None:
    async with recorded_turn() as (proxy, events), connected(proxy.url) as client:
        await lay(proxy, do="429")

        assert await turn(client, HELLO) == events


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ({"do": "close"}, 1011),
        ({"do": "close", "code": 4001}, 4001),
        ({"do": "end"}, 1000),
        ({"do": "reset"}, 1006),
        ({"do": "timeout", "seconds": 0.05}, 1006),
    ],
)
async def test_a_session_ends_behind_a_message(fault: dict[str, object], code: int) -> None:
    async with recorded_session() as (proxy, said):
        await lay(proxy, after="4 events", **fault)
        async with connected(proxy.url, "/feed") as client:
            await client.recv()
            await client.send("a")
            await client.send("b")
            found, seen = await until_closed(client)
        async with connected(proxy.url, "/feed") as client:
            whole = await talk(client)
        await proxy.proxy.wait_until_idle()

        assert [json.dumps(each) for each in found] == said[1:4]
        assert seen == code
        assert whole == said
        assert [entry.fault is not None for entry in proxy.journal][:2] == [False, True]


async def test_a_message_of_a_session_comes_twice_or_broken() -> None:
    async with recorded_session() as (proxy, said):
        await lay(proxy, do="repeat", after="2 events")
        async with connected(proxy.url, "/feed") as client:
            await client.recv()
            await client.send("a")
            twice = [str(await asyncio.wait_for(client.recv(), 60)) for _ in range(3)]
        await lay(proxy, do="corrupt", after="1 event")
        async with connected(proxy.url, "/feed") as client:
            await client.recv()
            await client.send("a")
            broken, after = [str(await asyncio.wait_for(client.recv(), 60)) for _ in range(2)]
        await proxy.proxy.wait_until_idle()

    assert twice == [said[1], said[1], said[2]]
    assert said[1].startswith(broken)
    assert broken != said[1]
    assert after == said[2]


async def test_a_realtime_session_reports_an_error_and_is_closed() -> None:
    async with (
        serving(_answer_twice) as service,
        running_proxy(routes={"openai": service.url}, mode="record") as proxy,
    ):
        path = "/openai/v1/realtime?model=gpt-realtime"
        async with connected(proxy.url, path) as client:
            await talk(client)
        await proxy.proxy.wait_until_idle()
        await proxy.broker.set_mode("replay")
        await lay(proxy, do="error_event", after="2 events", match={"path": "/v1/realtime"})
        async with connected(proxy.url, path) as client:
            await client.recv()
            await client.send("a")
            [_, error], code = await until_closed(client)

    assert (error["type"], error["error"]["code"], code) == ("error", "server_error", 1011)
