"""Work that waits together: one transaction makes all of it, while the next work gathers."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Sequence
from typing import Generic, TypeVar

from tapeway.errors import copy_of

A = TypeVar("A")
R = TypeVar("R")

MOST = 100
"""Pieces of work that one transaction makes."""


class Gathering(Generic[A, R]):
    """Made in the order they were added, on the event loop; one batch is under way at a time."""

    def __init__(
        self,
        make: Callable[[Sequence[A]], Awaitable[Sequence[R | Exception]]],
        spawn: Callable[[Coroutine[None, None, None]], None],
        *,
        apart: Callable[[A], Collection[Hashable]] = lambda _: (),
        size: Callable[[A], int] = lambda _: 0,
        most_size: int = 0,
    ) -> None:
        """`make` gives a result or an error for each; `spawn` runs a task.

        Two that have something in common in `apart` get into different batches. A batch ends above
        `most_size`.
        """
        self._make = make
        self._spawn = spawn
        self._apart = apart
        self._size = size
        self._most_size = most_size
        self._waiting: deque[tuple[A, asyncio.Future[R | Exception]]] = deque()
        self._under_way = False
        self.waiting = 0
        """Callers that wait for a result."""

    async def add(self, asked: A) -> R:
        """The result, once the batch is through. Raises what the work raised."""
        done: asyncio.Future[R | Exception] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, done))
        if not self._under_way:
            self._under_way = True
            self._spawn(self._make_waiting())
        self.waiting += 1
        try:
            result = await done
        finally:
            self.waiting -= 1
        if isinstance(result, Exception):
            raise result
        return result

    async def _make_waiting(self) -> None:
        try:
            while self._waiting:
                await self._make_some()
        finally:
            self._under_way = False

    async def _make_some(self) -> None:
        batch = self._take()
        results: Sequence[R | Exception]
        try:
            results = await self._make([asked for asked, _ in batch])
        except Exception as exc:
            # Whatever it is, callers wait for it.
            results = [copy_of(exc) for _ in batch]
        for (_, done), result in zip(batch, results, strict=True):
            if not done.done():
                done.set_result(result)

    def _take(self) -> list[tuple[A, "asyncio.Future[R | Exception]"]]:
        batch, later = list[tuple[A, asyncio.Future[R | Exception]]](), deque(self._waiting)
        self._waiting.clear()
        seen, size = set[Hashable](), 0
        while later and len(batch) < MOST and size <= self._most_size:
            one = later.popleft()
            places = self._apart(one[0])
            if not seen.isdisjoint(places):
                self._waiting.append(one)
                continue
            seen.update(places)
            size += self._size(one[0])
            batch.append(one)
        self._waiting.extend(later)
        return batch
