"""Threads for what waits for a disk."""

import gc
import subprocess
import sys
import threading

import pytest

from tapeway.stores.support.threads import StoreThreads


def _named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def test_work_has_a_result_or_an_error() -> None:
    threads = StoreThreads(2, "results")

    assert threads.submit(lambda: "fine").result(5) == "fine"
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 / 0).result(5)

    threads.shutdown()


def test_a_thread_is_made_where_all_are_busy_up_to_the_most() -> None:
    threads, go_on = StoreThreads(2, "busy"), threading.Event()
    for _ in range(5):
        threads.submit(lambda: None).result(5)
    assert len(_named("busy")) <= 2

    waiting = [threads.submit(go_on.wait) for _ in range(3)]
    assert len(_named("busy")) == 2
    go_on.set()

    assert all(task.result(5) for task in waiting)
    threads.shutdown()
    assert not _named("busy")


def test_a_shutdown_waits_for_all_that_was_started_and_takes_nothing_more() -> None:
    threads, done = StoreThreads(1, "ended"), list[int]()
    for number in range(100):
        threads.start(lambda number=number: done.append(number))  # type: ignore[misc]

    threads.shutdown()

    assert done == list(range(100))
    with pytest.raises(RuntimeError):
        threads.start(lambda: None)
    threads.shutdown()


def test_threads_that_nobody_has_any_more_end() -> None:
    threads = StoreThreads(3, "forgotten")
    threads.submit(lambda: None).result(5)
    (left,) = _named("forgotten")

    del threads
    gc.collect()

    left.join(5)
    assert not left.is_alive()


def test_what_was_started_is_done_before_the_process_ends() -> None:
    code = (
        "import time; from tapeway.stores.support.threads import StoreThreads;"
        "threads = StoreThreads(2, 'ended'); threads.start(lambda: (time.sleep(0.3), print('done', flush=True)))"
    )

    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )

    assert (ended.stdout, ended.stderr) == ("done\n", "")
