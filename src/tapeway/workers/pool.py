"""Starts the workers behind one port, replaces dead workers, and merges the reports."""

import asyncio
import logging
import os
import resource
from collections.abc import Callable, Sequence
from operator import itemgetter

from tapeway.admin.handlers.inspection.followers import MOST_LISTED, RecordingNews
from tapeway.admin.models.inspection import RecordingUnderWay
from tapeway.engine.broker import Broker
from tapeway.engine.journal import EmptyNames, RequestJournal, ServedRequest, Tally
from tapeway.errors import TapewayError
from tapeway.ports import OpenConnections
from tapeway.server.lifecycle import ABORT_S, completed_within
from tapeway.server.listeners import Listener
from tapeway.workers.messages import WorkerConfig, decode_error
from tapeway.workers.process import WorkerProcess, describe_exit

log = logging.getLogger(__name__)

MAX_FAILURES = 5
FAILURE_WINDOW_S = 60.0
"""If more workers than MAX_FAILURES fail within this time, the next worker is not replaced."""

_FIRST_PAUSE_S = 0.1
_END_S = 3.0
"""How long a worker that has nothing left to do may take to end."""


class WorkerPool:
    """The workers behind some listeners; what they report goes to `journal`.

    It is the ServingProcesses of the admin API.
    """

    def __init__(
        self,
        config: WorkerConfig,
        listeners: Sequence[Listener],
        broker: Broker,
        journal: RequestJournal,
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._listeners = listeners
        self._broker = broker
        self._journal = journal
        self._clock = clock
        self._workers: dict[int, WorkerProcess] = {}
        self._supervision: list[asyncio.Task[None]] = []
        self._failures: list[float] = []
        self._past_connections = 0
        self._empty = EmptyNames()
        self._stopping = asyncio.Event()
        self.given_up = asyncio.Event()
        """Set when workers failed too often, and the last was not replaced."""

    async def start(self, tasks: asyncio.TaskGroup) -> TapewayError | None:
        """Return None when all workers serve, or the error that kept a worker from serving.

        From then on they are supervised in `tasks`.
        """
        async with asyncio.TaskGroup() as starting:
            started = [
                starting.create_task(self._start_worker(number))
                for number in range(1, len(self._listeners) + 1)
            ]
        workers = list(self._workers.values())
        self._supervision = [tasks.create_task(self._supervise(worker)) for worker in workers]
        return next((error for task in started if (error := task.result()) is not None), None)

    async def drain(self) -> bool:
        """Let all workers finish calls in flight and end; False if one had to be killed."""
        self._stopping.set()
        for worker in self._workers.values():
            worker.drain()
        if not self._supervision:
            return True
        timeout_s = self._config.settings.drain_timeout + ABORT_S + _END_S
        _, left = await asyncio.wait(self._supervision, timeout=timeout_s)
        if left:
            log.error("killing %d workers that did not end in time", len(left))
            self.kill()
            await asyncio.wait(left)
        return not left

    def kill(self) -> None:
        """End all workers at once."""
        for worker in self._workers.values():
            worker.kill()

    @property
    def pids(self) -> Sequence[int]:
        return (os.getpid(), *(worker.pid for worker in self._workers.values()))

    @property
    def past_cpu_s(self) -> float:
        # This process starts no children but workers.
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ended.ru_utime + ended.ru_stime

    @property
    def connections(self) -> int:
        return self._past_connections + sum(
            worker.pipe.connections for worker in self._workers.values()
        )

    @property
    def open_connections(self) -> OpenConnections:
        connections = [worker.status.open_connections for worker in self._workers.values()]
        return OpenConnections(
            sum(counts.in_use for counts in connections), sum(counts.idle for counts in connections)
        )

    @property
    def in_flight(self) -> int:
        return sum(worker.status.in_flight for worker in self._workers.values())

    def readiness_error(self) -> TapewayError | None:
        for number in range(1, len(self._listeners) + 1):
            worker = self._workers.get(number)
            if worker is None or not worker.serving:
                return _worker_down(f"worker {number} ended and is being replaced")
            if worker.status.unresponsive:
                return _worker_down(f"{worker.name} does not respond")
            if worker.status.error is not None:
                return decode_error(worker.status.error)
        return self._broker.store.trouble

    async def sync(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for worker in self._workers.values():
                if worker.serving:
                    tasks.create_task(worker.update_status())
        self._collect()

    async def wait_for_recordings(self, cassette: str) -> None:
        async with asyncio.TaskGroup() as tasks:
            for worker in self._workers.values():
                if worker.serving:
                    tasks.create_task(worker.wait_for_recordings(cassette))
        await self.sync()

    async def recordings(self) -> list[RecordingUnderWay]:
        """Those of all workers; their ids begin with the worker's process."""
        serving = [worker for worker in self._workers.values() if worker.serving]
        by_worker = await asyncio.gather(*(worker.recordings() for worker in serving))
        return [recording for recordings in by_worker for recording in recordings][:MOST_LISTED]

    async def recording_news(self, id: str, follower: str) -> RecordingNews | None:
        worker = self._recording(id)
        return None if worker is None else await worker.recording_news(id, follower)

    def leave_recording(self, id: str, follower: str) -> None:
        if (worker := self._recording(id)) is not None:
            worker.leave_recording(follower)

    def _recording(self, id: str) -> WorkerProcess | None:
        """The worker that gave `id` to a recording."""
        serving = (worker for worker in self._workers.values() if worker.serving)
        return next((worker for worker in serving if id.startswith(f"{worker.pid}.")), None)

    async def _start_worker(self, number: int) -> TapewayError | None:
        """Start a worker; returns the error that prevented serving, None if the worker serves."""
        try:
            worker = await WorkerProcess.start(number, self._listeners[number - 1], self._config)
        except OSError as exc:
            return TapewayError(f"worker {number} cannot be started: {exc.strerror}")
        self._workers[number] = worker
        if self._stopping.is_set():
            worker.drain()
        try:
            await worker.ready()
        except TapewayError as exc:
            worker.kill()
            await self._reap(worker)
            return exc
        log.info("worker %d serves as process %d", number, worker.pid)
        return None

    async def _supervise(self, worker: WorkerProcess) -> None:
        number = worker.number
        while True:
            await worker.receive(self._collect)
            code = await self._reap(worker)
            if self._stopping.is_set():
                return
            if code == 0:
                # This worker alone received a SIGTERM.
                log.info("worker %d ended: starting another one", number)
            elif not self._record_failure(f"worker {number} {describe_exit(code)}"):
                return
            if not await self._replace(number):
                return
            worker = self._workers[number]

    async def _replace(self, number: int) -> bool:
        """Start a worker, again after a growing pause if it fails; False if given up or stopping."""
        while (error := await self._start_worker(number)) is not None:
            if self._stopping.is_set() or not self._record_failure(error.message):
                return False
            pause_s = _FIRST_PAUSE_S * 2 ** len(self._failures)
            if await completed_within(pause_s, self._stop()):
                return False
        return True

    async def _stop(self) -> None:
        await self._stopping.wait()

    async def _reap(self, worker: WorkerProcess) -> int:
        """The worker's exit code, once all its reports are collected."""
        if not await completed_within(_END_S, _ended(worker)):
            worker.kill()
        code = await worker.ended()
        self._collect()
        self._past_connections += worker.pipe.connections
        del self._workers[worker.number]
        worker.close()
        return code

    def _record_failure(self, what: str) -> bool:
        """Log the failure of a worker; returns whether to replace the worker."""
        now = self._clock()
        recent = [failure for failure in self._failures if now - failure < FAILURE_WINDOW_S]
        self._failures = [*recent, now]
        if len(self._failures) <= MAX_FAILURES:
            log.error("%s: starting another one", what)
            return True
        log.error("%s: not starting another one, because %d failed before", what, MAX_FAILURES)
        self.given_up.set()
        return False

    def _collect(self) -> None:
        """Read the reports of all workers, and process them in the order of time."""
        requests: list[tuple[float, ServedRequest]] = []
        for worker in self._workers.values():
            requests += worker.pipe.read()
        requests.sort(key=itemgetter(0))
        for _, served in requests:
            self._add(served)

    def _add(self, served: ServedRequest) -> None:
        tallies = self._journal.tallies
        if served.cassette not in tallies:
            # The worker has loaded the cassette: from now on the cassette counts as loaded here.
            tallies[served.cassette] = Tally()
        if served.outcome in ("miss", "error"):
            self._forget_empty(served.cassette)
        self._journal.add(served)

    def _forget_empty(self, missed: str) -> None:
        """Forget names asked for long ago of which nothing was ever answered."""
        tallies = self._journal.tallies
        for cassette in self._empty.add(missed):
            if (tally := tallies.get(cassette)) is not None and not tally.answered:
                del tallies[cassette]


async def _ended(worker: WorkerProcess) -> None:
    await worker.ended()


def _worker_down(message: str) -> TapewayError:
    return TapewayError(message, status=503, code="worker_down")
