"""Processes that record are killed at random moments, again and again over one cassette."""

import random
from pathlib import Path

import pytest

from tapeway.stores.opening import open_store
from tests.stores.crashes.recording_process import AT_ONCE, writers
from tests.stores.recordings import bodies
from tests.support.thoroughness import step


@pytest.mark.parametrize(
    ("scheme", "at_once", "rounds", "most"),
    [("file", 1, 8 // step(2), 60), ("sqlite", 3, 3 // step(3), 40)],
)
async def test_what_killed_processes_acknowledged_is_there(
    tmp_path: Path, scheme: str, at_once: int, rounds: int, most: int
) -> None:
    """A folder has one writer at a time, a database several."""
    url = f"{scheme}:{tmp_path / 'store'}"
    chance = random.Random(2026)
    acknowledged: set[int] = set()
    asked = kept = 0
    for round_ in range(rounds):
        before = len(acknowledged)
        starts = [(round_ * at_once + number) * 100_000 for number in range(at_once)]
        with writers(url, starts) as started:
            for process in started:
                asked += (least := chance.randrange(1, most))
                acknowledged |= {*process.acknowledged(least)}
            for process in started:
                process.kill()
            for process in started:
                acknowledged |= {*process.rest()}

        found = await _recorded(url)
        assert acknowledged <= set(found)
        assert len(found) == len(set(found))
        if at_once == 1:
            assert found == sorted(found)
            assert len(found) <= kept + len(acknowledged) - before + AT_ONCE
        kept = len(found)
    assert kept <= len(acknowledged) + rounds * at_once * AT_ONCE
    assert kept >= asked > 10 * rounds


async def _recorded(url: str) -> list[int]:
    store = open_store(url)
    await store.open()
    try:
        assert list(await store.check()) == []
        return [int(body[11:-1]) for body in bodies(await store.load("x", writable=False))]
    finally:
        await store.close()
