"""Work that waits for a disk, piece after piece, off the event loop."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TypeVar

from tapeway.stores.support.threads import StoreThreads

T = TypeVar("T")

Done = asyncio.Future[BaseException | None]
"""Ends with what kept a recording from being written, None where it is durable."""


class SerialExecutor:
    """Runs work in order, one piece at a time, in some thread of the pool.

    Work is done even where the task that waits for its result is cancelled.
    """

    def __init__(self, pool: StoreThreads) -> None:
        self._pool = pool
        self._guard = threading.Lock()
        self._steps: deque[Callable[[], None]] = deque()
        self._running = False
        self._unfinished = 0

    @property
    def idle(self) -> bool:
        return self._unfinished == 0

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """Have it done. Raises RuntimeError once the pool is shut down."""
        future: Future[T] = Future()
        self._add(partial(self._perform, work, future))
        return future

    def start(self, work: Callable[[], None]) -> None:
        """Like `run`, for work that reports its end itself and raises nothing."""
        self._add(partial(self._perform_unawaited, work))

    async def run(self, work: Callable[[], T]) -> T:
        return await result_of(self.submit(work))

    def _add(self, step: Callable[[], None]) -> None:
        with self._guard:
            self._unfinished += 1
            self._steps.append(step)
            start, self._running = not self._running, True
        if start:
            try:
                self._pool.start(self._run)
            except RuntimeError:
                with self._guard:
                    self._steps.remove(step)
                    self._unfinished, self._running = self._unfinished - 1, False
                raise

    def _perform_unawaited(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            self._finish()

    def _perform(self, work: Callable[[], T], future: "Future[T]") -> None:
        try:
            result = work()
        except BaseException as exc:
            self._finish()
            future.set_exception(exc)
            # The error and this function would keep each other.
            del work, future
        else:
            self._finish()
            future.set_result(result)

    def _finish(self) -> None:
        # Before the result is set, so that waiters find the executor idle.
        with self._guard:
            self._unfinished -= 1

    def _run(self) -> None:
        while True:
            with self._guard:
                if not self._steps:
                    self._running = False
                    return
                step = self._steps.popleft()
            step()
            del step


async def result_of(future: "Future[T]") -> T:
    """The result of work in a thread; giving up waiting does not call it off.

    One step of the event loop: what `asyncio.shield` and `wrap_future` take are three.
    """
    if not future.done():
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()

        def tell(_: object) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake, waiter)

        future.add_done_callback(tell)
        await waiter
    try:
        return future.result()
    finally:
        # The future has the error, and the error has this function.
        del future


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


def tell(ended: Sequence[tuple[Done, BaseException | None]]) -> None:
    """Tell those who wait, all at once; from any thread."""
    for loop in {done.get_loop() for done, _ in ended}:
        mine = [future for future in ended if future[0].get_loop() is loop]
        # Nobody waits any more where the loop is closed.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_set_results, mine)


def _set_results(ended: Sequence[tuple[Done, BaseException | None]]) -> None:
    for done, failure in ended:
        if not done.done():
            done.set_result(failure)
