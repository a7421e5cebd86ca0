"""Turns of the Responses API over WebSocket: recorded one by one, and replayed by their content."""

import asyncio
import json

import pytest
from aiohttp import WSMsgType, web
from websockets.exceptions import ConnectionClosed

from tapeway.core.model.control import Delivery, Mode
from tapeway.core.model.interaction import Interaction
from tapeway.upstream.client import Limits
from tests.server.in_process_proxy import running_proxy
from tests.server.websocket.conversing import (
    RESPONSES,
    Event,
    connected,
    create,
    delivered,
    next_event,
    next_events,
    turn,
)
from tests.server.websocket.responses_service import answer_responses
from tests.server.websocket.websocket_service import serving


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
async def test_a_turn_is_recorded_and_replayed_without_the_upstream(delivery: Delivery) -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="record", options=delivered(delivery)) as proxy,
    ):
        async with connected(proxy.url) as client:
            first = await turn(client, create("a"))
            second = await turn(
                client, create("b", previous_response_id=first[0]["response"]["id"])
            )
            assert len(await proxy.recorded()) == 2
        await proxy.broker.set_mode("replay")
        async with connected(proxy.url) as client:
            assert await turn(client, create("a")) == first
            parent = first[0]["response"]["id"]
            assert await turn(client, create("b", previous_response_id=parent)) == second

        assert len(service.handshakes) == 1
        assert proxy.journal.counts == {"recorded": 2, "replayed": 2}
        assert {(answer.method, answer.path, answer.status) for answer in proxy.journal} == {
            ("WEBSOCKET", RESPONSES, 200)
        }


async def test_a_recorded_turn_is_a_readable_interaction() -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(routes={"openai": service.url}, mode="record") as proxy,
    ):
        async with connected(proxy.url, "/openai" + RESPONSES) as client:
            events = await turn(client, create("a", stream_id="l1"))
        [item] = await proxy.recorded()

    from tapeway.formats.native import http_exchange

    document = http_exchange.encode(item)
    assert document["kind"] == "websocket"
    assert document["request"]["json"] == {  # type: ignore[index,call-overload]
        "type": "response.create",
        "model": "gpt-5",
        "input": "a",
    }
    assert item.request.target == RESPONSES
    assert [json.loads(piece) for piece in item.response.pieces()] == events
    assert item.usage == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert item.metadata["model"] == "gpt-5"
    assert item.metadata["websocket"] == {"protocol": "openai-responses", "lane": '"l1"'}


async def test_lanes_are_independent_and_carry_the_name_of_who_asks() -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with connected(proxy.url) as client:
            recorded = await turn(client, create("a", stream_id="one"))
        await proxy.broker.set_mode("replay")
        async with connected(proxy.url) as client:
            other = await turn(client, create("a", stream_id="two"))
            plain = await turn(client, create("a"))

    assert {message["stream_id"] for message in other} == {"two"}
    assert not any("stream_id" in message for message in plain)
    assert [message | {"stream_id": "one"} for message in plain] == recorded


async def test_a_miss_is_an_error_event_and_the_connection_stays_open() -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with connected(proxy.url) as client:
            recorded = await turn(client, create("hello"))
        await proxy.broker.set_mode("replay")
        async with connected(proxy.url) as client:
            [missed] = await turn(client, create("other", stream_id="x"))
            assert await turn(client, create("hello")) == recorded

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
        async with connected(proxy.url) as client:
            first = await turn(client, create("a"))
        assert len(service.handshakes) == 1
        await proxy.broker.rewind()
        async with connected(proxy.url) as client:
            assert await turn(client, create("a")) == first
            assert len(service.handshakes) == 1
            second = await turn(client, create("b"))
            assert len(service.handshakes) == 2
            parent = second[0]["response"]["id"]
            await turn(client, create("c", previous_response_id=parent))

        assert proxy.journal.counts == {"recorded": 3, "replayed": 1}
        assert len(await proxy.recorded()) == 3


async def test_auto_does_not_forward_an_identifier_that_a_recording_issued() -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="auto") as proxy,
    ):
        async with connected(proxy.url) as client:
            first = await turn(client, create("a"))
        await proxy.broker.rewind()
        async with connected(proxy.url) as client:
            await turn(client, create("a"))
            parent = first[0]["response"]["id"]
            [refused] = await turn(client, create("b", previous_response_id=parent))

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
        running_proxy(service.url, mode="record", options=delivered(delivery)) as proxy,
        connected(proxy.url) as client,
    ):
        [failed] = await turn(client, create("boom"))
        assert failed["error"]["code"] == "bad"
        [item] = await proxy.recorded()
        assert item.response.verdict == "error"


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
async def test_a_turn_that_the_upstream_cuts_is_not_recorded(delivery: Delivery) -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="record", options=delivered(delivery)) as proxy,
    ):
        async with connected(proxy.url) as client:
            with pytest.raises(ConnectionClosed):
                await turn(client, create("cut"))
            assert (client.close_code, client.close_reason) == (1011, "broken")
        await proxy.proxy.wait_until_idle()
        assert await proxy.recorded() == []
        [entry] = proxy.journal
        assert (entry.outcome, entry.message is not None) == ("error", True)


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
async def test_a_client_that_leaves_does_not_end_theturn(delivery: Delivery) -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="record", options=delivered(delivery)) as proxy,
    ):
        async with connected(proxy.url) as client:
            await client.send(json.dumps(create("a")))
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
        async with connected(proxy.url) as client:
            await client.send(json.dumps(create("a")))
        await proxy.proxy.wait_until_idle()

        assert proxy.connections() == []
        assert proxy.journal.counts == {"error": 1}
        assert await proxy.recorded() == []


async def test_equal_turns_at_the_same_time_are_asked_once_and_keep_their_lanes() -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="auto") as proxy,
        connected(proxy.url) as one,
        connected(proxy.url) as two,
    ):
        first, second = await asyncio.gather(
            turn(one, create("a", stream_id="one")), turn(two, create("a", stream_id="two"))
        )

        assert {message["stream_id"] for message in first} == {"one"}
        assert {message["stream_id"] for message in second} == {"two"}
        assert first == [message | {"stream_id": "one"} for message in second]
        assert proxy.journal.counts == {"recorded": 1, "replayed": 1}


async def test_the_second_of_two_equal_turns_gets_the_second_recording() -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with connected(proxy.url) as client:
            recorded = [await turn(client, create("a")) for _ in range(2)]
        await proxy.broker.set_mode("replay")
        async with connected(proxy.url) as client:
            replayed = [await turn(client, create("a")) for _ in range(3)]

    assert replayed == [*recorded, recorded[1]]


async def test_a_slot_sends_each_turn_to_the_cassette_that_the_slot_names_at_the_time() -> None:
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        await proxy.broker.set_slot("test", "one")
        async with connected(proxy.url, "/@~test/v1/responses") as client:
            await turn(client, create("one"))
            await proxy.broker.set_slot("test", "two")
            await turn(client, create("two"))
        for name in ("one", "two"):
            stored = await proxy.store.load(name, writable=False)
            [item] = [] if stored is None else stored.interactions
            assert isinstance(item, Interaction)
            assert json.loads(item.request.body)["input"] == name


STEERED = [
    {"type": "response.incomplete", "response": {"id": "resp_0"}},
    {"type": "response.created", "response": {"id": "resp_1"}},
    {"type": "response.completed", "response": {"id": "resp_1"}},
]
"""How a steered response ends, and the response that no request asks for."""


REFUSALS: dict[Mode, str] = {"replay": "replay_miss", "auto": "replayed_parent"}


async def _steered(socket: web.WebSocketResponse) -> None:
    await socket.receive()
    await socket.send_json({"type": "response.created", "response": {"id": "resp_0"}})
    await socket.receive()
    for event in [{"type": "response.steer.accepted", "steer": {"id": "s"}}, *STEERED]:
        await socket.send_json(event)
    await socket.receive()
    await socket.close()


def steer(parent: str) -> str:
    event = {"type": "response.steer", "previous_response_id": parent, "input": "no"}
    return json.dumps(event)


async def test_steering_reaches_the_service_and_misses_in_a_replay() -> None:
    async with (
        serving(_steered) as service,
        running_proxy(service.url, mode="record", options=delivered("stream")) as proxy,
    ):
        async with connected(proxy.url) as client:
            await client.send(json.dumps(create("a")))
            begun = await next_event(client)
            await client.send(steer("resp_0"))
            said = await next_events(client, 4)
        await proxy.proxy.wait_until_idle()
        [item] = await proxy.recorded()
        refused: dict[Mode, Event] = {}
        for mode in REFUSALS:
            await proxy.broker.set_mode(mode)
            async with connected(proxy.url) as client:
                await client.send(json.dumps(create("a")))
                replayed = await next_events(client, 4)
                await client.send(steer("resp_0"))
                refused[mode] = await next_event(client)

    assert sorted(event["type"] for event in said) == sorted(
        ["response.steer.accepted", *[str(event["type"]) for event in STEERED]]
    )
    assert [json.loads(piece) for piece in item.response.pieces()] == [begun, *STEERED]
    assert replayed == [begun, *STEERED]
    assert {mode: event["error"]["code"] for mode, event in refused.items()} == REFUSALS
    assert len(service.handshakes) == 1
