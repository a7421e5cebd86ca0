"""SIGKILL at any moment: what a client saw whole is served again, and nobody is asked again."""

import asyncio
import json
import random
import signal
from pathlib import Path

import pytest

from tests.process.counting_upstream import Upstream
from tests.process.serving import Tapeway, request
from tests.process.strace import killed_at
from tests.support.raw_client import RawClient
from tests.support.thoroughness import combinations, step

CLIENTS = 6


@pytest.mark.parametrize(
    ("mode", "delivery"), combinations(["auto", "record"], ["buffer", "stream"])
)
async def test_what_was_answered_outlives_a_kill(tmp_path: Path, mode: str, delivery: str) -> None:
    await _outlives(tmp_path, mode, delivery, rounds=2, seed=1)


@pytest.mark.parametrize("seed", range(2, 6)[:: step(4)])
async def test_what_was_answered_outlives_many_kills(tmp_path: Path, seed: int) -> None:
    await _outlives(tmp_path, "auto", "stream" if seed > 3 else "buffer", rounds=10, seed=seed)


@pytest.mark.parametrize(
    "calls",
    ["openat", "write", "fsync", "fdatasync", "rename,renameat,renameat2", "unlink,unlinkat"][
        :: step(2)
    ],
)
async def test_a_kill_in_the_middle_of_writing_the_final_file_loses_nothing(
    tmp_path: Path, calls: str
) -> None:
    kept: dict[str, bytes] = {}
    async with Upstream() as upstream:
        options = ("--upstream", upstream.url)
        async with Tapeway(tmp_path, *options) as tapeway:
            kept["/first"] = (await tapeway.ask("/first")).body
            await tapeway.admin("POST", "/api/v1/eject", {})
            assert _final(tapeway) == 1
            kept["/second"] = (await tapeway.ask("/second")).body
            async with killed_at(tapeway.pid, calls):
                await _broken_off(tapeway)
            assert await tapeway.ended() == -signal.SIGKILL
        async with Tapeway(tmp_path, "--mode", "replay") as tapeway:
            for target, body in kept.items():
                assert (await tapeway.ask(target)).body == body
        async with Tapeway(tmp_path, *options) as tapeway:
            assert (await tapeway.ask("/first")).outcome == b"replayed"

    assert _final(tapeway) == len(kept)
    assert upstream.asks == dict.fromkeys(kept, 1)
    assert list(tapeway.store.glob(".*.tmp")) == list(tapeway.store.glob("*.journal")) == []


def _final(tapeway: Tapeway) -> int:
    return len(json.loads((tapeway.store / "default.json").read_text())["interactions"])


async def _broken_off(tapeway: Tapeway) -> None:
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await tapeway.admin("POST", "/api/v1/eject", {})


async def _outlives(folder: Path, mode: str, delivery: str, *, rounds: int, seed: int) -> None:
    moments = random.Random(seed)
    seen: dict[str, bytes] = {}
    async with Upstream(chunked=bool(seed % 2)) as upstream:
        options = ("--upstream", upstream.url, "--mode", mode, "--delivery", delivery)
        for number in range(rounds):
            async with Tapeway(folder, *options) as tapeway:
                if mode == "auto":
                    await _all_replayed(tapeway, upstream, seen)
                # Once enough of them are under way, at no moment in particular.
                await _load_until_killed(tapeway, number, moments, seen)
                assert await tapeway.ended() == -signal.SIGKILL
        asked = upstream.asks.copy()
    async with Tapeway(folder, "--mode", "replay") as tapeway:
        await _all_replayed(tapeway, upstream, seen)
        status = await tapeway.status()

    assert status["upstream_connections"] == 0
    assert status["counts"]["replayed"] == len(seen) > rounds * CLIENTS
    assert upstream.asks == asked


async def _load_until_killed(
    tapeway: Tapeway, number: int, moments: random.Random, seen: dict[str, bytes]
) -> None:
    answered = asyncio.Semaphore(0)

    async def call_again_and_again(client: int) -> None:
        try:
            async with RawClient(tapeway.proxy) as connection:
                for call in range(100_000):
                    target = f"/{number}/{client}/{call}"
                    answer = await connection.ask(request(target))
                    if not answer.complete:
                        return
                    assert answer.outcome == b"recorded"
                    seen[target] = answer.body
                    answered.release()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass

    async with asyncio.TaskGroup() as tasks:
        for client in range(CLIENTS):
            tasks.create_task(call_again_and_again(client))
        for _ in range(moments.randint(CLIENTS + 1, 60)):
            await answered.acquire()
        await asyncio.sleep(moments.random() / 100)
        tapeway.signal(signal.SIGKILL)


async def _all_replayed(tapeway: Tapeway, upstream: Upstream, seen: dict[str, bytes]) -> None:
    async with RawClient(tapeway.proxy) as connection:
        for target, body in seen.items():
            answer = await connection.ask(request(target))
            assert answer.outcome == b"replayed", target
            assert answer.body == body == upstream.only_answer(target)
