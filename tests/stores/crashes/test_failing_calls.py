"""Any call of a store fails or is its last: what was acknowledged is there afterwards."""

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from tapeway.stores.opening import open_store
from tests.process.strace import Injection
from tests.stores.crashes.fixed_work import LARGE
from tests.stores.crashes.traced_processes import ForkServer, Outcome, fork_server
from tests.stores.large_bodies import contents
from tests.stores.recordings import HEAD, recording
from tests.support.thoroughness import step

_COUNT = 8
_SYNCS = "fdatasync,fsync"
_FOLDERS = "rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,openat"
_STEP = {"pwrite64": 23, "write": 2, _SYNCS: 2, _FOLDERS: 3, "ftruncate,unlink,openat": 2}
"""Of the first there are a hundred and some twenty, of the others fewer."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A store that is durable on this machine's disk."""

    name: str

    def url(self, folder: Path) -> str:
        return f"{self.name}:{folder / 'store'}"

    def __str__(self) -> str:
        return self.name


SQLITE = Kind("sqlite")
FILE = Kind("file")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with fork_server() as server:
        yield server


@pytest.mark.parametrize("kind", [SQLITE, FILE], ids=str)
def test_the_work_is_done_where_no_call_fails(
    server: ForkServer, tmp_path: Path, kind: Kind
) -> None:
    outcome = server.run(kind.url(tmp_path), tmp_path, None)

    expected = ["+ 0", "+ 1", "- 0", "+ 2", "+ 3", "+ 4", "+ 5", "- 2", "+ 6", "+ 7"]
    assert [line for line in outcome.lines if line] == expected
    assert _recovered(kind.url(tmp_path)) == {1, 3, 4, 5, 6, 7}


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        (SQLITE, "pwrite64"),
        (SQLITE, _SYNCS),
        (SQLITE, "ftruncate,unlink,openat"),
        (FILE, "write"),
        (FILE, _SYNCS),
        (FILE, _FOLDERS),
    ][:: step(3)],
    ids=str,
)
def test_whichever_call_is_the_last_what_was_acknowledged_is_there(
    server: ForkServer, tmp_path: Path, kind: Kind, calls: str
) -> None:
    killed = 0
    for nth in count(1, step(_STEP.get(calls, 1))):
        folder = tmp_path / f"{nth}"
        folder.mkdir()
        outcome = server.run(kind.url(folder), folder, Injection(calls, "signal=KILL", nth))
        _check(kind.url(folder), outcome, nth)
        if not outcome.killed:
            break
        killed += 1
    assert killed > 3


@pytest.mark.parametrize(
    ("kind", "calls", "error"),
    [
        (SQLITE, "pwrite64", "EIO"),
        (SQLITE, "pwrite64", "ENOSPC"),
        (SQLITE, _SYNCS, "EIO"),
        (FILE, "write", "EIO"),
        (FILE, "write", "ENOSPC"),
        (FILE, "fsync", "EIO"),
        (FILE, "fdatasync", "EIO"),
    ][:: step(3)],
    ids=str,
)
def test_whichever_call_fails_what_was_acknowledged_is_there(
    server: ForkServer, tmp_path: Path, kind: Kind, calls: str, error: str
) -> None:
    """Over a store that is there; it is reopened by who finds it afterwards."""
    seed = tmp_path / "seed"
    seed.mkdir()
    asyncio.run(_record(kind.url(seed), 20))
    failed = 0
    for nth in count(1, step(_STEP.get(calls, 1))):
        folder = tmp_path / f"{nth}"
        shutil.copytree(seed, folder)
        outcome = server.run(kind.url(folder), folder, Injection(calls, f"error={error}", nth))
        _check(kind.url(folder), outcome, nth, more=frozenset({20}))
        failed += any(line.startswith(("full", "failed", "!")) for line in outcome.lines)
        if error == "ENOSPC":
            # There is room again, and nothing was to be reopened.
            assert outcome.lines[-1] in ("+ 7", "full 7") or "no room" in outcome.lines[-1], nth
        if not outcome.reached:
            break
    assert failed > 3


def _check(url: str, outcome: Outcome, nth: int, more: frozenset[int] = frozenset()) -> None:
    lines = outcome.lines
    added = {int(line[2:]) for line in lines if line.startswith("+")}
    removed = {int(line[2:]) for line in lines if line.startswith("-")}
    refused = {int(line[5:]) for line in lines if line.startswith("full") and line[5:].isdigit()}
    # What was about to be replaced or removed when it broke off may be gone.
    in_doubt = {0, 2}

    found = _recovered(url)

    assert (added | more) - in_doubt <= found, (nth, lines, found)
    assert not removed & found, (nth, lines, found)
    assert not refused & found, (nth, lines, found)
    assert found <= set(range(_COUNT)) | more, (nth, lines, found)
    if 0 in added and 1 not in found:
        assert 0 in found, (nth, lines, found)
    asyncio.run(_record(url, 99))
    assert 99 in _recovered(url), (nth, lines)


def _recovered(url: str) -> set[int]:
    return asyncio.run(_read(url))


async def _read(url: str) -> set[int]:
    store = open_store(url)
    await store.open()
    try:
        assert list(await store.check()) == []
        # A journal that was begun and says nothing yet has a name, but is no cassette.
        loaded = [await store.load(name, writable=False) for name in await store.names()]
        found = [content for cassette in loaded if cassette for content in contents(cassette)]
    finally:
        await store.close()
    numbers = [5 if body == LARGE else int(body[11:-1]) for body in found]
    assert len(numbers) == len(set(numbers))
    return set(numbers)


async def _record(url: str, number: int) -> None:
    store = open_store(url)
    await store.open()
    try:
        await store.append("z", HEAD, recording(number))
    finally:
        await store.close()
