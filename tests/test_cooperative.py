"""Pauses of long work, what is freed later, and what becomes of it at a stop."""

import asyncio
import gc
import threading
import weakref

import pytest

from tapeway.cooperative import BRIEF_S, Yielding, free_in_steps, free_later


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """At which milliseconds there was a pause, where each look at the clock takes one."""
    now, found = [0.0], list[float]()

    def look() -> float:
        now[0] += 1
        return now[0] / 1000

    monkeypatch.setattr("time.monotonic", look)
    monkeypatch.setattr("time.sleep", lambda _: found.append(now[0]))
    return found


def test_work_pauses_after_four_milliseconds_and_then_after_four_more(pauses: list[float]) -> None:
    yielding = Yielding()
    for _ in range(9):
        yielding.step()

    # At 1 it begins, and a pause is over at 6.
    assert pauses == [5, 10]


def test_a_brief_search_pauses_more_often(pauses: list[float]) -> None:
    yielding = Yielding(BRIEF_S)
    for _ in range(3):
        yielding.step()

    assert pauses == [2, 4, 6]


async def test_a_thread_with_an_event_loop_makes_no_pause(pauses: list[float]) -> None:
    yielding = Yielding()
    for _ in range(9):
        yielding.step()

    assert pauses == []


class Large:
    """Something whose last reference is in a list."""


def test_a_list_is_emptied() -> None:
    items: list[object] = [Large(), Large()]
    references = [weakref.ref(item) for item in items]

    free_in_steps(items)

    assert items == []
    gc.collect()
    assert [reference() for reference in references] == [None, None]


async def test_what_is_freed_later_is_freed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapeway.cooperative.LATER_S", 0.0)
    freed: asyncio.Future[threading.Thread] = asyncio.get_running_loop().create_future()
    loop, item = asyncio.get_running_loop(), Large()
    weakref.finalize(
        item, lambda: loop.call_soon_threadsafe(freed.set_result, threading.current_thread())
    )

    free_later([item])
    del item

    assert await asyncio.wait_for(freed, 60) is not threading.main_thread()


async def test_a_stop_before_it_is_time_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapeway.cooperative.LATER_S", 0.0)
    loop, errors = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: errors.append(context))
    items: list[object] = [Large()]

    free_later(items)
    await loop.shutdown_default_executor()
    passed = asyncio.Event()
    loop.call_later(0.001, passed.set)
    await passed.wait()

    assert errors == []
