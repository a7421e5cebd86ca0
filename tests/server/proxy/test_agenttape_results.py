"""Calls of an SDK that AgentTape recorded are replayed over HTTP."""

import base64
import json
import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tapeway.core.json_text import Json
from tapeway.stores.memory import MemoryStore
from tests.formats.agenttape.cassettes import loaded
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.support.canary import canary, sightings
from tests.support.raw_client import Answer

CHAT = "/v1/chat/completions"
TYPE = b"Content-Type: application/json"


@asynccontextmanager
async def serving(name: str) -> AsyncIterator[RunningProxy]:
    store = MemoryStore()
    await store.save("default", loaded(name))
    async with running_proxy(mode="replay", store=store) as proxy:
        yield proxy


async def post(proxy: RunningProxy, path: str, body: Json, *fields: bytes) -> Answer:
    return await proxy.ask(b"POST " + path.encode(), TYPE, *fields, body=json.dumps(body).encode())


def saying(text: str, **more: Json) -> dict[str, Json]:
    message: Json = {"role": "user", "content": text}
    return {"model": "m", "messages": [message], **more}


async def test_a_result_is_served_as_the_json_it_was() -> None:
    async with serving("0.1.8/llm.yaml") as proxy:
        answer = await post(proxy, CHAT, saying("Hi", temperature=0.0))

    assert (answer.status, answer.outcome) == (200, b"replayed")
    assert answer.values(b"content-type") == [b"application/json"]
    result = json.loads(answer.body)
    assert result["choices"][0]["message"]["content"] == "echo: Hi"
    assert result["usage"]["total_tokens"] == 12


async def test_a_result_is_streamed_if_a_stream_is_requested() -> None:
    asked = saying("Hi", temperature=0.0, stream=True, stream_options={"include_usage": True})
    async with serving("0.1.8/llm.yaml") as proxy:
        answer = await post(proxy, CHAT, asked)

    assert answer.values(b"content-type") == [b"text/event-stream; charset=utf-8"]
    events = [part.removeprefix(b"data: ") for part in answer.body.strip().split(b"\n\n")]
    assert events.pop() == b"[DONE]"
    chunks = [json.loads(event) for event in events]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[0]["choices"][0]["delta"] == {"content": "echo: Hi", "role": "assistant"}
    assert chunks[1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[2]["choices"] == []
    assert chunks[2]["usage"]["total_tokens"] == 12


async def test_calls_of_tools_are_numbered_in_a_stream() -> None:
    parameters: Json = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool: Json = {"type": "function", "function": {"name": "get_weather", "parameters": parameters}}
    async with serving("0.1.8/llm.yaml") as proxy:
        answer = await post(proxy, CHAT, saying("weather?", tools=[tool], stream=True))

    first = json.loads(answer.body.split(b"\n\n")[0].removeprefix(b"data: "))
    (called,) = first["choices"][0]["delta"]["tool_calls"]
    assert called["index"] == 0
    assert called["function"] == {"arguments": '{"city": "London"}', "name": "get_weather"}


async def test_embeddings_have_the_requested_encoding() -> None:
    asked: dict[str, Json] = {"input": ["one"], "model": "e"}
    packed: dict[str, Json] = {**asked, "encoding_format": "base64"}
    async with serving("0.1.8/llm.yaml") as proxy:
        answer = await post(proxy, "/v1/embeddings", packed)
    async with serving("0.1.8/llm.yaml") as proxy:
        plain = await post(proxy, "/v1/embeddings", asked)

    (item,) = json.loads(answer.body)["data"]
    numbers = struct.unpack("<3f", base64.b64decode(item["embedding"]))
    (same,) = json.loads(plain.body)["data"]
    assert numbers == pytest.approx((0.5, 1e-07, -0.25))
    assert same["embedding"] == pytest.approx(list(numbers))


@pytest.mark.parametrize("release", ["0.1.8", "0.1.5", "0.1.0"])
async def test_an_error_of_the_service_comes_with_its_status_and_body(release: str) -> None:
    async with serving(f"{release}/llm.yaml") as proxy:
        answer = await post(proxy, CHAT, saying("x") | {"model": "limited"})

    assert answer.status == 429
    assert json.loads(answer.body) == {
        "error": {
            "message": "Rate limit reached",
            "type": "tokens",
            "param": None,
            "code": "rate_limit_exceeded",
        }
    }
    # The SDK had made its retries when this was recorded.
    assert answer.values(b"x-should-retry") == [b"false"]
    if release == "0.1.8":
        assert answer.values(b"x-request-id") == [b"req_1"]


async def test_an_error_without_any_answer_breaks_the_connection() -> None:
    async with serving("0.1.8/llm.yaml") as proxy:
        with pytest.raises((ConnectionError, EOFError)):
            await post(proxy, CHAT, saying("x") | {"model": "cut"})


async def test_the_text_from_which_a_key_is_made_is_stored_nowhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = canary()
    fields = (f"Authorization: Bearer {secret}".encode(), f"x-own: {secret}".encode())
    async with serving("0.1.8/http.yaml") as proxy:
        asked = saying(f"the key is {secret}", api_key=secret)
        pages = [
            await post(proxy, path, asked, *fields)
            for path in (CHAT, "/echo", f"/v1/responses?key={secret}")
        ]
        held = await proxy.store.load("default", writable=False)
        loaded_cassette = proxy.broker.cassette(None)

    assert {page.status for page in pages} == {400}
    places = {
        "pages": b"".join(page.body for page in pages),
        "journal": repr(list(proxy.journal)).encode(),
        "log": (caplog.text + repr([vars(record) for record in caplog.records])).encode(),
        "store": repr(held).encode(),
        "memory": repr(vars(loaded_cassette)["take"]).encode(),
    }
    assert not sightings({"secret": secret}, places)
