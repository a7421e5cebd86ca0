"""So many workers, kept at work: one that ends is replaced, and what all of them tell is put together."""

import asyncio
import logging
import os
import resource
from collections.abc import Callable, Sequence
from operator import itemgetter

from tapeway.admin.processes import store_error
from tapeway.engine.broker import Broker
from tapeway.engine.journal import RequestJournal, Tally
from tapeway.errors import TapewayError
from tapeway.server.lifecycle import LAST_WORDS_S, within
from tapeway.server.listeners import Listener
from tapeway.workers.messages import Assignment, WorkerMessages, raised
from tapeway.workers.process import WorkerProcess, said

log = logging.getLogger(__name__)

MOST_DEATHS = 5
DEATHS_WITHIN_S = 60.0
"""Once so many workers died within this time, no other one is started."""

_FIRST_PAUSE_S = 0.1
_END_S = 3.0
"""So long a worker that has nothing left to do may take to end."""


class WorkerPool:
    """The workers behind some listeners; `broker` and `journal` take what they tell."""

    def __init__(
        self,
        assignment: Assignment,
        listeners: Sequence[Listener],
        broker: Broker,
        journal: RequestJournal,
        clock: Callable[[], float],
    ) -> None:
        self._assignment = assignment
        self._listeners = listeners
        self._broker = broker
        self._journal = journal
        self._clock = clock
        self._hands: dict[int, WorkerProcess] = {}
        self._kept: list[asyncio.Task[None]] = []
        self._deaths: list[float] = []
        self._past_connections = 0
        self._stopping = asyncio.Event()
        self.given_up = asyncio.Event()
        """Set when workers died so often that there is no use in starting others."""

    async def start(self, tasks: asyncio.TaskGroup) -> TapewayError | None:
        """Return when all serve, and have these tasks keep them at work; or what was in the way."""
        async with asyncio.TaskGroup() as starting:
            begun = [
                starting.create_task(self._begin(number))
                for number in range(1, len(self._listeners) + 1)
            ]
        self._kept = [tasks.create_task(self._keep(each)) for each in list(self._hands.values())]
        return next((fault for each in begun if (fault := each.result()) is not None), None)

    async def drain(self) -> bool:
        """Have all of them let what is under way end, and end; False if one had to be killed."""
        self._stopping.set()
        for hand in self._hands.values():
            hand.drain()
        if not self._kept:
            return True
        last = self._assignment.settings.drain_timeout + LAST_WORDS_S + _END_S
        _, left = await asyncio.wait(self._kept, timeout=last)
        if left:
            log.error("workers that did not end in time are killed: %d", len(left))
            self.kill()
            await asyncio.wait(left)
        return not left

    def kill(self) -> None:
        """End all of them at once."""
        for hand in self._hands.values():
            hand.kill()

    # As the admin API sees them.

    @property
    def pids(self) -> Sequence[int]:
        return (os.getpid(), *(hand.pid for hand in self._hands.values()))

    @property
    def past_cpu_s(self) -> float:
        # Nothing else is ever started here.
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ended.ru_utime + ended.ru_stime

    @property
    def connections(self) -> int:
        return self._past_connections + sum(each.connections for each in self._hands.values())

    @property
    def in_flight(self) -> int:
        return sum(hand.standing.in_flight for hand in self._hands.values())

    def readiness_error(self) -> TapewayError | None:
        for number in range(1, len(self._listeners) + 1):
            hand = self._hands.get(number)
            if hand is None or not hand.serving:
                return _down(f"worker {number} ended and is being replaced")
            if hand.standing.silent:
                return _down(f"worker {number} (process {hand.pid}) does not answer")
            if hand.standing.trouble is not None:
                return raised(hand.standing.trouble)
        return store_error(self._broker.store)

    async def sync(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for hand in self._hands.values():
                if hand.serving:
                    tasks.create_task(hand.look())
        self._collect()

    async def wait_for_recordings(self, cassette: str) -> None:
        async with asyncio.TaskGroup() as tasks:
            for hand in self._hands.values():
                if hand.serving:
                    tasks.create_task(hand.quiet(cassette))
        await self.sync()

    # How it does it.

    async def _begin(self, number: int) -> TapewayError | None:
        """Start a worker; what kept it from serving, if something did."""
        try:
            hand = await WorkerProcess.start(number, self._listeners[number - 1], self._assignment)
        except OSError as exc:
            return TapewayError(f"worker {number} cannot be started: {exc.strerror}")
        self._hands[number] = hand
        if self._stopping.is_set():
            hand.drain()
        try:
            await hand.ready()
        except TapewayError as exc:
            hand.kill()
            await self._bury(hand)
            return exc
        log.info("worker %d serves as process %d", number, hand.pid)
        return None

    async def _keep(self, hand: WorkerProcess) -> None:
        number = hand.number
        while True:
            await hand.attend(self._collect)
            code = await self._bury(hand)
            if self._stopping.is_set():
                return
            if code == 0:
                # Somebody told it alone to stop.
                log.info("worker %d ended: starting another one", number)
            elif not self._replaced(f"worker {number} {said(code)}"):
                return
            if not await self._begun_anew(number):
                return
            hand = self._hands[number]

    async def _begun_anew(self, number: int) -> bool:
        while (fault := await self._begin(number)) is not None:
            if self._stopping.is_set() or not self._replaced(fault.message):
                return False
            pause = _FIRST_PAUSE_S * 2 ** len(self._deaths)
            if await within(pause, self._stop()):
                return False
        return True

    async def _stop(self) -> None:
        await self._stopping.wait()

    async def _bury(self, hand: WorkerProcess) -> int:
        """Its exit code, once all it told last is heard."""
        if not await within(_END_S, _gone(hand)):
            hand.kill()
        code = await hand.ended()
        self._collect()
        self._past_connections += hand.connections
        del self._hands[hand.number]
        hand.close()
        return code

    def _replaced(self, what: str) -> bool:
        """Say that a worker died; whether another one is to take its place."""
        now = self._clock()
        self._deaths = [each for each in self._deaths if now - each < DEATHS_WITHIN_S] + [now]
        if len(self._deaths) <= MOST_DEATHS:
            log.error("%s: starting another one", what)
            return True
        log.error("%s: no other one is started, as %d ended alike", what, MOST_DEATHS)
        self.given_up.set()
        return False

    def _collect(self) -> None:
        """Put together what all of them told, in the order they told it."""
        found: list[WorkerMessages] = []
        for hand in self._hands.values():
            if told := hand.inlet.read():
                hand.connections = told[-1].connections
                found += told
        found.sort(key=itemgetter(0))
        for _, served, _ in found:
            # Its cassette is loaded there, and so it is for us from now on.
            self._journal.tallies.setdefault(served.cassette, Tally())
            self._journal.add(served)


async def _gone(hand: WorkerProcess) -> None:
    await hand.ended()


def _down(message: str) -> TapewayError:
    return TapewayError(message, status=503, code="worker_down")
