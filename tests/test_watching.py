"""Which cassettes are not what they were when they were read."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import pytest

from tapeway.core.model.cassette import CassetteStat
from tapeway.stores.file.store import FileStore
from tapeway.stores.support.threads import StoreThreads
from tapeway.watching import Watched, changed
from tests.stores.recordings import record

T = TypeVar("T")


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (None, None, False),
        (None, CassetteStat(1, "", "a"), True),
        (CassetteStat(1, "", "a"), None, True),
        (CassetteStat(1, "", "a"), CassetteStat(2, "later", "a"), False),
        (CassetteStat(1, "", "a"), CassetteStat(1, "", "b"), True),
    ],
)
def test_a_cassette_has_changed_with_its_version(
    before: CassetteStat | None, now: CassetteStat | None, said: bool
) -> None:
    assert changed(before, now) is said


async def test_a_change_is_told_when_it_has_come_to_rest(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await record(store, 0)
    await record(store, 1, name="y")
    watched = Watched(store)
    for name in ("x", "y", "not-yet"):
        await watched.note(name)
    assert await watched.look() == []

    file = tmp_path / "x.json"
    text = file.read_text()
    file.write_text(text[:100])
    assert await watched.look() == []
    file.write_text(text + "\n")
    assert await watched.look() == []
    assert await watched.look() == ["x"]
    assert await watched.look() == ["x"]

    await watched.note("x")
    assert await watched.look() == []
    await store.close()


async def test_a_thousand_cassettes_are_looked_at_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    watched = Watched(store)
    for number in range(1000):
        await watched.note(f"c{number}")
    steps = 0
    submit = StoreThreads.submit

    def counted(threads: StoreThreads, work: Callable[[], T]) -> Future[T]:
        nonlocal steps
        steps += 1
        return submit(threads, work)

    await record(store, 0, name="c7")
    monkeypatch.setattr(StoreThreads, "submit", counted)
    await watched.look()

    assert await watched.look() == ["c7"]
    assert steps == 2
    await store.close()


async def test_an_edit_that_keeps_the_size_is_a_change(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await record(store, 0)
    file, before = tmp_path / "x.json", await store.stat("x")

    async with asyncio.timeout(60):
        while not changed(before, await store.stat("x")):
            # The clock of a file system stands still for milliseconds.
            file.write_text(file.read_text().replace('"answer": 0', '"answer": 7'))

    found = await store.stat("x")
    assert before is not None
    assert found is not None
    assert found.size_bytes == before.size_bytes
    await store.close()


async def test_what_comes_and_what_goes_are_changes(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await record(store, 0)
    watched = Watched(store)
    for name in ("x", "new", "forgotten"):
        await watched.note(name)
    watched.forget("forgotten")

    await store.remove("x")
    await record(store, 1, name="new")
    await record(store, 2, name="forgotten")

    assert await watched.look() == []
    assert await watched.look() == ["x", "new"]
    await store.close()


async def test_what_changed_back_has_not_changed(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    watched = Watched(store)
    await watched.note("x")
    await record(store, 0)
    assert await watched.look() == []
    await store.remove("x")

    assert await watched.look() == []
    assert await watched.look() == []
    await store.close()
