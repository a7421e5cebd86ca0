"""What the tests do with the anthropic package, once for both of its clients."""

import json
from typing import Any

import anthropic

from tests.clients.programs.target import Run, Step, Target, collect, dumped, settle

MODEL = "claude-sonnet-5"
TOOLS = [
    {
        "name": name,
        "input_schema": {"type": "object", "properties": {key: {"type": "string"}}},
    }
    for name, key in (("weather", "city"), ("time", "zone"))
]


async def message(client: Any) -> list[object]:
    answer = await settle(
        client.messages.create(
            model=MODEL, max_tokens=64, messages=[{"role": "user", "content": "Grüß dich"}]
        )
    )
    assert "Grüß dich" in answer.content[0].text
    return dumped(answer)


async def raw_stream(client: Any) -> list[object]:
    events = await collect(
        client.messages.create(
            model=MODEL,
            max_tokens=64,
            messages=[{"role": "user", "content": "日本語で"}],
            stream=True,
        )
    )
    assert events[-1].type == "message_stop"
    return dumped(*events)


async def helper_stream(client: Any) -> list[object]:
    manager = client.messages.stream(
        model=MODEL, max_tokens=64, messages=[{"role": "user", "content": "日本語で"}]
    )
    if hasattr(manager, "__aenter__"):
        async with manager as stream:
            final = await stream.get_final_message()
    else:
        with manager as stream:
            final = stream.get_final_message()
    assert "日本語で" in final.content[0].text
    assert final.usage.output_tokens > 1
    return dumped(final)


async def tool_loop(client: Any) -> list[object]:
    messages: list[Any] = [{"role": "user", "content": "Málaga"}]
    answers = []
    for _ in range(3):
        answer = await settle(
            client.messages.create(model=MODEL, max_tokens=64, messages=messages, tools=TOOLS)
        )
        answers.append(answer)
        messages += [
            {"role": "assistant", "content": [block.model_dump() for block in answer.content]},
            {"role": "user", "content": _results(answer)},
        ]
    assert [answer.stop_reason for answer in answers] == ["tool_use", "tool_use", "end_turn"]
    assert "weather: 21 °C; time: 21 °C" in answers[-1].content[0].text
    return dumped(*answers)


def _results(answer: Any) -> list[dict[str, str]]:
    return [
        {"type": "tool_result", "tool_use_id": block.id, "content": f"{block.name}: 21 °C"}
        for block in answer.content
        if block.type == "tool_use"
    ]


async def tool_stream(client: Any) -> list[object]:
    events = await collect(
        client.messages.create(
            model=MODEL,
            max_tokens=64,
            messages=[{"role": "user", "content": "Málaga, at once"}],
            tools=TOOLS,
            stream=True,
        )
    )
    deltas = [e.delta for e in events if e.type == "content_block_delta" and e.index == 2]
    written = "".join(delta.partial_json for delta in deltas)
    assert written == '{"zone":"Málaga, at once"}'
    return dumped(*events)


async def count(client: Any) -> list[object]:
    counted = await settle(
        client.messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": "hi"}])
    )
    return dumped(counted)


async def models(client: Any) -> list[object]:
    return dumped(*await collect(client.models.list()))


async def batch(client: Any) -> list[object]:
    batches = client.messages.batches
    made = await settle(batches.create(requests=[_call("one", MODEL), _call("two", "error-400")]))
    asked = [await settle(batches.retrieve(made.id)) for _ in range(2)]
    assert [each.processing_status for each in (made, *asked)] == [
        *("in_progress", "in_progress", "ended")
    ]
    counts = asked[-1].request_counts
    assert (counts.processing, counts.succeeded, counts.errored) == (0, 1, 1)
    # `batches.results` follows an absolute URL, past every proxy.
    path = f"/v1/messages/batches/{made.id}/results"
    lines = (await settle(client.get(path, cast_to=object, options={}))).splitlines()
    one, two = (json.loads(line) for line in lines)
    assert (one["custom_id"], one["result"]["type"]) == ("one", "succeeded")
    assert "Name a fox" in one["result"]["message"]["content"][0]["text"]
    assert two["result"]["error"]["error"]["type"] == "invalid_request_error"
    return [*dumped(made, *asked), one, two]


async def canceled_batch(client: Any) -> list[object]:
    batches = client.messages.batches
    made = await settle(batches.create(requests=[_call("one", MODEL)]))
    stopped = await settle(batches.cancel(made.id))
    later = await settle(batches.retrieve(made.id))
    assert (stopped.processing_status, later.processing_status) == ("canceling", "ended")
    assert later.request_counts.canceled == 1
    listed = await collect(batches.list())
    assert listed[0].id == made.id
    return dumped(made, stopped, later, listed[0])


def _call(name: str, model: str) -> dict[str, object]:
    message = {"role": "user", "content": "Name a fox"}
    return {
        "custom_id": name,
        "params": {"model": model, "max_tokens": 64, "messages": [message]},
    }


async def too_many(client: Any) -> list[object]:
    return await _refused(client, "error-429", anthropic.RateLimitError)


async def broken(client: Any) -> list[object]:
    return await _refused(client, "error-500", anthropic.InternalServerError)


async def _refused(client: Any, model: str, kind: type[anthropic.APIStatusError]) -> list[object]:
    try:
        await settle(
            client.messages.create(
                model=model, max_tokens=9, messages=[{"role": "user", "content": "hello"}]
            )
        )
    except kind as error:
        return [error.status_code, error.body]
    raise AssertionError(f"{model} was answered")


async def stream_error(client: Any) -> list[object]:
    try:
        await collect(
            client.messages.create(
                model="stream-error",
                max_tokens=9,
                messages=[{"role": "user", "content": "hi"}],
                stream=True,
            )
        )
    except anthropic.APIStatusError as error:
        return [error.status_code, error.body]
    raise AssertionError("the error event was not seen")


_STEPS: tuple[Step, ...] = (
    message,
    raw_stream,
    helper_stream,
    tool_loop,
    tool_stream,
    count,
    models,
    batch,
    canceled_batch,
    too_many,
    broken,
    stream_error,
)


def with_sync(step: Step) -> Run:
    """The step on a client of its own that waits."""

    async def run(target: Target) -> list[object]:
        with anthropic.Anthropic(
            base_url=target.url,
            api_key=target.key,
            default_headers=target.headers,
            max_retries=0,
        ) as client:
            return await step(client)

    return run


def with_async(step: Step) -> Run:
    """The step on a client of its own that is awaited."""

    async def run(target: Target) -> list[object]:
        async with anthropic.AsyncAnthropic(
            base_url=target.url,
            api_key=target.key,
            default_headers=target.headers,
            max_retries=0,
        ) as client:
            return await step(client)

    return run


async def old_key_header(target: Target) -> list[object]:
    """A message whose key goes in `x-api-key`, as clients before 2.0 send it."""
    headers = {**target.headers, "x-api-key": target.key, "Authorization": anthropic.omit}
    async with anthropic.AsyncAnthropic(
        base_url=target.url,
        api_key=target.key,
        default_headers=headers,  # type: ignore[arg-type]
        max_retries=0,
    ) as client:
        return [*await message(client), *await raw_stream(client)]


RUNS: dict[str, Run] = (
    {f"sync_{step.__name__}": with_sync(step) for step in _STEPS}
    | {f"async_{step.__name__}": with_async(step) for step in _STEPS}
    | {"async_old_key_header": old_key_header}
)
