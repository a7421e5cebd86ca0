"""What the tests do with the google-genai package, once for both of its clients."""

from typing import Any

from google import genai
from google.genai import errors, types

from tests.clients.programs.target import Run, Step, Target, collect, settle

MODEL = "gemini-2.5-flash"
TOOLS = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(
            name=name,
            parameters=types.Schema(
                type=types.Type.OBJECT, properties={key: types.Schema(type=types.Type.STRING)}
            ),
        )
        for name, key in (("weather", "city"), ("time", "zone"))
    ]
)


def dumped(*objects: Any) -> list[object]:
    # The header fields of the answer stand in the object too; those are compared as bytes.
    return [one.model_dump(exclude={"sdk_http_response"}) for one in objects]


async def generate(models: Any) -> list[object]:
    answer = await settle(models.generate_content(model=MODEL, contents="Grüß dich"))
    assert "Grüß dich" in answer.text
    return dumped(answer)


async def generate_stream(models: Any) -> list[object]:
    chunks = await collect(models.generate_content_stream(model=MODEL, contents="日本語で"))
    assert "日本語で" in "".join(chunk.text for chunk in chunks)
    return dumped(*chunks)


async def tool_loop(models: Any) -> list[object]:
    contents: list[Any] = [types.UserContent("Málaga")]
    config = types.GenerateContentConfig(
        tools=[TOOLS],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    answers = []
    for _ in range(3):
        answer = await settle(
            models.generate_content(model=MODEL, contents=contents, config=config)
        )
        answers.append(answer)
        parts = [
            types.Part.from_function_response(name=call.name, response={"result": "21 °C"})
            for call in answer.function_calls or []
        ]
        contents += [answer.candidates[0].content, types.UserContent(parts or ["fine"])]
    assert "21 °C" in answers[-1].text
    return dumped(*answers)


async def tool_stream(models: Any) -> list[object]:
    config = types.GenerateContentConfig(
        tools=[TOOLS],
        automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
    )
    chunks = await collect(
        models.generate_content_stream(model=MODEL, contents="Málaga, at once", config=config)
    )
    assert [call.name for chunk in chunks for call in chunk.function_calls] == ["weather", "time"]
    return dumped(*chunks)


async def structured(models: Any) -> list[object]:
    config = types.GenerateContentConfig(
        response_mime_type="application/json",
        response_schema={"type": "OBJECT", "properties": {"name": {"type": "STRING"}}},
    )
    answer = await settle(models.generate_content(model=MODEL, contents="Ada", config=config))
    assert answer.parsed == {"name": "Ada"}
    return dumped(answer)


async def embed(models: Any) -> list[object]:
    answer = await settle(
        models.embed_content(model="gemini-embedding-001", contents=["eins", "zwei"])
    )
    assert [len(found.values) for found in answer.embeddings] == [768, 768]
    return dumped(answer)


async def count(models: Any) -> list[object]:
    return dumped(await settle(models.count_tokens(model=MODEL, contents="hi")))


async def too_many(models: Any) -> list[object]:
    return await _refused(models, "error-429")


async def bad_request(models: Any) -> list[object]:
    return await _refused(models, "error-400")


async def _refused(models: Any, model: str) -> list[object]:
    try:
        await settle(models.generate_content(model=model, contents="hello"))
    except errors.ClientError as error:
        return [error.code, error.status, error.message]
    raise AssertionError(f"{model} was answered")


_STEPS: tuple[Step, ...] = (
    generate,
    generate_stream,
    tool_loop,
    tool_stream,
    structured,
    embed,
    count,
    too_many,
    bad_request,
)


def _options(target: Target, version: str | None = None) -> types.HttpOptions:
    return types.HttpOptions(base_url=target.url, headers=target.headers, api_version=version)


def _sync(step: Step) -> Run:
    async def run(target: Target) -> list[object]:
        with genai.Client(api_key=target.key, http_options=_options(target)) as client:
            return await step(client.models)

    return run


def _async(step: Step, version: str | None = None) -> Run:
    async def run(target: Target) -> list[object]:
        options = _options(target, version)
        async with genai.Client(api_key=target.key, http_options=options).aio as client:
            return await step(client.models)

    return run


RUNS: dict[str, Run] = (
    {f"sync_{step.__name__}": _sync(step) for step in _STEPS}
    | {f"async_{step.__name__}": _async(step) for step in _STEPS}
    | {"async_generate_v1beta": _async(generate, "v1beta")}
)
