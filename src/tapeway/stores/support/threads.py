"""Threads for work that waits for a disk.

`ThreadPoolExecutor` makes a future with a lock for each piece of work, and counts idle threads by a
semaphore with a second lock. Every recording starts work here, and nobody looks at the futures: for
this use the locks cost too much.
"""

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")
_Work = Callable[[], object]


class StoreThreads:
    """A bounded number of threads, made when needed; further work waits in order."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._waiting = _ThreadWork()
        self._threads: list[threading.Thread] = []
        # What was started is done, also where nobody shuts them down before the process ends.
        self._end = weakref.finalize(self, _end, self._waiting, self._threads)

    def start(self, work: _Work) -> None:
        """Have work done that raises nothing. Raises RuntimeError once they are shut down."""
        waiting = self._waiting
        with waiting.guard:
            if waiting.closed:
                raise RuntimeError("the threads are shut down")
            if waiting.idle:
                waiting.idle -= 1
            elif len(self._threads) < self._most:
                self._add()
            waiting.work.put(work)

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """Like `start`, for work with a result."""
        future: Future[T] = Future()
        self.start(lambda: _perform(work, future))
        return future

    def shutdown(self) -> None:
        """Take no more work, and wait until all is done."""
        self._end()

    def _add(self) -> None:
        name = f"{self._name}_{len(self._threads)}"
        # A daemon: at exit Python waits for all other threads before it calls anybody.
        added = threading.Thread(target=_run, args=(self._waiting,), name=name, daemon=True)
        added.start()
        self._threads.append(added)


class _ThreadWork:
    """The state shared with the threads, which do not keep the pool alive: work and idle count."""

    def __init__(self) -> None:
        # To be had again by its holder, in which the collector may end a pool.
        self.guard = threading.RLock()
        self.work: SimpleQueue[_Work | None] = SimpleQueue()
        self.idle = 0
        self.closed = False


def _run(waiting: _ThreadWork) -> None:
    while (work := waiting.work.get()) is not None:
        work()
        del work
        with waiting.guard:
            waiting.idle += 1
    # The next one is to end too.
    waiting.work.put(None)


def _perform(work: Callable[[], T], future: "Future[T]") -> None:
    try:
        result = work()
    except BaseException as exc:
        future.set_exception(exc)
        # The error and this function would keep each other.
        del work, future
    else:
        future.set_result(result)


def _end(waiting: _ThreadWork, threads: list[threading.Thread]) -> None:
    with waiting.guard:
        waiting.closed = True
        waiting.work.put(None)
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join()
