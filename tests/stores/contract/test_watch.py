"""Every store tells when a cassette was changed, by whomever."""

import asyncio
from collections.abc import Awaitable, Callable

from tapeway.core.model.cassette import StoredCassette
from tapeway.ports import CassetteStore
from tapeway.watching import watch
from tests.stores.contract.conftest import opened
from tests.stores.contract.kinds import Place
from tests.stores.recordings import HEAD, record, recording

OFTEN_S = 0.01


async def test_what_another_store_does_to_a_cassette_is_noticed(place: Place) -> None:
    same_size = StoredCassette(HEAD, (recording(1).interaction,))
    async with opened(place.again()) as one, opened(place.again()) as other:
        changes: list[Callable[[], Awaitable[object]]] = [
            lambda: other.append("x", HEAD, recording(0)),
            lambda: other.save("x", same_size),
            lambda: other.append("x", HEAD, recording(2)),
            lambda: other.append("x", HEAD, recording(3, 2)),
            lambda: other.remove("x"),
            lambda: other.save("x", same_size),
        ]
        seen = watch(one, "x", None, OFTEN_S)
        versions: list[str | None] = []
        async with asyncio.timeout(30):
            for change in changes:
                await change()
                found = await anext(seen)
                versions.append(found.version if found is not None else None)

    assert versions[4] is None
    assert len(set(versions)) == len(changes)


async def test_a_cassette_that_was_only_read_has_not_changed(store: CassetteStore) -> None:
    await record(store, 0, 1)
    await record(store, 2, name="y")
    before = await store.stat("x")

    for writable in (False, True):
        await store.load("x", writable=writable)
        await store.release("x")
    await store.append("y", HEAD, recording(3))
    await store.names()

    assert before is not None
    assert before.version
    assert await store.stat("x") == before


async def test_a_change_before_the_first_look_is_noticed(store: CassetteStore) -> None:
    await store.append("x", HEAD, recording(0))
    known = await store.stat("x")
    await store.append("x", HEAD, recording(1))

    async with asyncio.timeout(30):
        assert await anext(watch(store, "x", known, OFTEN_S)) == await store.stat("x")
        assert await anext(watch(store, "y", known, OFTEN_S)) is None
