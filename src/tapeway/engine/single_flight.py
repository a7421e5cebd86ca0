"""Live calls under way: one for all who ask the same at the time, carried to its end.

A call runs in a task of its own and belongs to no client, so that nobody's leaving stops it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from dataclasses import replace
from typing import TypeVar

from tapeway.core.cassette.plan import Answer, Ask
from tapeway.core.http.content_codings import has_content_coding, readable_response
from tapeway.core.model.messages import Response
from tapeway.engine.response_buffer import ResponseReader
from tapeway.errors import Draining, TapewayError, describe

log = logging.getLogger(__name__)
T = TypeVar("T")

BROKEN_OFF = "tapeway is stopping and broke off this live call; ask again when it is back"

_Task = asyncio.Task[Answer | TapewayError]
_Key = tuple[str, bytes]


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
    """The calls under way, in a task group that outlives them."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._shared: dict[_Key, _Task] = {}
        self._running: dict[_Task, str] = {}
        self.draining = False

    def __len__(self) -> int:
        return len(self._running)

    def joined(self, ask: Ask) -> Pending | None:
        """A share in the call that asks this already, None where there is none."""
        running = self._shared.get(_key(ask)) if ask.policy.replays else None
        # The answer of one that is done was this take's turn before; who comes now has their own.
        if running is None or running.done():
            return None
        return Pending(running, ask, first=False)

    def start(
        self,
        ask: Ask,
        call: Coroutine[None, None, Answer | TapewayError],
        reader: ResponseReader | None = None,
    ) -> Pending:
        """Begin a call that others may join and that closes `reader` at its end.

        It returns its error instead of raising it, and is not begun once no more may be.
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


async def settled(work: Awaitable[T]) -> T | TapewayError:
    """The result or the error: one raised in the broker's task group would end all of its tasks."""
    try:
        return await work
    except TapewayError as exc:
        return exc
    except Exception as exc:
        log.error("steering a cassette failed: %s", describe(exc))
        return TapewayError("tapeway failed while it steered a cassette; its log says where")


def _key(ask: Ask) -> _Key:
    return ask.cassette.name, ask.key + ask.variant
