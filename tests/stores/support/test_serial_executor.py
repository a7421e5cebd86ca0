"""Work done one piece after another."""

import asyncio
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from tapeway.stores.support.serial_executor import SerialExecutor
from tapeway.stores.support.threads import StoreThreads


@pytest.fixture
def pool() -> Iterator[StoreThreads]:
    pool = StoreThreads(4, "tests")
    yield pool
    pool.shutdown()


async def test_pieces_are_done_in_order_and_never_two_at_once(pool: StoreThreads) -> None:
    lane, at_work, done = SerialExecutor(pool), threading.Lock(), []

    def work(number: int) -> int:
        assert at_work.acquire(blocking=False)
        done.append(number)
        at_work.release()
        return number

    results = await asyncio.gather(*[lane.run(partial(work, n)) for n in range(100)])

    assert results == done == list(range(100))


async def test_a_failure_goes_to_the_one_who_asked_and_the_next_goes_on(
    pool: StoreThreads,
) -> None:
    lane = SerialExecutor(pool)

    failed, fine = await asyncio.gather(
        lane.run(lambda: 1 / 0), lane.run(lambda: "fine"), return_exceptions=True
    )

    assert isinstance(failed, ZeroDivisionError)
    assert fine == "fine"


async def test_who_leaves_does_not_call_the_work_off(pool: StoreThreads) -> None:
    lane, go_on, done = SerialExecutor(pool), threading.Event(), threading.Event()
    lane.submit(go_on.wait)

    async with asyncio.TaskGroup() as tasks:
        leaving = tasks.create_task(lane.run(done.set))
        await asyncio.sleep(0)
        leaving.cancel()
    assert not lane.idle
    go_on.set()

    await lane.run(lambda: None)
    assert done.is_set()
    assert lane.idle


async def test_a_held_up_lane_holds_up_no_other(pool: StoreThreads) -> None:
    held, free, go_on = SerialExecutor(pool), SerialExecutor(pool), threading.Event()
    waiting = held.submit(go_on.wait)

    assert await free.run(lambda: "free") == "free"

    assert not waiting.done()
    go_on.set()
    await held.run(lambda: None)
