"""What a connection logs in with is replaced wherever it stands again, and replays all the same."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import WSMsgType, web

from tapeway.core.model.control import Mode
from tapeway.stores.file.store import FileStore
from tests.server.in_process_proxy import running_proxy
from tests.server.websocket.conversing import connected, create, next_event
from tests.server.websocket.websocket_service import serving

VALUE = "Zq7TnV4mXc9LpR2sWk8HdY3b"
MODES: tuple[Mode, ...] = ("record", "replay")


async def _answer_graphql(socket: web.WebSocketResponse) -> None:
    async for message in socket:
        if message.type is not WSMsgType.TEXT:
            return
        asked = json.loads(message.data)
        if asked["type"] == "connection_init":
            await socket.send_json({"type": "connection_ack"})
        else:
            data = {"data": {"said": f"You are {VALUE}."}}
            await socket.send_json({"id": asked["id"], "type": "next", "payload": data})
            await socket.send_json({"id": asked["id"], "type": "complete"})


@pytest.mark.parametrize(
    "payload",
    [
        {"token": VALUE},
        {"Authorization": f"Bearer {VALUE}"},
        {"headers": {"x-hasura-admin-secret": VALUE}},
        {"cookie": f"a=b; sid={VALUE}"},
        {"authScheme": {"jwt": VALUE}},
    ],
)
async def test_the_payload_of_connection_init_is_replaced_in_later_operations(
    payload: object, tmp_path: Path
) -> None:
    query = {"query": f'{{ user(named: "{VALUE}") {{ id }} }}'}
    async with serving(_answer_graphql, protocols=("graphql-transport-ws",)) as service:
        for mode in MODES:
            async with (
                running_proxy(service.url, mode=mode, store=FileStore(tmp_path)) as proxy,
                connected(proxy.url, "/graphql", protocols=["graphql-transport-ws"]) as client,
            ):
                await client.send(json.dumps({"type": "connection_init", "payload": payload}))
                assert await next_event(client) == {"type": "connection_ack"}
                await client.send(json.dumps({"id": "1", "type": "subscribe", "payload": query}))
                said = (await next_event(client))["payload"]["data"]["said"]
                assert (await next_event(client))["type"] == "complete"
                await client.close()
                await proxy.proxy.wait_until_idle()

    assert said.startswith("You are REDACTED.")
    assert len(service.handshakes) == 1
    assert VALUE not in (tmp_path / "default.json").read_text()


async def _answer_socket_io(socket: web.WebSocketResponse) -> None:
    await socket.send_str('0{"sid":"a","pingInterval":25000,"pingTimeout":20000}')
    async for message in socket:
        if message.type is not WSMsgType.TEXT:
            return
        if message.data.startswith("40"):
            await socket.send_str('40{"sid":"b"}')
        else:
            await socket.send_str(f'42["said","You are {VALUE}."]')


@pytest.mark.parametrize("namespace", ["", "/admin,"])
async def test_the_login_of_socket_io_is_replaced_in_the_whole_session(
    namespace: str, tmp_path: Path
) -> None:
    async with serving(_answer_socket_io) as service:
        for mode in MODES:
            async with (
                running_proxy(service.url, mode=mode, store=FileStore(tmp_path)) as proxy,
                connected(proxy.url, "/socket.io/?EIO=4&transport=websocket") as client,
            ):
                opening = await client.recv()
                await client.send(f'40{namespace}{{"token":"{VALUE}"}}')
                ready = await client.recv()
                await client.send(f'42["am I","{VALUE}?"]')
                said = await client.recv()
                assert (str(opening)[:1], ready) == ("0", '40{"sid":"b"}')
                await client.close()
                await proxy.proxy.wait_until_idle()

    assert str(said).startswith('42["said","You are REDACTED.')
    assert len(service.handshakes) == 1
    assert VALUE not in (tmp_path / "default.json").read_text()


async def _answer_responses(socket: web.WebSocketResponse) -> None:
    text = f"Your .env says {VALUE}."
    async for message in socket:
        if message.type is not WSMsgType.TEXT:
            return
        await socket.send_json({"type": "response.created", "response": {"id": "resp_1"}})
        for at in range(0, len(text), 3):
            delta = {"output_index": 0, "content_index": 0, "delta": text[at : at + 3]}
            await socket.send_json({"type": "response.output_text.delta", **delta})
        await socket.send_json({"type": "response.completed", "response": {"id": "resp_1"}})


async def test_a_value_that_a_turn_reads_is_replaced_in_its_answer_and_in_later_turns(
    tmp_path: Path,
) -> None:
    async with serving(_answer_responses) as service:
        for mode in MODES:
            said = []
            async with (
                running_proxy(service.url, mode=mode, store=FileStore(tmp_path)) as proxy,
                connected(proxy.url) as client,
            ):
                for text in (f"cat .env: HF_TOKEN={VALUE}", f"and {VALUE} alone?"):
                    await client.send(json.dumps(create(text)))
                    events = [await next_event(client)]
                    while events[-1]["type"] != "response.completed":
                        events.append(await next_event(client))
                    said.append("".join([event.get("delta", "") for event in events]))
                await client.close()
                await proxy.proxy.wait_until_idle()

    assert all(text.startswith("Your .env says REDACTED.") for text in said), said
    assert len(service.handshakes) == 1
    stored = (tmp_path / "default.json").read_text()
    assert VALUE not in stored


def _socket_io(text: str) -> str:
    return f"42{json.dumps(['said', text])}"


def _signal_r(text: str) -> str:
    return json.dumps({"type": 1, "target": "said", "arguments": [text]}) + "\x1e"


def _stomp(text: str) -> str:
    return f"MESSAGE\ndestination:/said\n\n{text}\0"


@pytest.mark.parametrize("message", [_socket_io, _signal_r, _stomp])
async def test_a_value_in_pieces_is_replaced_in_the_messages_of_a_protocol(
    message: Callable[[str], str], tmp_path: Path
) -> None:
    pieces = [VALUE[at : at + 3] for at in range(0, len(VALUE), 3)]

    async def answer(socket: web.WebSocketResponse) -> None:
        async for _ in socket:
            for piece in ("It is ", *pieces):
                await socket.send_str(message(piece))

    async with serving(answer) as service:
        for mode in MODES:
            async with (
                running_proxy(service.url, mode=mode, store=FileStore(tmp_path)) as proxy,
                connected(proxy.url, "/chat") as client,
            ):
                await client.send(message(f"cat .env: HF_TOKEN={VALUE}"))
                said = [str(await client.recv()) for _ in ("It is ", *pieces)]
                await client.close()
                await proxy.proxy.wait_until_idle()

    assert len(service.handshakes) == 1
    assert "REDACTED.hf_token." in said[1]
    assert said[2:] == [message("")] * (len(pieces) - 1)
