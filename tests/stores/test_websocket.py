"""Turns and sessions of WebSocket connections in every store: recorded, opened anew, replayed."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest
from aiohttp import WSMsgType, web

from tapeway.core.model.control import Delivery, Mode
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import LARGE_BODY
from tapeway.errors import AdminError
from tapeway.ports import CassetteStore
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
from tests.support.fakes.broker import until


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
async def place(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with request.param.of_test(request, tmp_path) as place:
        yield place


@pytest.fixture
async def setting(place: Place) -> AsyncIterator[Setting]:
    async with serving(_answer) as service:
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
        stored = [
            json.loads(line)
            for interaction in await proxy.recorded()
            for line in _lines(interaction)
        ]
        assert stored == [message for said in recorded for message in said]
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
            for message in sent:
                await client.send(message)
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
                lines = [
                    line for interaction in await proxy.recorded() for line in _lines(interaction)
                ]
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


class Held:
    """A method of a store that waits at its next call until it is set free."""

    def __init__(self, store: CassetteStore, name: str) -> None:
        self.waits = asyncio.Event()
        self._free = asyncio.Event()
        self._call: Callable[..., Awaitable[object]] = getattr(store, name)

    async def __call__(self, *args: object) -> object:
        if not self.waits.is_set():
            self.waits.set()
            await self._free.wait()
        return await self._call(*args)

    def let_go(self) -> None:
        self._free.set()


@dataclass(frozen=True, slots=True)
class LateTurn:
    """A recorded turn whose service has said more, while the store holds the writing of that."""

    proxy: RunningProxy
    said: Event
    held: Held

    async def stored(self) -> list[list[Event]]:
        return [
            [json.loads(piece) for piece in item.response.pieces()]
            for item in await self.proxy.recorded()
        ]

    async def unrecorded(self) -> list[str]:
        await self.proxy.proxy.wait_until_idle()
        reports = await self.proxy.broker.reports()
        return [answer.reason for report in reports for answer in report.unrecorded]


_LATE = news("x" * LARGE_BODY)
"""A turn with this message is stored after its large body."""


@asynccontextmanager
async def late_turn(
    place: Place, monkeypatch: pytest.MonkeyPatch, method: str
) -> AsyncIterator[LateTurn]:
    """`method` of the store is held."""
    upstreams = list[web.WebSocketResponse]()

    async def answer(socket: web.WebSocketResponse) -> None:
        upstreams.append(socket)
        async for message in socket:
            await notify(socket, json.loads(message.data), [])
        await socket.close()

    store = place.again()
    async with (
        serving(answer) as service,
        running_proxy(service.url, mode="record", store=store) as proxy,
        connected(proxy.url, "/rpc") as client,
    ):
        await client.send(json.dumps(call(1)))
        said = await next_event(client)
        held = Held(store, method)
        monkeypatch.setattr(store, method, held)
        await upstreams[0].send_json(_LATE)
        assert await next_event(client) == _LATE
        async with asyncio.TaskGroup() as tasks:
            # The end of the connection has it stored, and waits for that.
            tasks.create_task(client.close())
            await held.waits.wait()
            yield LateTurn(proxy, said, held)


async def test_a_turn_that_a_later_take_has_kept_goes_on_no_more(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with late_turn(place, monkeypatch, "keep") as turn:
        await turn.proxy.broker.rewind()
        async with connected(turn.proxy.url, "/rpc") as later:
            await later.send(json.dumps(call(1)))
            assert await next_event(later) == turn.said
            turn.held.let_go()
        assert len(await turn.unrecorded()) == 1
        assert await turn.stored() == [[turn.said]]
        assert [report.unused for report in await turn.proxy.broker.reports()] == [()]
        assert turn.proxy.journal.counts == {"recorded": 2, "live": 1}


@pytest.mark.parametrize("removed", [False, True], ids=["edited", "removed"])
@pytest.mark.parametrize("method", ["keep", "append"])
async def test_a_turn_can_be_edited_while_its_service_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch, method: str, *, removed: bool
) -> None:
    async with late_turn(place, monkeypatch, method) as turn:
        broker = turn.proxy.broker
        [item] = await turn.proxy.recorded()
        changed = None if removed else replace(item, metadata={**item.metadata, "by": "hand"})
        async with asyncio.TaskGroup() as tasks:
            edit = tasks.create_task(broker.editor.edit("default", item.index, changed))
            # Without a shared store, the edit waits for what is under way.
            shared = broker.store.shared is not None
            await until(edit.done if shared else lambda: not broker.source.loaded)
            turn.held.let_go()
        unrecorded = await turn.unrecorded()
        assert [interaction.metadata for interaction in await turn.proxy.recorded()] == [
            interaction.metadata for interaction in [changed] if interaction is not None
        ]
        assert await turn.stored() == [[turn.said]] * (changed is not None)
        if method == "keep":
            assert len(unrecorded) == 1


async def test_a_turn_goes_on_where_an_edit_of_it_is_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with late_turn(place, monkeypatch, "keep") as turn:
        [item] = await turn.proxy.recorded()
        secret = replace(item, metadata={**item.metadata, "by": "sk-live-5b1f0c9e7d3a4286b2c4"})
        broker = turn.proxy.broker

        async def refused() -> int:
            with pytest.raises(AdminError) as found:
                await broker.editor.edit("default", item.index, secret)
            return found.value.status

        async with asyncio.TaskGroup() as tasks:
            edit = tasks.create_task(refused())
            # It may wait for what is under way.
            await until(lambda: edit.done() or not broker.source.loaded)
            turn.held.let_go()
        assert edit.result() == 422
        assert await turn.unrecorded() == []
        [item] = await turn.proxy.recorded()
        assert item.response.size > LARGE_BODY


def _lines(item: Interaction) -> list[bytes]:
    return item.response.body.splitlines()
