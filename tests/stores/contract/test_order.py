"""Recordings keep the order they came in, and none of them is lost."""

import asyncio
from dataclasses import replace

from tapeway.core.json_text import Json
from tapeway.core.model.cassette import Recording
from tapeway.core.model.interaction import ForeignInteraction
from tapeway.errors import CassetteLocked
from tapeway.ports import CassetteStore
from tests.stores.contract.conftest import opened
from tests.stores.contract.kinds import Kind, Place
from tests.stores.recordings import HEAD, answers, bodies, indexes, recording


async def test_concurrent_appends_lose_none_and_keep_their_order(store: CassetteStore) -> None:
    await store.load("x", writable=True)

    async with asyncio.TaskGroup() as tasks:
        for index in range(200):
            tasks.create_task(store.append("x", HEAD, recording(index)))

    assert bodies(await store.load("x", writable=True)) == answers(*range(200))
    await store.release("x")
    assert bodies(await store.load("x", writable=True)) == answers(*range(200))


async def test_cassettes_may_be_appended_to_at_the_same_time(store: CassetteStore) -> None:
    names = [f"folder-{number % 3}/{number}" for number in range(12)]

    async with asyncio.TaskGroup() as tasks:
        for number in range(5):
            for name in names:
                tasks.create_task(store.append(name, HEAD, recording(number)))

    for name in names:
        assert bodies(await store.load(name, writable=False)) == answers(*range(5))


async def test_two_stores_that_record_into_one_cassette_lose_nothing_acknowledged(
    kind: Kind, place: Place
) -> None:
    async with opened(place.again()) as first, opened(place.again()) as second:
        stores = (first, second)
        results = await asyncio.gather(
            *[stores[index % 2].append("x", HEAD, recording(index)) for index in range(40)],
            return_exceptions=True,
        )
        refused = [result for result in results if result is not None]
        kept = [index for index, result in enumerate(results) if result is None]
        found = bodies(await first.load("x", writable=False))

    assert all(isinstance(error, CassetteLocked) for error in refused)
    assert kept
    assert not (kind.concurrent_writers and refused)
    assert sorted(found) == sorted(answers(*kept))
    for number in (0, 1):
        own = answers(*[index for index in kept if index % 2 == number])
        assert [body for body in found if body in own] == own


async def test_an_append_whose_caller_left_is_done_whole_or_not_at_all(
    store: CassetteStore,
) -> None:
    async with asyncio.TaskGroup() as tasks:
        left = tasks.create_task(store.append("x", HEAD, recording(0)))
        await asyncio.sleep(0)
        left.cancel()
    await store.append("x", HEAD, recording(1))

    assert bodies(await store.load("x", writable=True)) in (answers(0, 1), answers(1))


async def test_order_is_by_sequence_and_not_by_what_a_time_says(store: CassetteStore) -> None:
    times = ["2026-01-02T00:00:00+14:00", "2026-01-01T23:00:00-09:00", "1999-12-31T23:59:59Z", ""]
    for index, time in enumerate(times):
        document: dict[str, Json] = {
            "index": index,
            "kind": "memory_write",
            "request": {"at": time},
            "response": index,
            "metadata": {"recorded_at": time},
        }
        await store.append("x", HEAD, Recording(ForeignInteraction(index, document)))
    late = replace(recording(4).exchange, metadata={"recorded_at": "1970-01-01T00:00:00Z"})
    await store.append("x", HEAD, Recording(late))

    for _ in range(2):
        found = await store.load("x", writable=True)
        assert found is not None
        assert [interaction.index for interaction in found.interactions] == [0, 1, 2, 3, 4]
        numbers = [
            interaction.document["response"]
            for interaction in found.interactions[:4]
            if isinstance(interaction, ForeignInteraction)
        ]
        assert numbers == [0, 1, 2, 3]
        await store.release("x")


async def test_a_recording_takes_the_place_of_those_it_supersedes(
    kind: Kind, store: CassetteStore
) -> None:
    for index in range(4):
        await store.append("x", HEAD, recording(index))
    await store.append("x", HEAD, recording(4, 1, 3))
    await store.append("x", HEAD, recording(5, 4))
    await store.append("x", HEAD, recording(6))

    found = await store.load("x", writable=True)
    assert bodies(found) == answers(0, 5, 2, 6)
    assert indexes(found) == [0, 5, 2, 6]

    await store.release("x")
    found = await store.load("x", writable=True)
    assert bodies(found) == answers(0, 5, 2, 6)
    assert indexes(found) == ([0, 5, 2, 6] if kind.shared else [0, 1, 2, 3])


async def test_indexes_do_not_change_while_a_cassette_is_loaded(
    kind: Kind, store: CassetteStore
) -> None:
    # The one that was asked later was answered first.
    for index in (7, 3):
        await store.append("x", HEAD, recording(index))

    assert indexes(await store.load("x", writable=True)) == [3, 7]
    await store.append("x", HEAD, recording(8, 3))
    assert indexes(await store.load("x", writable=True)) == [8, 7]
    await store.release("x")
    assert indexes(await store.load("x", writable=True)) == ([8, 7] if kind.shared else [0, 1])
