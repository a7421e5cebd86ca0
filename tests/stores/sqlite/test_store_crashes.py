"""Any call of a SQLite store fails or is its last: what was acknowledged is there afterwards."""

import asyncio
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.large_bodies import contents
from tests.stores.recordings import HEAD, recording
from tests.stores.sqlite.failing_calls import Nursery, Outcome, Strike, nursery
from tests.stores.sqlite.fixed_work import LARGE
from tests.support.thoroughness import every

_ALL = 8
_SYNCS = "fdatasync,fsync"
_STEP = {"pwrite64": 5}
"""Of these calls there are a hundred, of the others a few."""


@pytest.fixture(scope="module")
def nurse() -> Iterator[Nursery]:
    with nursery() as nurse:
        yield nurse


def test_the_errand_is_done_where_nothing_strikes(nurse: Nursery, tmp_path: Path) -> None:
    outcome = nurse.run(tmp_path / "calls.db", None)

    assert outcome.said == ["+ 0", "+ 1", "- 0", "+ 2", "+ 3", "+ 4", "+ 5", "- 2", "+ 6", "+ 7"]
    assert _recovered(tmp_path / "calls.db") == {1, 3, 4, 5, 6, 7}


@pytest.mark.slow
@pytest.mark.parametrize("calls", ["pwrite64", _SYNCS, "ftruncate,unlink,openat"])
def test_whichever_call_is_the_last_what_was_acknowledged_is_there(
    nurse: Nursery, tmp_path: Path, calls: str
) -> None:
    struck = 0
    for nth in every(_STEP.get(calls, 1), count(1)):
        file = tmp_path / f"{nth}.db"
        outcome = nurse.run(file, Strike(calls, "signal=KILL", nth))
        _check(file, outcome, nth)
        if not outcome.killed:
            break
        struck += 1
    assert struck > 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("calls", "error"), [("pwrite64", "EIO"), ("pwrite64", "ENOSPC"), (_SYNCS, "EIO")]
)
def test_whichever_call_fails_what_was_acknowledged_is_there(
    nurse: Nursery, tmp_path: Path, calls: str, error: str
) -> None:
    """Over a store that is there; the file is reopened by who finds it afterwards."""
    seed = tmp_path / "seed.db"
    asyncio.run(_record(seed, 20))
    failed = 0
    for nth in every(_STEP.get(calls, 1), count(1)):
        file = tmp_path / f"{nth}.db"
        shutil.copy(seed, file)
        outcome = nurse.run(file, Strike(calls, f"error={error}", nth))
        _check(file, outcome, nth, more=frozenset({20}))
        failed += any(line.startswith(("full", "failed", "!")) for line in outcome.said)
        if error == "ENOSPC":
            # There is room again, and nothing was to be reopened.
            assert outcome.said[-1] in ("+ 7", "full 7") or "no room" in outcome.said[-1], nth
        if not outcome.struck:
            break
    assert failed > 3


def _check(file: Path, outcome: Outcome, nth: int, more: frozenset[int] = frozenset()) -> None:
    said = outcome.said
    came = {int(line[2:]) for line in said if line.startswith("+")}
    went = {int(line[2:]) for line in said if line.startswith("-")}
    refused = {int(line[5:]) for line in said if line.startswith("full") and line[5:].isdigit()}
    # What was about to be replaced or removed when it broke off may be gone.
    in_doubt = {0, 2}

    found = _recovered(file)

    assert (came | more) - in_doubt <= found, (nth, said, found)
    assert not went & found, (nth, said, found)
    assert not refused & found, (nth, said, found)
    assert found <= set(range(_ALL)) | more, (nth, said, found)
    if 0 in came and 1 not in found:
        assert 0 in found, (nth, said, found)
    asyncio.run(_record(file, 99))
    assert 99 in _recovered(file), (nth, said)


def _recovered(file: Path) -> set[int]:
    return asyncio.run(_read(file))


async def _read(file: Path) -> set[int]:
    store = SqliteStore(file)
    await store.open()
    try:
        assert await store.check() == []
        found = [each for name in await store.names() for each in await _contents(store, name)]
    finally:
        await store.close()
    numbers = [5 if each == LARGE else int(each[11:-1]) for each in found]
    assert len(numbers) == len(set(numbers))
    return set(numbers)


async def _contents(store: SqliteStore, name: str) -> list[bytes]:
    return contents(await store.load(name, writable=False))


async def _record(file: Path, number: int) -> None:
    store = SqliteStore(file)
    await store.open()
    try:
        await store.append("z", HEAD, recording(number))
    finally:
        await store.close()
