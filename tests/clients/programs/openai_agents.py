"""Agents on the openai package: three turns, two tool calls in each but the last."""

import json
from typing import Any

from tests.clients.programs.agent_tools import NAMES, PROMPT, SCHEMA, conclusion, result_of
from tests.clients.programs.openai_sdk import with_async, with_sync
from tests.clients.programs.target import Run, Step, dumped, finished, settle

MODEL = "gpt-4o"
FLAT_TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": name, "parameters": SCHEMA, "strict": True} for name in NAMES
]
TOOLS = [
    {"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}}
    for tool in FLAT_TOOLS
]
CITY = {"city": PROMPT}


async def chat(client: Any) -> list[object]:
    return await _chat(client, streamed=False)


async def chat_stream(client: Any) -> list[object]:
    return await _chat(client, streamed=True)


async def _chat(client: Any, *, streamed: bool) -> list[object]:
    messages: list[Any] = [{"role": "user", "content": PROMPT}]
    answers = []
    for _ in range(3):
        asked = {"model": MODEL, "messages": messages, "tools": TOOLS}
        completions = client.chat.completions
        if streamed:
            answer = await finished(completions.stream(**asked), "get_final_completion")
        else:
            answer = await settle(completions.create(**asked))
        answers.append(answer)
        said = answer.choices[0].message
        calls = [_call(call) for call in said.tool_calls or []]
        messages = [
            *messages,
            {"role": "assistant", "content": said.content, "tool_calls": calls},
            *(_told(call) for call in calls),
        ]
    assert [len(answer.choices[0].message.tool_calls or []) for answer in answers] == [2, 2, 0]
    assert conclusion(CITY) in answers[-1].choices[0].message.content
    return dumped(*answers)


def _call(call: Any) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _told(call: dict[str, Any]) -> dict[str, str]:
    name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
    content = result_of(name, arguments)
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


async def responses(client: Any) -> list[object]:
    """The service remembers what was said."""
    return await _responses(client, streamed=False, remembered=True)


async def responses_stream(client: Any) -> list[object]:
    return await _responses(client, streamed=True, remembered=True)


async def responses_stateless(client: Any) -> list[object]:
    """The client brings everything along, encrypted reasoning included."""
    return await _responses(client, streamed=False, remembered=False)


async def responses_stateless_stream(client: Any) -> list[object]:
    return await _responses(client, streamed=True, remembered=False)


async def _responses(client: Any, *, streamed: bool, remembered: bool) -> list[object]:
    given: list[Any] = [{"role": "user", "content": PROMPT}]
    more: dict[str, Any] = {}
    if not remembered:
        include = ["reasoning.encrypted_content"]
        more = {"store": False, "include": include, "reasoning": {"effort": "low"}}
    answers: list[Any] = []
    for _ in range(3):
        asked = {"model": MODEL, "input": given, "tools": FLAT_TOOLS} | more
        if streamed:
            answer = await finished(client.responses.stream(**asked), "get_final_response")
        else:
            answer = await settle(client.responses.create(**asked))
        answers.append(answer)
        told = [_output(item) for item in answer.output if item.type == "function_call"]
        if remembered:
            given, more = told, {"previous_response_id": answer.id}
        else:
            given = [*given, *(_item(item) for item in answer.output), *told]
    calls = [[item for item in answer.output if item.type == "function_call"] for answer in answers]
    assert [len(found) for found in calls] == [2, 2, 0]
    assert conclusion(CITY) in answers[-1].output_text
    return dumped(*answers)


def _item(item: Any) -> dict[str, Any]:
    found: dict[str, Any] = item.model_dump(exclude_none=True)
    found.pop("parsed_arguments", None)
    for part in found.get("content", []):
        part.pop("parsed", None)
    return found


def _output(item: Any) -> dict[str, str]:
    output = result_of(item.name, json.loads(item.arguments))
    return {"type": "function_call_output", "call_id": item.call_id, "output": output}


_STEPS: tuple[Step, ...] = (
    chat,
    chat_stream,
    responses,
    responses_stream,
    responses_stateless,
    responses_stateless_stream,
)


RUNS: dict[str, Run] = {f"sync_{step.__name__}": with_sync(step) for step in _STEPS} | {
    f"async_{step.__name__}": with_async(step) for step in _STEPS
}
