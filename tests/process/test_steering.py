"""Mode switches and ejects while requests are under way: each request is wholly in one mode."""

import asyncio
import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.process.counting_upstream import Upstream
from tests.process.serving import Tapeway, request
from tests.process.strace import Trace
from tests.support.raw_client import Answer, RawClient

CLIENTS = 8


class Load:
    """Clients that ask for new targets again and again, and what they were answered, in order."""

    def __init__(self, tapeway: Tapeway, prefix: str = "") -> None:
        self._tapeway = tapeway
        self._prefix = prefix
        self._numbers = count()
        self._over = False
        self.answers: dict[str, Answer] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CLIENTS):
                tasks.create_task(self._call())

    def end(self) -> None:
        self._over = True

    async def grown(self, by: int) -> None:
        wanted = len(self.answers) + by
        await self._tapeway.until(lambda: len(self.answers) >= wanted, "the load went on")

    async def _call(self) -> None:
        async with RawClient(self._tapeway.proxy) as client:
            while not self._over:
                target = f"/{next(self._numbers)}"
                self.answers[target] = await client.ask(request(f"{self._prefix}{target}"))


async def test_every_request_is_wholly_in_one_mode(tmp_path: Path) -> None:
    async with Upstream() as upstream:
        options = ("--upstream", upstream.url, "--mode", "auto")
        async with (
            Tapeway(tmp_path, *options) as tapeway,
            asyncio.TaskGroup() as tasks,
        ):
            load = Load(tapeway)
            tasks.create_task(load.run())
            modes = ("replay", "passthrough", "auto", "record", "replay", "auto") * 3
            for mode in modes:
                await load.grown(20)
                assert (await tapeway.admin("PUT", "/api/v1/mode", {"mode": mode}))[0] == 200
            await load.grown(20)
            load.end()
        stored = _targets(tapeway.store / "default.json")

    outcomes = {target: answer.outcome for target, answer in load.answers.items()}
    assert set(outcomes.values()) == {b"recorded", b"live", b"miss"}
    for target, outcome in outcomes.items():
        assert upstream.asks[target] == (0 if outcome == b"miss" else 1), (target, outcome)
        assert (target in stored) == (outcome == b"recorded"), (target, outcome)
        if outcome != b"miss":
            assert load.answers[target].body == upstream.only_answer(target)


@pytest.mark.slow
async def test_ejects_under_load_lose_nothing_and_write_whole_files(tmp_path: Path) -> None:
    async with Upstream() as upstream:
        options = ("--upstream", upstream.url)
        async with Tapeway(tmp_path, *options) as tapeway, asyncio.TaskGroup() as tasks:
            load = Load(tapeway)
            tasks.create_task(load.run())
            for _ in range(8):
                await load.grown(30)
                acknowledged = set(load.answers)
                code, report = await tapeway.admin("POST", "/api/v1/eject", {})
                assert code == 200
                assert report["cassettes"][0]["name"] == "default"
                # Another eject may not have begun: the file is this one's, and whole.
                assert acknowledged <= _targets(tapeway.store / "default.json")
            load.end()
        async with Tapeway(tmp_path, *options, "--mode", "replay") as tapeway:
            for target, answer in load.answers.items():
                assert answer.outcome == b"recorded"
                assert answer.body == upstream.only_answer(target)
                assert (await tapeway.ask(target)).body == answer.body
            assert (await tapeway.status())["upstream_connections"] == 0


async def test_replay_needs_no_upstream_and_connects_to_nobody(tmp_path: Path) -> None:
    async with Upstream() as upstream, Tapeway(tmp_path, "--upstream", upstream.url) as tapeway:
        known = (await tapeway.ask("/known")).body
    trace = Trace(tmp_path / "trace", "-e", "trace=connect,sendto,sendmsg")
    options = ("--mode", "replay")
    async with Tapeway(tmp_path, *options, command=trace.command) as tapeway:
        assert (await tapeway.ask("/known")).body == known
        assert (await tapeway.ask("/unknown")).status in (404, 400)
        assert (await tapeway.ask("/openai/v1/models")).status == 400
        assert (await tapeway.status())["upstream_connections"] == 0

    # Looking a name up would be a connection too, or a packet to port 53.
    assert [
        line for line in trace.lines if " connect(" in line and "sa_family=AF_INET" in line
    ] == []
    assert trace.calls("sendto", "UDP") == trace.calls("sendmsg", "UDP") == []


def _interactions(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(file.read_bytes())["interactions"]
    return found


def _targets(file: Path) -> set[str]:
    urls = [str(interaction["request"]["url"]) for interaction in _interactions(file)]
    return {f"/{url.rpartition('/')[2]}" for url in urls}
