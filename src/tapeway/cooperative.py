"""Long work done in steps, in threads and on the event loop: nobody waits for its end."""

import asyncio
import time
from contextlib import suppress
from weakref import WeakKeyDictionary

TURN_S = 0.005
"""How long the tasks of an event loop that never have to wait work in one turn of it, together."""
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


class LoopTurns:
    """Tells tasks of an event loop when they have worked on for long enough.

    A task that finds what it waits for never waits: messages may come as fast as they are read.
    """

    __slots__ = ("__weakref__", "_counts", "_loop", "_since")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._counts = False
        """Whether somebody has asked in this turn."""
        self._since = 0.0

    def is_over(self) -> bool:
        """Whether the caller should give the loop back, with `asyncio.sleep(0)`.

        The time counts from the first call in a turn of the loop, whoever calls.
        """
        if self._counts:
            return time.monotonic() - self._since > TURN_S
        self._counts, self._since = True, time.monotonic()
        self._loop.call_soon(self._next)
        return False

    async def pause_if_over(self) -> None:
        """Give the loop back if this is the time."""
        if self.is_over():
            await asyncio.sleep(0)

    def _next(self) -> None:
        self._counts = False


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopTurns] = WeakKeyDictionary()


def loop_turns() -> LoopTurns:
    """What all tasks of the running event loop ask."""
    loop = asyncio.get_running_loop()
    if (turns := _turns.get(loop)) is None:
        turns = _turns[loop] = LoopTurns(loop)
    return turns


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
