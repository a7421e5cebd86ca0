"""The stand-in over WebSocket: what OpenAI's own client gets from it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from openai import AsyncOpenAI
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from tapeway.testing import StandIn, ThreadedStandIn
from tests.clients.programs import openai_sockets
from tests.clients.programs.target import Target


def _types(events: list[Any]) -> list[str]:
    return [event["type"] for event in events]


def _ws(upstream: StandIn, path: str) -> str:
    return upstream.url.replace("http://", "ws://") + path


async def _said(client: ClientConnection, **message: object) -> Any:
    await client.send(json.dumps(message))
    return json.loads(await client.recv())


async def _until_closed(client: ClientConnection) -> AsyncIterator[str | bytes]:
    with suppress(ConnectionClosed):
        while True:
            yield await client.recv()


async def test_turns_go_on_from_a_warm_up() -> None:
    async with StandIn() as upstream:
        events = await openai_sockets.chained(Target(upstream.url))

    assert _types(events)[:3] == ["response.created", "response.in_progress", "response.completed"]
    done = [event["response"] for event in events if event["type"] == "response.completed"]
    assert done[0]["output"] == []
    assert "Grüß dich" in done[1]["output"][0]["content"][0]["text"]
    assert done[2]["previous_response_id"] == done[1]["id"]


async def test_tools_are_called_and_answered() -> None:
    async with StandIn() as upstream:
        events = await openai_sockets.tools(Target(upstream.url))

    assert events[-1]["response"]["output"][0]["content"][0]["text"].startswith("The tools say")


async def test_lanes_and_forks_are_answered_beside_each_other() -> None:
    async with StandIn() as upstream:
        first, second, fork, last = await openai_sockets.lanes(Target(upstream.url))

    assert fork["previous_response_id"] == first["id"] == last["previous_response_id"]
    texts = [response["output"][0]["content"][0]["text"] for response in (second, fork, last)]
    assert ["second" in texts[0], "forked" in texts[1], "goes on" in texts[2]] == [True] * 3


async def test_a_steered_response_is_incomplete_and_has_a_successor() -> None:
    async with StandIn() as upstream:
        events = await openai_sockets.steered(Target(upstream.url))

    kinds = _types(events)
    accepted, incomplete = (
        kinds.index("response.steer.accepted"),
        kinds.index("response.incomplete"),
    )
    assert accepted < incomplete < kinds.index("response.completed")
    assert events[incomplete]["response"]["incomplete_details"] == {"reason": "steered"}
    assert events[-1]["response"]["previous_response_id"] == events[0]["response"]["id"]


async def test_errors_leave_the_connection_open() -> None:
    async with StandIn() as upstream:
        events = await openai_sockets.refused(Target(upstream.url))

    assert events[0]["error"]["code"] == "previous_response_not_found"
    assert (events[1]["status"], events[1]["error"]["code"]) == (429, "rate_limit_exceeded")
    assert _types(events)[-1] == "response.completed"


async def test_the_client_that_blocks_gets_the_same() -> None:
    with ThreadedStandIn() as upstream:
        events = await openai_sockets.blocking(Target(upstream.url))
        assert len(upstream.messages) == 2

    assert _types(events).count("response.completed") == 2


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"type": "response.create", "stream_id": "a b"}, "invalid_stream_id"),
        ({"type": "response.create", "stream_id": 3}, "invalid_stream_id"),
        ({"type": "response.dance"}, "invalid_request_error"),
        ({"type": "response.create", "model": "m", "input": [
            {"type": "function_call_output", "call_id": "c", "output": "x"}]},
            "invalid_request_error"),
    ],
)  # fmt: skip
async def test_a_message_that_cannot_be_answered_is_an_error(
    message: dict[str, object], code: str
) -> None:
    async with StandIn() as upstream, connect(_ws(upstream, "/v1/responses")) as client:
        told = await _said(client, **message)
        assert told["error"]["code"] == code


async def test_a_connection_has_32_lanes_at_most() -> None:
    async with StandIn() as upstream, connect(_ws(upstream, "/v1/responses")) as client:
        for number in range(33):
            asked = {"type": "response.create", "stream_id": f"l{number}", "model": "error-400"}
            told = await _said(client, **asked)
        assert told["error"]["code"] == "websocket_stream_limit_reached"


async def test_only_a_response_under_way_can_be_steered() -> None:
    async with StandIn() as upstream, connect(_ws(upstream, "/v1/responses")) as client:
        told = await _said(client, type="response.steer", previous_response_id="r", input="x")
        assert told["error"]["code"] == "response_not_found"
        told = await _said(client, type="response.create", model="m", input="x")
        while json.loads(await client.recv())["type"] != "response.completed":
            pass
        parent = told["response"]["id"]
        told = await _said(client, type="response.steer", previous_response_id=parent, input="x")
        assert told["error"]["code"] == "response_already_completed"


@pytest.mark.parametrize(("model", "code"), [("end", 1000), ("cut", 1006), ("reset", 1006)])
async def test_a_connection_breaks_off_where_the_name_of_the_model_says_so(
    model: str, code: int
) -> None:
    async with StandIn() as upstream, connect(_ws(upstream, "/v1/responses")) as client:
        await client.send(json.dumps({"type": "response.create", "model": model, "input": "x"}))
        told = [json.loads(message)["type"] async for message in _until_closed(client)]
        assert "response.created" in told
        assert "response.completed" not in told
        assert client.close_code == code


async def test_a_stored_response_is_known_on_another_connection_and_over_http() -> None:
    async with StandIn() as upstream:
        found = []
        for store in (True, False):
            async with connect(_ws(upstream, "/v1/responses")) as client:
                asked = {"type": "response.create", "model": "m", "input": "x", "store": store}
                found.append((await _said(client, **asked))["response"]["id"])
                while json.loads(await client.recv())["type"] != "response.completed":
                    pass
        async with connect(_ws(upstream, "/v1/responses")) as client:
            codes = []
            for response_id in found[::-1]:
                asked = {
                    "type": "response.create",
                    "model": "m",
                    "previous_response_id": response_id,
                }
                codes.append((await _said(client, **asked))["type"])
        assert codes == ["error", "response.created"]
        openai = AsyncOpenAI(base_url=f"{upstream.url}/v1", api_key="any")
        async with openai:
            assert (await openai.responses.retrieve(found[0])).id == found[0]


async def test_a_session_answers_text_and_calls_tools() -> None:
    async with StandIn() as upstream:
        events = await openai_sockets.realtime_text(Target(upstream.url))

    kinds = _types(events)
    assert kinds[:2] == ["session.created", "session.updated"]
    assert "response.function_call_arguments.done" in kinds
    [told] = [event["text"] for event in events if event["type"] == "response.output_text.done"]
    assert told.startswith("The tools say: warm")


async def test_a_session_hears_and_speaks() -> None:
    async with StandIn() as upstream:
        events = await openai_sockets.realtime_audio()(Target(upstream.url))

    kinds = _types(events)
    assert kinds.index("input_audio_buffer.committed") < kinds.index("response.output_audio.delta")
    [told] = [
        event["transcript"]
        for event in events
        if event["type"] == "response.output_audio_transcript.done"
    ]
    assert "25600 bytes" in told


async def test_a_session_says_when_something_was_said() -> None:
    async with StandIn() as upstream:
        events = await openai_sockets.realtime_detected(Target(upstream.url))

    kinds = _types(events)
    started = kinds.index("input_audio_buffer.speech_started")
    assert started < kinds.index("input_audio_buffer.speech_stopped") < kinds.index("response.done")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"type": "dance", "event_id": "e1"}, "invalid_value"),
        ({"type": "input_audio_buffer.commit"}, "input_audio_buffer_commit_empty"),
        ({"type": "response.cancel"}, "response_cancel_not_active"),
        ({"type": "conversation.item.retrieve", "item_id": "i"}, "item_not_found"),
    ],
)
async def test_what_a_session_cannot_do_is_an_error(message: dict[str, object], code: str) -> None:
    async with StandIn() as upstream, connect(_ws(upstream, "/v1/realtime?model=m")) as client:
        created = json.loads(await client.recv())
        assert created["session"]["model"] == "m"
        told = await _said(client, **message)
        assert (told["error"]["code"], told["error"]["event_id"]) == (
            code,
            message.get("event_id"),
        )


async def test_items_are_retrieved_truncated_and_deleted() -> None:
    async with StandIn() as upstream, connect(_ws(upstream, "/v1/realtime")) as client:
        await client.recv()
        item = {"id": "item_1", "type": "message", "role": "user", "content": []}
        assert (await _said(client, type="conversation.item.create", item=item))["item"]["id"] == (
            "item_1"
        )
        await client.recv()
        for verb in ("retrieve", "truncate", "delete"):
            told = await _said(
                client, type=f"conversation.item.{verb}", item_id="item_1", audio_end_ms=3
            )
            assert told["type"].startswith(f"conversation.item.{verb}")
        assert (await _said(client, type="input_audio_buffer.clear"))["type"].endswith("cleared")
        await client.send("no JSON")
        assert json.loads(await client.recv())["error"]["code"] == "invalid_json"


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/realtime"])
async def test_a_key_may_be_required(path: str) -> None:
    async with StandIn(require_credential=True) as upstream:
        with pytest.raises(InvalidStatus) as refused:
            await connect(_ws(upstream, path))
        assert refused.value.response.status_code == 401
        offered = [Subprotocol("realtime"), Subprotocol("openai-insecure-api-key.ek_1")]
        async with connect(_ws(upstream, path), subprotocols=offered) as client:
            assert client.subprotocol == "realtime"
        header = {"Authorization": "Bearer k"}
        async with connect(_ws(upstream, path), additional_headers=header) as client:
            assert client.subprotocol is None
        assert [request.answer.status for request in upstream.requests] == [401, 101, 101]


async def test_a_key_for_a_browser_is_issued() -> None:
    async with StandIn() as upstream:
        openai = AsyncOpenAI(base_url=f"{upstream.url}/v1", api_key="any")
        async with openai:
            made = await openai.realtime.client_secrets.create(session={"type": "realtime"})
        assert made.value.startswith("ek_")


async def test_a_stand_in_that_stops_ends_its_connections() -> None:
    async with StandIn() as upstream:
        client = await connect(_ws(upstream, "/v1/realtime"))
        await client.recv()
        async with asyncio.timeout(1):
            await upstream.stop()
    with pytest.raises(ConnectionClosed):
        await asyncio.wait_for(client.recv(), 30)
