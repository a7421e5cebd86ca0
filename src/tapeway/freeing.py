"""Frees large structures in steps: freed at once, they would keep all other threads waiting."""

import asyncio
from contextlib import suppress

_LATER_S = 0.5


def free_in_steps(items: list[object]) -> None:
    """Empty a list that holds the last references to its items; call it in a thread."""
    while items:
        items.pop()


def free_later(items: list[object]) -> None:
    """The same in a thread of its own, once what else refers to the items is gone."""
    loop = asyncio.get_running_loop()

    def free() -> None:
        # At a stop the threads are gone before the loop, and the rest is freed with the process.
        with suppress(RuntimeError):
            loop.run_in_executor(None, free_in_steps, items)

    loop.call_later(_LATER_S, free)
