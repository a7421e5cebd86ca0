"""What every store owes the broker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapeway.core.credentials import Secret
from tapeway.core.guard import Guard
from tapeway.core.json_text import Json
from tapeway.core.model import CassetteHead, ForeignInteraction, Recording, StoredCassette
from tapeway.errors import RequestError, StoreError
from tapeway.formats.notation import JSON, YAML
from tapeway.ports import CassetteStore
from tapeway.stores.file import FileStore
from tapeway.stores.memory import MemoryStore
from tests.stores.recordings import HEAD, answers, bodies, exchanges, indexes, recording

NewStore = Callable[[], CassetteStore]

SEGMENT = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", fullmatch=True)
BAD_NAMES = [
    *("", ".", "..", "../x", "/etc/x", "a/../b", "a//b", "a/", "-a", ".a", "a b", "a\0b", "..%2fx"),
    *("ä", "\uff41", "a\n", "x" * 129, "/".join("abcdefghi"), "a\\b"),
]


@pytest.fixture(params=["memory", "file", "file-yaml"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> NewStore:
    """Makes the store under test; the same place each time."""
    if request.param != "memory":
        notation = YAML if request.param == "file-yaml" else JSON
        return lambda: FileStore(tmp_path / "cassettes", notation)
    memory = MemoryStore()
    return lambda: memory


@pytest.fixture
async def store(new_store: NewStore) -> AsyncIterator[CassetteStore]:
    async with opened(new_store()) as store:
        yield store


@asynccontextmanager
async def opened(store: CassetteStore) -> AsyncIterator[CassetteStore]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def test_a_store_says_what_it_is(new_store: NewStore) -> None:
    store = new_store()

    assert store.url.partition(":")[0] in ("memory", "file")
    assert store.durability in ("process", "disk")


async def test_a_cassette_that_is_not_there_loads_as_none(store: CassetteStore) -> None:
    assert await store.load("x", writable=False) is None
    assert await store.load("x", writable=True) is None
    assert await store.names() == []
    assert await store.stat("x") is None


async def test_a_cassette_with_no_recordings_does_not_come_into_being(store: CassetteStore) -> None:
    await store.load("x", writable=True)
    await store.release("x")

    assert await store.names() == []


async def test_what_was_appended_is_there_for_the_next_store(new_store: NewStore) -> None:
    async with opened(new_store()) as store:
        await store.load("x", writable=True)
        await store.append("x", HEAD, recording(0))
        await store.append("x", CassetteHead("later", "another"), recording(1))

    async with opened(new_store()) as store:
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


async def test_a_cassette_may_be_appended_to_without_loading_it(store: CassetteStore) -> None:
    await store.append("x", HEAD, recording(0))
    await store.release("x")
    await store.append("x", HEAD, recording(1))

    assert bodies(await store.load("x", writable=True)) == answers(0, 1)


async def test_a_cassette_read_for_replay_may_be_appended_to(store: CassetteStore) -> None:
    await store.load("x", writable=False)
    await store.append("x", HEAD, recording(0))
    await store.release("x")
    await store.load("x", writable=False)
    await store.append("x", HEAD, recording(1))

    assert bodies(await store.load("x", writable=False)) == answers(0, 1)


async def test_concurrent_appends_lose_none_and_keep_their_order(store: CassetteStore) -> None:
    await store.load("x", writable=True)

    async with asyncio.TaskGroup() as tasks:
        for index in range(200):
            tasks.create_task(store.append("x", HEAD, recording(index)))

    assert bodies(await store.load("x", writable=True)) == answers(*range(200))
    await store.release("x")
    assert bodies(await store.load("x", writable=True)) == answers(*range(200))


async def test_cassettes_do_not_mix(store: CassetteStore) -> None:
    names = ["a", "a.json", "A1", "a/b", "a/b/c", "a/b.c", "a-b_c"]

    async with asyncio.TaskGroup() as tasks:
        for number, name in enumerate(names):
            tasks.create_task(store.append(name, HEAD, recording(number)))

    assert await store.names() == sorted(names)
    for number, name in enumerate(names):
        assert bodies(await store.load(name, writable=True)) == answers(number)
        await store.release(name)
    assert await store.names() == sorted(names)


async def test_an_append_whose_caller_left_is_done_all_the_same(store: CassetteStore) -> None:
    async with asyncio.TaskGroup() as tasks:
        left = tasks.create_task(store.append("x", HEAD, recording(0)))
        await asyncio.sleep(0)
        left.cancel()
    await store.append("x", HEAD, recording(1))

    assert bodies(await store.load("x", writable=True)) == answers(0, 1)


async def test_a_recording_takes_the_place_of_those_it_supersedes(store: CassetteStore) -> None:
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
    assert indexes(found) == [0, 1, 2, 3]


async def test_indexes_do_not_change_while_a_cassette_is_loaded(store: CassetteStore) -> None:
    for index in (7, 3):
        await store.append("x", HEAD, recording(index))

    assert indexes(await store.load("x", writable=True)) == [7, 3]
    await store.append("x", HEAD, recording(8, 7))
    assert indexes(await store.load("x", writable=True)) == [8, 3]
    await store.release("x")
    assert indexes(await store.load("x", writable=True)) == [0, 1]


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


async def test_a_cassette_may_be_saved_where_there_was_none(store: CassetteStore) -> None:
    await store.save("x", StoredCassette(HEAD, (recording(5).interaction,)))

    assert await store.names() == ["x"]
    assert indexes(await store.load("x", writable=False)) == [0]


async def test_a_removed_cassette_is_gone_and_may_be_recorded_anew(
    store: CassetteStore, new_store: NewStore
) -> None:
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

    async with opened(new_store()) as other:
        assert bodies(await other.load("x", writable=False)) == answers(3)
        assert bodies(await other.load("x/y", writable=False)) == answers(2)


async def test_what_a_store_returns_is_nothing_of_its_own(store: CassetteStore) -> None:
    head = CassetteHead("", "", {"tags": ["a"]})
    mine = Recording(replace(recording(0).exchange, usage={"n": 1}, metadata={"list": [1]}))
    await store.append("x", head, mine)

    for change_mine in (True, False):
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


async def test_a_recording_that_could_not_be_read_again_is_refused(store: CassetteStore) -> None:
    good = recording(0)
    head = replace(good.exchange.response.head, status=101)
    response = replace(good.exchange.response, head=head)
    bad = Recording(replace(good.exchange, response=response))

    with pytest.raises(StoreError, match="status_code"):
        await store.append("x", HEAD, bad)
    await store.append("x", HEAD, good)

    assert bodies(await store.load("x", writable=True)) == answers(0)


async def test_a_recording_that_still_shows_a_credential_is_refused_and_says_where(
    store: CassetteStore,
) -> None:
    guard = Guard([Secret("x-api-key", b"the-very-secret-value")])
    good = replace(recording(0), check=guard.check)
    leaking = replace(recording(1, body=b'{"answer": "the-very-secret-value"}'), check=guard.check)

    with pytest.raises(StoreError) as refused:
        await store.append("x", HEAD, leaking)
    assert await store.load("x", writable=True) is None
    await store.append("x", HEAD, good)

    assert (refused.value.status, refused.value.code) == (502, "recording_failed")
    assert "'x-api-key' would still stand in response.json.answer" in refused.value.message
    assert "very-secret" not in repr(refused.value)
    assert bodies(await store.load("x", writable=True)) == answers(0)


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_a_name_that_is_none_is_refused(store: CassetteStore, name: str) -> None:
    with pytest.raises(RequestError):
        await store.load(name, writable=True)
    with pytest.raises(RequestError):
        await store.append(name, HEAD, recording(0))
    with pytest.raises(RequestError):
        await store.save(name, StoredCassette(HEAD))
    with pytest.raises(RequestError):
        await store.release(name)
    with pytest.raises(RequestError):
        await store.stat(name)
    with pytest.raises(RequestError):
        await store.remove(name)
    assert await store.names() == []


@pytest.mark.parametrize("kind", ["memory", "file", "file-yaml"])
@settings(max_examples=40)
@given(name=st.lists(SEGMENT, min_size=1, max_size=8).map("/".join), body=st.binary(max_size=99))
def test_any_name_and_any_octet_is_kept(
    tmp_path_factory: pytest.TempPathFactory, kind: str, name: str, body: bytes
) -> None:
    folder = tmp_path_factory.mktemp("any")

    async def there_and_back() -> None:
        notation = YAML if kind == "file-yaml" else JSON
        store = MemoryStore() if kind == "memory" else FileStore(folder, notation)
        async with opened(store):
            await store.append(name, HEAD, recording(0, body=body))
            await store.release(name)
            assert await store.names() == [name]
            assert bodies(await store.load(name, writable=False)) == [body or answers(0)[0]]

    asyncio.run(there_and_back())


async def test_an_interaction_of_another_kind_may_be_appended(store: CassetteStore) -> None:
    document: dict[str, Json] = {"kind": "tool", "request": {"name": "f"}, "response": [1]}
    await store.append("x", HEAD, recording(0))
    await store.append("x", HEAD, Recording(ForeignInteraction(1, document)))
    await store.append("x", HEAD, recording(2, 1))
    await store.append("x", HEAD, Recording(ForeignInteraction(3, document), (0,)))

    for _ in range(2):
        found = await store.load("x", writable=True)
        assert found is not None
        assert [isinstance(each, ForeignInteraction) for each in found.interactions] == [
            True,
            False,
        ]
        (kept,) = [each for each in found.interactions if isinstance(each, ForeignInteraction)]
        assert {**kept.document, "index": 0} == {**document, "index": 0}
        await store.release("x")
