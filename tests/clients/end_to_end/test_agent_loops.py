"""Agents of several turns replay with no rule written by hand, and nothing but what they said."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tapeway.testing import Received
from tests.clients.end_to_end.recorded_run import RecordedRun, Searched
from tests.clients.programs import anthropic_agents, gemini_agents, openai_agents
from tests.clients.programs.conversations import (
    CHANGES,
    identifiers,
    paths,
    renamed,
    reordered,
    swap_results,
)
from tests.clients.programs.raw_socket import Wire
from tests.clients.programs.target import Run
from tests.support.thoroughness import step

RUNS: dict[str, Mapping[str, Run]] = {
    "openai": openai_agents.RUNS,
    "anthropic": anthropic_agents.RUNS,
    "gemini": gemini_agents.RUNS,
}

_ALL = [(route, name) for route, runs in RUNS.items() for name in runs]
EACH = _ALL[:: step(3)]
# On the wire the asynchronous clients are like the others, and streamed questions like whole ones.
EACH_ONCE = [(route, name) for route, name in _ALL if name.startswith("sync_")][:: step(2)]

every_agent = pytest.mark.parametrize(("route", "name"), EACH)
each_conversation = pytest.mark.parametrize(("route", "name"), EACH_ONCE)

# google-genai subclasses aiohttp's session, which warns at the first asynchronous call.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")


@pytest.fixture
def leaks(take: RecordedRun, name: str) -> Searched:
    return Searched(take, name)


def saying(request: Received, body: Any, **how: Any) -> Received:
    """The same request with another body."""
    return replace(request, body=json.dumps(body, **how).encode())


def missed(wire: Wire) -> bool:
    return (wire.status, wire.values("tapeway-outcome")) == (400, ["miss"])


@every_agent
def test_the_agent_comes_to_the_same_end(take: RecordedRun, name: str) -> None:
    outcome = take.recorded[name].outcome
    if isinstance(outcome, Exception):
        raise outcome
    misses = take.proxy.status()["counts"]["miss"]

    assert take.replay(name) == outcome
    assert take.proxy.status()["counts"]["miss"] == misses


@each_conversation
def test_other_spacing_and_another_order_of_keys_still_hit(take: RecordedRun, name: str) -> None:
    for request in take.recorded[name].received:
        respaced = saying(request, reordered(json.loads(request.body)), indent=3)
        wire = take.replay_bytes(name, respaced)

        assert respaced.body != request.body
        assert (wire.status, wire.body) == (200, request.answer.body)


@each_conversation
def test_results_told_under_each_other_s_call_miss(take: RecordedRun, name: str) -> None:
    swapped = 0
    for request in take.recorded[name].received:
        body = json.loads(request.body)
        if swap_results(body):
            swapped += 1
            assert missed(take.replay_bytes(name, saying(request, body)))

    assert swapped == 2


@each_conversation
@pytest.mark.parametrize("change", CHANGES)
def test_a_miss_names_the_path_that_differs(take: RecordedRun, name: str, change: str) -> None:
    request = take.recorded[name].received[0 if change == "a word of the prompt" else -1]
    recorded, asked = json.loads(request.body), json.loads(request.body)
    CHANGES[change](asked)
    wire = take.replay_bytes(name, saying(request, asked))

    assert missed(wire)
    (path,) = paths(recorded, asked)
    told = json.loads(wire.body)
    nearest = told["tapeway"]["nearest"][0]
    assert [difference["path"] for difference in nearest["differences"]] == [path]
    assert path.removeprefix("body.") in told["message"]


@each_conversation
def test_identifiers_that_the_client_renamed_are_recognised(take: RecordedRun, name: str) -> None:
    mine: dict[str, str] = {}
    for request in take.recorded[name].received:
        body = json.loads(request.body)
        for found in identifiers(body):
            mine.setdefault(found, f"my_own-{len(mine)}")
        wire = take.replay_bytes(name, saying(request, renamed(body, mine)))

        assert (wire.status, wire.body) == (200, request.answer.body)
    assert mine


@each_conversation
def test_renamed_calls_whose_results_are_swapped_miss(take: RecordedRun, name: str) -> None:
    for request in take.recorded[name].received:
        body = json.loads(request.body)
        if swap_results(body):
            mine = {found: f"your_own-{n}" for n, found in enumerate(identifiers(body))}
            assert missed(take.replay_bytes(name, saying(request, renamed(body, mine))))
