"""What the tests do with boto3's Bedrock client, which checks the event streams it reads."""

import json
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import cache
from typing import Any

import boto3  # type: ignore[import-untyped]
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError

from tests.clients.programs.target import Run, Target

MODEL = "anthropic.claude-sonnet-5-v1:0"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS: Any = {
    "tools": [
        {"toolSpec": {"name": name, "inputSchema": {"json": SCHEMA}}}
        for name in ("weather", "population")
    ]
}


@cache
def _session() -> boto3.Session:
    # The services' descriptions are read once.
    return boto3.Session(region_name="us-east-1")


def client(target: Target) -> Any:
    """A client whose session token is the target's key; it sends the target's cookie too."""
    made = _session().client(
        "bedrock-runtime",
        endpoint_url=target.url,
        aws_access_key_id="AKIDNOBODYSKEY",
        aws_secret_access_key="nobody",
        aws_session_token=target.key,
        config=Config(retries={"total_max_attempts": 1}),
    )

    def add_cookie(request: Any, **_: object) -> None:
        request.headers["Cookie"] = f"session={target.cookie}"

    made.meta.events.register("before-sign.bedrock-runtime", add_cookie)
    return made


def _read(stream: Any) -> list[Any]:
    with closing(stream):
        return list(stream)


def _said(words: str) -> Any:
    return [{"role": "user", "content": [{"text": words}]}]


def _plain(answer: dict[str, Any]) -> dict[str, Any]:
    # What the client tells of the exchange itself: header fields, compared as bytes elsewhere.
    return {name: value for name, value in answer.items() if name != "ResponseMetadata"}


def converse(bedrock: Any) -> list[object]:
    answer = bedrock.converse(modelId=MODEL, messages=_said("Grüß dich"))
    assert "Grüß dich" in answer["output"]["message"]["content"][0]["text"]
    return [_plain(answer)]


def converse_stream(bedrock: Any) -> list[object]:
    answer = bedrock.converse_stream(modelId=MODEL, messages=_said("日本語で"))
    events = _read(answer["stream"])
    deltas = [
        event["contentBlockDelta"]["delta"] for event in events if "contentBlockDelta" in event
    ]
    assert "日本語で" in "".join(delta["text"] for delta in deltas)
    assert "metadata" in events[-1]
    return events


def tool_loop(bedrock: Any) -> list[object]:
    return _loop(lambda messages: _plain(_converse(bedrock, messages))["output"]["message"])


def tool_loop_stream(bedrock: Any) -> list[object]:
    return _loop(lambda messages: _message(_read(_converse_stream(bedrock, messages))))


def _converse(bedrock: Any, messages: Any) -> Any:
    return bedrock.converse(modelId=MODEL, messages=messages, toolConfig=TOOLS)


def _converse_stream(bedrock: Any, messages: Any) -> Any:
    return bedrock.converse_stream(modelId=MODEL, messages=messages, toolConfig=TOOLS)["stream"]


def _loop(ask: Callable[[Any], Any]) -> list[object]:
    messages = _said("Málaga, at once")
    called = ask(messages)
    uses = [block["toolUse"] for block in called["content"]]
    assert [use["name"] for use in uses] == ["weather", "population"]
    told = [
        {"toolResult": {"toolUseId": use["toolUseId"], "content": [{"text": f"{use['name']}!"}]}}
        for use in uses
    ]
    last = ask([*messages, called, {"role": "user", "content": told}])
    assert "weather!; population!" in last["content"][0]["text"]
    return [called, last]


def _message(events: Iterable[Any]) -> Any:
    blocks: dict[int, Any] = {}
    for event in events:
        if "contentBlockStart" in event:
            start = event["contentBlockStart"]
            blocks[start["contentBlockIndex"]] = {"toolUse": start["start"]["toolUse"], "in": ""}
        elif "contentBlockDelta" in event:
            delta, index = (
                event["contentBlockDelta"],
                event["contentBlockDelta"]["contentBlockIndex"],
            )
            block = blocks.setdefault(index, {"text": ""})
            if "toolUse" in delta["delta"]:
                block["in"] += delta["delta"]["toolUse"]["input"]
            else:
                block["text"] += delta["delta"]["text"]
    for block in blocks.values():
        if written := block.pop("in", ""):
            block["toolUse"]["input"] = json.loads(written)
    return {"role": "assistant", "content": list(blocks.values())}


def _native(words: str) -> str:
    body = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 64}
    return json.dumps(body | {"messages": [{"role": "user", "content": words}]})


def invoke(bedrock: Any) -> list[object]:
    answer = bedrock.invoke_model(modelId=MODEL, body=_native("Grüß dich"))
    with closing(answer["body"]) as content:
        message = json.loads(content.read())
    assert "Grüß dich" in message["content"][0]["text"]
    return [message]


def invoke_stream(bedrock: Any) -> list[object]:
    answer = bedrock.invoke_model_with_response_stream(modelId=MODEL, body=_native("日本語で"))
    events = [json.loads(event["chunk"]["bytes"]) for event in _read(answer["body"])]
    assert events[-1] == {"type": "message_stop"}
    return events


def too_many(bedrock: Any) -> list[object]:
    try:
        bedrock.converse(modelId="error-429", messages=_said("hello"))
    except ClientError as error:
        return [error.response["Error"]]
    raise AssertionError("error-429 was answered")


def stream_error(bedrock: Any) -> list[object]:
    seen: list[object] = []
    answer = bedrock.converse_stream(modelId="stream-error", messages=_said("hello"))
    try:
        with closing(answer["stream"]) as stream:
            for event in stream:
                seen.append(event)  # noqa: PERF402  what came before the error is kept
    except EventStreamError as error:
        return [*seen, error.response["Error"]]
    raise AssertionError("the exception was not seen")


def _sync(step: Callable[[Any], list[object]]) -> Run:
    async def run(target: Target) -> list[object]:
        made = client(target)
        try:
            return step(made)
        finally:
            made.close()

    return run


RUNS: dict[str, Run] = {
    f"sync_{step.__name__}": _sync(step)
    for step in (
        converse,
        converse_stream,
        tool_loop,
        tool_loop_stream,
        invoke,
        invoke_stream,
        too_many,
        stream_error,
    )
}
