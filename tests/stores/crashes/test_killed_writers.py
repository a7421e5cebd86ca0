"""Processes that record are killed at random moments, again and again over one cassette."""

import random
from pathlib import Path

import pytest

from tapeway.stores.opening import open_store
from tests.stores.crashes.recording_process import AT_ONCE, writers
from tests.stores.recordings import bodies
from tests.support.thoroughness import step


@pytest.mark.parametrize("scheme", ["file", "sqlite"])
async def test_what_killed_processes_acknowledged_is_there(tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}:{tmp_path / 'store'}"
    chance, rounds = random.Random(2026), 8 // step(2)
    acknowledged: set[int] = set()
    asked = kept = 0
    for round_ in range(rounds):
        before = len(acknowledged)
        with writers(url, [round_ * 100_000]) as (process,):
            asked += (least := chance.randrange(1, 60))
            acknowledged |= {*process.acknowledged(least)}
            process.kill()
            acknowledged |= {*process.rest()}

        found = await _recorded(url)
        assert acknowledged <= set(found)
        assert found == sorted(set(found))
        assert len(found) <= kept + len(acknowledged) - before + AT_ONCE
        kept = len(found)
    assert kept <= len(acknowledged) + rounds * AT_ONCE
    assert kept >= asked > 10 * rounds


async def _recorded(url: str) -> list[int]:
    store = open_store(url)
    await store.open()
    try:
        assert list(await store.check()) == []
        return [int(body[11:-1]) for body in bodies(await store.load("x", writable=False))]
    finally:
        await store.close()
