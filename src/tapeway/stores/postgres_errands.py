"""Work that goes on whoever leaves while it is under way."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

from tapeway.errors import closed

T = TypeVar("T")


class Errands:
    """Those of one store, from its opening to its end."""

    def __init__(self, place: str) -> None:
        self._place = place
        self.tasks = asyncio.TaskGroup()
        self._endless: list[asyncio.Task[None]] = []
        self._over = False

    async def open(self) -> None:
        await self.tasks.__aenter__()

    async def close(self) -> None:
        """Wait for all that have an end."""
        self.stop()
        self._over = True
        await self.tasks.__aexit__(None, None, None)

    def start(self, endless: Coroutine[None, None, None]) -> None:
        """Something that runs until the end."""
        self._endless.append(self.tasks.create_task(endless))

    def stop(self) -> None:
        """End what has no end of its own."""
        while self._endless:
            self._endless.pop().cancel()

    def drop(self, work: Coroutine[None, None, None]) -> None:
        """Something nobody waits for."""
        self.tasks.create_task(_settled(work))

    async def run(
        self, work: Coroutine[None, None, T], unclaimed: Callable[[T], None] | None = None
    ) -> T:
        """What comes of it; `unclaimed` is given that where nobody waited for it any more."""
        if self._over:
            work.close()
            raise closed(self._place)
        task = self.tasks.create_task(_settled(work))
        try:
            result = await asyncio.shield(task)
        except asyncio.CancelledError:
            if unclaimed is not None:
                task.add_done_callback(lambda done: _leave(done, unclaimed))
            raise
        if isinstance(result, _Failed):
            raise result.exc
        return result


class _Failed:
    def __init__(self, exc: Exception) -> None:
        self.exc = exc


async def _settled(work: Coroutine[None, None, T]) -> T | _Failed:
    # What is raised in a task of a group ends all the others.
    try:
        return await work
    except Exception as exc:
        return _Failed(exc)


def _leave(task: "asyncio.Task[T | _Failed]", unclaimed: Callable[[T], None]) -> None:
    if not task.cancelled() and not isinstance(result := task.result(), _Failed):
        unclaimed(result)
