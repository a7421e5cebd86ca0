"""Turns and sessions of WebSocket connections in every store: recorded, opened anew, replayed."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest
from aiohttp import WSMsgType, web

from tapeway.core.model.control import Delivery, Mode
from tapeway.core.model.interaction import Interaction
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.server.websocket.conversing import (
    Event,
    call,
    connected,
    create,
    delivered,
    next_event,
    next_events,
    turn,
)
from tests.server.websocket.json_rpc_service import news, notify
from tests.server.websocket.responses_service import answer_responses
from tests.server.websocket.websocket_service import Service, serving
from tests.stores.contract.kinds import KINDS, Place


@dataclass(frozen=True, slots=True)
class Setting:
    """A store, and a service in front of which a proxy records into it."""

    place: Place
    service: Service

    @asynccontextmanager
    async def proxy(self, mode: Mode, delivery: Delivery = "buffer") -> AsyncIterator[RunningProxy]:
        options = delivered(delivery)
        store = self.place.again()
        async with running_proxy(
            self.service.url, mode=mode, store=store, options=options
        ) as proxy:
            yield proxy


async def _answer(socket: web.WebSocketResponse) -> None:
    """Turns of the Responses API, calls of JSON-RPC; anything else comes back twice."""
    message = await socket.receive()
    if message.type is WSMsgType.TEXT and "jsonrpc" in message.data:
        while message.type is WSMsgType.TEXT:
            await notify(socket, json.loads(message.data))
            message = await socket.receive()
    elif message.type is WSMsgType.TEXT and message.data.startswith("{"):
        await answer_responses(socket, message)
        return
    while message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
        for _ in range(2):
            if message.type is WSMsgType.TEXT:
                await socket.send_str(message.data)
            else:
                await socket.send_bytes(message.data)
        message = await socket.receive()
    await socket.close(code=1000)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
async def setting(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Setting]:
    async with request.param.of_test(request, tmp_path) as place, serving(_answer) as service:
        yield Setting(place, service)


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
async def test_a_conversation_replays_from_the_store(setting: Setting, delivery: Delivery) -> None:
    async def converse(proxy: RunningProxy) -> list[list[Event]]:
        async with connected(proxy.url) as client:
            first = await turn(client, create("a"))
            parent = first[0]["response"]["id"]
            second = await turn(client, create("b", previous_response_id=parent))
            other = await turn(client, create("a", stream_id="lane"))
            return [first, second, other]

    async with setting.proxy("record", delivery) as proxy:
        recorded = await converse(proxy)
    for _ in range(2):
        async with setting.proxy("replay") as proxy:
            assert await converse(proxy) == recorded
            async with connected(proxy.url) as client:
                [missed] = await turn(client, create("c"))
                assert missed["error"]["code"] == "replay_miss"

    assert len(setting.service.handshakes) == 1


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
async def test_messages_after_the_end_of_a_turn_replay_from_the_store(
    setting: Setting, delivery: Delivery
) -> None:
    async def converse(proxy: RunningProxy) -> list[list[Event]]:
        async with connected(proxy.url, "/rpc") as client:
            found: list[list[Event]] = []
            for method in ("a", "b", "a"):
                await client.send(json.dumps(call(1, method)))
                found.append(await next_events(client, 4))
            return found

    async with setting.proxy("record", delivery) as proxy:
        recorded = await converse(proxy)
        stored = [json.loads(line) for each in await proxy.recorded() for line in _lines(each)]
        assert stored == [each for said in recorded for each in said]
    for _ in range(2):
        async with setting.proxy("replay") as proxy:
            assert await converse(proxy) == recorded
    async with setting.proxy("record", delivery) as proxy:
        # What is recorded anew takes the place of all of it.
        await converse(proxy)
        assert len(await proxy.recorded()) == 3


async def test_the_messages_before_the_first_request_replay_from_the_store(
    setting: Setting,
) -> None:
    numbers = iter(range(100))

    async def greet(socket: web.WebSocketResponse) -> None:
        await socket.send_json(news("welcome", next(numbers)))
        while (message := await socket.receive()).type is WSMsgType.TEXT:
            await notify(socket, json.loads(message.data), ["late"])
        await socket.close(code=1000)

    async def converse(proxy: RunningProxy) -> list[Event]:
        async with connected(proxy.url, "/rpc") as client:
            found = [await next_event(client)]
            await client.send('{"jsonrpc":"2.0","method":"ready"}')
            found.append(await next_event(client))
            await client.send(json.dumps(call(1)))
            return [*found, *await next_events(client, 2)]

    async with serving(greet) as service:
        greeted = replace(setting, service=service)
        async with greeted.proxy("record") as proxy:
            recorded = [await converse(proxy) for _ in range(2)]
            assert len(await proxy.recorded()) == 4
        for _ in range(2):
            async with greeted.proxy("replay") as proxy:
                assert [await converse(proxy) for _ in range(2)] == recorded
        assert len(service.handshakes) == 2
        async with greeted.proxy("record") as proxy:
            # What is recorded anew takes the place of both.
            await converse(proxy)
            assert len(await proxy.recorded()) == 2


async def test_a_session_replays_from_the_store(setting: Setting) -> None:
    sound = Random(1).randbytes(60_000)
    spoken = json.dumps({"type": "audio", "audio": base64.b64encode(sound).decode()})
    sent: list[str | bytes] = ["hello", b"\x00\xff", spoken, b"RIFF" + sound, "x" * 2_000_000]

    async def talk(proxy: RunningProxy) -> list[str | bytes]:
        found: list[str | bytes] = []
        async with connected(proxy.url, "/feed") as client:
            for each in sent:
                await client.send(each)
                found += [await client.recv(), await client.recv()]
        await proxy.proxy.wait_until_idle()
        return found

    async with setting.proxy("record") as proxy:
        recorded = await talk(proxy)
    async with setting.proxy("replay") as proxy:
        assert await talk(proxy) == recorded
        assert proxy.journal.counts == {"replayed": 1}

    assert len(setting.service.handshakes) == 1


async def test_a_session_is_in_the_store_while_it_runs(setting: Setting) -> None:
    async with setting.proxy("record") as proxy, connected(proxy.url, "/feed") as client:
        for number in range(3):
            await client.send(f"hello {number}")
            assert [await client.recv(), await client.recv()] == [f"hello {number}"] * 2
            lines: list[bytes] = []
            while len(lines) < 3 * (number + 1):
                # Stored after a pause: whoever looks earlier sees the part before.
                await asyncio.sleep(0.01)
                lines = [line for each in await proxy.recorded() for line in _lines(each)]
        [item] = await proxy.recorded()
        assert item.response.verdict == "open"
        await client.close()
        await proxy.proxy.wait_until_idle()
        [item] = await proxy.recorded()
        assert item.response.verdict == "complete"

    async with setting.proxy("replay") as proxy:
        assert len(await proxy.recorded()) == 1
        async with connected(proxy.url, "/feed") as client:
            await client.send("hello 0")
            assert [await client.recv(), await client.recv()] == ["hello 0"] * 2


def _lines(item: Interaction) -> list[bytes]:
    return item.response.body.splitlines()
