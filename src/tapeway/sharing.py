"""Live calls under way: one for all who ask the same at the time, carried to its end.

A call belongs to no client, so that nobody's leaving stops it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace

from tapeway.core.cassette import Cassette
from tapeway.core.plan import Answer, Ask
from tapeway.errors import Draining, TapewayError
from tapeway.live import BROKEN_OFF

_Task = asyncio.Task[Answer | TapewayError]
_Key = tuple[str, bytes]


class LiveCalls:
    """Starts calls in a task group that outlives them; `call` returns its errors."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        call: Callable[[Ask], Coroutine[None, None, Answer | TapewayError]],
    ) -> None:
        self._tasks = tasks
        self._call = call
        self._shared: dict[_Key, _Task] = {}
        self._running: dict[_Task, Cassette] = {}
        self.draining = False

    def __len__(self) -> int:
        return len(self._running)

    async def perform(self, ask: Ask) -> Answer:
        """The answer of the call that asks this. Raises its error, or Draining."""
        task, first = self._join(ask)
        try:
            result = await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            # Broken off before its first step, where it could not say so itself.
            raise Draining(BROKEN_OFF) from None
        if isinstance(result, TapewayError):
            raise type(result)(result.message, status=result.status, code=result.code)
        if first or result.index is None:
            return result
        ask.take.touched.add(result.index)
        return replace(result, outcome="replayed")

    async def ended(self, cassette: Cassette) -> None:
        """Wait until no call records on this cassette."""
        while calls := [task for task, of in self._running.items() if of is cassette]:
            await asyncio.wait(calls)

    def drain(self) -> None:
        """Start no more; those under way go on."""
        self.draining = True

    def cancel(self) -> None:
        """Break off those under way; those who wait for them get Draining."""
        self.draining = True
        for task in self._running:
            task.cancel()

    def refuse_when_draining(self) -> None:
        """Raises Draining once no more may be started."""
        if self.draining:
            raise Draining("tapeway is stopping and starts no more live calls; try again")

    def _join(self, ask: Ask) -> tuple[_Task, bool]:
        shared = (ask.cassette.name, ask.key + ask.mark) if ask.rules.replays else None
        running = self._shared.get(shared) if shared else None
        # The answer of one that is done was this take's turn before; who comes now has their own.
        if running is not None and not running.done():
            return running, False
        return self._start(ask, shared), True

    def _start(self, ask: Ask, shared: _Key | None) -> _Task:
        self.refuse_when_draining()
        task = self._tasks.create_task(self._call(ask))
        self._running[task] = ask.cassette
        if shared:
            self._shared[shared] = task

        def ended(_: object) -> None:
            del self._running[task]
            if shared and self._shared[shared] is task:
                del self._shared[shared]

        task.add_done_callback(ended)
        return task
