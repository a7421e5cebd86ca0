"""What real clients' loops with tools said, as the admin API tells it."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.clients.end_to_end.recorded_run import RecordedRun, Searched
from tests.clients.programs import anthropic_agents, gemini_agents, ollama_sdk, openai_agents
from tests.clients.programs.target import Run
from tests.support.thoroughness import step

RUNS: dict[str, Mapping[str, Run]] = {
    "openai": {k: v for k, v in openai_agents.RUNS.items() if k.startswith("sync_")},
    "anthropic": {k: v for k, v in anthropic_agents.RUNS.items() if k.startswith("sync_")},
    "gemini": {k: v for k, v in gemini_agents.RUNS.items() if k.startswith("sync_")},
    "ollama": {"sync_tool_loop": ollama_sdk.RUNS["sync_tool_loop"]},
}
EACH = [(route, name) for route, runs in RUNS.items() for name in runs]

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")


@pytest.fixture
def leaks(take: RecordedRun, name: str) -> Searched:
    return Searched(take, name)


@pytest.mark.parametrize(("route", "name"), EACH[:: step(3)])
def test_a_loop_is_one_conversation_that_says_each_thing_once(
    take: RecordedRun, route: str, name: str
) -> None:
    told: dict[str, Any] = json.loads(take.proxy.admin("GET", f"/api/v1/cassettes/{name}/messages"))
    messages = told["messages"]

    # Ollama's is asked for one result at a time.
    turn = ["assistant", *["tool"] * (1 if route == "ollama" else 2)]
    assert [message["role"] for message in messages] == ["user", *turn, *turn, "assistant"]
    results = [message for message in messages if message["role"] == "tool"]
    assert sum([len(message.get("tool_calls", [])) for message in messages]) == len(results)
    assert all(
        result["content"] and result.get("tool_call_id", result.get("name")) for result in results
    )
    assert all(message["timestamp"] and "notes" not in message for message in messages)
    assert messages[-1]["content"]
    assert told["left_out"] == []
