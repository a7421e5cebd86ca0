"""What is of the store in memory alone."""

import asyncio
import sys
import threading
from types import FrameType

import pytest

from tapeway.core.model.cassette import StoredCassette
from tapeway.stores import memory
from tapeway.stores.memory import MemoryStore
from tests.stores.recordings import HEAD, recording


async def calls_of_stat(store: MemoryStore) -> int:
    """How many Python functions a `stat` calls."""
    count = 0

    def note(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        await store.stat("x")
    finally:
        sys.setprofile(None)
    return count


async def size(store: MemoryStore) -> int:
    found = await store.stat("x")
    assert found is not None
    return found.size_bytes


async def test_looking_at_a_cassette_costs_the_same_whatever_it_holds() -> None:
    store = MemoryStore()
    await store.append("x", HEAD, recording(0))
    few = await calls_of_stat(store)
    for number in range(1, 50):
        await store.append("x", HEAD, recording(number))

    assert await calls_of_stat(store) == few


async def test_the_size_is_that_of_what_is_there_now() -> None:
    store = MemoryStore()
    await store.append("x", HEAD, recording(0))
    one = await size(store)
    await store.append("x", HEAD, recording(1, body=b"x" * 10_000))
    assert await size(store) > one + 10_000

    await store.append("x", HEAD, recording(2, 1))
    assert one < await size(store) < 3 * one
    await store.release("x")
    assert one < await size(store) < 3 * one

    await store.save("x", StoredCassette(HEAD, (recording(0, body=b"x" * 5000).interaction,)))
    assert 5000 < await size(store) < 5000 + 2 * one


async def test_a_large_cassette_is_copied_in_a_thread_and_nothing_is_lost_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    await store.append("x", HEAD, recording(0))
    stored = await store.load("x", writable=False)
    assert stored is not None
    threads: list[bool] = []
    # The work of the copy, which shows in no answer.
    prepared = memory._prepared

    def noted(cassette: StoredCassette) -> object:
        threads.append(threading.current_thread() is not threading.main_thread())
        return prepared(cassette)

    monkeypatch.setattr(memory, prepared.__name__, noted)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(store.save("x", stored))
        tasks.create_task(store.append("x", HEAD, recording(1)))

    assert threads == [True]
    after = await store.load("x", writable=False)
    assert after is not None
    assert len(after.interactions) == 2


async def test_what_is_removed_or_replaced_is_freed_step_by_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    freed: list[object] = []
    monkeypatch.setattr(memory, "free_later", freed.append)
    store = MemoryStore()
    items = tuple([recording(number).interaction for number in range(3)])
    await store.save("x", StoredCassette(HEAD, items))
    assert freed == []

    await store.save("x", StoredCassette(HEAD, items[:2]))
    assert await store.remove("x")
    assert not await store.remove("x")

    assert [len(value) for value in freed if isinstance(value, list)] == [3, 2]
