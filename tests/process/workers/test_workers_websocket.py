"""WebSocket turns through several workers on SQLite, and routes with WebSocket on or off."""

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import InvalidStatus

from tapeway.testing import StandIn
from tests.process.serving import Tapeway
from tests.process.workers.worker_processes import Crew, makers
from tests.server.websocket.conversing import RESPONSES, Event, connected, create, turn

MOST = 64
"""Connections after which each of two workers has got some."""


def _socket(
    tapeway: Tapeway, path: str = RESPONSES
) -> AbstractAsyncContextManager[ClientConnection]:
    return connected(tapeway.proxy, path, dict([tapeway.login]))


async def _turn(client: ClientConnection, number: int) -> list[Event]:
    return await turn(client, create(f"question {number}"))


async def _served_by(crew: Crew, outcome: str) -> set[str]:
    return makers(await crew.journal(f"outcome={outcome}&limit=1000"))


async def test_turns_recorded_through_either_of_two_workers_replay_through_either(
    tmp_path: Path,
) -> None:
    recorded: list[list[Any]] = []
    async with StandIn() as upstream, Crew(tmp_path, 2, "--upstream", upstream.url) as crew:
        while len(recorded) < MOST and len(await _served_by(crew, "recorded")) < 2:
            async with _socket(crew) as client:
                recorded.append(await _turn(client, len(recorded)))
        recorders = await _served_by(crew, "recorded")
        asked = len(upstream.messages)

        await crew.done("PUT", "mode", {"mode": "replay"})
        connections = 0
        while connections < MOST and len(await _served_by(crew, "replayed")) < 2:
            connections += 1
            async with _socket(crew) as client:
                for number, events in enumerate(recorded):
                    assert await _turn(client, number) == events
        assert await _served_by(crew, "replayed") == recorders
        counts = (await crew.status())["counts"]

    assert len(recorders) == 2
    assert (counts["miss"], counts["error"], len(upstream.messages)) == (0, 0, asked)
    assert asked == counts["recorded"] == len(recorded)


@pytest.mark.parametrize("option", ["route", "all"])
async def test_a_route_without_websocket_answers_426_and_the_others_go_on(
    tmp_path: Path, option: str
) -> None:
    async with StandIn() as upstream:
        off = f"off={upstream.url}?websocket=off"
        options = ["--route", off, "--route", f"on={upstream.url}"]
        options += ["--no-websocket"] if option == "all" else []
        async with Tapeway(tmp_path, *options) as tapeway:
            for route in ("off", "on") if option == "all" else ("off",):
                with pytest.raises(InvalidStatus) as refused:
                    async with _socket(tapeway, f"/{route}/v1/responses"):
                        pass
                response = refused.value.response
                assert response.status_code == 426
                assert json.loads(response.body or b"")["error"]["code"] == "websocket_off"
            if option == "route":
                async with _socket(tapeway, "/on/v1/responses") as client:
                    assert (await _turn(client, 1))[-1]["type"] == "response.completed"
            posted = b'{"model":"gpt-5","input":"over HTTP"}'
            typed = ("Content-Type", "application/json")
            answer = await tapeway.ask("/off/v1/responses", posted, typed)

    assert (answer.status, answer.outcome) == (200, b"recorded")
