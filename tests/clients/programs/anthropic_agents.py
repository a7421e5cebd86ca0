"""Agents on the anthropic package, which think aloud: three turns, two tool calls at a time."""

from typing import Any

from tests.clients.programs.agent_tools import NAMES, PROMPT, SCHEMA, conclusion, result_of
from tests.clients.programs.anthropic_sdk import with_async, with_sync
from tests.clients.programs.target import Run, dumped, finished, settle

TOOLS = [{"name": name, "input_schema": SCHEMA} for name in NAMES]


async def messages(client: Any) -> list[object]:
    return await _loop(client, streamed=False)


async def messages_stream(client: Any) -> list[object]:
    return await _loop(client, streamed=True)


async def _loop(client: Any, *, streamed: bool) -> list[object]:
    said: list[Any] = [{"role": "user", "content": PROMPT}]
    answers = []
    for _ in range(3):
        asked: dict[str, Any] = {
            "model": "claude-sonnet-5",
            "max_tokens": 2048,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "messages": said,
            "tools": TOOLS,
        }
        if streamed:
            answer = await finished(client.messages.stream(**asked), "get_final_message")
        else:
            answer = await settle(client.messages.create(**asked))
        answers.append(answer)
        content = [block.model_dump(exclude_none=True) for block in answer.content]
        for block in content:
            block.pop("parsed_output", None)
        said = [
            *said,
            {"role": "assistant", "content": content},
            {"role": "user", "content": [_told(b) for b in content if b["type"] == "tool_use"]},
        ]
    kinds = [[block.type for block in answer.content] for answer in answers]
    assert kinds[:2] == [["thinking", "text", "tool_use", "tool_use"]] * 2
    assert kinds[2] == ["thinking", "text"]
    assert conclusion({"city": PROMPT}) in answers[-1].content[1].text
    return dumped(*answers)


def _told(block: dict[str, Any]) -> dict[str, str]:
    content = result_of(block["name"], block["input"])
    return {"type": "tool_result", "tool_use_id": block["id"], "content": content}


RUNS: dict[str, Run] = {
    "sync_messages": with_sync(messages),
    "sync_messages_stream": with_sync(messages_stream),
    "async_messages": with_async(messages),
    "async_messages_stream": with_async(messages_stream),
}
