"""Every store tells when a cassette was changed, by whomever."""

from collections.abc import Awaitable, Callable

from tapeway.core.model.cassette import CassetteStat, StoredCassette
from tapeway.ports import CassetteStore
from tapeway.watching import changed
from tests.stores.contract.conftest import opened
from tests.stores.contract.kinds import Place
from tests.stores.recordings import HEAD, record, recording


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
        before: CassetteStat | None = None
        versions: list[str | None] = []
        for change in changes:
            await change()
            now = await one.stat("x")
            assert changed(before, now)
            versions.append(now.version if now is not None else None)
            before = now

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


async def test_a_change_since_a_known_state_is_noticed(store: CassetteStore) -> None:
    await store.append("x", HEAD, recording(0))
    known = await store.stat("x")
    await store.append("x", HEAD, recording(1))

    assert changed(known, await store.stat("x"))
    assert changed(known, await store.stat("y"))
