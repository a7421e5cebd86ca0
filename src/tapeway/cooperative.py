"""Long work in threads, done in steps: the event loop does not wait for the end."""

import asyncio
import time
from contextlib import suppress

WORK_S = 0.004
BRIEF_S = 0.00025
"""The work of a miss between two pauses. A hit takes about as long."""

_PAUSE_S = 0.0001
LATER_S = 0.5


class Yielding:
    """Makes long work in a thread pause, so that other threads run.

    A search by RE2, a digest or a read releases the interpreter's lock for microseconds. A waiting
    thread wakes too late every time, and Python forces a switch only on a thread that keeps the lock.
    """

    def __init__(self, work_s: float = WORK_S) -> None:
        self._work_s = work_s
        self._until = time.monotonic() + work_s

    def step(self) -> None:
        """Pause if the time is over; call this at each step. An event loop never pauses."""
        if time.monotonic() < self._until:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            time.sleep(_PAUSE_S)
        self._until = time.monotonic() + self._work_s


def free_in_steps(items: list[object]) -> None:
    """Empty a list that holds the last references to its items; call this in a thread.

    Items freed all at once would keep all other threads waiting.
    """
    while items:
        items.pop()


def free_later(items: list[object]) -> None:
    """Do `free_in_steps` in a thread, half a second later: other references are gone by then."""
    loop = asyncio.get_running_loop()

    def free() -> None:
        # At a stop the threads end before the loop does. The process frees the rest.
        with suppress(RuntimeError):
            loop.run_in_executor(None, free_in_steps, items)

    loop.call_later(LATER_S, free)
