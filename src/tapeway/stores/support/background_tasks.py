"""Work of a store that goes on where its caller is cancelled, and ends before the store is closed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tapeway.errors import closed

T = TypeVar("T")


class BackgroundTasks:
    """The background tasks of a store, from opening to close."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.tasks = asyncio.TaskGroup()
        self._endless: list[asyncio.Task[None]] = []
        self._closed = False

    async def open(self) -> None:
        await self.tasks.__aenter__()

    async def close(self) -> None:
        """Cancel what runs until the end, and wait for the rest."""
        while self._endless:
            self._endless.pop().cancel()
        self._closed = True
        await self.tasks.__aexit__(None, None, None)

    def start(self, endless: Coroutine[Any, Any, None]) -> None:
        """Run something until the store is closed."""
        self._endless.append(self.tasks.create_task(endless))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that no caller waits for."""
        self.tasks.create_task(_settled(work))

    async def run(
        self, work: Coroutine[Any, Any, T], abandoned: Callable[[T], None] | None = None
    ) -> T:
        """The result of `work`; where the caller was cancelled, `abandoned` gets it instead."""
        if self._closed:
            work.close()
            raise closed(self._url)
        task = self.tasks.create_task(_settled(work))
        try:
            result = await asyncio.shield(task)
        except asyncio.CancelledError:
            if abandoned is not None:
                task.add_done_callback(lambda done: _hand_over(done, abandoned))
            raise
        if isinstance(result, _Failed):
            raise result.exc
        return result


class _Failed:
    def __init__(self, exc: Exception) -> None:
        self.exc = exc


async def _settled(work: Coroutine[Any, Any, T]) -> T | _Failed:
    # An exception in a task of a TaskGroup would cancel all the others.
    try:
        return await work
    except Exception as exc:
        return _Failed(exc)


def _hand_over(task: "asyncio.Task[T | _Failed]", abandoned: Callable[[T], None]) -> None:
    if not task.cancelled() and not isinstance(result := task.result(), _Failed):
        abandoned(result)
