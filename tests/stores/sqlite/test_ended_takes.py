"""The cursors of takes that ended: removed a few at a time, so that nobody waits for the file."""

import asyncio
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tapeway.core.model.control import with_take
from tapeway.stores.sql import coordination
from tapeway.stores.sqlite import heartbeat
from tapeway.stores.sqlite.operations import run
from tapeway.stores.sqlite.store import SqliteStore
from tests.process.serving import eventually
from tests.stores.shared_instances import WANTED, advanced, append_recordings, cursors_of, key
from tests.stores.sqlite.inside import on_readers

COUNT = 7


def left(folder: Path) -> list[int]:
    with closing(apsw.Connection(str(folder / "calls.db.shared"))) as connection:
        return [
            connection.execute(f"SELECT count(*) FROM {table}").get  # noqa: S608
            for table in ("turn", "touched")
        ]


async def test_used_up_cursors_are_gone_within_a_minute_of_the_end_of_their_take(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The second sweep after the end of a take removes its cursors.
    assert 2 * coordination.SWEEP_S < 60
    monkeypatch.setattr(coordination, "SWEEP_S", 0)
    monkeypatch.setattr(coordination, "BATCH", 2)
    # A batch is removed with each look at the file, of which there are many here.
    monkeypatch.setattr(heartbeat, "POLL_S", 0.001)
    control = await store.join(WANTED, lambda _: None)
    for name in ("x", "y"):
        await append_recordings(store, *range(COUNT), name=name)
    for _ in range(52):
        for name in ("x", "y"):
            for number in range(COUNT):
                take = control.take_of(name)
                assert await advanced(store, name, take, key(number), None, b"1", number)
        control, _ = await store.steer(with_take)
    assert await advanced(store, "x", control.take_of("x"), key(0), None, b"1", 0)

    await eventually(lambda: left(tmp_path) == [1, 1])
    assert await cursors_of(store, "x", control.take_of("x"), [key(0)])


async def test_a_take_that_ended_since_the_last_sweep_keeps_its_cursors(
    tmp_path: Path,
) -> None:
    now = 0.0
    store = SqliteStore(tmp_path / "calls.db", clock=lambda: now)
    await store.open()
    try:
        control = await store.join(WANTED, lambda _: None)
        assert await advanced(store, "x", control.take_of("x"), key(0), None, b"1", 0)
        after, _ = await store.steer(with_take)
        # A request of the ended take may be under way.
        assert left(tmp_path) == [1, 0]
        assert await cursors_of(store, "x", control.take_of("x"), [key(0)])
        async with asyncio.timeout(60):
            while left(tmp_path) != [0, 0]:
                now += coordination.SWEEP_S
                await asyncio.sleep(0.01)
        assert await cursors_of(store, "x", after.take_of("x"), [key(0)]) == {}
    finally:
        await store.close()


async def test_a_batch_is_all_that_one_transaction_removes(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordination, "BATCH", 2)
    control = await store.join(WANTED, lambda _: None)
    await append_recordings(store, *range(COUNT))
    for number in range(COUNT):
        assert await advanced(store, "x", control.takes, key(number), None, b"1", number)
    ended = with_take(control)

    with closing(apsw.Connection(str(tmp_path / "calls.db.shared"))) as connection:
        assert run(coordination.forget_ended(ended), connection, quick=True)

    assert left(tmp_path) == [COUNT - 2, COUNT]


async def test_a_batch_is_of_all_cassettes_together(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordination, "BATCH", 2)
    control = await store.join(WANTED, lambda _: None)
    for number in range(COUNT):
        assert await advanced(store, f"x{number}", control.takes, key(0), None, b"1", 0)

    with closing(apsw.Connection(str(tmp_path / "calls.db.shared"))) as connection:
        assert run(coordination.forget_ended(with_take(control)), connection, quick=True)

    assert left(tmp_path) == [COUNT - 2, 0]


async def test_to_count_what_is_unused_costs_the_same_however_much_was_used(
    store: SqliteStore,
) -> None:
    control = await store.join(WANTED, lambda _: None)
    await append_recordings(store, *range(300))
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    await store.unused("x", [control.takes], 0)
    await on_readers(store, lambda it: it.set_progress_handler(count, 1))
    taken: dict[int, int] = {}
    for number in range(300):
        assert await advanced(store, "x", control.takes, key(number), None, b"1", number)
        if number in (0, 299):
            steps = 0
            assert (await store.unused("x", [control.takes], 0)).total == 299 - number
            taken[number] = steps

    assert 0 < taken[299] <= taken[0]
