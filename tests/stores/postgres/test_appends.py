"""Recordings that wait together: one that fails, fails alone, and an answer that is lost loses none."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from tapeway.core.model.cassette import Lease, Recording
from tapeway.errors import Fenced, StoreError, StoreFull
from tapeway.ports import SharedStore
from tapeway.stores.postgres.pool import DriverRow, Session
from tapeway.stores.postgres.store import PostgresStore
from tests.stores.postgres.inside import fill, make_room
from tests.stores.postgres_server import run
from tests.stores.recordings import HEAD, indexes, recording
from tests.stores.shared_instances import (
    append_recordings,
    cursors_of,
    instances,
    key,
    other_answer,
    recordings_under,
    with_step,
)

ADD = "INTO @interaction (cassette, number"
Result = BaseException | None


@pytest.fixture
async def pair(postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    async with instances(lambda: PostgresStore(postgres_url)) as stores:
        await append_recordings(stores[0], 899, 900)
        yield [store for store in stores if isinstance(store, PostgresStore)]


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many recordings each statement was asked to add."""
    asked, real = list[int](), Session.rows

    async def rows(session: Session, sql: str, *args: object) -> Sequence[DriverRow]:
        if ADD in sql:
            assert isinstance(args[8], list)
            asked.append(len(args[8]))
        return await real(session, sql, *args)

    monkeypatch.setattr(Session, "rows", rows)
    return asked


async def _together(store: SharedStore, *made: Recording) -> list[Result]:
    """What became of recordings that come at the same time."""
    appending = [store.append("x", HEAD, one) for one in made]
    return await asyncio.gather(*appending, return_exceptions=True)


async def _stored(store: SharedStore) -> list[int]:
    return indexes(await store.load("x", writable=False))


async def _lost(one: PostgresStore, number: int) -> Lease:
    """A lease that nobody has any more."""
    lease = await one.claim("x", key(number))
    assert lease is not None
    return replace(lease, fence=lease.fence ^ 1)


async def test_a_recording_under_a_lost_lease_is_refused_and_its_neighbours_are_not(
    pair: list[PostgresStore], batches: list[int]
) -> None:
    one, other = pair
    lost = await _lost(one, 2)
    made = [with_step(recording(at), 1, lease=lost if at == 2 else None) for at in range(5)]
    results = await _together(one, *made)

    assert [type(result) for result in results if result is not None] == [Fenced]
    assert isinstance(results[2], Fenced)
    assert await _stored(other) == [0, 1, 3, 4, 899, 900]
    assert (await cursors_of(other, "x", 1, list(map(key, range(5))))).keys() == {
        key(at) for at in (0, 1, 3, 4)
    }
    assert max(batches) >= 4


async def test_a_recording_whose_index_is_taken_gets_the_next_and_keeps_its_lease(
    pair: list[PostgresStore], batches: list[int]
) -> None:
    one, other = pair
    await append_recordings(other, 2)
    lease = await one.claim("x", key(7))
    assert lease is not None
    late = with_step(other_answer(7, 2), 1, lease=lease)
    results = await _together(one, recording(0), late, recording(1))

    assert results == [None] * 3
    assert await _stored(other) == [0, 1, 2, 899, 900, 901]
    assert await other.fences("x") == frozenset()
    assert max(batches) == 3


async def test_equal_numbers_and_equal_cursors_are_recorded_one_after_another(
    pair: list[PostgresStore],
) -> None:
    one, other = pair
    made = [with_step(other_answer(0, 10 + at), 1) for at in range(4)]
    results = await _together(one, recording(5), recording(5), *made)

    assert results == [None] * 6
    assert await _stored(other) == [5, 10, 11, 12, 13, 899, 900, 901]
    (turn,) = (await cursors_of(other, "x", 1, [key(0)])).values()
    assert turn.state == b"4"
    assert await other.check() == []


async def test_instances_that_record_the_same_request_count_each_recording(
    pair: list[PostgresStore],
) -> None:
    one, other = pair
    async with asyncio.TaskGroup() as tasks:
        for at in range(6):
            for store in (one, other):
                number = await store.reserve("x")
                step = with_step(other_answer(at % 2, number), 1)
                tasks.create_task(store.append("x", HEAD, step))

    turns = await cursors_of(one, "x", 1, [key(0), key(1)])
    assert [turns[key(at)].state for at in (0, 1)] == [b"6", b"6"]
    assert await other.check() == []


async def test_a_recording_that_the_database_cannot_hold_keeps_no_other_one_out(
    pair: list[PostgresStore], postgres_dsn: str, postgres_url: str, batches: list[int]
) -> None:
    one, other = pair
    schema = postgres_url.rpartition("=")[2]
    check = f'ALTER TABLE "{schema}".interaction ADD CHECK (size <> $1) NOT VALID'
    await run(postgres_dsn, check.replace("$1", str(await _size_of(one))))
    results = await _together(one, recording(0), recording(100, body=b"{}"), recording(1))

    assert [isinstance(result, StoreError) for result in results] == [False, True, False]
    assert await _stored(other) == [0, 1, 899, 900]
    assert 3 in batches


async def test_a_recording_that_holds_a_secret_is_refused_and_its_neighbours_are_not(
    pair: list[PostgresStore],
) -> None:
    one, other = pair

    def refuse(*_: object) -> None:
        raise StoreError("it holds a secret")

    secret = replace(recording(1), check=refuse)
    results = await _together(one, recording(0), secret, recording(2))

    assert [isinstance(result, StoreError) for result in results] == [False, True, False]
    assert await _stored(other) == [0, 2, 899, 900]


async def _size_of(store: PostgresStore) -> int:
    await store.append("y", HEAD, recording(100, body=b"{}"))
    stat = await store.stat("y")
    assert stat is not None
    return stat.size_bytes


async def test_on_a_full_disk_each_is_refused_and_all_are_stored_once_there_is_room(
    pair: list[PostgresStore], postgres_dsn: str, postgres_url: str
) -> None:
    one, other = pair
    schema = postgres_url.rpartition("=")[2]
    await fill(postgres_dsn, schema, "interaction")
    results = await _together(one, recording(0), recording(1))
    assert all(isinstance(result, StoreFull) for result in results)

    await make_room(postgres_dsn, schema)
    assert await _together(one, recording(0), recording(1)) == [None, None]
    assert await _stored(other) == [0, 1, 899, 900]


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_recordings_whose_answer_is_lost_are_stored_once(
    pair: list[PostgresStore], monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    one, other = pair
    lease = await one.claim("x", key(1))
    assert lease is not None
    real, cuts = Session.rows, [cut]

    async def rows(session: Session, sql: str, *args: object) -> Sequence[DriverRow]:
        if ADD not in sql or not cuts:
            return await real(session, sql, *args)
        if cuts.pop() == "after":
            await real(session, sql, *args)
        session.connection.terminate()
        raise ConnectionResetError

    monkeypatch.setattr(Session, "rows", rows)
    made = [with_step(recording(0), 1), with_step(recording(1), 1, lease=lease)]
    assert await _together(one, *made) == [None, None]

    assert await _stored(other) == [0, 1, 899, 900]
    turns = await cursors_of(other, "x", 1, [key(0), key(1)])
    assert [turns[key(at)].state for at in (0, 1)] == [b"1", b"1"]
    assert await other.check() == []


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_claim_whose_answer_is_lost_is_held_once(
    pair: list[PostgresStore], monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    one, other = pair
    real, cuts = Session.rows, [cut]

    async def rows(session: Session, sql: str, *args: object) -> Sequence[DriverRow]:
        if "INSERT INTO @lease (" not in sql or not cuts:
            return await real(session, sql, *args)
        if cuts.pop() == "after":
            await real(session, sql, *args)
        session.connection.terminate()
        raise ConnectionResetError

    monkeypatch.setattr(Session, "rows", rows)
    lease = await one.claim("x", key(0))
    assert lease is not None
    assert await other.claim("x", key(0)) is None

    await one.append("x", HEAD, with_step(recording(0), 1, lease=lease))
    assert await other.claim("x", key(0)) is not None


async def test_rules_that_change_meanwhile_are_those_a_recording_is_found_by(
    pair: list[PostgresStore],
) -> None:
    one, other = pair
    await append_recordings(one, 0)
    meta = {**HEAD.meta, "tapeway_version": "1"}
    await other.replace_head("x", replace(HEAD, meta=meta))
    assert await _together(one, recording(1), recording(2)) == [None, None]

    assert await _stored(other) == [0, 1, 2, 899, 900]
    assert await other.check() == []
    assert len(await recordings_under(other, "x", [key(1), key(2)])) == 2


async def test_recordings_into_a_cassette_that_was_removed_begin_it_anew(
    pair: list[PostgresStore],
) -> None:
    one, other = pair
    await append_recordings(one, 0)
    await other.remove("x")
    assert await _together(one, recording(1), recording(2)) == [None, None]

    assert await _stored(other) == [1, 2]
    assert await other.check() == []
