"""Another tapeway as the store: a second writer, two hops, tokens, and what others change."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import NoneType

import apsw
import pytest

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.errors import CassetteEdited, CassetteLocked, ConfigError, RecordingEdited, StoreError
from tapeway.ports import CassetteStore
from tapeway.stores.file.store import FileStore
from tapeway.stores.memory import MemoryStore
from tapeway.stores.opening import open_store
from tapeway.stores.remote.client import address_of
from tapeway.stores.remote.store import RemoteStore
from tapeway.stores.sqlite import writer
from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.contract.conftest import opened
from tests.stores.large_bodies import body, contents, kept, large
from tests.stores.model_store import ModelPlace, ModelStore
from tests.stores.recordings import HEAD, answers, bodies, exchanges, indexes, recording
from tests.stores.remote.between import answered, between
from tests.stores.remote.far_side import FarSide, far_side

TOKEN = "the-token-of-the-far-side"


async def test_a_second_tapeway_that_records_into_a_cassette_is_refused() -> None:
    async with (
        far_side(MemoryStore()) as far,
        opened(far.store()) as one,
        opened(far.store()) as other,
    ):
        for store in (one, other):
            assert await store.load("x", writable=True) is None
        await one.append("x", HEAD, recording(0))

        with pytest.raises(CassetteLocked, match="Let one process record"):
            await other.append("x", HEAD, recording(0, body=b"of the other"))
        await one.append("x", HEAD, recording(1))
        await other.release("x")
        assert bodies(await other.load("x", writable=True)) == answers(0, 1)


async def test_what_moved_is_superseded_all_the_same(tmp_path: Path) -> None:
    async with (
        far_side(FileStore(tmp_path)) as far,
        opened(far.store()) as one,
        opened(far.store()) as other,
    ):
        for at in (3, 5, 7):
            await one.append("x", HEAD, recording(at))
        # The far side numbers them anew.
        await other.load("x", writable=True)
        await other.release("x")
        await one.append("x", HEAD, recording(8, 5))

        assert bodies(await other.load("x", writable=False)) == answers(3, 8, 7)


@pytest.mark.parametrize("place", ["memory:", "{}", "sqlite:{}/c.db"])
async def test_a_recording_that_was_changed_at_the_far_side_goes_on_no_more(
    place: str, tmp_path: Path
) -> None:
    async with far_side(open_store(place.format(tmp_path))) as far, opened(far.store()) as store:
        first = recording(0)
        await store.append("x", HEAD, first)
        second = replace(recording(1, 0, body=b"more"), goes_on=first.interaction)
        await store.append("x", HEAD, second)
        assert bodies(await store.load("x", writable=False)) == [b"more"]

        [held] = await stored_at(far, "x")
        await far.broker.editor.edit("x", held.index, replace(held, metadata={"by": "hand"}))
        third = replace(recording(2, 1, body=b"yet more"), goes_on=second.interaction)
        with pytest.raises(RecordingEdited, match="was changed or removed meanwhile"):
            await store.append("x", HEAD, third)
        [held] = await stored_at(far, "x")
        assert (held.metadata, held.response.body) == ({"by": "hand"}, b"more")


async def stored_at(far: FarSide, name: str) -> list[Interaction]:
    """The recordings that the far side holds."""
    found = await far.broker.store.load(name, writable=False)
    assert found is not None
    return exchanges(found.interactions)


async def test_a_save_overwrites_nothing_that_others_did_meanwhile() -> None:
    async with (
        far_side(MemoryStore()) as far,
        opened(far.store()) as one,
        opened(far.store()) as other,
    ):
        await one.append("x", HEAD, recording(0))
        found = await one.load("x", writable=True)
        assert found is not None
        await other.append("x", HEAD, recording(1))

        with pytest.raises(CassetteEdited):
            await one.save("x", found)
        await one.release("x")
        assert bodies(await one.load("x", writable=True)) == answers(0, 1)
        await one.save("x", StoredCassette(HEAD, (recording(2).interaction,)))
        await one.append("x", HEAD, recording(3))
        await one.save("x", StoredCassette(HEAD, (recording(4).interaction,)))
        assert bodies(await other.load("x", writable=False)) == answers(4)


async def test_what_changed_since_it_was_loaded_for_replay_is_not_recorded_on() -> None:
    async with (
        far_side(MemoryStore()) as far,
        opened(far.store()) as one,
        opened(far.store()) as other,
    ):
        await one.append("x", HEAD, recording(0))
        await one.release("x")
        await one.load("x", writable=False)
        await other.append("x", HEAD, recording(1))

        with pytest.raises(CassetteEdited, match="eject it"):
            await one.load("x", writable=True)
        await one.release("x")
        assert bodies(await one.load("x", writable=True)) == answers(0, 1)


async def test_a_cassette_goes_over_two_hops_and_back_as_it_was(tmp_path: Path) -> None:
    async with (
        far_side(FileStore(tmp_path)) as last,
        far_side(last.store()) as middle,
        opened(middle.store()) as store,
    ):
        file = await kept(store, [body(1), body(2)])
        await store.append("x", HEAD, large(0, file))
        for at in range(1, 4):
            await store.append("x", HEAD, recording(at))
        await store.append("x", HEAD, recording(4, 2))
        assert store.facts.durability == "disk"
        found = await store.load("x", writable=False)
        assert await asyncio.to_thread(contents, found) == [body(1) + body(2), *answers(1, 4, 3)]
        assert indexes(found) == [0, 1, 4, 3]
        await store.release("x")
        assert await store.names() == ["x"]
        assert await store.remove("x")
        assert await store.names() == []
    assert not list(tmp_path.glob("x*"))


async def test_the_token_is_needed_and_shown_nowhere() -> None:
    async with far_side(MemoryStore(), TOKEN) as far:
        host = far.url.removeprefix("http://")
        for url in (f"http://{TOKEN}@{host}", f"http://:{TOKEN}@{host}/"):
            async with opened(RemoteStore(address_of(url))) as store:
                await store.append("x", HEAD, recording(0))
                assert TOKEN not in store.url + repr(store) + repr(address_of(url))
        for address in (address_of(far.url), address_of(far.url, "another-" + TOKEN)):
            with pytest.raises(ConfigError, match="TAPEWAY_STORE_TOKEN") as refused:
                await RemoteStore(address).open()
            assert TOKEN not in refused.value.message + repr(refused.value.__cause__)


async def test_a_token_that_was_changed_meanwhile_is_an_error_of_the_store() -> None:
    async with far_side(MemoryStore()) as far, between(far.url) as way:
        store = way.store()
        await store.open()
        await store.append("x", HEAD, recording(0))
        way.spoil("", *[answered(401)] * 10)

        with pytest.raises(StoreError, match="does not take this token"):
            await store.append("x", HEAD, recording(1))
        with pytest.raises(StoreError, match="does not take this token"):
            await store.close()


async def test_the_environment_says_what_the_address_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TAPEWAY_STORE_TOKEN", TOKEN)
    async with far_side(MemoryStore(), TOKEN) as far:
        async with opened(open_store(far.url)) as store:
            assert store.facts.durability == "remote"
        with pytest.raises(ConfigError):
            await open_store(far.url, token="another").open()
    monkeypatch.setenv("TAPEWAY_STORE_CA", "/nowhere/ca.pem")
    with pytest.raises(ConfigError, match="TAPEWAY_STORE_CA"):
        await open_store("https://127.0.0.1:1").open()


async def test_a_lock_on_the_far_side_refuses_the_first_append(tmp_path: Path) -> None:
    other = FileStore(tmp_path)
    async with far_side(FileStore(tmp_path)) as far, opened(other), opened(far.store()) as store:
        await other.load("x", writable=True)

        assert await store.load("x", writable=True) is None
        with pytest.raises(CassetteLocked, match="records into this cassette"):
            await store.append("x", HEAD, recording(0))


@pytest.mark.parametrize("there", [MemoryStore, lambda: ModelStore(ModelPlace())])
async def test_of_two_appends_at_once_that_know_the_same_one_is_refused(
    there: Callable[[], CassetteStore],
) -> None:
    async with (
        far_side(there()) as far,
        opened(far.store()) as one,
        opened(far.store()) as other,
    ):
        for store in (one, other):
            await store.load("x", writable=True)

        outcomes = await asyncio.gather(
            one.append("x", HEAD, recording(0)),
            other.append("x", HEAD, recording(0, body=answers(0)[0] + b" ")),
            return_exceptions=True,
        )

        assert {type(outcome) for outcome in outcomes} == {NoneType, CassetteLocked}
        assert len(bodies(await one.load("x", writable=False))) == 1


async def test_what_the_far_side_serves_itself_stays_in() -> None:
    async with far_side(MemoryStore()) as far:
        await far.broker.insert("x")
        async with opened(far.store()) as store:
            await store.append("x", CassetteHead("then", "mine"), recording(0))
        assert far.broker.is_loaded("x")
        assert [count.interactions for count in await far.broker.source.counts()] == [1]


async def test_names_come_by_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapeway.stores.remote.store.PAGE", 2)
    async with far_side(MemoryStore()) as far, opened(far.store()) as store:
        for name in ("b", "a/b", "a", "c", "d"):
            await store.append(name, HEAD, recording(0))
        await store.load("only-looked-at", writable=True)

        assert await store.names() == ["a", "a/b", "b", "c", "d"]


@pytest.mark.parametrize("shared", [False, True])
async def test_a_cassette_is_gone_through_bit_by_bit(tmp_path: Path, shared: bool) -> None:
    there = SqliteStore(tmp_path / "x.db") if shared else FileStore(tmp_path)
    async with far_side(there) as far, opened(far.store()) as store:
        assert await store.outline("x") is None
        assert list(await store.page("x", after=None, limit=5)) == []
        for at in range(20):
            await store.append("x", HEAD, recording(at))
        outline = await store.outline("x")
        assert outline is not None
        assert (outline.head, outline.count) == (HEAD, 20)
        assert outline.sources == {
            (recording(0).exchange.request.route, recording(0).exchange.request.base)
        }
        found: list[int] = []
        while page := await store.page("x", after=found[-1] if found else None, limit=6):
            found += [item.item.index for item in page]
        assert found == list(range(20))
        # From anywhere, as if it had broken off there.
        assert [item.item.index for item in await store.page("x", after=17, limit=9)] == [18, 19]
        with pytest.raises(CassetteEdited, match="begin again"):
            await store.page("x", after=33, limit=1)

        head = CassetteHead(HEAD.created_at, HEAD.run_id, {"more": ["is said"]})
        await store.replace_head("x", head)
        outline = await store.outline("x")
        assert outline is not None
        assert (outline.head, outline.count) == (head, 20)


async def test_what_the_far_side_cannot_wipe_is_said_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "WIPE_MS", 20)
    file = tmp_path / "calls.db"
    async with far_side(SqliteStore(file)) as far, opened(far.store()) as store:
        await store.append("x", HEAD, recording(0))
        assert await store.erase() == []
        with closing(apsw.Connection(str(file))) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM recordings").fetchall()
            await store.remove("x")
        (said,) = await store.erase()
        assert "stop all processes that use the file" in said
        assert await store.erase() == []
