"""What the tests do with the openai package over WebSocket: whole conversations, event by event."""

import asyncio
import base64
import warnings
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from openai import AsyncOpenAI, OpenAI
from openai.lib.responses_websocket import (
    AsyncResponsesWebSocketSession,
    ResponsesWebSocketLimits,
)

from tests.clients.programs.target import Target

MODEL = "gpt-5-codex"
TOOLS: list[Any] = [
    {
        "type": "function",
        "name": name,
        "parameters": {"type": "object", "properties": {key: {"type": "string"}}},
    }
    for name, key in (("weather", "city"), ("time", "zone"))
]
LIMITS = ResponsesWebSocketLimits(
    max_lanes=8,
    max_events_per_lane=256,
    max_events=1024,
    max_bytes_per_lane=2**24,
    max_bytes=2**25,
    max_response_bytes=None,
)
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")

Conversation = Callable[[Target], Coroutine[None, None, list[Any]]]


def client_of(target: Target) -> AsyncOpenAI:
    """A client that never tries again."""
    return AsyncOpenAI(base_url=f"{target.url}/v1", api_key=target.key, max_retries=0)


def connected(client: Any, target: Target) -> Any:
    """A connection for responses, of either kind of client."""
    options: Any = {"max_size": None}
    return client.responses.connect(
        extra_headers=target.headers, websocket_connection_options=options
    )


async def _turn(connection: Any, ends: tuple[str, ...] = ENDS, **asked: Any) -> list[Any]:
    await connection.response.create(model=MODEL, **asked)
    return await _until(connection, ends)


async def _until(connection: Any, ends: tuple[str, ...]) -> list[Any]:
    events: list[Any] = []
    while not events or events[-1]["type"] not in ends:
        events.append((await connection.recv()).model_dump(mode="json", exclude_unset=True))
    return events


async def chained(target: Target) -> list[Any]:
    """A warm-up and two turns that go on from it."""
    async with client_of(target) as client, connected(client, target) as connection:
        await connection.send(
            {"type": "response.create", "model": MODEL, "input": [], "generate": False}
        )
        events: list[Any] = await _until(connection, ENDS)
        for prompt in ("Grüß dich", "and again"):
            parent = events[-1]["response"]["id"]
            events += await _turn(connection, input=prompt, previous_response_id=parent)
        return events


async def tools(target: Target) -> list[Any]:
    """Each tool is called in turn, and its result goes back."""
    async with client_of(target) as client, connected(client, target) as connection:
        events = await _turn(connection, input="Málaga", tools=TOOLS)
        for result in ("warm", "late"):
            response = events[-1]["response"]
            call = response["output"][-1]["call_id"]
            output = {"type": "function_call_output", "call_id": call, "output": result}
            parent = response["id"]
            more = {"input": [output], "tools": TOOLS, "previous_response_id": parent}
            events += await _turn(connection, **more)
        return events


async def lanes(target: Target) -> list[Any]:
    """Three lanes beside each other, one of them a fork of another."""
    async with (
        client_of(target) as client,
        connected(client, target) as connection,
        AsyncResponsesWebSocketSession(connection, limits=LIMITS) as session,
    ):
        one, two, fork = session.lane("one"), session.lane("two"), session.lane("fork.1")
        asked: Any = {"type": "response.create", "model": MODEL}
        await one.send(asked | {"input": "first"})
        await two.send(asked | {"input": "second"})
        first, second = await one.get_final_response(), await two.get_final_response()
        await fork.send(asked | {"input": "forked", "previous_response_id": first.id})
        await one.send(asked | {"input": "goes on", "previous_response_id": first.id})
        third, last = await fork.get_final_response(), await one.get_final_response()
        return [event.model_dump(mode="json") for event in (first, second, third, last)]


async def steered(target: Target) -> list[Any]:
    """A response that is steered in its middle, and its successor."""
    async with client_of(target) as client, connected(client, target) as connection:
        events = await _turn(
            connection, ("response.content_part.added",), input="Count until steered"
        )
        parent = events[0]["response"]["id"]
        await connection.response.steer(input="Stop now", previous_response_id=parent)
        events += await _until(connection, ("response.incomplete",))
        return events + await _until(connection, ("response.completed",))


async def refused(target: Target) -> list[Any]:
    """Errors of the service, after which the connection goes on."""
    async with client_of(target) as client, connected(client, target) as connection:
        events = await _turn(connection, input="x", previous_response_id="resp_unknown0000")
        await connection.response.create(model="error-429", input="x")
        events += await _until(connection, ENDS)
        return events + await _turn(connection, input="fine")


async def blocking(target: Target) -> list[Any]:
    """Two turns with the client that blocks."""
    return await asyncio.to_thread(_blocking, target)


def _blocking(target: Target) -> list[Any]:
    client = OpenAI(base_url=f"{target.url}/v1", api_key=target.key, max_retries=0)
    with warnings.catch_warnings():
        # openai connects in a way that websockets 17 no longer likes.
        warnings.simplefilter("ignore", DeprecationWarning)
        with client, connected(client, target) as connection:
            return [*_blocking_turn(connection, "one"), *_blocking_turn(connection, "two")]


def _blocking_turn(connection: Any, prompt: str) -> Iterator[Any]:
    connection.response.create(model=MODEL, input=prompt)
    kind = ""
    while kind not in ENDS:
        event = connection.recv()
        kind = event.type
        yield event.model_dump(mode="json", exclude_unset=True)


def realtime_of(client: AsyncOpenAI, target: Target) -> Any:
    """A connection to a session."""
    return client.realtime.connect(model="gpt-realtime", extra_headers=target.headers)


async def realtime_text(target: Target) -> list[Any]:
    """Two prompts of text, with tools at the second."""
    async with client_of(target) as client, realtime_of(client, target) as connection:
        events = await _until(connection, ("session.created",))
        await connection.session.update(
            session={"type": "realtime", "output_modalities": ["text"], "tools": TOOLS[:1]}
        )
        events += await _until(connection, ("session.updated",))
        await connection.conversation.item.create(item=_said("Málaga"))
        await connection.response.create()
        events += await _until(connection, ("rate_limits.updated",))
        done = next(event for event in events if event["type"] == "response.done")
        call = done["response"]["output"][0]["call_id"]
        await connection.conversation.item.create(
            item={"type": "function_call_output", "call_id": call, "output": "warm"}
        )
        await connection.response.create()
        return events + await _until(connection, ("rate_limits.updated",))


def _said(text: str) -> Any:
    return {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": text}],
    }


def realtime_audio(pieces: int = 7) -> Conversation:
    """What is said comes in pieces, and is committed; the answer is spoken."""

    async def conversation(target: Target) -> list[Any]:
        sound = bytes(range(256)) * 100
        async with client_of(target) as client, realtime_of(client, target) as connection:
            events = await _until(connection, ("session.created",))
            size = len(sound) // pieces + 1
            for start in range(0, len(sound), size):
                piece = base64.b64encode(sound[start : start + size]).decode()
                await connection.input_audio_buffer.append(audio=piece)
            await connection.input_audio_buffer.commit()
            events += await _until(connection, ("conversation.item.done",))
            await connection.response.create()
            return events + await _until(connection, ("rate_limits.updated",))

    return conversation


async def realtime_detected(target: Target) -> list[Any]:
    """A microphone that goes on: the service says when something was said."""
    async with client_of(target) as client, realtime_of(client, target) as connection:
        events = await _until(connection, ("session.created",))
        detection: Any = {"input": {"turn_detection": {"type": "server_vad"}}}
        await connection.session.update(session={"type": "realtime", "audio": detection})
        events += await _until(connection, ("session.updated",))
        silence = base64.b64encode(bytes(4800)).decode()
        for _ in range(11):
            await connection.input_audio_buffer.append(audio=silence)
        return events + await _until(connection, ("rate_limits.updated",))


RESPONSES: dict[str, Conversation] = {
    conversation.__name__: conversation
    for conversation in (chained, tools, lanes, refused, blocking)
}
REALTIME: dict[str, Conversation] = {
    "text": realtime_text,
    "audio": realtime_audio(),
    "detected": realtime_detected,
}
