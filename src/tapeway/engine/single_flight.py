"""Single flight: equal requests at the same time share one live call.

Leases do the same among the instances of a shared store. A call continues when the client
disconnects. The call runs in a separate task, or in a task of the client that nobody cancels.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar, cast

from tapeway.core.cassette.plan import Answer, LiveCall
from tapeway.core.http.content_codings import (
    content_coding,
    has_content_coding,
    readable_response,
)
from tapeway.core.http.cors import for_origin
from tapeway.core.matching.headers.conditions import requests_differ
from tapeway.core.model.cassette import Lease
from tapeway.core.model.messages import Response
from tapeway.engine.journal import REPEATED
from tapeway.engine.open_streams import OpenStreams
from tapeway.engine.response_buffer import ResponseReader
from tapeway.errors import Draining, StoreError, TapewayError, describe
from tapeway.ports import SharedStore
from tapeway.providers.api_call import samples

log = logging.getLogger(__name__)
T = TypeVar("T")

CANCELLED = "tapeway is stopping and aborted this live call; try again when it is back"
_ABORTED = Draining(CANCELLED)
"""The result of a call that ended without one; copied, not raised."""

_LEASE_CHECK_S = 0.05

_Call = Coroutine[None, None, Answer | TapewayError]
_Key = tuple[str, bytes]


class _Flight:
    """A call under way, in a separate task or in its client's task."""

    __slots__ = (
        *(
            "_result",
            "_task",
            "_waiters",
            "cancelled",
            "cassette",
            "joined",
            "live_call",
            "shared_as",
        ),
    )

    def __init__(self, live_call: LiveCall, task: "asyncio.Task[Any]") -> None:
        self.live_call = live_call
        self.cassette = live_call.cassette.name
        self.shared_as = _key(live_call) if live_call.may_be_joined else None
        """The key of requests that may join, None if nobody may."""
        self.cancelled = False
        self.joined: list[Pending] = []
        """The waiting clients beside the first."""
        self._task = task
        self._result: Answer | TapewayError | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def result(self) -> Answer | TapewayError | None:
        """The result, None while the call goes on."""
        if self._result is None and self._task.done():
            # A task cancelled before its first step returns nothing.
            self._result = _ABORTED if self._task.cancelled() else self._task.result()
        return self._result

    def end(self, result: Answer | TapewayError | None) -> None:
        """Wake those who wait; without a result, it is the task's."""
        self._result = result
        self.wake()
        for joined in self.joined:
            if joined.reader is not None:
                joined.reader.close()

    def wake(self) -> None:
        """Have those who wait look again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def cancel(self) -> None:
        self.cancelled = True
        self._task.cancel()

    def waiter(self) -> "asyncio.Future[None]":
        """Ends when it does, in half of what `shield` takes; it goes on where that is cancelled."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    async def ended(self) -> Answer | TapewayError:
        """Wait for its end."""
        while (result := self.result) is None:
            await self.waiter()
        return result


class Pending:
    """A client's wait for a live call; other clients may share the call."""

    def __init__(
        self,
        flight: _Flight,
        live_call: LiveCall,
        again: "Again | None" = None,
        reader: ResponseReader | None = None,
    ) -> None:
        """`again` asks anew for a client that joined a call; the client that began the call has None.

        `reader` is closed at the end of a joined call, or gets the answer of a new call.
        """
        self.reader = reader
        self._flight = flight
        self.live_call = live_call
        self._again = again
        if again is not None:
            flight.joined.append(self)

    @property
    def joins(self) -> bool:
        """Whether another client began the call."""
        return self._again is not None

    def part(self, own: _Flight) -> None:
        """Wait for a call of its own from now on."""
        self._flight, self._again = own, None

    async def answer(self) -> Answer:
        """The answer, `replayed` for all clients but the first. Raises the call's error, or Draining.

        The others get the same as from a replay. A stored coding stays; otherwise the answer is
        decoded, since they may not accept the coding. A client asks anew whose header fields
        decide on another answer.
        """
        flight = None
        while flight is not self._flight:
            flight = self._flight
            ended = await flight.ended()
        result = _answer_or_raise(ended)
        if self._again is None:
            return result
        if self._is_told_apart(result):
            return await self._again(self.live_call).answer()
        result = result._replace(response=self._for_own_origin(self._decoded(result)))
        if result.index is None:
            return result
        self.live_call.cassette.touch(result.index, self.live_call.take)
        repeats = result.recorded is not None and samples(result.recorded)
        return result._replace(outcome="replayed", note=REPEATED if repeats else result.note)

    def _is_told_apart(self, answer: Answer) -> bool:
        first, own = self._flight.live_call.request.headers, self.live_call.request.headers
        ignored = self.live_call.cassette.rules.ignore_vary
        return requests_differ(first, own, answer.response.headers, ignored)

    def _for_own_origin(self, response: Response) -> Response:
        first, own = self._flight.live_call.request.headers, self.live_call.request.headers
        head = for_origin(response.head, first, own)
        return response if head is response.head else replace(response, head=head)

    def _decoded(self, answer: Answer) -> Response:
        method, recorded = self.live_call.request.method, answer.recorded
        if recorded is not None and content_coding(recorded.response.headers):
            return answer.response
        response = readable_response(answer.response, method)
        if (
            answer.index is None
            or response.file is None
            or not has_content_coding(response, method)
        ):
            return response
        # A large body was decoded when it was stored.
        return response if recorded is None else recorded.response


Again = Callable[[LiveCall], Pending]
"""Asks anew, after joining a call in vain."""


class SingleFlight:
    """The live calls under way, in a task group that lives longer, or in tasks of clients."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.streams = OpenStreams()
        self._tasks = tasks
        self._shared: dict[_Key, _Flight] = {}
        self._running: set[_Flight] = set()
        self.draining = False

    def __len__(self) -> int:
        return len(self._running)

    def __contains__(self, name: object) -> bool:
        """Whether calls of a cassette are under way."""
        return any(flight.cassette == name for flight in self._running)

    def count(self, name: str) -> int:
        """How many calls of a cassette are under way."""
        return sum([flight.cassette == name for flight in self._running])

    def join(
        self, live_call: LiveCall, again: "Again", reader: ResponseReader | None = None
    ) -> Pending | None:
        """Wait for an equal call that is under way, None if there is none."""
        running = self._shared.get(_key(live_call)) if live_call.may_be_joined else None
        # The answer of a finished call was already used in this take; a new request gets its own.
        if running is None or running.result is not None:
            return None
        return Pending(running, live_call, again, reader)

    def part(
        self, live_call: LiveCall, call: Callable[[LiveCall, ResponseReader | None], _Call]
    ) -> None:
        """End the sharing of a call: the answer is a stream that stays open.

        Clients that joined get separate calls.
        """
        if (flight := self._shared.pop(_key(live_call), None)) is None:
            return
        flight.shared_as = None
        joined, flight.joined = flight.joined, []
        for waiting in joined:
            waiting.part(
                self._own_flight(
                    waiting.live_call, call(waiting.live_call, waiting.reader), waiting.reader
                )
            )
        flight.wake()

    def start(
        self,
        live_call: LiveCall,
        call: _Call,
        reader: ResponseReader | None = None,
        *,
        shared: bool = True,
    ) -> Pending:
        """Start a call, which closes `reader` at its end. Others may join a `shared` call.

        `call` returns its error instead of raising it.
        """
        return Pending(self._own_flight(live_call, call, reader, shared=shared), live_call)

    def _own_flight(
        self,
        live_call: LiveCall,
        call: _Call,
        reader: ResponseReader | None,
        *,
        shared: bool = True,
    ) -> _Flight:
        task = self._tasks.create_task(call)
        flight = self._begin(live_call, task, shared=shared)

        def ended(_: object) -> None:
            self._end(flight)
            if reader is not None:
                reader.close()

        task.add_done_callback(ended)
        return flight

    async def run(self, live_call: LiveCall, call: _Call) -> Answer:
        """The answer of such a call in the current task. The client's leave does not cancel the task.

        Raises its error, or Draining.
        """
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        flight = self._begin(live_call, task)
        result: Answer | TapewayError = _ABORTED
        try:
            result = await call
        except asyncio.CancelledError:
            if not flight.cancelled:
                raise
        finally:
            self._end(flight, result)
        if flight.cancelled:
            # That was about the call: its client is yet to be answered.
            task.uncancel()
        return _answer_or_raise(result)

    def _begin(
        self, live_call: LiveCall, task: "asyncio.Task[Any]", *, shared: bool = True
    ) -> _Flight:
        flight = _Flight(live_call, task)
        if not shared:
            flight.shared_as = None
        self._running.add(flight)
        if flight.shared_as is not None:
            self._shared[flight.shared_as] = flight
        return flight

    def _end(self, flight: _Flight, result: Answer | TapewayError | None = None) -> None:
        flight.end(result)
        self._running.remove(flight)
        if flight.shared_as is not None and self._shared[flight.shared_as] is flight:
            del self._shared[flight.shared_as]

    async def ended(self, name: str) -> None:
        """Wait until no call of this cassette is under way."""
        with self.streams.closing(name):
            while calls := [flight.waiter() for flight in self._running if flight.cassette == name]:
                # Waiting clients get the answer first.
                await asyncio.wait(calls)

    def drain(self) -> None:
        """Start no more calls; those under way continue, but for streams that stay open."""
        self.draining = True
        self.streams.drain()

    def cancel(self) -> None:
        """Cancel the calls under way; their clients get Draining."""
        self.draining = True
        for flight in self._running:
            flight.cancel()

    def refuse_when_draining(self) -> None:
        """Raise Draining once no more calls may be started."""
        if self.draining:
            raise Draining("tapeway is stopping and starts no more live calls; try again")


class RecordingLeases:
    """Recordings in flight among all instances of a store: each holds a lease until it is durable."""

    def __init__(self, store: SharedStore, calls: SingleFlight) -> None:
        self._store = store
        self._calls = calls

    @asynccontextmanager
    async def held(self, name: str, key: bytes) -> AsyncIterator[None]:
        """Hold a lease that no instance takes over."""
        lease = await self._store.claim(name, key)
        try:
            yield
        finally:
            if lease is not None:
                await self.end(lease)

    @asynccontextmanager
    async def alone(self, name: str, key: bytes) -> AsyncIterator[None]:
        """Hold a lease, once it is free."""
        while (lease := await self._store.claim(name, key, wait=True)) is None:
            pass
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
        """Wait for the end of all present leases, on any instance.

        The lease of a dead instance ends when it expires. Raises Draining, StoreError.
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
    """The error for clients after an unforeseen exception; the log says more."""
    log.error("changing a cassette failed: %s", describe(exc))
    return TapewayError(
        "tapeway failed to change a cassette because of an unexpected error: see its log"
    )


def _answer_or_raise(result: Answer | TapewayError) -> Answer:
    """The result of a call for one client. Raises the call's error; so may others."""
    if isinstance(result, TapewayError):
        raise type(result)(result.message, status=result.status, code=result.code)
    return result


def _key(live_call: LiveCall) -> _Key:
    return live_call.cassette.name, live_call.flight
