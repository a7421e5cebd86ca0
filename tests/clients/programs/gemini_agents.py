"""Agents on the google-genai package: three turns, two function calls at a time."""

from typing import Any

from google import genai
from google.genai import types

from tests.clients.programs.agent_tools import NAMES, PROMPT, conclusion, result_of
from tests.clients.programs.gemini_sdk import dumped
from tests.clients.programs.target import Run, Target, collect, settle

MODEL = "gemini-2.5-flash"
CITY = types.Schema(
    type=types.Type.OBJECT, properties={"city": types.Schema(type=types.Type.STRING)}
)
CONFIG = types.GenerateContentConfig(
    tools=[
        types.Tool(
            function_declarations=[
                types.FunctionDeclaration(name=name, parameters=CITY) for name in NAMES
            ]
        )
    ],
    automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
)


async def _loop(models: Any, *, streamed: bool) -> list[object]:
    contents: list[Any] = [types.UserContent(PROMPT)]
    answers: list[Any] = []
    calls: list[list[Any]] = []
    for _ in range(3):
        asked = {"model": MODEL, "contents": contents, "config": CONFIG}
        if streamed:
            chunks = await collect(models.generate_content_stream(**asked))
        else:
            chunks = [await settle(models.generate_content(**asked))]
        answers += chunks
        parts = [part for chunk in chunks for part in chunk.candidates[0].content.parts]
        calls.append([part.function_call for part in parts if part.function_call])
        told = [_told(call) for call in calls[-1]]
        contents = [*contents, types.ModelContent(parts), types.UserContent(told or ["fine"])]
    assert [len(found) for found in calls] == [2, 2, 0]
    text = "".join(part.text for part in parts)
    assert all(result_of(name, {"city": PROMPT}) in text for name in NAMES)
    assert "; ".join(f'{{"result":"{result}"}}' for result in _results()) in text
    return dumped(*answers)


def _results() -> list[str]:
    return conclusion({"city": PROMPT}).split("; ")


def _told(call: Any) -> types.Part:
    response = {"result": result_of(call.name, call.args)}
    return types.Part(
        function_response=types.FunctionResponse(id=call.id, name=call.name, response=response)
    )


def _sync(*, streamed: bool) -> Run:
    async def run(target: Target) -> list[object]:
        with genai.Client(api_key=target.key, http_options=_options(target)) as client:
            return await _loop(client.models, streamed=streamed)

    return run


def _async(*, streamed: bool) -> Run:
    async def run(target: Target) -> list[object]:
        async with genai.Client(api_key=target.key, http_options=_options(target)).aio as client:
            return await _loop(client.models, streamed=streamed)

    return run


def _options(target: Target) -> types.HttpOptions:
    return types.HttpOptions(base_url=target.url, headers=target.headers)


RUNS: dict[str, Run] = {
    "sync_generate": _sync(streamed=False),
    "sync_generate_stream": _sync(streamed=True),
    "async_generate": _async(streamed=False),
    "async_generate_stream": _async(streamed=True),
}
