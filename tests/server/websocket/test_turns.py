"""Turns of the Responses API over WebSocket: recorded one by one, and replayed by their content."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import WSMsgType, web
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tapeway.core.model.control import Delivery
from tapeway.server.proxy import ProxyOptions
from tapeway.upstream.client import Limits
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.server.websocket.responses_service import answer_responses
from tests.server.websocket.websocket_service import serving

Event = dict[str, Any]
PATH = "/v1/responses"


def _options(delivery: Delivery = "buffer") -> ProxyOptions:
    return ProxyOptions(max_body=8 * 1024 * 1024, body_idle_s=10, delivery=delivery)


@asynccontextmanager
async def _client(proxy: RunningProxy, path: str = PATH) -> AsyncIterator[ClientConnection]:
    async with connect(proxy.url.replace("http", "ws") + path) as client:
        yield client


def _create(text: str, **more: object) -> str:
    return json.dumps({"type": "response.create", "model": "gpt-5", "input": text, **more})


async def _turn(client: ClientConnection, message: str) -> list[Event]:
    """The events that answer a message, up to the one that ends the turn."""
    await client.send(message)
    found: list[Event] = []
    while not found or found[-1]["type"] not in ("response.completed", "error"):
        found.append(json.loads(await asyncio.wait_for(client.recv(), 60)))
    return found


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
async def test_a_turn_is_recorded_and_replayed_without_the_upstream(delivery: Delivery) -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="record", options=_options(delivery)) as proxy,
    ):
        async with _client(proxy) as client:
            first = await _turn(client, _create("a"))
            second = await _turn(
                client, _create("b", previous_response_id=first[0]["response"]["id"])
            )
            assert len(await proxy.recorded()) == 2
        await proxy.broker.set_mode("replay")
        async with _client(proxy) as client:
            assert await _turn(client, _create("a")) == first
            parent = first[0]["response"]["id"]
            assert await _turn(client, _create("b", previous_response_id=parent)) == second

        assert len(service.handshakes) == 1
        assert proxy.journal.counts == {"recorded": 2, "replayed": 2}
        assert {(each.method, each.path, each.status) for each in proxy.journal} == {
            ("WEBSOCKET", PATH, 200)
        }


async def test_a_recorded_turn_is_a_readable_interaction() -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(routes={"openai": service.url}, mode="record") as proxy,
    ):
        async with _client(proxy, "/openai" + PATH) as client:
            events = await _turn(client, _create("a", stream_id="l1"))
        [item] = await proxy.recorded()

    from tapeway.formats.native import http_exchange

    document = http_exchange.encode(item)
    assert document["kind"] == "websocket"
    assert document["request"]["json"] == {  # type: ignore[index,call-overload]
        "type": "response.create",
        "model": "gpt-5",
        "input": "a",
    }
    assert item.request.target == PATH
    assert [json.loads(each) for each in item.response.pieces()] == events
    assert item.usage == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert item.metadata["model"] == "gpt-5"
    assert item.metadata["websocket"] == {"protocol": "openai-responses", "lane": '"l1"'}


async def test_lanes_are_independent_and_carry_the_name_of_who_asks() -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with _client(proxy) as client:
            recorded = await _turn(client, _create("a", stream_id="one"))
        await proxy.broker.set_mode("replay")
        async with _client(proxy) as client:
            other = await _turn(client, _create("a", stream_id="two"))
            plain = await _turn(client, _create("a"))

    assert {each["stream_id"] for each in other} == {"two"}
    assert not any("stream_id" in each for each in plain)
    assert [each | {"stream_id": "one"} for each in plain] == recorded


async def test_a_miss_is_an_error_event_and_the_connection_stays_open() -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with _client(proxy) as client:
            recorded = await _turn(client, _create("hello"))
        await proxy.broker.set_mode("replay")
        async with _client(proxy) as client:
            [missed] = await _turn(client, _create("other", stream_id="x"))
            assert await _turn(client, _create("hello")) == recorded

        assert (missed["status"], missed["stream_id"]) == (400, "x")
        assert missed["error"]["code"] == missed["error"]["type"] == "replay_miss"
        assert "nearest #0 differs at input" in missed["error"]["message"]
        assert proxy.journal.counts["miss"] == 1
        assert len(service.handshakes) == 1


async def test_auto_replays_what_is_recorded_and_asks_for_the_rest() -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="auto") as proxy,
    ):
        async with _client(proxy) as client:
            first = await _turn(client, _create("a"))
        assert len(service.handshakes) == 1
        await proxy.broker.rewind()
        async with _client(proxy) as client:
            assert await _turn(client, _create("a")) == first
            assert len(service.handshakes) == 1
            second = await _turn(client, _create("b"))
            assert len(service.handshakes) == 2
            parent = second[0]["response"]["id"]
            await _turn(client, _create("c", previous_response_id=parent))

        assert proxy.journal.counts == {"recorded": 3, "replayed": 1}
        assert len(await proxy.recorded()) == 3


async def test_auto_does_not_forward_an_identifier_that_a_recording_issued() -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="auto") as proxy,
    ):
        async with _client(proxy) as client:
            first = await _turn(client, _create("a"))
        await proxy.broker.rewind()
        async with _client(proxy) as client:
            await _turn(client, _create("a"))
            parent = first[0]["response"]["id"]
            [refused] = await _turn(client, _create("b", previous_response_id=parent))

        assert refused["error"]["code"] == "replayed_parent"
        assert parent in refused["error"]["message"]
        assert len(service.handshakes) == 1
        assert proxy.journal.counts["error"] == 1


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
async def test_an_error_of_the_service_is_passed_on_and_recorded_in_mode_record(
    delivery: Delivery,
) -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="record", options=_options(delivery)) as proxy,
        _client(proxy) as client,
    ):
        [failed] = await _turn(client, _create("boom"))
        assert failed["error"]["code"] == "bad"
        [item] = await proxy.recorded()
        assert item.response.verdict == "error"


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
async def test_a_turn_that_the_upstream_cuts_is_not_recorded(delivery: Delivery) -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="record", options=_options(delivery)) as proxy,
    ):
        async with _client(proxy) as client:
            with pytest.raises(ConnectionClosed):
                await _turn(client, _create("cut"))
            assert (client.close_code, client.close_reason) == (1011, "broken")
        await proxy.proxy.wait_until_idle()
        assert await proxy.recorded() == []
        [entry] = proxy.journal
        assert (entry.outcome, entry.message is not None) == ("error", True)


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
async def test_a_client_that_leaves_does_not_end_the_turn(delivery: Delivery) -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="record", options=_options(delivery)) as proxy,
    ):
        async with _client(proxy) as client:
            await client.send(_create("a"))
            client.transport.close()
        await proxy.proxy.wait_until_idle()

        assert len(await proxy.recorded()) == 1


async def test_a_silent_upstream_is_given_up_once_the_client_has_left() -> None:
    async def say_nothing(socket: web.WebSocketResponse) -> None:
        while (await socket.receive()).type is WSMsgType.TEXT:
            pass

    limits = Limits(connect_s=60, idle_s=0.05)
    async with (
        serving(say_nothing) as service,
        running_proxy(service.url, mode="record", limits=limits) as proxy,
    ):
        async with _client(proxy) as client:
            await client.send(_create("a"))
        await proxy.proxy.wait_until_idle()

        assert proxy.connections() == []
        assert proxy.journal.counts == {"error": 1}
        assert await proxy.recorded() == []


async def test_equal_turns_at_the_same_time_are_asked_once_and_keep_their_lanes() -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="auto") as proxy,
        _client(proxy) as one,
        _client(proxy) as two,
    ):
        first, second = await asyncio.gather(
            _turn(one, _create("a", stream_id="one")), _turn(two, _create("a", stream_id="two"))
        )

        assert {each["stream_id"] for each in first} == {"one"}
        assert {each["stream_id"] for each in second} == {"two"}
        assert first == [each | {"stream_id": "one"} for each in second]
        assert proxy.journal.counts == {"recorded": 1, "replayed": 1}


async def test_the_second_of_two_equal_turns_gets_the_second_recording() -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with _client(proxy) as client:
            recorded = [await _turn(client, _create("a")) for _ in range(2)]
        await proxy.broker.set_mode("replay")
        async with _client(proxy) as client:
            replayed = [await _turn(client, _create("a")) for _ in range(3)]

    assert replayed == [*recorded, recorded[1]]
