"""What is put into a store, and what comes out again: loaded, listed, replaced, removed."""

from dataclasses import replace

import pytest

from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction
from tapeway.ports import CassetteStore
from tests.stores.contract.conftest import opened
from tests.stores.contract.kinds import Place
from tests.stores.recordings import HEAD, answers, bodies, exchanges, indexes, recording


async def test_a_cassette_that_is_not_there_loads_as_none(store: CassetteStore) -> None:
    assert await store.load("x", writable=False) is None
    assert await store.load("x", writable=True) is None
    assert await store.names() == []
    assert await store.stat("x") is None
    assert not await store.remove("x")


async def test_a_cassette_with_no_recordings_does_not_come_into_being(store: CassetteStore) -> None:
    await store.load("x", writable=True)
    await store.release("x")

    assert await store.names() == []


async def test_what_was_appended_is_there_for_the_next_store(place: Place) -> None:
    async with opened(place.again()) as store:
        await store.load("x", writable=True)
        await store.append("x", HEAD, recording(0))
        await store.append("x", CassetteHead("later", "another"), recording(1))

    async with opened(place.again()) as store:
        found = await store.load("x", writable=False)

    assert found is not None
    assert found.head == HEAD
    assert found.interactions == (recording(0).interaction, recording(1).interaction)


async def test_what_was_appended_is_there_at_once(store: CassetteStore) -> None:
    await store.load("x", writable=True)
    await store.append("x", HEAD, recording(0))

    assert bodies(await store.load("x", writable=False)) == answers(0)
    assert await store.names() == ["x"]
    stat = await store.stat("x")
    assert stat is not None
    assert stat.size_bytes > 0
    assert stat.modified_at.startswith("20")


@pytest.mark.parametrize("writable", [None, False, True])
async def test_a_cassette_may_be_appended_to_however_it_was_loaded(
    store: CassetteStore, writable: bool | None
) -> None:
    for number in range(2):
        if writable is not None:
            await store.load("x", writable=writable)
        await store.append("x", HEAD, recording(number))
        await store.release("x")

    assert bodies(await store.load("x", writable=False)) == answers(0, 1)


async def test_cassettes_do_not_mix(store: CassetteStore) -> None:
    names = ["a", "a.json", "A1", "a/b", "a/b/c", "a/b.c", "a-b_c", "a_b"]
    for number, name in enumerate(names):
        await store.append(name, HEAD, recording(number))

    assert await store.names() == sorted(names)
    for number, name in enumerate(names):
        assert bodies(await store.load(name, writable=True)) == answers(number)
        await store.release(name)
    assert await store.names() == sorted(names)


async def test_saving_replaces_the_whole_cassette(store: CassetteStore) -> None:
    await store.load("x", writable=True)
    for index in range(3):
        await store.append("x", HEAD, recording(index))
    foreign = ForeignInteraction(9, {"index": 9, "kind": "tool", "request": {}, "response": 1})
    other = replace(HEAD, run_id="run-2")

    await store.save("x", StoredCassette(other, (recording(2).interaction, foreign)))

    found = await store.load("x", writable=True)
    assert found is not None
    assert found.head == other
    assert bodies(found) == answers(2)
    assert indexes(found) == [0, 1]
    assert isinstance(found.interactions[1], ForeignInteraction)

    await store.append("x", HEAD, recording(2))
    await store.release("x")
    assert indexes(await store.load("x", writable=True)) == [0, 1, 2]


async def test_single_recordings_are_read_by_their_indexes(store: CassetteStore) -> None:
    for index in (5, 3, 8):
        await store.append("x", HEAD, recording(index))

    found = await store.documents("x", [5, 4, 3])
    assert [taken.item for taken in found] == [recording(at).interaction for at in (3, 5)]
    assert await store.documents("x", [4]) == []
    assert await store.documents("x", []) == []
    assert await store.documents("y", [3]) == []


async def test_a_cassette_may_be_saved_where_there_was_none(store: CassetteStore) -> None:
    await store.save("x", StoredCassette(HEAD, (recording(5).interaction,)))
    await store.save("bare", StoredCassette(HEAD))

    assert await store.names() == ["bare", "x"]
    assert indexes(await store.load("x", writable=False)) == [0]
    assert await store.load("bare", writable=False) == StoredCassette(HEAD)


async def test_a_removed_cassette_is_gone_and_may_be_recorded_anew(place: Place) -> None:
    async with opened(place.again()) as store:
        await store.append("x", HEAD, recording(0))
        await store.release("x")
        await store.append("x", HEAD, recording(1))
        await store.append("x/y", HEAD, recording(2))

        assert await store.remove("x")
        assert not await store.remove("x")
        assert await store.names() == ["x/y"]
        assert await store.load("x", writable=True) is None
        await store.append("x", HEAD, recording(3))
        await store.release("x")

    async with opened(place.again()) as other:
        assert bodies(await other.load("x", writable=False)) == answers(3)
        assert bodies(await other.load("x/y", writable=False)) == answers(2)


async def test_what_a_store_returns_is_nothing_of_its_own(store: CassetteStore) -> None:
    head = CassetteHead("", "", {"tags": ["a"]})
    mine = Recording(replace(recording(0).exchange, usage={"n": 1}, metadata={"list": [1]}))
    await store.append("x", head, mine)

    for change_mine in (True, False, True):
        found = await store.load("x", writable=True)
        assert found is not None
        (theirs,) = exchanges(found.interactions)
        assert (found.head.meta, theirs.usage, theirs.metadata) == (
            {"tags": ["a"]},
            {"n": 1},
            {"list": [1]},
        )
        touched, kept = (mine.exchange, head) if change_mine else (theirs, found.head)
        for inside in (touched.usage, touched.metadata, kept.meta):
            assert isinstance(inside, dict)
            inside.clear()
    assert bodies(await store.load("x", writable=True)) == answers(0)


async def test_what_was_saved_is_no_longer_the_callers(store: CassetteStore) -> None:
    document: dict[str, Json] = {"kind": "tool", "request": {"name": "f"}, "response": ["a"]}
    mine = StoredCassette(CassetteHead("", "", {"tags": ["a"]}), (ForeignInteraction(0, document),))
    await store.save("x", mine)
    answer, tags = document["response"], mine.head.meta["tags"]
    assert isinstance(answer, list)
    assert isinstance(tags, list)
    answer.clear()
    tags.clear()

    found = await store.load("x", writable=False)
    assert found is not None
    (kept,) = found.interactions
    assert isinstance(kept, ForeignInteraction)
    assert (kept.document["response"], found.head.meta) == (["a"], {"tags": ["a"]})
