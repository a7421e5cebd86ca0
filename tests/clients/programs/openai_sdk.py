"""What the tests do with the openai package, once for both of its clients."""

from typing import Any

import openai
from pydantic import BaseModel

from tests.clients.programs.target import Run, Step, Target, collect, dumped, settle

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {key: {"type": "string"}}},
        },
    }
    for name, key in (("weather", "city"), ("time", "zone"))
]
FLAT_TOOLS = [{"type": "function", **tool["function"]} for tool in TOOLS]  # type: ignore[dict-item]


class Person(BaseModel):
    name: str
    age: int


async def chat(client: Any) -> list[object]:
    answer = await settle(
        client.chat.completions.create(
            model="gpt-4o-mini", messages=[{"role": "user", "content": "Grüß dich"}], n=2
        )
    )
    assert "Grüß dich" in answer.choices[0].message.content
    return dumped(answer)


async def chat_stream(client: Any) -> list[object]:
    chunks = await collect(
        client.chat.completions.create(
            model="gpt-4o-mini",
            messages=[{"role": "user", "content": "日本語で"}],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert "日本語で" in text
    assert chunks[-1].usage.total_tokens > 0
    return dumped(*chunks)


async def tool_loop(client: Any) -> list[object]:
    messages: list[Any] = [{"role": "user", "content": "Málaga"}]
    answers = []
    for _ in range(3):
        answer = await settle(
            client.chat.completions.create(model="gpt-4o", messages=messages, tools=TOOLS)
        )
        answers.append(answer)
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": f"{call.function.name}: 21 °C"}
            for call in message.tool_calls or []
        ]
    assert "weather: 21 °C; time: 21 °C" in answers[-1].choices[0].message.content
    return dumped(*answers)


async def tool_stream(client: Any) -> list[object]:
    chunks = await collect(
        client.chat.completions.create(
            model="gpt-4o",
            messages=[{"role": "user", "content": "Málaga, at once"}],
            tools=TOOLS,
            stream=True,
        )
    )
    calls = [call for c in chunks for call in c.choices[0].delta.tool_calls or []]
    assert {call.index for call in calls} == {0, 1}
    written = "".join(call.function.arguments for call in calls if call.index == 1)
    assert written == '{"zone":"Málaga, at once"}'
    return dumped(*chunks)


async def structured(client: Any) -> list[object]:
    answer = await settle(
        client.chat.completions.parse(
            model="gpt-4o",
            messages=[{"role": "user", "content": "Ada"}],
            response_format=Person,
        )
    )
    assert answer.choices[0].message.parsed == Person(name="Ada", age=3)
    return [answer.model_dump(warnings=False)]


async def embeddings(client: Any) -> list[object]:
    packed = await settle(
        client.embeddings.create(model="text-embedding-3-small", input=["eins", "zwei"])
    )
    plain = await settle(
        client.embeddings.create(
            model="text-embedding-3-small", input="eins", encoding_format="float", dimensions=8
        )
    )
    assert len(packed.data[1].embedding) == 1536
    assert packed.data[0].embedding[:8] == plain.data[0].embedding
    return dumped(packed, plain)


async def upload(client: Any) -> list[object]:
    content = '{"text": "naïve"}\n'.encode() + bytes(range(256))
    file = await settle(client.files.create(file=("trainé.jsonl", content), purpose="fine-tune"))
    assert (file.filename, file.bytes) == ("trainé.jsonl", len(content))
    seen = await settle(client.files.retrieve(file.id))
    back = await settle(client.files.content(file.id))
    assert back.content == content
    gone = await settle(client.files.delete(file.id))
    return [*dumped(file, seen, gone), back.content]


async def responses(client: Any) -> list[object]:
    first = await settle(client.responses.create(model="gpt-4.1", input="Hei på deg"))
    assert "Hei på deg" in first.output_text
    return dumped(first)


async def responses_stream(client: Any) -> list[object]:
    events = await collect(
        client.responses.create(model="gpt-4.1", input="Hei på deg", stream=True)
    )
    assert events[-1].type == "response.completed"
    assert "Hei på deg" in events[-1].response.output_text
    return dumped(*events)


async def responses_tools(client: Any) -> list[object]:
    answers: list[Any] = []
    given: Any = "Zürich"
    for _ in range(3):
        previous = answers[-1].id if answers else openai.omit
        answer = await settle(
            client.responses.create(
                model="gpt-4.1", input=given, tools=FLAT_TOOLS, previous_response_id=previous
            )
        )
        answers.append(answer)
        given = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "17 °C"}
            for item in answer.output
            if item.type == "function_call"
        ]
    assert "17 °C; 17 °C" in answers[-1].output_text
    return dumped(*answers)


async def responses_tool_stream(client: Any) -> list[object]:
    events = await collect(
        client.responses.create(model="gpt-4.1", input="Zürich", tools=FLAT_TOOLS, stream=True)
    )
    done = [e for e in events if e.type == "response.function_call_arguments.done"]
    assert done[0].arguments == '{"city":"Zürich"}'
    return dumped(*events)


async def models(client: Any) -> list[object]:
    return dumped(*await collect(client.models.list()))


async def speech(client: Any) -> list[object]:
    answer = await settle(
        client.audio.speech.create(model="tts-1", voice="alloy", input="Sag es laut")
    )
    assert answer.content.startswith(b"\xff\xf3")
    return [answer.content]


async def too_many(client: Any) -> list[object]:
    return await _refused(client, "error-429", openai.RateLimitError)


async def bad_request(client: Any) -> list[object]:
    return await _refused(client, "error-400", openai.BadRequestError)


async def broken(client: Any) -> list[object]:
    return await _refused(client, "error-500", openai.InternalServerError)


async def _refused(client: Any, model: str, kind: type[openai.APIStatusError]) -> list[object]:
    try:
        await settle(
            client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": "hello"}]
            )
        )
    except kind as error:
        return [error.status_code, error.body]
    raise AssertionError(f"{model} was answered")


async def stream_error(client: Any) -> list[object]:
    seen: list[Any] = []
    stream = await settle(
        client.chat.completions.create(
            model="stream-error", messages=[{"role": "user", "content": "hi"}], stream=True
        )
    )
    try:
        if hasattr(stream, "__aiter__"):
            async for chunk in stream:
                seen.append(chunk)  # noqa: PERF401  what came before the error is kept
        else:
            for chunk in stream:
                seen.append(chunk)  # noqa: PERF402
    except openai.APIError as error:
        return [*dumped(*seen), error.message]
    raise AssertionError("the error event was not seen")


_STEPS: tuple[Step, ...] = (
    chat,
    chat_stream,
    tool_loop,
    tool_stream,
    structured,
    embeddings,
    upload,
    responses,
    responses_stream,
    responses_tools,
    responses_tool_stream,
    models,
    speech,
    too_many,
    bad_request,
    broken,
    stream_error,
)


def with_sync(step: Step) -> Run:
    """The step on a client of its own that waits."""

    async def run(target: Target) -> list[object]:
        with openai.OpenAI(
            base_url=f"{target.url}/v1",
            api_key=target.key,
            default_headers=target.headers,
            max_retries=0,
        ) as client:
            return await step(client)

    return run


def with_async(step: Step) -> Run:
    """The step on a client of its own that is awaited."""

    async def run(target: Target) -> list[object]:
        async with openai.AsyncOpenAI(
            base_url=f"{target.url}/v1",
            api_key=target.key,
            default_headers=target.headers,
            max_retries=0,
        ) as client:
            return await step(client)

    return run


async def azure(target: Target) -> list[object]:
    """The same chat through the Azure client, whose key goes in `api-key`."""
    async with openai.AsyncAzureOpenAI(
        azure_endpoint=target.url,
        api_key=target.key,
        api_version="2024-10-21",
        default_headers=target.headers,
        max_retries=0,
    ) as client:
        return [*await chat(client), *await chat_stream(client)]


RUNS: dict[str, Run] = (
    {f"sync_{step.__name__}": with_sync(step) for step in _STEPS}
    | {f"async_{step.__name__}": with_async(step) for step in _STEPS}
    | {"async_azure": azure}
)
