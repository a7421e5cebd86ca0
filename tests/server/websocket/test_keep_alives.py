"""Keep-alives of a client come at times of their own: a replay answers them, and compares none."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from tapeway.core.websocket.keep_alives import KeepAlives, is_plain_keep_alive
from tapeway.core.websocket.messages import WebSocketMessage
from tests.server.websocket.session_program import (
    Program,
    heard,
    ran,
    received,
    recorded,
    said,
    tell,
)
from tests.server.websocket.websocket_service import Handler

Beats = Sequence[int]
"""Before which question there is a ping."""
_TIMES: tuple[Beats, ...] = ((), (0,), (1,), (2,), (0, 1, 2), (2, 2))


def _echoing(ping: str | bytes, pong: str | bytes | None) -> Handler:
    async def answer(socket: web.WebSocketResponse) -> None:
        while (message := await heard(socket)) is not None:
            if (reply := pong if message == ping else message) is not None:
                send = socket.send_str if isinstance(reply, str) else socket.send_bytes
                await send(reply)  # type: ignore[arg-type]

    return answer


def _asks(first: str | bytes, ping: str | bytes, pong: str | bytes | None, beats: Beats) -> Program:
    """Send three messages, and pings between them; every answer is expected as it comes."""
    question: Callable[[int], str | bytes] = (
        (lambda at: f"{first[:2]!s}ask {at}")
        if isinstance(first, str)
        else (lambda at: b"\x30\x05\x00\x01tm%d" % at)
    )

    async def program(client: ClientConnection) -> Any:
        await client.send(first)
        assert await received(client) == first
        for at in range(3):
            for _ in range([*beats].count(at)):
                await client.send(ping)
                if pong is not None:
                    assert await received(client) == pong
            await client.send(question(at))
            assert await received(client) == question(at)
        return "done"

    return program


@pytest.mark.parametrize("in_recording", [(), (1,)], ids=["none recorded", "one recorded"])
@pytest.mark.parametrize(
    ("first", "ping", "pong"),
    [
        ('{"protocol":"json","version":1}\x1e', '{"type":6}\x1e', None),
        ('{"msg":"connect","version":"1"}', '{"msg":"ping","id":"a"}', '{"msg":"pong","id":"a"}'),
        ("STOMP\naccept-version:1.2\n\n\0", "\n", "\n"),
        ('0{"sid":"abc"}', "2", "3"),
        (b"\x10\x0c\x00\x04MQTT\x05\x02\x00<\x00\x00", b"\xc0\x00", b"\xd0\x00"),
        ('{"op":"subscribe"}', "ping", "pong"),
        ('{"method":"subscribe"}', '{"ping":17}', '{"pong":17}'),
        ('{"action":"subscribe"}', '{"action":"PING"}', '{"action":"PONG"}'),
    ],
    ids=["SignalR", "DDP", "STOMP", "Engine.IO", "MQTT", "text", "number", "action"],
)
async def test_a_replay_answers_pings_at_any_time(
    first: str | bytes, ping: str | bytes, pong: str | bytes | None, in_recording: Beats
) -> None:
    program = _asks(first, ping, pong, in_recording)
    async with recorded(_echoing(ping, pong), program) as proxy:
        for beats in _TIMES:
            assert await ran(proxy, _asks(first, ping, pong, beats)) == "done"


async def _home(socket: web.WebSocketResponse) -> None:
    """Answer each command with its number; pings take numbers too."""
    while (message := await heard(socket)) is not None:
        value = json.loads(message)
        kind = "pong" if value["type"] == "ping" else "result"
        await socket.send_json({"id": value["id"], "type": kind, **_result(value)})


def _result(value: dict[str, Any]) -> dict[str, Any]:
    return {} if value["type"] == "ping" else {"result": f"{value['type']} done"}


def _commands(beats: Beats) -> Program:
    async def program(client: ClientConnection) -> Any:
        number, results = 0, []
        for at, kind in enumerate(("auth", "get_states", "call_service")):
            for sent in [*["ping"] * [*beats].count(at), kind]:
                number += 1
                await tell(client, {"id": number, "type": sent})
                answer = await said(client)
                assert answer["id"] == number
                assert (answer["type"] == "pong") is (sent == "ping")
                results += [answer["result"]] if sent != "ping" else []
        return results

    return program


@pytest.mark.parametrize("in_recording", [(), (1,), (1, 2, 2)])
async def test_pings_and_commands_may_share_a_counter(in_recording: Beats) -> None:
    async with recorded(_home, _commands(in_recording)) as proxy:
        for beats in ((), (1,), (2,), (1, 1, 2)):
            results = await ran(proxy, _commands(beats))
            assert results == ["auth done", "get_states done", "call_service done"]


async def _channels(socket: web.WebSocketResponse) -> None:
    while (message := await heard(socket)) is not None:
        join, ref, topic, event, payload = json.loads(message)
        assert isinstance(ref, str)
        if event == "shout":
            await socket.send_json([join, None, topic, "shouted", payload])
        response = {"status": "ok", "response": {}}
        await socket.send_json([join, ref, topic, "phx_reply", response])


def _shouts(beats: Beats) -> Program:
    async def program(client: ClientConnection) -> Any:
        ref, shouted = 1, []
        await tell(client, ["1", "1", "room", "phx_join", {}])
        assert (await said(client))[:2] == ["1", "1"]
        for at in range(3):
            for _ in range([*beats].count(at)):
                ref += 1
                await tell(client, [None, str(ref), "phoenix", "heartbeat", {}])
                assert (await said(client))[:4] == [None, str(ref), "phoenix", "phx_reply"]
            ref += 1
            await tell(client, ["1", str(ref), "room", "shout", {"text": str(at + 2)}])
            shouted.append((await said(client))[4]["text"])
            assert (await said(client))[:4] == ["1", str(ref), "room", "phx_reply"]
        return shouted

    return program


@pytest.mark.parametrize("in_recording", [(), (0,), (1, 2)])
async def test_heartbeats_of_phoenix_take_references_of_messages(in_recording: Beats) -> None:
    async with recorded(_channels, _shouts(in_recording)) as proxy:
        for beats in ((), (0,), (1,), (0, 1, 2, 2)):
            assert await ran(proxy, _shouts(beats)) == ["2", "3", "4"]


async def test_a_keep_alive_that_the_service_left_without_an_answer_gets_none() -> None:
    ping = '{"type":"ping"}'
    async with recorded(_echoing(ping, None), _asks("{}", ping, None, (1,))) as proxy:
        for beats in _TIMES:
            assert await ran(proxy, _asks("{}", ping, None, beats)) == "done"


async def test_an_answer_has_the_form_of_the_recorded_answer() -> None:
    async def answer(socket: web.WebSocketResponse) -> None:
        while (message := await heard(socket)) is not None:
            value = json.loads(message)
            if value.get("op") == "heartbeat":
                await socket.send_json({"op": "heartbeat_ack", "echo": value["at"], "node": "a"})
            else:
                await socket.send_json(value)

    def beats(*times: int) -> Program:
        async def program(client: ClientConnection) -> Any:
            await tell(client, {"op": "hello"})
            answers = [await said(client)]
            for at in times:
                await tell(client, {"op": "heartbeat", "at": at})
                answers.append(await said(client))
            return answers[1:]

        return program

    async with recorded(answer, beats(100)) as proxy:
        assert await ran(proxy, beats(7, 8)) == [
            {"op": "heartbeat_ack", "echo": 7, "node": "a"},
            {"op": "heartbeat_ack", "echo": 8, "node": "a"},
        ]


def _hello(*, pings_first: bool) -> Program:
    async def program(client: ClientConnection) -> Any:
        if pings_first:
            await tell(client, {"type": "ping"})
            assert await said(client) == {"type": "pong"}
        await tell(client, {"type": "hello"})
        return await said(client)

    return program


async def _answer_hello(socket: web.WebSocketResponse) -> None:
    while (message := await heard(socket)) is not None:
        kind = json.loads(message)["type"]
        await socket.send_json({"type": "pong" if kind == "ping" else "welcome"})


@pytest.mark.parametrize("in_recording", [False, True])
async def test_a_session_is_found_by_the_first_message_that_is_no_keep_alive(
    in_recording: bool,
) -> None:
    async with recorded(_answer_hello, _hello(pings_first=in_recording)) as proxy:
        for pings_first in (False, True):
            assert await ran(proxy, _hello(pings_first=pings_first)) == {"type": "welcome"}


async def test_a_session_of_pings_alone_is_recorded_and_replayed() -> None:
    async def pings(client: ClientConnection) -> Any:
        await client.send("ping")
        return await said(client)

    async with recorded(_echoing("ping", "pong"), pings) as proxy:
        assert await ran(proxy, pings) == "pong"
        assert proxy.journal.counts == {"recorded": 1, "replayed": 1}


async def test_a_ping_to_a_service_of_which_nothing_is_recorded_is_a_miss() -> None:
    async def pings(client: ClientConnection) -> Any:
        await client.send("ping")
        return await said(client)

    async with recorded(_answer_hello) as proxy:
        with pytest.raises(ConnectionClosed, match="4424"):
            await ran(proxy, pings)


async def test_a_recording_that_is_found_by_a_keep_alive_is_replayed_as_before() -> None:
    async with recorded(_answer_hello, _hello(pings_first=True)) as proxy:
        [item] = await proxy.recorded()
        # An earlier version looked each session up by its first message.
        earlier = replace(item, request=replace(item.request, body=b'{"type":"ping"}'))
        await proxy.broker.editor.edit("default", item.index, earlier)
        assert await ran(proxy, _hello(pings_first=True)) == {"type": "welcome"}


def test_what_resembles_a_keep_alive_of_another_protocol_counts() -> None:
    for data in (b"2", b"\n", b'{"op":1,"d":7}', b'{"type":"chat","event":"ping"}', b'{"id":1}'):
        assert not is_plain_keep_alive(WebSocketMessage(data))
    discord = KeepAlives([(WebSocketMessage(b'{"op":2,"d":{"token":"x"}}'), True)])
    assert discord.has(WebSocketMessage(b'{"d": 7, "op": 1}'))
    answer = discord.answer(WebSocketMessage(b'{"op":1,"d":7}'))
    assert answer == WebSocketMessage(b'{"op":11}')
