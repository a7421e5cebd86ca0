"""What is of the store in memory alone."""

import sys
from types import FrameType

from tapeway.core.model.cassette import StoredCassette
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
