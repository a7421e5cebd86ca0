import asyncio
from collections.abc import Coroutine

import pytest

from tapeway.errors import Draining
from tapeway.server.drain import OpenWaits


async def test_open_waits_are_aborted_with_draining() -> None:
    waits, never = OpenWaits(), asyncio.Event()

    async def wait() -> None:
        async with waits.wait():
            await never.wait()

    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(_raised(wait())) for _ in range(3)]
        await asyncio.sleep(0)
        waits.break_off()

    assert [type(task.result()) for task in waiting] == [Draining] * 3


async def test_later_waits_are_aborted_at_once() -> None:
    waits = OpenWaits()
    waits.break_off()

    with pytest.raises(Draining):
        async with waits.wait():
            await asyncio.Event().wait()


async def test_what_ended_in_time_is_not_touched() -> None:
    waits = OpenWaits()
    async with waits.wait():
        await asyncio.sleep(0)

    waits.break_off()
    await asyncio.sleep(0)


async def test_a_timeout_of_its_own_stays_one() -> None:
    with pytest.raises(TimeoutError):
        async with OpenWaits().wait(), asyncio.timeout(0):
            await asyncio.Event().wait()


async def test_who_is_cancelled_meanwhile_is_cancelled_and_not_draining() -> None:
    waits = OpenWaits()

    async def wait() -> None:
        async with waits.wait():
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()

    assert task.cancelled()


async def _raised(awaited: Coroutine[None, None, None]) -> BaseException | None:
    try:
        await awaited
    except Exception as exc:
        return exc
    return None
