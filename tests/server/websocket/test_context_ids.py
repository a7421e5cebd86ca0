"""Identifiers that a client draws for its contexts, and gets back from the service."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from websockets.asyncio.client import ClientConnection

from tests.server.websocket.session_program import Program, heard, ran, recorded, said, tell


async def _speak(socket: web.WebSocketResponse) -> None:
    """Speech as ElevenLabs has it: `context_id` is asked for, and `contextId` comes back."""
    while (message := await heard(socket)) is not None:
        value = json.loads(message)
        named = value.get("context_id", value.get("contextId"))
        if text := value.get("text"):
            await socket.send_json({"audio": text[::-1], "contextId": named})
        if value.get("continue") is False:
            await socket.send_json({"isFinal": True, "contextId": named, "context_id": named})


def _speaks(names: Sequence[str], member: str = "context_id") -> Program:
    """Two contexts at once; return what each has got."""

    async def program(client: ClientConnection) -> Any:
        got: dict[str, list[Any]] = {name: [] for name in names}
        for text in ("Hello.", "Bye."):
            for name in names:
                await tell(client, {member: name, "text": text, "voice": {"id": "v-1a2b3c4d"}})
        for name in names:
            await tell(client, {member: name, "continue": False})
        for _ in range(3 * len(names)):
            value = await said(client)
            got[value["contextId"]].append(value.get("audio", "end"))
        return [*got.values()]

    return program


_SPOKEN = [".olleH", ".eyB", "end"]


@pytest.mark.parametrize("member", ["context_id", "contextId", "request_id"])
@pytest.mark.parametrize(
    "names",
    [
        ("7d1f6f0e-0b8b-4a8e-9b69-0e1a5f1c2d3e", "f3b9c1aa-5a0c-4b3f-8a55-c2e64a3b9d10"),
        # The numbers of another connection: each of them is recorded, and now another's.
        ("ctx-2", "ctx-3"),
        ("ctx-3", "ctx-1"),
    ],
)
async def test_contexts_are_those_of_the_client_that_asks(
    names: Sequence[str], member: str
) -> None:
    async def speak(socket: web.WebSocketResponse) -> None:
        while (message := await heard(socket)) is not None:
            value = json.loads(message)
            if text := value.get("text"):
                await socket.send_json({"audio": text[::-1], "contextId": value[member]})
            else:
                await socket.send_json({"contextId": value[member]})

    async with recorded(speak, _speaks(("ctx-1", "ctx-2"), member)) as proxy:
        assert await ran(proxy, _speaks(names, member)) == [_SPOKEN, _SPOKEN]


async def test_an_identifier_comes_back_under_the_name_that_the_service_gives_it() -> None:
    async with recorded(_speak, _speaks(("a1", "a2"))) as proxy:
        assert await ran(proxy, _speaks(("b1", "b2"))) == [_SPOKEN, _SPOKEN]


async def test_a_voice_counts_beside_a_context() -> None:
    def speaks(voice: str) -> Program:
        async def program(client: ClientConnection) -> Any:
            context = f"context of {voice}"
            await tell(client, {"context_id": context, "text": "Hi", "voice_id": voice})
            return (await said(client)).get("audio")

        return program

    async with recorded(_speak, speaks("one-1a2b3c4d"), speaks("two-5e6f7a8b")) as proxy:
        await ran(proxy, speaks("two-5e6f7a8b"))
        with pytest.raises(Exception, match="4424"):
            await ran(proxy, speaks("three-9c0d1e2f"))
        await proxy.proxy.wait_until_idle()
        answered = [entry.interaction for entry in proxy.journal if entry.outcome == "replayed"]
        assert answered == [1]


async def test_a_recording_that_is_found_by_its_context_is_replayed_as_before() -> None:
    async with recorded(_speak, _speaks(("a1", "a2"))) as proxy:
        [item] = await proxy.recorded()
        # An earlier version took the name of a context for content.
        key = json.loads(item.request.body)
        assert key["context_id"] == "<id>"
        body = json.dumps({**key, "context_id": "a1"}).encode()
        earlier = replace(item, request=replace(item.request, body=body))
        await proxy.broker.editor.edit("default", item.index, earlier)
        for names in (("a1", "a2"), ("b1", "b2")):
            assert await ran(proxy, _speaks(names)) == [_SPOKEN, _SPOKEN]
