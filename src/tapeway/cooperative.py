"""Long work in threads, done in steps so that the event loop does not wait for its end."""

import asyncio
import time
from contextlib import suppress

WORK_S = 0.004
_PAUSE_S = 0.0001
LATER_S = 0.5


class Yielding:
    """Lets other threads run every four milliseconds.

    A search by RE2, a digest and a read let go of the interpreter for microseconds each. Who waits
    for it wakes too late every time, and never asks for it as it would of a thread that keeps it.
    """

    def __init__(self) -> None:
        self._until = time.monotonic() + WORK_S

    def step(self) -> None:
        """Pause if it is time to, unless this is the thread of an event loop; call it at each step."""
        if time.monotonic() < self._until:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            time.sleep(_PAUSE_S)
        self._until = time.monotonic() + WORK_S


def free_in_steps(items: list[object]) -> None:
    """Empty a list that holds the last references to its items; call it in a thread.

    Freed at once, they would keep all other threads waiting.
    """
    while items:
        items.pop()


def free_later(items: list[object]) -> None:
    """The same in a thread of its own, once what else refers to the items is gone."""
    loop = asyncio.get_running_loop()

    def free() -> None:
        # At a stop the threads are gone before the loop, and the rest is freed with the process.
        with suppress(RuntimeError):
            loop.run_in_executor(None, free_in_steps, items)

    loop.call_later(LATER_S, free)
