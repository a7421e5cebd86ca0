"""What a service says after the end of a turn is recorded with the turn, and replayed behind it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import WSMsgType, web
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.core.model.control import Delivery, Mode
from tapeway.core.model.interaction import Interaction
from tapeway.engine.recording.selection import Policy
from tapeway.errors import StoreFull
from tapeway.stores.memory import MemoryStore
from tapeway.stores.sqlite.store import SqliteStore
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
from tests.server.websocket.json_rpc_service import news, notifying
from tests.server.websocket.responses_service import events
from tests.server.websocket.websocket_service import serving
from tests.support.fakes.broker import until

MODES: tuple[Mode, ...] = ("record", "replay")
_OUTSIDE = (
    "messages of the service outside of any recorded turn ({}): they were passed on, and not stored"
)
both_deliveries = pytest.mark.parametrize("delivery", ["buffer", "stream"])


async def _said(client: ClientConnection, asked: Event, count: int = 4) -> list[Event]:
    await client.send(json.dumps(asked))
    return await next_events(client, count)


async def _stored(proxy: RunningProxy) -> list[list[Event]]:
    return [
        [json.loads(piece) for piece in item.response.pieces()] for item in await proxy.recorded()
    ]


async def _unrecorded(proxy: RunningProxy) -> list[str]:
    await proxy.proxy.wait_until_idle()
    return [
        answer.reason for report in await proxy.broker.reports() for answer in report.unrecorded
    ]


@both_deliveries
async def test_notifications_after_a_result_are_recorded_and_replayed_behind_it(
    delivery: Delivery,
) -> None:
    async with (
        serving(notifying()) as service,
        running_proxy(service.url, mode="record", options=delivered(delivery)) as proxy,
    ):
        async with connected(proxy.url, "/rpc") as client:
            recorded = [await _said(client, call(1, "a")), await _said(client, call(2, "b"))]
        assert await _unrecorded(proxy) == []
        assert await _stored(proxy) == recorded
        for _ in range(2):
            await proxy.broker.set_mode("replay")
            async with connected(proxy.url, "/rpc") as client:
                second = await _said(client, call("y", "b"))
                first = await _said(client, call("x", "a"))
            assert [first[1:], second[1:]] == [recorded[0][1:], recorded[1][1:]]
            assert (first[0]["id"], second[0]["id"]) == ("x", "y")

    assert len(service.handshakes) == 1
    assert recorded[0][1:] == [news("a", 0), news("a", 1), news("a", 2)]


async def _add_notices(socket: web.WebSocketResponse) -> None:
    """Turns of the Responses API, each with events behind the end: in its lane, and in none."""
    while (message := await socket.receive()).type is WSMsgType.TEXT:
        asked = json.loads(message.data)
        for event in events(asked):
            await socket.send_json(event)
        lane = {"stream_id": asked["stream_id"]} if "stream_id" in asked else {}
        await socket.send_json({"type": "response.notice", "of": asked["input"], **lane})
        await socket.send_json({"type": "rate_limits.updated", "left": len(asked["input"])})
    await socket.close()


@both_deliveries
async def test_events_behind_a_response_are_replayed_in_the_lane_of_who_asks(
    delivery: Delivery,
) -> None:
    async def talk(proxy: RunningProxy, lane: str) -> list[list[Event]]:
        async with connected(proxy.url) as client:
            found: list[list[Event]] = []
            for text in ("a", "bc"):
                said = await turn(client, create(text, stream_id=lane))
                found.append([*said, *await next_events(client, 2)])
            return found

    async with (
        serving(_add_notices) as service,
        running_proxy(service.url, mode="record", options=delivered(delivery)) as proxy,
    ):
        recorded = await talk(proxy, "one")
        await proxy.proxy.wait_until_idle()
        await proxy.broker.set_mode("replay")
        replayed = await talk(proxy, "two")
        items = await proxy.recorded()

    assert [[message["type"] for message in said[-2:]] for said in recorded] == [
        ["response.notice", "rate_limits.updated"]
    ] * 2
    assert replayed == [
        [message | {"stream_id": "two"} if "stream_id" in message else message for message in said]
        for said in recorded
    ]
    assert [item.usage for item in items] == [
        {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    ] * 2


async def test_many_notifications_are_written_once_the_connection_ends() -> None:
    store = CountingStore()
    async with (
        serving(notifying(500)) as service,
        running_proxy(service.url, mode="record", store=store) as proxy,
    ):
        async with connected(proxy.url, "/rpc") as client:
            said = await _said(client, call(1), 501)
            assert store.appended == 1
        await proxy.proxy.wait_until_idle()
        assert await _stored(proxy) == [said]
        assert store.appended == 2


async def test_a_turn_is_written_with_its_notifications_before_the_next_answer_comes() -> None:
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def answer(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        await socket.send_json({"jsonrpc": "2.0", "id": 1, "result": {}})
        await socket.send_json(news("before the second call"))
        await socket.receive()
        asked.set()
        await goes_on.wait()
        await socket.close()

    async with (
        serving(answer) as service,
        running_proxy(service.url, mode="record", store=(store := CountingStore())) as proxy,
        connected(proxy.url, "/rpc") as client,
    ):
        said = await _said(client, call(1), 2)
        assert store.appended == 1
        await client.send(json.dumps(call(2)))
        await asked.wait()
        await until(lambda: store.appended == 2)
        assert await _stored(proxy) == [said]
        goes_on.set()


async def test_a_notification_before_the_next_end_keeps_its_order() -> None:
    """A store that takes its time lets nothing overtake a message that waits for the end before."""

    async def answer(socket: web.WebSocketResponse) -> None:
        for id, late in ((1, 1), (2, 0)):
            await socket.receive()
            await socket.send_json({"jsonrpc": "2.0", "id": id, "result": id})
            if late:
                await socket.send_json(news("before the second call"))
        await socket.receive()
        await socket.close()

    async with (
        serving(answer) as service,
        running_proxy(service.url, mode="record", store=CountingStore(turns=5)) as proxy,
        connected(proxy.url, "/rpc") as client,
    ):
        await client.send(json.dumps(call(1)))
        await client.send(json.dumps(call(2)))
        said = await next_events(client, 3)

    assert [message.get("id") for message in said] == [1, None, 2]


async def test_a_question_of_the_service_between_calls_is_replayed_with_its_own_id() -> None:
    async def ask_back(socket: web.WebSocketResponse) -> None:
        asked = await socket.receive_json()
        await socket.send_json({"jsonrpc": "2.0", "id": asked["id"], "result": {}})
        await socket.send_json(call(7, "roots/list"))
        await socket.receive()
        await socket.receive()
        await socket.close()

    async with (
        serving(ask_back) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        for mode, id in zip(MODES, (1, "x"), strict=True):
            await proxy.broker.set_mode(mode)
            async with connected(proxy.url, "/rpc") as client:
                [answer, question] = await _said(client, call(id), 2)
                await client.send('{"jsonrpc":"2.0","id":7,"result":[]}')
            await proxy.proxy.wait_until_idle()
            assert (answer["id"], question) == (id, call(7, "roots/list"))


async def test_what_comes_after_the_end_of_its_take_is_passed_on_and_named_in_the_report() -> None:
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def answer(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        await socket.send_json({"jsonrpc": "2.0", "id": 1, "result": {}})
        await socket.send_json(news("within the take"))
        asked.set()
        await goes_on.wait()
        await socket.send_json(news("after the take"))
        await socket.receive()
        await socket.close()

    async with (
        serving(answer) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with connected(proxy.url, "/rpc") as client:
            said = await _said(client, call(1), 2)
            await proxy.broker.eject()
            goes_on.set()
            assert await next_event(client) == news("after the take")
        assert await _stored(proxy) == [said]
        await proxy.proxy.wait_until_idle()
        assert [entry.message for entry in proxy.journal if entry.message] == [_OUTSIDE.format(1)]


async def test_nothing_is_stored_behind_a_message_that_does_not_fit() -> None:
    texts = ["short", "a" * 300, "short again"]
    async with (
        serving(notifying(text=texts.__getitem__)) as service,
        running_proxy(service.url, mode="record", policy=Policy(max_body=400)) as proxy,
    ):
        async with connected(proxy.url, "/rpc") as client:
            said = await _said(client, call(1))
        assert [message["params"][1] for message in said[1:]] == texts
        assert await _stored(proxy) == [said[:2]]
        assert await _unrecorded(proxy) == [_OUTSIDE.format(2)]


def _edited(item: Interaction) -> Interaction:
    return replace(item, metadata={**item.metadata, "by": "hand"})


@pytest.mark.parametrize("change", [lambda _: None, _edited], ids=["removed", "edited"])
@pytest.mark.parametrize("on", ["memory", "sqlite"])
async def test_a_recording_that_somebody_changed_goes_on_no_more(
    on: str, change: Callable[[Interaction], Interaction | None], tmp_path: Path
) -> None:
    goes_on = asyncio.Event()

    async def answer(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        await socket.send_json({"jsonrpc": "2.0", "id": 1, "result": {}})
        await goes_on.wait()
        await socket.send_json(news("after the change"))
        await socket.receive()
        await socket.close()

    async with (
        serving(answer) as service,
        running_proxy(
            service.url,
            mode="record",
            store=MemoryStore() if on == "memory" else SqliteStore(tmp_path / "c.db"),
        ) as proxy,
    ):
        async with connected(proxy.url, "/rpc") as client:
            await _said(client, call(1), 1)
            [item] = await proxy.recorded()
            await proxy.broker.editor.edit("default", item.index, changed := change(item))
            goes_on.set()
            assert await next_event(client) == news("after the change")
        assert [interaction.metadata for interaction in await proxy.recorded()] == [
            interaction.metadata for interaction in [changed] if interaction is not None
        ]
        assert len(await _unrecorded(proxy)) == 1


@pytest.mark.parametrize("results", [[1, 1], [1, 2]], ids=["equal", "new"])
async def test_a_take_replaces_a_turn_of_the_take_before_that_is_written_at_the_moment(
    results: list[int],
) -> None:
    store, upstreams, number = HeldStore(), list[web.WebSocketResponse](), iter(results)

    async def answer(socket: web.WebSocketResponse) -> None:
        upstreams.append(socket)
        asked = await socket.receive_json()
        await socket.send_json({"jsonrpc": "2.0", "id": asked["id"], "result": next(number)})
        await socket.receive()
        await socket.close()

    async with (
        serving(answer) as service,
        running_proxy(service.url, mode="record", store=store) as proxy,
        connected(proxy.url, "/rpc") as first,
        connected(proxy.url, "/rpc") as second,
    ):
        await _said(first, call(1), 1)
        async with store.held():
            await upstreams[0].send_json(news("of the take before"))
            assert await next_event(first) == news("of the take before")
            await first.close()
            await store.waits.wait()
            await proxy.broker.rewind()
            await second.send(json.dumps(call(1)))
            calls = proxy.broker.recorder.under_way
            await until(lambda: [recorded.state for recorded in calls.values()] == ["storing"])
        said = [await next_event(second)]
        assert await _stored(proxy) == [said]
        [report] = await proxy.broker.reports()
        assert report.unused == ()


async def test_messages_that_cannot_be_stored_are_an_error_in_the_journal() -> None:
    store = CountingStore(full_after=1)
    async with (
        serving(notifying()) as service,
        running_proxy(service.url, mode="record", store=store) as proxy,
    ):
        async with connected(proxy.url, "/rpc") as client:
            said = await _said(client, call(1))
        await proxy.proxy.wait_until_idle()
        assert await _stored(proxy) == [said[:1]]
        assert proxy.journal.counts == {"recorded": 1, "error": 1}


async def test_a_client_is_cut_off_whose_turn_cannot_be_stored_with_its_notifications() -> None:
    async with (
        serving(notifying()) as service,
        running_proxy(service.url, mode="record", store=CountingStore(full_after=1)) as proxy,
        connected(proxy.url, "/rpc") as client,
    ):
        await _said(client, call(1))
        await client.send(json.dumps(call(2)))
        with pytest.raises(ConnectionClosed):
            await next_events(client, 4)


async def test_a_turn_with_messages_after_its_end_counts_as_one_request() -> None:
    async with (
        serving(notifying()) as service,
        running_proxy(service.url, mode="auto") as proxy,
        connected(proxy.url, "/rpc") as client,
    ):
        recorded = await _said(client, call(1))
        await proxy.broker.rewind()
        assert await _said(client, call(1)) == recorded
        assert proxy.journal.counts == {"recorded": 1, "replayed": 1}
        assert len(await proxy.recorded()) == 1


async def test_the_journal_names_the_recording_that_holds_all_of_a_turn() -> None:
    async with (
        serving(notifying()) as service,
        running_proxy(service.url, mode="record") as proxy,
        connected(proxy.url, "/rpc") as client,
    ):
        for method in ("a", "b"):
            await _said(client, call(1, method))
        named = [entry.interaction for entry in proxy.journal][::-1]
        assert named == [recording.index for recording in await proxy.recorded()]


async def test_recording_anew_replaces_what_came_after_the_end_too() -> None:
    number = iter(range(100))
    async with (
        serving(notifying(text=lambda _: next(number))) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        for _ in range(3):
            await proxy.broker.rewind()
            async with connected(proxy.url, "/rpc") as client:
                recorded = await _said(client, call(1))
        await proxy.proxy.wait_until_idle()
        assert await _stored(proxy) == [recorded]


async def test_a_long_turn_goes_on_in_a_file() -> None:
    async with (
        serving(notifying(text=lambda number: f"{number}" * 400_000)) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        for mode in MODES:
            await proxy.broker.set_mode(mode)
            async with connected(proxy.url, "/rpc") as client:
                said = await _said(client, call(1))
            assert [len(message["params"][1]) for message in said[1:]] == [400_000] * 3
            await proxy.proxy.wait_until_idle()
        [item] = await proxy.recorded()
        assert item.response.file is not None


async def test_a_secret_behind_the_end_is_not_stored() -> None:
    key = "sk-live-5b1f0c9e7d3a4286b2c4"

    async def answer(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        await socket.send_json({"jsonrpc": "2.0", "id": 1, "result": {}})
        await socket.send_json(news({"said": f"your key is {key}"}))
        await socket.receive()
        await socket.close()

    async with (
        serving(answer) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        bearer = {"Authorization": f"Bearer {key}"}
        async with connected(proxy.url, "/rpc", bearer) as client:
            said = await _said(client, call(1), 2)
        assert key in json.dumps(said)
        await proxy.proxy.wait_until_idle()
        [item] = await proxy.recorded()
        assert len(item.response.pieces()) == 2
        assert key.encode() not in item.response.body


class HeldStore(MemoryStore):
    """A store that writes nothing while it is held."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = asyncio.Event()
        """Set once a recording waits."""
        self._free = asyncio.Event()
        self._free.set()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        if not self._free.is_set():
            self.waits.set()
        await self._free.wait()
        await super().append(name, head, recording)


class CountingStore(MemoryStore):
    """A store that counts what is appended, takes its time, and is full at some time."""

    def __init__(self, turns: int = 0, full_after: int | None = None) -> None:
        super().__init__()
        self.appended = 0
        self._turns = turns
        self._full_after = full_after

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        if self.appended == self._full_after:
            raise StoreFull("the disk is full")
        for _ in range(self._turns):
            await asyncio.sleep(0)
        await super().append(name, head, recording)
        self.appended += 1
