"""OpenAI's Live and Gemini's: sessions with audio, to clients that draw their own identifiers."""

import asyncio
import base64
import json
from typing import Any

import pytest
from aiohttp import WSMsgType, web
from openai import AsyncOpenAI
from websockets.asyncio.client import connect

from tapeway.core.model.control import Delivery
from tapeway.stores.memory import MemoryStore
from tests.server.in_process_proxy import running_proxy
from tests.server.websocket.conversing import delivered
from tests.server.websocket.responses_service import events
from tests.server.websocket.websocket_service import serving

BIDI = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"
HANDLE = "CiQ3ZjE5MmQ4YS1hMGM0LTQ5ZTctYjZkZi0wYzI5OGU3YTFiM2Q"
KEY = "AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY"
OTHER = "AIzaSyB-1aBcDe34FgHiJkLmN-o5pQrSTuvWxYz012"


async def _events(socket: web.WebSocketResponse) -> Any:
    while (message := await socket.receive()).type in (WSMsgType.TEXT, WSMsgType.BINARY):
        yield json.loads(message.data)
    await socket.close()


async def _live(socket: web.WebSocketResponse) -> None:
    """Live: the client begins, each piece of audio is answered, the service says the end."""
    async for event in _events(socket):
        told: dict[str, Any] = {"event_id": "event_9f8e7d"}
        match event["type"]:
            case "session.start":
                told |= {"type": "session.started", "client_event_id": event.get("event_id")}
                told["session"] = {"id": "ls_1a2b3c", "model": event["session"]["model"]}
            case "session.input_audio.append":
                told |= {"type": "session.output_audio.delta", "audio": "AAAA"}
            case _:
                told |= {"type": "session.closed", "reason": "client"}
        await socket.send_json(told)


async def _gemini(socket: web.WebSocketResponse) -> None:
    """Gemini's Live, in binary messages: a handle for the next connection, an answer to audio."""
    async for message in _events(socket):
        if "setup" in message:
            answers = [
                {"setupComplete": {"sessionId": "s1"}},
                {"sessionResumptionUpdate": {"newHandle": HANDLE, "resumable": True}},
            ]
        elif "audioStreamEnd" in message.get("realtimeInput", {}):
            answers = [{"serverContent": {"turnComplete": True}}]
        else:
            continue
        for answer in answers:
            await socket.send_bytes(json.dumps(answer).encode())


async def _speak(url: str, event_id: str, pieces: int) -> list[Any]:
    events: list[Any] = []
    async with (
        AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client,
        client.live.connect() as connection,
    ):
        await connection.session.start(session={"model": "live"}, event_id=event_id)
        events.append((await connection.recv()).model_dump(mode="json", exclude_unset=True))
        for _ in range(pieces):
            audio = base64.b64encode(bytes(960 // pieces)).decode()
            await connection.session.input_audio.append(audio=audio)
        events += [(await connection.recv()).type for _ in range(2)]
        await connection.session.close()
        events.append((await connection.recv()).type)
    return events


async def test_live_is_replayed_to_openai_s_client_however_its_audio_is_cut() -> None:
    store = MemoryStore()
    async with serving(_live) as service, running_proxy(service.url, store=store) as proxy:
        recorded = await _speak(proxy.url, "ev_1a2b3c4d", 2)
    async with running_proxy(mode="replay", store=store) as proxy:
        replayed = [await _speak(proxy.url, f"ev_q7w8e9r{n}", n) for n in (1, 4)]

    assert recorded[0]["client_event_id"] == "ev_1a2b3c4d"
    for number, said in zip((1, 4), replayed, strict=True):
        assert said[0] == recorded[0] | {"client_event_id": f"ev_q7w8e9r{number}"}
        assert said[1:] == recorded[1:]


async def _ask_gemini(url: str, key: str, resumption: dict[str, str]) -> list[Any]:
    told: list[Any] = []
    async with connect(f"{url.replace('http', 'ws')}{BIDI}?key={key}") as client:

        async def tell(message: Any) -> None:
            await client.send(json.dumps(message))

        async def hear() -> None:
            found = await asyncio.wait_for(client.recv(), 60)
            assert isinstance(found, bytes)
            told.append(json.loads(found))

        await tell({"setup": {"model": "models/m", "sessionResumption": resumption}})
        await hear()
        await hear()
        data = base64.b64encode(bytes(3200)).decode()
        piece = {"data": data, "mimeType": "audio/pcm;rate=16000"}
        await tell({"realtimeInput": {"audio": piece}})
        await tell({"realtimeInput": {"audioStreamEnd": True}})
        await hear()
    return told


async def test_gemini_goes_on_by_any_handle_and_neither_handle_nor_key_is_stored() -> None:
    store = MemoryStore()
    async with serving(_gemini) as service, running_proxy(service.url, store=store) as proxy:
        first = await _ask_gemini(proxy.url, KEY, {})
        await _ask_gemini(proxy.url, KEY, {"handle": HANDLE})
        assert first[1]["sessionResumptionUpdate"]["newHandle"] == HANDLE
        [one, two] = await proxy.recorded()
    stored = b"".join([exchange.request.body + exchange.response.body for exchange in (one, two)])
    stored += (one.request.target + two.request.target).encode()
    assert HANDLE.encode() not in stored
    assert KEY.encode() not in stored

    async with running_proxy(mode="replay", store=store) as proxy:
        again = await _ask_gemini(proxy.url, OTHER, {})
        handle = again[1]["sessionResumptionUpdate"]["newHandle"]
        for token in (handle, "CiQ0OTY1YzA2Zi1hYjEyLTRkMGUtOGQ5"):
            resumed = await _ask_gemini(proxy.url, OTHER, {"handle": token})
            assert (resumed[0], resumed[2]) == (first[0], first[2])
    assert (again[0], again[2]) == (first[0], first[2])


async def _restart_in_between(socket: web.WebSocketResponse) -> None:
    """Answer one request of the Responses API, and go away for a restart at the next one."""
    asked = json.loads((await socket.receive()).data)
    for event in events(asked):
        await socket.send_json(event)
    await socket.receive()
    await socket.close(code=1012, message=b"restart")


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
async def test_a_client_that_reconnects_gets_equal_turns_on_a_replay(delivery: Delivery) -> None:
    """openai connects anew after close code 1012; what the service did not answer is asked again."""
    reconnections: list[int] = []

    async def talk(url: str) -> list[Any]:
        found: list[Any] = []
        asked: dict[str, Any] = {}

        def reconnecting(event: Any) -> None:
            reconnections.append(event.close_code)
            tasks.create_task(connection.response.create(**asked))

        async with (
            asyncio.TaskGroup() as tasks,
            AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-synthetic", max_retries=0) as client,
            client.responses.connect(
                on_reconnecting=reconnecting, initial_delay=0.01
            ) as connection,
        ):
            for text in ("a", "b", "c"):
                asked |= {"model": "gpt-5", "input": text}
                await connection.response.create(**asked)
                async for event in connection:
                    found.append(event.model_dump(mode="json", exclude_unset=True))
                    if event.type == "response.completed":
                        asked["previous_response_id"] = event.response.id
                        break
        return found

    async with (
        serving(_restart_in_between) as service,
        running_proxy(service.url, mode="record", options=delivered(delivery)) as proxy,
    ):
        recorded = await talk(proxy.url)
        assert len(service.handshakes) == 3
        await proxy.broker.set_mode("replay")
        assert [await talk(proxy.url) for _ in range(2)] == [recorded, recorded]

    assert len(service.handshakes) == 3
    assert reconnections == [1012, 1012]
