"""The steps of cursors that wait together: what they cost, and which of them is made."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from tapeway.core.model.control import CursorMove, CursorState
from tapeway.errors import CassetteCorrupt, StoreError, StoreFull
from tapeway.stores.sqlite import moves as cursor_moves
from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.recordings import HEAD, recording
from tests.stores.shared_instances import advanced, cursors_of, key
from tests.stores.sqlite.inside import runtime_of
from tests.stores.sqlite.statements import Statements, watched
from tests.support.fakes.broker import until

_COUNT = 40


@pytest.fixture
def statements() -> Iterator[Statements]:
    with watched() as found:
        yield found


@pytest.fixture
async def store(tmp_path: Path, statements: Statements) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "calls.db")
    await store.open()
    await store.append("x", HEAD, recording(0))
    assert await store.look("x", 1, [key(0)], []) is not None
    yield store
    await store.close()


async def _version_of(store: SqliteStore) -> str | None:
    return (await store.look("x", 1, [key(0)], []))[2]


async def _together(
    statements: Statements, *works: Coroutine[None, None, CursorState | None]
) -> list[CursorState | StoreError | None]:
    """What each comes to, all begun while no transaction can."""

    async def settled(
        work: Coroutine[None, None, CursorState | None],
    ) -> CursorState | StoreError | None:
        try:
            return await work
        except StoreError as exc:
            return exc

    statements.gate.clear()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(settled(work)) for work in works]
        await asyncio.sleep(0)
        statements.gate.set()
    return [task.result() for task in tasks]


async def test_steps_that_wait_are_made_in_one_transaction(
    store: SqliteStore, statements: Statements
) -> None:
    version = await _version_of(store)
    statements.executed.clear()

    made = await _together(
        statements,
        *[
            advanced(store, "x", 1, key(number), None, b"1", number, version)
            for number in range(_COUNT)
        ],
    )

    assert len({cursor.version for cursor in made if isinstance(cursor, CursorState)}) == _COUNT
    # The first of them did not wait for the others.
    assert statements.count("COMMIT") <= 2
    assert statements.count("SELECT state.id, changed") <= 2
    assert statements.count("SELECT state, version") == 0


async def test_of_equal_steps_that_wait_together_the_first_is_made(
    store: SqliteStore, statements: Statements
) -> None:
    made = await _together(
        statements,
        *[advanced(store, "x", 1, key(0), None, b"%d" % number, 0) for number in range(9)],
    )

    assert [cursor.state for cursor in made if isinstance(cursor, CursorState)] == [b"0"]
    assert (await cursors_of(store, "x", 1, [key(0)]))[key(0)] == made[0]


async def test_steps_of_a_changed_cassette_are_refused_and_others_made(
    store: SqliteStore, statements: Statements
) -> None:
    version = await _version_of(store)
    await store.append("x", HEAD, recording(1))

    stale, fresh = await _together(
        statements,
        advanced(store, "x", 1, key(0), None, b"1", 0, version),
        advanced(store, "y", 1, key(0), None, b"1", 0),
    )

    assert stale is None
    assert isinstance(fresh, CursorState)
    assert await cursors_of(store, "x", 1, [key(0)]) == {}


async def test_a_step_that_cannot_be_tried_fails_for_each_who_waits(
    store: SqliteStore, statements: Statements, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise apsw.CorruptError("database disk image is malformed")

    monkeypatch.setattr(cursor_moves, "make_steps", broken)

    found = await _together(
        statements,
        *[advanced(store, "x", 1, key(number), None, b"1", number) for number in range(3)],
    )

    assert [type(error) for error in found] == [CassetteCorrupt] * 3
    assert len({id(error) for error in found}) == 3


async def test_on_a_disk_with_little_room_those_steps_are_made_that_fit(
    store: SqliteStore,
    statements: Statements,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = cursor_moves.make_steps

    def full(moves: Sequence[CursorMove], connection: apsw.Connection) -> None:
        if any(len(move.state or b"") > 1 for move in moves):
            raise apsw.FullError("database or disk is full")
        make(moves, connection)

    monkeypatch.setattr(cursor_moves, "make_steps", full)
    states = [b"1", b"long", b"2"]
    made = await _together(
        statements,
        *[advanced(store, "x", 1, key(n), None, state, n) for n, state in enumerate(states)],
    )

    assert [cursor.state for cursor in made if isinstance(cursor, CursorState)] == [b"1", b"2"]
    assert isinstance(made[1], StoreFull)


async def _one_by_one(store: SqliteStore, count: int, version: str | None) -> None:
    before = (await cursors_of(store, "x", 1, [key(0)])).get(key(0))
    for _ in range(count):
        before = await advanced(store, "x", 1, key(0), before, b"1", 0, version)
        assert before is not None


async def test_a_step_that_need_not_wait_is_made_without_the_thread(
    store: SqliteStore, statements: Statements
) -> None:
    version = await _version_of(store)
    # The first one opens the files.
    await _one_by_one(store, 3, version)
    statements.executed.clear()
    statements.on_the_loop = 0

    await _one_by_one(store, 5, version)

    assert statements.on_the_loop == statements.count("BEGIN") == 5


@pytest.mark.parametrize("error", [apsw.IOError, RuntimeError])
async def test_whoever_waits_for_a_step_that_fails_on_the_event_loop_hears_from_the_thread(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    version = await _version_of(store)
    await _one_by_one(store, 3, version)
    make, here = cursor_moves.make_steps, threading.current_thread()

    def failing(*arguments: Any) -> None:
        if threading.current_thread() is here:
            raise error
        make(*arguments)

    monkeypatch.setattr(cursor_moves, "make_steps", failing)

    async with asyncio.timeout(60):
        await _one_by_one(store, 2, version)


async def test_a_step_for_which_another_holds_the_file_waits_in_the_thread(
    tmp_path: Path, store: SqliteStore, statements: Statements
) -> None:
    version = await _version_of(store)
    await _one_by_one(store, 3, version)
    turns = await cursors_of(store, "x", 1, [key(0)])
    other = apsw.Connection(str(tmp_path / "calls.db.shared"))
    other.execute("BEGIN IMMEDIATE")
    statements.executed.clear()

    async with asyncio.TaskGroup() as group:
        step = group.create_task(advanced(store, "x", 1, key(0), turns[key(0)], b"2", 0, version))
        # Once on the event loop, which goes on, and once in the thread, which waits.
        await until(lambda: statements.count("BEGIN") == 2)
        assert not step.done()
        other.execute("COMMIT")

    assert step.result() is not None
    other.close()


async def test_the_log_of_the_shared_file_stays_small(
    tmp_path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_moves, "MOST_PAGES", 20)
    version = await _version_of(store)
    await _one_by_one(store, 3, version)
    await runtime_of(store).shared_thread.run(lambda connection: connection.wal_autocheckpoint(20))

    await _one_by_one(store, 300, version)

    assert (tmp_path / "calls.db.shared-wal").stat().st_size < 60 * 4120


async def test_after_steps_that_took_long_the_thread_makes_them_for_a_while(
    store: SqliteStore, statements: Statements, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = await _version_of(store)
    await _one_by_one(store, 3, version)
    monkeypatch.setattr(cursor_moves, "SLOW_S", -1.0)
    monkeypatch.setattr(cursor_moves, "REST_S", 1000.0)
    statements.on_the_loop = 0

    await _one_by_one(store, 5, version)

    assert statements.on_the_loop == 1


async def test_a_replaced_file_is_not_what_steps_are_compared_with(
    tmp_path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cursor_moves, "EXAMINE_S", 0)
    version = await _version_of(store)
    await _one_by_one(store, 3, version)
    turns = await cursors_of(store, "x", 1, [key(0)])
    os.replace(tmp_path / "calls.db", tmp_path / "away.db")

    assert await advanced(store, "x", 1, key(0), turns[key(0)], b"2", 0, version) is None
    os.replace(tmp_path / "away.db", tmp_path / "calls.db")
