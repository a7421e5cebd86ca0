"""Single flight: equal requests at the same time share one live call.

Among the instances of a shared store, leases see to it. A call runs in a task of its own, so that it continues when its client disconnects.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from tapeway.core.cassette.plan import Answer, Ask
from tapeway.core.http.content_codings import has_content_coding, readable_response
from tapeway.core.model.cassette import Lease
from tapeway.core.model.messages import Response
from tapeway.engine.response_buffer import ResponseReader
from tapeway.errors import Draining, StoreError, TapewayError, describe
from tapeway.ports import SharedStore

log = logging.getLogger(__name__)
T = TypeVar("T")

CANCELLED = "tapeway is stopping and aborted this live call; try again when it is back"

_LEASE_CHECK_S = 0.05

_Task = asyncio.Task[Answer | TapewayError]
_Key = tuple[str, bytes, bytes, bytes]


class Pending:
    """One client's wait for a live call, which other clients may share."""

    def __init__(self, task: _Task, ask: Ask, *, first: bool) -> None:
        self._task = task
        self._ask = ask
        self._first = first

    async def answer(self) -> Answer:
        """The answer, `replayed` for all clients but the first. Raises the call's error, or Draining.

        The others get it decoded, as they may not accept the first one's content coding.
        """
        try:
            if not self._task.done():
                await _end_of(self._task)
            result = self._task.result()
        except asyncio.CancelledError:
            if not self._task.cancelled():
                raise
            # Cancelled before its first step, so it could not return Draining itself.
            raise Draining(CANCELLED) from None
        if isinstance(result, TapewayError):
            raise type(result)(result.message, status=result.status, code=result.code)
        if self._first:
            return result
        result = replace(result, response=self._decoded(result))
        if result.index is None:
            return result
        self._ask.cassette.touch(result.index, self._ask.take)
        return replace(result, outcome="replayed")

    def _decoded(self, answer: Answer) -> Response:
        method = self._ask.request.method
        response = readable_response(answer.response, method)
        if (
            answer.index is None
            or response.file is None
            or not has_content_coding(response, method)
        ):
            return response
        # A large body was decoded when it was stored.
        return response if answer.recorded is None else answer.recorded.response


class LiveCalls:
    """The live calls under way, in a task group that outlives them."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._shared: dict[_Key, _Task] = {}
        self._running: dict[_Task, str] = {}
        self.draining = False

    def __len__(self) -> int:
        return len(self._running)

    def __contains__(self, name: object) -> bool:
        """Whether calls of a cassette are under way."""
        return name in self._running.values()

    def count(self, name: str) -> int:
        """How many calls of a cassette are under way."""
        return sum([each == name for each in self._running.values()])

    def join(self, ask: Ask) -> Pending | None:
        """Wait for an equal call that is under way, None if there is none."""
        running = self._shared.get(_key(ask)) if ask.policy.replays else None
        # The answer of a finished call was already used in this take; a new request gets its own.
        if running is None or running.done():
            return None
        return Pending(running, ask, first=False)

    def start(
        self,
        ask: Ask,
        call: Coroutine[None, None, Answer | TapewayError],
        reader: ResponseReader | None = None,
    ) -> Pending:
        """Start a call that others may join and that closes `reader` at its end.

        `call` returns its error instead of raising it.
        """
        task = self._tasks.create_task(call)
        self._running[task] = ask.cassette.name
        shared = _key(ask) if ask.policy.replays else None
        if shared:
            self._shared[shared] = task

        def ended(_: object) -> None:
            del self._running[task]
            if shared and self._shared[shared] is task:
                del self._shared[shared]
            if reader is not None:
                reader.close()

        task.add_done_callback(ended)
        return Pending(task, ask, first=True)

    async def ended(self, name: str) -> None:
        """Wait until no call of this cassette is under way."""
        while calls := [task for task, cassette in self._running.items() if cassette == name]:
            await asyncio.wait(calls)

    def drain(self) -> None:
        """Start no more calls; those under way continue."""
        self.draining = True

    def cancel(self) -> None:
        """Cancel the calls under way; their clients get Draining."""
        self.draining = True
        for task in self._running:
            task.cancel()

    def refuse_when_draining(self) -> None:
        """Raise Draining once no more calls may be started."""
        if self.draining:
            raise Draining("tapeway is stopping and starts no more live calls; try again")


class RecordingLeases:
    """Recordings in flight among all instances of a store: each holds a lease until it is durable."""

    def __init__(self, store: SharedStore, calls: LiveCalls) -> None:
        self._store = store
        self._calls = calls

    @asynccontextmanager
    async def held(self, name: str, key: bytes) -> AsyncIterator[None]:
        """Hold a lease that no other instance takes over."""
        lease = await self._store.claim(name, key)
        try:
            yield
        finally:
            if lease is not None:
                await self.end(lease)

    @asynccontextmanager
    async def alone(self, name: str, key: bytes) -> AsyncIterator[None]:
        """Hold a lease, once no other instance holds it."""
        while (lease := await self._store.claim(name, key)) is None:
            await self._store.wait_for_lease(name, key)
        try:
            yield
        finally:
            await self.end(lease)

    async def end(self, lease: Lease) -> None:
        """Give a lease back if the store can be reached."""
        try:
            await self._store.release_lease(lease)
        except StoreError:
            # It expires by itself, or the store releases it later.
            return

    async def ended(self, name: str) -> None:
        """Wait for all leases that are held now, on any instance.

        One whose instance is gone is waited for until it expires. Raises Draining, StoreError.
        """
        held = await self._store.fences(name)
        await self._calls.ended(name)
        while held & await self._store.fences(name):
            if self._calls.draining:
                raise Draining(
                    "tapeway is stopping while other instances still record; eject again"
                )
            await asyncio.sleep(_LEASE_CHECK_S)


async def settled(work: Awaitable[T]) -> T | TapewayError:
    """The result, or the error: raised in the broker's task group, it would cancel all other tasks."""
    try:
        return await work
    except TapewayError as exc:
        return exc
    except Exception as exc:
        return unexpected(exc)


def unexpected(exc: Exception) -> TapewayError:
    """What is told of an error that nobody foresaw; the log says more."""
    log.error("changing a cassette failed: %s", describe(exc))
    return TapewayError(
        "tapeway failed to change a cassette because of an unexpected error: see its log"
    )


async def _end_of(task: _Task) -> None:
    """Wait for a task, which goes on where the wait is cancelled: in half of what `shield` takes."""
    waiter = task.get_loop().create_future()

    def wake(_: object) -> None:
        if not waiter.done():
            waiter.set_result(None)

    task.add_done_callback(wake)
    await waiter


def _key(ask: Ask) -> _Key:
    return ask.cassette.name, ask.key, ask.variant, ask.caller
