"""Several processes of a machine on one SQLite file, and what becomes of those that are stopped."""

import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import apsw
import pytest

from tapeway.core.model.control import Control, with_mode, with_take
from tapeway.errors import Fenced
from tapeway.stores.sql.coordination import OUT_OF_TOUCH_S
from tapeway.stores.sqlite import connection, shared_file
from tapeway.stores.sqlite.runtime import STALE_S
from tapeway.stores.sqlite.store import SqliteStore
from tests.process.serving import eventually
from tests.stores.recordings import HEAD, recording
from tests.stores.shared_instances import WANTED, cursors_of, found_indexes, key, with_step
from tests.stores.sqlite.other_process import peers


class Clock:
    """The machine's, or one that is ahead of it."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(file: Path, clock: Clock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(file, clock=clock)
    await store.open()
    yield store
    await store.close()


async def test_recordings_of_all_processes_are_kept(store: SqliteStore, file: Path) -> None:
    with peers(file, 3) as others:
        for number, other in enumerate(others):
            other.send(f"append {number * 100} 40")
        assert [other.receive() for other in others] == ["done"] * 3

    outline = await store.outline("x")
    assert outline is not None
    assert outline.count == 120
    numbers = [number + position for number in (0, 100, 200) for position in range(40)]
    assert sorted(found_indexes(await store.page("x", after=None, limit=200))) == numbers


# The shared file is opened in a thread of the store, where a test cannot take turns with it.
@pytest.mark.parametrize(
    "connect", [partial(connection.connect, role="write"), shared_file._connect]
)
def test_a_file_that_another_process_just_creates_is_waited_for(
    connect: Callable[[Path], apsw.Connection], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's own time-out does not hold there: its error comes at once."""
    with closing(apsw.Connection(str(file))) as other:
        other.execute("CREATE TABLE made (by)")
        other.execute("BEGIN IMMEDIATE")
        waited = SimpleNamespace(sleep=lambda _: other.execute("COMMIT"), monotonic=time.monotonic)
        monkeypatch.setattr(connection, "time", waited)

        with closing(connect(file)) as made:
            assert made.pragma("journal_mode") == "wal"


async def test_a_mode_is_in_force_in_every_process_when_it_is_answered(
    store: SqliteStore, file: Path
) -> None:
    with peers(file, 2) as others:
        joined = [other.ask("join") for other in others]
        assert joined == ["joined 1", "joined 1"]
        heard: list[Control] = []
        assert (await store.join(WANTED, heard.append)).takes == 1

        control, laggards = await store.steer(lambda now: with_mode(now, "replay"))

        assert laggards == ()
        assert heard == [control]
        # It is there already: nothing is waited for.
        assert [other.receive() for other in others] == ["applied replay"] * 2


async def test_a_stopped_process_is_named_until_it_is_taken_for_gone(
    store: SqliteStore, file: Path, clock: Clock
) -> None:
    with peers(file, 1) as (other,):
        other.ask("join")
        await store.join(WANTED, lambda _: None)
        other.process.send_signal(signal.SIGSTOP)

        _, laggards = await store.steer(lambda now: with_mode(now, "record"))
        assert [laggard.endswith(f":{other.process.pid}") for laggard in laggards] == [True]

        clock.ahead = STALE_S + 1
        _, laggards = await store.steer(with_take)
        assert laggards == ()

        # And when it comes to itself, it hears of what it has missed before anything else.
        other.process.send_signal(signal.SIGCONT)
        assert other.receive() == "applied record"


async def test_a_killed_process_is_not_waited_for(store: SqliteStore, file: Path) -> None:
    with peers(file, 1) as (other,):
        other.ask("join")
        await store.join(WANTED, lambda _: None)
        other.process.kill()
        other.process.wait()

        _, laggards = await store.steer(with_take)

    assert laggards == ()


async def test_a_lease_of_a_killed_process_is_free_at_once(store: SqliteStore, file: Path) -> None:
    with peers(file, 1) as (other,):
        fence = int(other.ask("claim k"))
        assert await store.claim("x", b"k") is None
        other.process.kill()
        other.process.wait()

        lease = await store.claim("x", b"k")

    assert lease is not None
    assert lease.fence != fence


async def test_who_lost_its_lease_records_nothing(
    store: SqliteStore, file: Path, clock: Clock
) -> None:
    """Suspended for longer than a lease lasts, and then about to record its answer."""
    owner = SqliteStore(file)
    await owner.open()
    try:
        lost = await owner.claim("x", key(0))
        assert lost is not None
        clock.ahead = STALE_S + 1
        taken = await store.claim("x", key(0))
        assert taken is not None

        with pytest.raises(Fenced):
            await owner.append("x", HEAD, with_step(recording(0), 1, lease=lost))
        assert await store.outline("x") is None
        assert await cursors_of(store, "x", 1, [key(0)]) == {}

        await store.append("x", HEAD, with_step(recording(1), 1, lease=taken))
        await store.release_lease(taken)
        # Also when all is over, and for as long as it lives.
        with pytest.raises(Fenced):
            await owner.append("x", HEAD, with_step(recording(0), 1, lease=lost))
        await owner.append("x", HEAD, recording(2))
    finally:
        await owner.close()
    assert found_indexes(await store.page("x", after=None, limit=9)) == [1, 2]


async def test_fences_and_takes_go_on_when_the_shared_file_is_lost(
    file: Path, clock: Clock
) -> None:
    with peers(file, 1) as (other,):
        assert other.ask("join") == "joined 1"
        other.ask("claim k")
        store = SqliteStore(file, clock=clock)
        await store.open()
        clock.ahead = STALE_S + 1
        taken = await store.claim("x", b"k")
        assert taken is not None
        await store.close()
        other.process.kill()
        other.process.wait()
    assert file.with_name("calls.db.shared").exists()
    file.with_name("calls.db.shared").unlink()

    store = SqliteStore(file)
    await store.open()
    try:
        assert (await store.join(WANTED, lambda _: None)).takes == 2
        lease = await store.claim("x", b"k")
        assert lease is not None
        assert lease.fence != taken.fence
        await store.append("x", HEAD, with_step(recording(0), 2, lease=lease))
    finally:
        await store.close()


async def test_what_a_crash_left_in_the_shared_file_is_not_gone_on_with(file: Path) -> None:
    with peers(file, 1) as (other,):
        other.ask("join")
        other.ask("turns 3")
        other.process.kill()
        other.process.wait()
    file.with_name("calls.db.shared").write_bytes(b"\0" * 9999)

    store = SqliteStore(file)
    await store.open()
    try:
        assert await cursors_of(store, "x", 1, [b"k"]) == {}
        assert (await store.join(Control("replay", "y"), lambda _: None)).mode == "replay"
    finally:
        await store.close()


async def test_an_instance_knows_when_it_is_out_of_touch(store: SqliteStore, clock: Clock) -> None:
    def in_touch() -> bool:
        return store.trouble is None

    assert not in_touch()
    await store.join(WANTED, lambda _: None)
    assert in_touch()
    clock.ahead = OUT_OF_TOUCH_S + 1
    assert not in_touch()
    await eventually(in_touch)


async def test_who_steered_goes_on_hearing_of_the_others(store: SqliteStore, clock: Clock) -> None:
    await store.join(WANTED, lambda _: None)

    for _ in range(3):
        await store.steer(with_take)
        # What was heard before that is too old by now.
        clock.ahead += OUT_OF_TOUCH_S + 1
        await eventually(lambda: store.trouble is None)
