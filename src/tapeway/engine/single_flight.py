"""Live calls under way: one for all who ask the same at the time, carried to its end.

A call belongs to no client, so that nobody's leaving stops it.

Recordings in flight among all instances of a store: each holds a lease until it is durable.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from tapeway.core.cassette.plan import Answer, Ask
from tapeway.core.http.content_codings import has_content_coding, readable_response
from tapeway.core.model.cassette import Lease
from tapeway.core.model.messages import Response
from tapeway.engine.recorder import BROKEN_OFF
from tapeway.engine.response_buffer import ResponseReader
from tapeway.errors import Draining, StoreError, TapewayError, describe
from tapeway.ports import SharedStore

log = logging.getLogger(__name__)
T = TypeVar("T")

Live = Callable[[Ask, ResponseReader | None], Awaitable[Answer | TapewayError]]
"""Asks the upstream and records; what went wrong is returned."""
_Task = asyncio.Task[Answer | TapewayError]
_Key = tuple[str, bytes]
_LOOK_S = 0.05


class Pending:
    """One client's share in a call."""

    def __init__(self, task: _Task, ask: Ask, *, first: bool) -> None:
        self._task = task
        self._ask = ask
        self._first = first

    async def answer(self) -> Answer:
        """The answer, `replayed` for all but the first. Raises the call's error, or Draining.

        Those others get it in no content coding, which they may not have asked for.
        """
        try:
            result = await asyncio.shield(self._task)
        except asyncio.CancelledError:
            if not self._task.cancelled():
                raise
            # Broken off before its first step, where it could not say so itself.
            raise Draining(BROKEN_OFF) from None
        if isinstance(result, TapewayError):
            raise type(result)(result.message, status=result.status, code=result.code)
        if self._first:
            return result
        result = replace(result, response=self._plain(result))
        if result.index is None:
            return result
        self._ask.take.touched.add(result.index)
        return replace(result, outcome="replayed")

    def _plain(self, answer: Answer) -> Response:
        method = self._ask.request.method
        response = readable_response(answer.response, method)
        if (
            answer.index is None
            or response.file is None
            or not has_content_coding(response, method)
        ):
            return response
        # A large one was read into the store, piece by piece.
        return response if answer.recorded is None else answer.recorded.response


class LiveCalls:
    """Starts calls in a task group that outlives them; `call` returns its errors."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        call: Callable[[Ask, ResponseReader | None], Coroutine[None, None, Answer | TapewayError]],
    ) -> None:
        self._tasks = tasks
        self._call = call
        self._shared: dict[_Key, _Task] = {}
        self._running: dict[_Task, str] = {}
        self.draining = False

    def __len__(self) -> int:
        return len(self._running)

    def join(self, ask: Ask, feed: ResponseReader | None = None) -> "Pending":
        """Wait for the call that asks this already, or start one that fills `feed`.

        Raises Draining where one would have to be started.
        """
        shared = (ask.cassette.name, ask.key + ask.variant) if ask.policy.replays else None
        running = self._shared.get(shared) if shared else None
        # The answer of one that is done was this take's turn before; who comes now has their own.
        if running is not None and not running.done():
            if feed is not None:
                feed.close()
            return Pending(running, ask, first=False)
        return Pending(self._start(ask, feed, shared), ask, first=True)

    async def ended(self, name: str) -> None:
        """Wait until no call records on this cassette."""
        while calls := [task for task, of in self._running.items() if of == name]:
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

    def _start(self, ask: Ask, feed: ResponseReader | None, shared: _Key | None) -> _Task:
        self.refuse_when_draining()
        task = self._tasks.create_task(self._call(ask, feed))
        self._running[task] = ask.cassette.name
        if shared:
            self._shared[shared] = task

        def ended(_: object) -> None:
            del self._running[task]
            if shared and self._shared[shared] is task:
                del self._shared[shared]
            if feed is not None:
                feed.close()

        task.add_done_callback(ended)
        return task


async def settled(work: Awaitable[T]) -> T | TapewayError:
    """The result or the error: one raised in the broker's task group would end all of its tasks."""
    try:
        return await work
    except TapewayError as exc:
        return exc
    except Exception as exc:
        log.error("steering a cassette failed: %s", describe(exc))
        return TapewayError("tapeway failed while it steered a cassette; its log says where")


class Flights:
    """Those that this instance sees, its own and the others'."""

    def __init__(self, store: SharedStore, calls: LiveCalls) -> None:
        self._store = store
        self._calls = calls

    @asynccontextmanager
    async def flight(self, name: str, key: bytes) -> AsyncIterator[None]:
        """Let others see a recording that no other one is like; none of them takes it over."""
        lease = await self._store.claim(name, key)
        try:
            yield
        finally:
            if lease is not None:
                await self.end(lease)

    async def end(self, lease: Lease) -> None:
        """Give it back if the store can be reached."""
        try:
            await self._store.give_back(lease)
        except StoreError:
            # It ends by itself.
            return

    async def landed(self, name: str) -> None:
        """Wait for all that are under way now, on any instance.

        One whose instance is gone is waited for until its lease ends. Raises Draining, StoreError.
        """
        under_way = await self._store.fences(name)
        await self._calls.ended(name)
        while under_way & await self._store.fences(name):
            if self._calls.draining:
                raise Draining(
                    "tapeway is stopping while other instances still record; eject again"
                )
            await asyncio.sleep(_LOOK_S)
