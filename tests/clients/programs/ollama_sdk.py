"""What the tests do with the ollama package, once for both of its clients."""

from typing import Any

import ollama

from tests.clients.programs.target import Run, Step, Target, collect, dumped, settle

MODEL = "llama3.2"
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


async def chat(client: Any) -> list[object]:
    answer = await settle(
        client.chat(model=MODEL, messages=[{"role": "user", "content": "Grüß dich"}])
    )
    assert "Grüß dich" in answer.message.content
    return dumped(answer)


async def chat_stream(client: Any) -> list[object]:
    parts = await collect(
        client.chat(model=MODEL, messages=[{"role": "user", "content": "日本語で"}], stream=True)
    )
    assert "日本語で" in "".join(part.message.content for part in parts)
    assert parts[-1].done
    return dumped(*parts)


async def generate(client: Any) -> list[object]:
    return dumped(await settle(client.generate(model=MODEL, prompt="Hei på deg")))


async def generate_stream(client: Any) -> list[object]:
    parts = await collect(client.generate(model=MODEL, prompt="Hei på deg", stream=True))
    assert "Hei på deg" in "".join(part.response for part in parts)
    return dumped(*parts)


async def tool_loop(client: Any) -> list[object]:
    messages: list[Any] = [{"role": "user", "content": "Málaga"}]
    answers = []
    for _ in range(3):
        answer = await settle(client.chat(model=MODEL, messages=messages, tools=TOOLS))
        answers.append(answer)
        messages.append(answer.message)
        messages += [
            {"role": "tool", "tool_name": call.function.name, "content": "21 °C"}
            for call in answer.message.tool_calls or []
        ]
    assert "21 °C; 21 °C" in answers[-1].message.content
    return dumped(*answers)


async def tool_stream(client: Any) -> list[object]:
    parts = await collect(
        client.chat(
            model=MODEL,
            messages=[{"role": "user", "content": "Málaga, at once"}],
            tools=TOOLS,
            stream=True,
        )
    )
    calls = [call.function.name for part in parts for call in part.message.tool_calls or []]
    assert calls == ["weather", "time"]
    return dumped(*parts)


async def structured(client: Any) -> list[object]:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    answer = await settle(
        client.chat(model=MODEL, messages=[{"role": "user", "content": "Ada"}], format=schema)
    )
    assert answer.message.content == '{"name":"Ada"}'
    return dumped(answer)


async def embed(client: Any) -> list[object]:
    answer = await settle(client.embed(model="nomic-embed-text", input=["eins", "zwei"]))
    assert len(answer.embeddings) == 2
    return dumped(answer)


async def models(client: Any) -> list[object]:
    return dumped(await settle(client.list()))


async def missing(client: Any) -> list[object]:
    try:
        await settle(client.chat(model="error-404", messages=[{"role": "user", "content": "a"}]))
    except ollama.ResponseError as error:
        return [error.status_code, error.error]
    raise AssertionError("a missing model answered")


_STEPS: tuple[Step, ...] = (
    chat,
    chat_stream,
    generate,
    generate_stream,
    tool_loop,
    tool_stream,
    structured,
    embed,
    models,
    missing,
)


def _headers(target: Target) -> dict[str, str]:
    # Ollama's hosted models want a key; a local one takes whatever comes.
    return {**target.headers, "Authorization": f"Bearer {target.key}"}


def _sync(step: Step) -> Run:
    async def run(target: Target) -> list[object]:
        with ollama.Client(host=target.url, headers=_headers(target)) as client:
            return await step(client)

    return run


def _async(step: Step) -> Run:
    async def run(target: Target) -> list[object]:
        async with ollama.AsyncClient(host=target.url, headers=_headers(target)) as client:
            return await step(client)

    return run


RUNS: dict[str, Run] = {f"sync_{step.__name__}": _sync(step) for step in _STEPS} | {
    f"async_{step.__name__}": _async(step) for step in _STEPS
}
