"""A service's messages before the first request are recorded, and replayed when a client connects."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count

import pytest
from aiohttp import WSMsgType, web
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.core.model.control import Delivery
from tapeway.core.model.interaction import Interaction
from tapeway.core.streams.pacing import Pace
from tapeway.engine.recording.selection import Policy
from tapeway.errors import StoreFull
from tapeway.ports import CassetteStore
from tapeway.stores.memory import MemoryStore
from tests.process.serving import eventually
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
from tests.server.websocket.websocket_service import Handler, serving

_HOUR_S = 3600.0
_READY = {"jsonrpc": "2.0", "method": "ready"}
both_deliveries = pytest.mark.parametrize("delivery", ["buffer", "stream"])


def _greeting(*hellos: Callable[[], Event] | Event) -> Handler:
    """Send these messages to each client that connects, and answer calls of JSON-RPC."""

    async def greet(socket: web.WebSocketResponse) -> None:
        for hello in hellos:
            await socket.send_json(hello() if callable(hello) else hello)
        while (message := await socket.receive()).type is WSMsgType.TEXT:
            await notify(socket, json.loads(message.data), [])
        await socket.close(code=message.data or 1000)

    return greet


def _numbered(*params: object) -> Callable[[], Event]:
    """A notification with the number of the connection."""
    numbers: Iterator[int] = count(1)
    return lambda: news(*params, next(numbers))


async def _greeted(proxy: RunningProxy, id: object = 1, hellos: int = 1) -> list[Event]:
    """Wait for the service's first messages, make a call, and return all messages of the service."""
    async with connected(proxy.url, "/rpc") as client:
        found = await next_events(client, hellos)
        await client.send(json.dumps(call(id)))
        found.append(await next_event(client))
    await proxy.proxy.wait_until_idle()
    return found


async def _lines(proxy: RunningProxy) -> list[list[Event]]:
    return [
        [json.loads(line) for line in item.response.body.splitlines()]
        for item in await proxy.recorded()
    ]


async def _unrecorded(proxy: RunningProxy) -> list[str]:
    await proxy.proxy.wait_until_idle()
    return [
        answer.reason for report in await proxy.broker.reports() for answer in report.unrecorded
    ]


@both_deliveries
async def test_a_client_that_waits_for_the_service_s_first_message_gets_it_on_a_replay(
    delivery: Delivery,
) -> None:
    welcome, more = news("welcome"), news("more")
    async with (
        serving(_greeting(welcome, more)) as service,
        running_proxy(service.url, mode="record", options=delivered(delivery)) as proxy,
    ):
        recorded = await _greeted(proxy, 1, 2)
        assert await _lines(proxy) == [
            [{"service": welcome}, {"service": more}],
            [{"jsonrpc": "2.0", "id": 1, "result": "done"}],
        ]
        assert await _unrecorded(proxy) == []
        await proxy.broker.set_mode("replay")
        replayed = [await _greeted(proxy, id, 2) for id in (1, "x")]
        [report] = await proxy.broker.reports()

    assert recorded[:2] == [welcome, more]
    assert replayed == [recorded, [*recorded[:2], recorded[2] | {"id": "x"}]]
    assert len(service.handshakes) == 1
    assert (report.unused, proxy.journal.counts) == ((), {"recorded": 2, "replayed": 4})


async def test_an_event_before_the_first_response_is_replayed() -> None:
    created = {"type": "session.created", "session": {"id": "sess_1"}}

    async def greet(socket: web.WebSocketResponse) -> None:
        await socket.send_json(created)
        await answer_responses(socket)

    async def talk(proxy: RunningProxy) -> list[list[Event]]:
        async with connected(proxy.url) as client:
            first = [await next_event(client)]
            return [first, await turn(client, create("a")), await turn(client, create("b"))]

    async with (
        serving(greet) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        recorded = await talk(proxy)
        await proxy.broker.set_mode("replay")
        assert [await talk(proxy) for _ in range(2)] == [recorded, recorded]
    assert recorded[0] == [created]
    assert len(service.handshakes) == 1


async def test_different_first_messages_are_replayed_in_the_order_of_the_connections() -> None:
    async with (
        serving(_greeting(_numbered("welcome"))) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        recorded = [await _greeted(proxy) for _ in range(3)]
        await proxy.broker.set_mode("replay")
        replayed = [await _greeted(proxy) for _ in range(4)]

    assert [message[0] for message in recorded] == [news("welcome", number) for number in (1, 2, 3)]
    assert replayed == [*recorded, recorded[-1]]


async def test_a_new_take_replaces_the_first_messages_of_the_take_before() -> None:
    async with (
        serving(_greeting(_numbered("welcome"))) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        for _ in range(2):
            await _greeted(proxy)
            await proxy.broker.rewind()
        assert [line for [line] in await _lines(proxy)] == [
            {"service": news("welcome", 2)},
            {"jsonrpc": "2.0", "id": 1, "result": "done"},
        ]


async def test_a_client_without_a_request_gets_the_service_s_messages_on_a_replay() -> None:
    async with (
        serving(_greeting(news("welcome"))) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with connected(proxy.url, "/rpc") as client:
            assert await next_event(client) == news("welcome")
        await proxy.proxy.wait_until_idle()
        recorded = await _greeted(proxy)
        await proxy.broker.set_mode("replay")
        async with connected(proxy.url, "/rpc") as client:
            assert await next_event(client) == news("welcome")
        await proxy.proxy.wait_until_idle()
        assert await _greeted(proxy) == recorded
        [report] = await proxy.broker.reports()
        assert (report.unused, report.misses) == ((), ())
        assert proxy.journal.counts == {"recorded": 3, "replayed": 3}


async def test_a_client_that_says_nothing_before_it_leaves_hides_no_first_message() -> None:
    """A connection that ended before the service said anything is skipped."""
    speaks = asyncio.Event()

    async def greet(socket: web.WebSocketResponse) -> None:
        if speaks.is_set():
            await _greeting(news("welcome"))(socket)
        else:
            await socket.close(code=(await socket.receive()).data or 1000)

    async with (
        serving(greet) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with connected(proxy.url, "/rpc"):
            pass
        await proxy.proxy.wait_until_idle()
        speaks.set()
        recorded = await _greeted(proxy)
        await proxy.broker.set_mode("replay")
        assert await _greeted(proxy) == recorded


async def _feed(socket: web.WebSocketResponse) -> None:
    """Say a few things, and close."""
    for number in range(3):
        await socket.send_str(f"{number}")
    await socket.close(code=4001, message=b"enough")


async def test_a_feed_without_a_message_of_the_client_is_replayed_to_the_close() -> None:
    async def read(proxy: RunningProxy) -> tuple[list[object], int | None, str | None]:
        async with connected(proxy.url, "/feed") as client:
            said = [message async for message in _all_of(client)]
        await proxy.proxy.wait_until_idle()
        return said, client.close_code, client.close_reason

    async with serving(_feed) as service, running_proxy(service.url, mode="record") as proxy:
        assert await read(proxy) == (["0", "1", "2"], 4001, "enough")
        [lines] = await _lines(proxy)
        assert lines[-1] == {"close": {"code": 4001, "reason": "enough", "by": "service"}}
        await proxy.broker.set_mode("replay")
        for _ in range(2):
            assert await read(proxy) == (["0", "1", "2"], 4001, "enough")
        [report] = await proxy.broker.reports()
        assert (report.unused, proxy.journal.counts) == ((), {"recorded": 1, "replayed": 2})
    assert len(service.handshakes) == 1


async def _all_of(client: ClientConnection) -> AsyncIterator[object]:
    while True:
        try:
            yield await asyncio.wait_for(client.recv(), 60)
        except ConnectionClosed:
            return


async def test_messages_between_the_client_s_first_message_and_the_first_request_are_recorded() -> (
    None
):
    async def talk(proxy: RunningProxy, hellos: int) -> list[Event]:
        async with connected(proxy.url, "/rpc") as client:
            found = await next_events(client, hellos)
            await client.send(json.dumps(_READY))
            found += await next_events(client, 2)
            await client.send(json.dumps(call(1)))
            found.append(await next_event(client))
        assert await _unrecorded(proxy) == []
        return found

    async def answer(socket: web.WebSocketResponse, hellos: Sequence[Event]) -> None:
        for hello in hellos:
            await socket.send_json(hello)
        await notify(socket, await socket.receive_json(), ["one", "two"])
        await notify(socket, await socket.receive_json(), [])
        await socket.receive()
        await socket.close()

    for hellos in ([news("welcome")], []):
        async with (
            serving(lambda socket, said=hellos: answer(socket, said)) as service,  # type: ignore[misc]
            running_proxy(service.url, mode="record") as proxy,
        ):
            recorded = await talk(proxy, len(hellos))
            opening, _ = await _lines(proxy)
            assert [message["service"] for message in opening] == recorded[:-1]
            await proxy.broker.set_mode("replay")
            assert [await talk(proxy, len(hellos)) for _ in range(2)] == [recorded, recorded]


async def test_a_binary_first_message_stays_binary() -> None:
    async def greet(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(b'{"jsonrpc":"2.0","method":"news"}')
        await socket.send_bytes(b"\x00\xff")
        await _greeting()(socket)

    async with (
        serving(greet) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        for mode in ("record", "replay"):
            await proxy.broker.set_mode(mode)
            async with connected(proxy.url, "/rpc") as client:
                said = [await client.recv() for _ in range(2)]
                assert said == [b'{"jsonrpc":"2.0","method":"news"}', b"\x00\xff"]
                await client.send(json.dumps(call(1)))
                assert (await next_event(client))["id"] == 1


async def test_in_auto_the_first_message_comes_from_the_recording_and_once() -> None:
    """The service says it again when a new request needs the service: the client has it already."""
    async with (
        serving(_greeting(_numbered("welcome"))) as service,
        running_proxy(service.url, mode="auto") as proxy,
    ):
        recorded = await _greeted(proxy)
        await proxy.broker.rewind()
        async with connected(proxy.url, "/rpc") as client:
            found = [await next_event(client)]
            for method in ("echo", "new"):
                await client.send(json.dumps(call(1, method)))
                found.append(await next_event(client))
            assert len(service.handshakes) == 2
        assert found == [*recorded, recorded[-1]]
        assert await _unrecorded(proxy) == []
        assert proxy.journal.counts == {"recorded": 3, "replayed": 2}


@pytest.mark.parametrize("hellos", [0, 1, 2])
async def test_in_auto_as_many_first_messages_of_the_service_are_left_out_as_the_client_has(
    hellos: int,
) -> None:
    said = [[news("recorded")], [news("again"), news("more")][:hellos]]
    async with (
        serving(lambda socket: _greeting(*said.pop(0))(socket)) as service,
        running_proxy(service.url, mode="auto") as proxy,
    ):
        await _greeted(proxy)
        await proxy.broker.rewind()
        async with connected(proxy.url, "/rpc") as client:
            found = [await next_event(client)]
            await client.send(json.dumps(call(1, "new")))
            found += await next_events(client, max(1, hellos))
    assert found[0] == news("recorded")
    assert [event for event in found if "id" not in event][1:] == [news("more")] * (hellos == 2)
    assert [event["result"] for event in found if "id" in event] == ["done"]


async def test_in_auto_a_used_up_first_message_comes_from_the_service_with_repeats_miss() -> None:
    async with (
        serving(_greeting(_numbered("welcome"))) as service,
        running_proxy(service.url, mode="auto", policy=Policy(repeats="miss")) as proxy,
    ):
        recorded = [await _greeted(proxy) for _ in range(2)]
        assert [message[0] for message in recorded] == [news("welcome", 1), news("welcome", 2)]
        await proxy.broker.rewind()
        assert [await _greeted(proxy) for _ in range(2)] == recorded
    assert len(service.handshakes) == 2


async def test_in_auto_another_caller_is_greeted_by_the_service() -> None:
    async def talk(proxy: RunningProxy, key: str) -> Event:
        async with connected(proxy.url, "/rpc", {"Authorization": f"Bearer {key}"}) as client:
            found = await next_event(client)
            await client.send(json.dumps(call(1)))
            await next_event(client)
        await proxy.proxy.wait_until_idle()
        return found

    async with (
        serving(_greeting(_numbered("welcome"))) as service,
        running_proxy(service.url, mode="auto") as proxy,
    ):
        keys = ("sk-synthetic-1", "sk-synthetic-2")
        said = [await talk(proxy, key) for key in keys]
        await proxy.broker.rewind()
        said += [await talk(proxy, key) for key in keys]
    assert said == [news("welcome", number) for number in (1, 2, 1, 2)]
    assert len(service.handshakes) == 2


async def test_a_connection_without_a_recorded_first_message_is_a_miss_that_the_journal_names() -> (
    None
):
    async with (
        serving(_greeting(news("welcome"))) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        await _greeted(proxy)
        await proxy.broker.set_mode("replay")
        async with connected(proxy.url, "/rpc?version=2") as client:
            await eventually(lambda: proxy.journal.counts.get("miss") == 1)
            await client.send(json.dumps(call(1)))
            missed = await next_event(client)
        assert missed["error"]["data"]["code"] == "replay_miss"
        assert proxy.journal.counts["miss"] == 2


async def test_with_repeats_miss_a_connection_too_many_gets_no_first_message() -> None:
    async with (
        serving(_greeting(news("welcome"))) as service,
        running_proxy(service.url, mode="record", policy=Policy(repeats="miss")) as proxy,
    ):
        recorded = await _greeted(proxy)
        await proxy.broker.set_mode("replay")
        assert await _greeted(proxy) == recorded
        async with connected(proxy.url, "/rpc") as client:
            await eventually(lambda: proxy.journal.counts.get("miss") == 1)
            await client.send(json.dumps(call(1)))
            assert "error" in await next_event(client)


async def test_a_first_message_that_cannot_be_stored_ends_the_connection_before_a_request() -> None:
    asked: list[WSMsgType] = []

    async def greet(socket: web.WebSocketResponse) -> None:
        await socket.send_json(news("welcome"))
        asked.append((await socket.receive()).type)

    async with (
        serving(greet) as service,
        running_proxy(service.url, mode="record", store=_Full()) as proxy,
    ):
        async with connected(proxy.url, "/rpc") as client:
            await next_event(client)
            await client.send(json.dumps(call(1)))
            with pytest.raises(ConnectionClosed):
                await client.recv()
        await proxy.proxy.wait_until_idle()
        await eventually(lambda: bool(asked))
        assert WSMsgType.TEXT not in asked
        assert (await proxy.recorded(), proxy.journal.counts) == ([], {"error": 1})


async def test_a_first_message_too_large_for_a_recording_is_passed_on_and_counted() -> None:
    long = news("a" * 1000)
    async with (
        serving(_greeting(long)) as service,
        running_proxy(service.url, mode="record", policy=Policy(max_body=500)) as proxy,
    ):
        assert (await _greeted(proxy))[0] == long
        assert len(await proxy.recorded()) == 1
        [reason] = await _unrecorded(proxy)
        assert "(1)" in reason


async def test_a_secret_in_a_first_message_is_not_stored() -> None:
    key = "sk-live-5b1f0c9e7d3a4286b2c4"
    async with (
        serving(_greeting(news(f"your key is {key}"))) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with connected(proxy.url, "/rpc", {"Authorization": f"Bearer {key}"}) as client:
            assert key in json.dumps(await next_event(client))
            await client.send(json.dumps(call(1)))
            await next_event(client)
        assert len(await proxy.recorded()) == 2
        for item in await proxy.recorded():
            assert key.encode() not in item.response.body


async def _an_hour_apart(store: CassetteStore) -> MemoryStore:
    """A copy of the recordings in which each message came an hour after the one before."""
    stored = await store.load("default", writable=False)
    assert stored is not None
    items: list[Interaction] = []
    for interaction in stored.interactions:
        assert isinstance(interaction, Interaction)
        chunks = [
            (piece, _HOUR_S * 1000 * at) for at, piece in enumerate(interaction.response.pieces())
        ]
        spread = type(interaction.response).of_chunks(interaction.response.head, chunks)
        items.append(
            replace(interaction, response=replace(spread, verdict=interaction.response.verdict))
        )
    copy = MemoryStore()
    await copy.save("default", replace(stored, interactions=tuple(items)))
    return copy


async def test_first_messages_keep_their_pace_at_most_until_the_client_asks() -> None:
    async with (
        serving(_greeting(news(1), news(2), news(3))) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        await _greeted(proxy, 1, 3)
        slow = await _an_hour_apart(proxy.store)

    async with (
        running_proxy(mode="replay", store=slow, options=delivered(pace=Pace(1))) as proxy,
        connected(proxy.url, "/rpc") as client,
    ):
        assert await next_event(client) == news(1)
        await client.send(json.dumps(call(1)))
        said = await next_events(client, 3)
    assert [said[0], said[1], said[2]["result"]] == [news(2), news(3), "done"]


async def test_first_messages_keep_the_time_between_them() -> None:
    goes_on = asyncio.Event()

    async def greet(socket: web.WebSocketResponse) -> None:
        await socket.send_json(news(1))
        await goes_on.wait()
        await _greeting(news(2))(socket)

    async with (
        serving(greet) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with connected(proxy.url, "/rpc") as client:
            await next_event(client)
            await asyncio.sleep(0.02)
            goes_on.set()
            await next_event(client)
            await client.send(json.dumps(call(1)))
            await next_event(client)
        opening, _ = await proxy.recorded()
        first, second = opening.response.arrivals().times
        # The timers of a loop may be a millisecond early.
        assert second - first >= 15


@asynccontextmanager
async def _left_silently(proxy: RunningProxy, path: str) -> AsyncIterator[None]:
    async with connected(proxy.url, path) as client:
        await next_event(client)
    await proxy.proxy.wait_until_idle()
    yield


async def test_a_silent_client_before_a_session_changes_no_replay_of_the_session() -> None:
    async def speak_first(socket: web.WebSocketResponse) -> None:
        await socket.send_json({"type": "session.created", "event_id": "event_1", "session": {}})
        while (message := await socket.receive()).type is WSMsgType.TEXT:
            await socket.send_json({"type": "session.updated", "event_id": "event_2"})
        await socket.close(code=message.data or 1000)

    path = "/v1/realtime?model=gpt-realtime"

    async def talk(proxy: RunningProxy) -> list[Event]:
        async with connected(proxy.url, path) as client:
            found = [await next_event(client)]
            await client.send('{"type":"session.update","session":{}}')
            found.append(await next_event(client))
        await proxy.proxy.wait_until_idle()
        return found

    async with (
        serving(speak_first) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with _left_silently(proxy, path):
            recorded = await talk(proxy)
        await proxy.broker.set_mode("replay")
        async with _left_silently(proxy, path):
            assert [await talk(proxy) for _ in range(2)] == [recorded, recorded]
        assert proxy.journal.counts == {"recorded": 2, "replayed": 3}


class _Full(MemoryStore):
    """A store without room."""

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        raise StoreFull("the disk is full")
