"""The store of a package outside of tapeway: what conditional writes keep, and what a failure leaves."""

from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web

from tapeway.core.model.cassette import Recording, StoredCassette
from tapeway.errors import CassetteEdited, CassetteLocked, StoreError
from tapeway.ports import CassetteStore
from tapeway.stores.opening import open_store
from tests.stores.contract.conftest import opened
from tests.stores.large_bodies import body, kept, large
from tests.stores.object_server import ObjectServer, object_server
from tests.stores.outside import install
from tests.stores.recordings import HEAD, answers, bodies, record, recording

install()

SECRET = b'{"said": "what nobody may read"}'


@pytest.fixture
async def objects() -> AsyncIterator[ObjectServer]:
    async with object_server() as objects:
        yield objects


@pytest.fixture
async def store(objects: ObjectServer) -> AsyncIterator[CassetteStore]:
    async with opened(open_store(objects.url)) as store:
        yield store


def refused(answer: Callable[[], web.Response]) -> web.Response:
    """The server does nothing."""
    return web.Response(status=503)


def lost(answer: Callable[[], web.Response]) -> web.Response:
    """The server does it, and the caller does not learn of it."""
    answer()
    return web.Response(status=503)


async def test_an_append_is_one_object_however_long_the_cassette_is(
    objects: ObjectServer, store: CassetteStore
) -> None:
    await store.load("x", writable=True)
    for index in range(60):
        before = len(objects.calls), sum(map(len, objects.contents()))
        await store.append("x", HEAD, recording(index))
        assert [call.partition(" ")[0] for call in objects.calls[before[0] :]] == ["PUT"]
        assert sum(map(len, objects.contents())) - before[1] < 2000

    assert bodies(await store.load("x", writable=False)) == answers(*range(60))


async def test_a_second_writer_is_refused_until_it_loads_the_cassette_anew(
    objects: ObjectServer, store: CassetteStore
) -> None:
    async with opened(open_store(objects.url)) as other:
        for writer in (store, other):
            await writer.load("x", writable=True)
        await store.append("x", HEAD, recording(0))

        for _ in range(2):
            with pytest.raises(CassetteLocked, match="another process writes into cassette 'x'"):
                await other.append("x", HEAD, recording(1))
            with pytest.raises(CassetteLocked):
                await other.load("x", writable=True)
            with pytest.raises(CassetteLocked):
                await other.check_writes("x")
        await store.append("x", HEAD, recording(1))
        await other.release("x")

        assert bodies(await other.load("x", writable=True)) == answers(0, 1)
        await other.append("x", HEAD, recording(2))
        with pytest.raises(CassetteLocked):
            await store.append("x", HEAD, recording(2))
        assert bodies(await store.load("x", writable=False)) == answers(0, 1, 2)


async def test_a_cassette_that_another_writer_has_changed_is_not_replaced_or_removed(
    objects: ObjectServer, store: CassetteStore
) -> None:
    await record(store, 0)
    async with opened(open_store(objects.url)) as other:
        await other.load("x", writable=True)
        await store.append("x", HEAD, recording(1))

        with pytest.raises(CassetteEdited):
            await other.save("x", StoredCassette(HEAD))
        with pytest.raises(CassetteLocked):
            await other.remove("x")

    assert bodies(await store.load("x", writable=True)) == answers(0, 1)


async def test_who_knows_a_cassette_from_before_it_was_replaced_cannot_append(
    objects: ObjectServer, store: CassetteStore
) -> None:
    await record(store, 0)
    async with opened(open_store(objects.url)) as other:
        for change in (store.save("x", StoredCassette(HEAD)), store.remove("x")):
            await other.load("x", writable=True)
            await change
            with pytest.raises(CassetteLocked):
                await other.append("x", HEAD, recording(1))
            await other.release("x")

    assert await store.load("x", writable=True) is None


async def test_a_put_that_fails_is_an_error_and_nothing_is_acknowledged(
    objects: ObjectServer, store: CassetteStore
) -> None:
    await store.append("x", HEAD, recording(0))
    objects.spoil("PUT log/x!", refused)

    with pytest.raises(StoreError, match=r"answered PUT /bucket/log/x!\d+ with 503"):
        await store.append("x", HEAD, recording(1))

    assert bodies(await store.load("x", writable=True)) == answers(0)
    await store.append("x", HEAD, recording(2))
    assert bodies(await store.load("x", writable=True)) == answers(0, 2)


@pytest.mark.parametrize("again", [1, 2])
async def test_an_append_whose_answer_was_lost_does_not_lock_its_own_writer_out(
    objects: ObjectServer, store: CassetteStore, again: int
) -> None:
    await store.append("x", HEAD, recording(0))
    objects.spoil("PUT log/x!", lost)
    with pytest.raises(StoreError):
        await store.append("x", HEAD, recording(1))

    await store.append("x", HEAD, recording(again))

    expected = answers(0, 1) if again == 1 else answers(0, 1, 2)
    assert bodies(await store.load("x", writable=True)) == expected


async def test_what_was_replaced_or_removed_is_in_no_object(
    objects: ObjectServer, store: CassetteStore
) -> None:
    first = await kept(store, [SECRET])
    await store.append("x", HEAD, large(0, first))
    await store.append("x", HEAD, recording(1, body=SECRET))
    assert b"".join(objects.contents()).count(b"nobody may read") == 2

    stored = await store.load("x", writable=True)
    assert stored is not None
    await store.save("x", StoredCassette(HEAD, (recording(2).interaction,)))
    assert b"nobody may read" not in b"".join(objects.contents())
    await store.remove("x")
    assert objects.contents() == [b""]
    assert await store.erase() == []


async def test_what_could_not_be_deleted_is_told_until_it_is(
    objects: ObjectServer, store: CassetteStore
) -> None:
    await store.append("x", HEAD, recording(0, body=SECRET))
    objects.spoil("DELETE log/x!", refused)

    await store.save("x", StoredCassette(HEAD, (recording(1).interaction,)))
    (sentence,) = await store.erase()
    assert "cassette 'x': what was removed is not deleted" in sentence
    assert bodies(await store.load("x", writable=True)) == answers(1)

    await store.save("x", StoredCassette(HEAD, (recording(2).interaction,)))
    assert await store.erase() == []
    assert len(objects.contents()) == 1


async def test_a_large_body_that_waits_for_its_recording_outlives_a_replacement(
    objects: ObjectServer, store: CassetteStore
) -> None:
    await store.append("x", HEAD, recording(0))
    file = await kept(store, [body(1)])
    await store.save("x", StoredCassette(HEAD, (recording(0).interaction,)))
    await store.append("x", HEAD, large(1, file))
    await store.release("x")

    assert objects.contents("body/") == [body(1)]


async def test_an_import_is_one_object(objects: ObjectServer, store: CassetteStore) -> None:
    items = [recording(index).interaction for index in range(9)]
    await store.extend("x", HEAD, items)

    assert len(objects.contents("log/")) == 1
    assert bodies(await store.load("x", writable=False)) == answers(*range(9))


async def test_an_object_that_is_no_recording_is_named(
    objects: ObjectServer, store: CassetteStore
) -> None:
    await store.append("x", HEAD, Recording(recording(0).interaction))
    ((key, (_, at)),) = objects.objects.items()
    objects.objects[key] = b"somebody else's", at

    with pytest.raises(StoreError, match=r"/log/x, object 1: .*: restore it"):
        await store.load("x", writable=False)
