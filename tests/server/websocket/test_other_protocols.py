"""Turns of GraphQL and JSON-RPC connections: recorded, and replayed with other identifiers."""

import json

import pytest
from aiohttp import WSMsgType, web
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from tapeway.core.model.control import Delivery, Mode
from tests.server.in_process_proxy import running_proxy
from tests.server.websocket.conversing import Event, call, connected, delivered, next_event
from tests.server.websocket.websocket_service import serving

MODES: tuple[Mode, ...] = ("record", "replay")
GRAPHQL = ("graphql-transport-ws",)


async def _answer_graphql(socket: web.WebSocketResponse) -> None:
    initialised = False
    while True:
        message = await socket.receive()
        if message.type is not WSMsgType.TEXT:
            await socket.close(code=1000)
            return
        asked = json.loads(message.data)
        if asked["type"] == "connection_init":
            initialised = True
            await socket.send_json({"type": "connection_ack"})
        elif not initialised:
            await socket.close(code=4401, message=b"Unauthorized")
            return
        elif asked["type"] == "subscribe":
            for number in range(2):
                payload = {"data": {"n": number}}
                await socket.send_json({"id": asked["id"], "type": "next", "payload": payload})
            if "endless" not in asked["payload"]["query"]:
                await socket.send_json({"id": asked["id"], "type": "complete"})


async def _answer_json_rpc(socket: web.WebSocketResponse) -> None:
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            call = json.loads(message.data)
            if "id" in call:
                await socket.send_json({"jsonrpc": "2.0", "method": "progress", "params": {}})
                result = {"said": call["params"]}
                await socket.send_json({"jsonrpc": "2.0", "id": call["id"], "result": result})


async def _initialise(client: ClientConnection) -> None:
    await client.send('{"type":"connection_init","payload":{"token":"canary-1234567890abc"}}')
    assert await next_event(client) == {"type": "connection_ack"}


async def _subscribe(client: ClientConnection, id: str, query: str) -> list[Event]:
    await client.send(json.dumps({"id": id, "type": "subscribe", "payload": {"query": query}}))
    found = [await next_event(client)]
    while found[-1]["type"] not in ("complete", "error"):
        found.append(await next_event(client))
    return found


async def test_a_graphql_operation_is_replayed_under_another_id() -> None:
    async with (
        serving(_answer_graphql, protocols=GRAPHQL) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with connected(proxy.url, "/graphql", protocols=GRAPHQL) as client:
            await _initialise(client)
            recorded = await _subscribe(client, "1", "{ a }")
        await proxy.broker.set_mode("replay")
        async with connected(proxy.url, "/graphql", protocols=GRAPHQL) as client:
            assert client.subprotocol == "graphql-transport-ws"
            await _initialise(client)
            await client.send('{"type":"ping"}')
            assert await next_event(client) == {"type": "pong"}
            replayed = await _subscribe(client, "x", "{ a }")
            [missed] = await _subscribe(client, "y", "{ b }")

        assert replayed == [message | {"id": "x"} for message in recorded]
        assert (missed["id"], missed["payload"][0]["extensions"]["code"]) == ("y", "replay_miss")
        stored = [exchange.request.body for exchange in await proxy.recorded()]
        assert not any(b"canary" in interaction for interaction in stored)
        assert len(service.handshakes) == 1


async def test_a_subscription_that_its_client_ends_is_recorded_as_open() -> None:
    options = delivered("stream")
    asked = {"id": "1", "type": "subscribe", "payload": {"query": "subscription { endless }"}}
    async with (
        serving(_answer_graphql, protocols=GRAPHQL) as service,
        running_proxy(service.url, mode="record", options=options) as proxy,
    ):
        for mode in MODES:
            await proxy.broker.set_mode(mode)
            async with connected(proxy.url, "/graphql", protocols=GRAPHQL) as client:
                await _initialise(client)
                await client.send(json.dumps(asked))
                assert [(await next_event(client))["type"] for _ in range(2)] == ["next", "next"]
                await client.send('{"id":"1","type":"complete"}')
                if mode == "record":
                    await _subscribe(client, "2", "{ a }")
            await proxy.proxy.wait_until_idle()

        verdicts = [exchange.response.verdict for exchange in await proxy.recorded()]
        assert verdicts == ["marked", "open", "marked"]
        assert len(service.handshakes) == 1


async def _subscribe_to_two(
    client: ClientConnection, id: str = "1", query: str = "endless"
) -> None:
    await _initialise(client)
    payload = {"query": f"subscription {{ {query} }}"}
    asked = {"id": id, "type": "subscribe", "payload": payload}
    await client.send(json.dumps(asked))
    for number in range(2):
        found = await next_event(client)
        assert (found["id"], found["payload"]) == (id, {"data": {"n": number}})


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
async def test_a_subscription_whose_client_closes_the_connection_is_stored_with_what_came(
    delivery: Delivery,
) -> None:
    options = delivered(delivery)
    async with (
        serving(_answer_graphql, protocols=GRAPHQL) as service,
        running_proxy(service.url, mode="record", options=options) as proxy,
    ):
        for mode, id in (("record", "1"), ("replay", "x")):
            await proxy.broker.set_mode(mode)  # type: ignore[arg-type]
            async with connected(proxy.url, "/graphql", protocols=GRAPHQL) as client:
                await _subscribe_to_two(client, id)
            await proxy.proxy.wait_until_idle()
        stored = await proxy.recorded()

    assert [exchange.response.verdict for exchange in stored] == ["marked", "open"]
    assert len([*stored[1].response.pieces()]) == 2
    assert proxy.journal.counts == {"recorded": 2, "replayed": 2}


async def _answer_and_leave(socket: web.WebSocketResponse) -> None:
    async for message in socket:
        asked = json.loads(message.data)
        if asked["type"] == "connection_init":
            await socket.send_json({"type": "connection_ack"})
            continue
        for number in range(2):
            payload = {"data": {"n": number}}
            await socket.send_json({"id": asked["id"], "type": "next", "payload": payload})
        await socket.close(code=1011 if "broken" in asked["payload"]["query"] else 1001)
        return


@pytest.mark.parametrize(
    ("query", "code", "verdicts"), [("endless", 1001, ["open"]), ("broken", 1011, [])]
)
async def test_a_subscription_that_the_service_leaves_in_good_order_is_stored_with_what_came(
    query: str, code: int, verdicts: list[str]
) -> None:
    async with (
        serving(_answer_and_leave, protocols=GRAPHQL) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with connected(proxy.url, "/graphql", protocols=GRAPHQL) as client:
            await _subscribe_to_two(client, query=query)
            with pytest.raises(ConnectionClosed):
                await client.recv()
            assert client.close_code == code
        await proxy.proxy.wait_until_idle()
        stored = [exchange.response.verdict for exchange in await proxy.recorded()]

    assert stored == ["marked", *verdicts]


async def test_a_subscription_ends_with_its_take_and_goes_on_for_its_client() -> None:
    async with (
        serving(_answer_graphql, protocols=GRAPHQL) as service,
        running_proxy(service.url, mode="auto") as proxy,
        connected(proxy.url, "/graphql", protocols=GRAPHQL) as client,
    ):
        await _subscribe_to_two(client)
        async with connected(proxy.url, "/graphql", protocols=GRAPHQL) as other:
            # An equal subscription gets a live answer of its own.
            await _subscribe_to_two(other)
        await proxy.broker.eject()
        assert [message["type"] for message in await _subscribe(client, "2", "{ a }")][
            -1
        ] == "complete"
        stored = await proxy.recorded()

    operations = [exchange for exchange in stored if b"subscription" in exchange.request.body]
    assert [operation.response.verdict for operation in operations] == ["open", "open"]


async def test_auto_prepares_the_connection_for_an_operation_that_is_not_recorded() -> None:
    async with (
        serving(_answer_graphql, protocols=GRAPHQL) as service,
        running_proxy(service.url, mode="auto") as proxy,
    ):
        async with connected(proxy.url, "/graphql", protocols=GRAPHQL) as client:
            await _initialise(client)
            await _subscribe(client, "1", "{ a }")
        await proxy.broker.rewind()
        async with connected(proxy.url, "/graphql", protocols=GRAPHQL) as client:
            await _initialise(client)
            await _subscribe(client, "1", "{ a }")
            found = await _subscribe(client, "2", "{ b }")

        assert [message["type"] for message in found] == ["next", "next", "complete"]
        assert len(service.handshakes) == 2


async def test_the_beginning_of_a_graphql_connection_has_no_form_for_a_miss() -> None:
    async with (
        running_proxy("http://up.invalid", mode="replay") as proxy,
        connected(proxy.url, "/graphql", protocols=GRAPHQL) as client,
    ):
        await client.send('{"type":"connection_init"}')
        with pytest.raises(ConnectionClosed):
            await next_event(client)
        assert client.close_code == 4424
        assert (client.close_reason or "").startswith("replay miss")


async def test_a_json_rpc_call_is_replayed_under_another_id() -> None:
    async def ask(client: ClientConnection, id: object, params: object) -> list[Event]:
        await client.send(json.dumps(call(id, params=params)))
        found = [await next_event(client)]
        while "id" not in found[-1]:
            found.append(await next_event(client))
        return found

    async with (
        serving(_answer_json_rpc) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with connected(proxy.url, "/rpc") as client:
            await client.send('{"jsonrpc":"2.0","method":"hello"}')
            recorded = await ask(client, 1, ["a"])
        await proxy.broker.set_mode("replay")
        async with connected(proxy.url, "/rpc") as client:
            await client.send('{"jsonrpc":"2.0","method":"hello"}')
            replayed = await ask(client, "seven", ["a"])
            [missed] = await ask(client, 8, ["b"])

        assert recorded[-1]["id"] == 1
        assert replayed == [recorded[0], recorded[1] | {"id": "seven"}]
        assert (missed["id"], missed["error"]["data"]["code"]) == (8, "replay_miss")
        assert len(service.handshakes) == 1
