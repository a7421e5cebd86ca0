"""A thread that keeps a process in touch with the others: heard of by them, and hearing of changes."""

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial

import apsw

from tapeway.core.model.control import Control
from tapeway.errors import StoreError
from tapeway.stores.sqlite.coordination import control, members
from tapeway.stores.sqlite.coordination.members import ProcessMember
from tapeway.stores.sqlite.worker_thread import WorkerThread

log = logging.getLogger(__name__)

LOST_S = 5.0
"""Who has not reached the shared file for so long no longer knows what is in force: well before it
is taken for gone."""

_LOOK_S = 0.05
_BEAT_S = 1.0


class HeartbeatThread:
    """Runs from `start` to `stop`, whatever the event loop is busy with."""

    def __init__(
        self, desk: WorkerThread, instance: ProcessMember, clock: Callable[[], float]
    ) -> None:
        self._desk = desk
        self._instance = instance
        self._clock = clock
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._apply: Callable[[Control], None] = lambda _: None
        self._heard = self._beaten = float("-inf")
        self._version: object = None
        self._known = self._applied = 0
        self._failing = False

    @property
    def in_touch(self) -> bool:
        """Whether what is in force is known."""
        return self._clock() - self._heard <= LOST_S

    def start(self) -> None:
        """Be heard of from now on, if it is not yet."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tapeway-watch", daemon=True)
            self._thread.start()

    def follow(self, now: Control, apply: Callable[[Control], None]) -> None:
        """Have every change after this one applied, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._known = self._applied = now.generation
        self._apply = apply
        self._heard = self._clock()
        self.start()

    def take(self, now: Control) -> None:
        """Apply a change, unless that was done or a later one was; call it on the event loop."""
        if now.generation > self._applied:
            self._apply(now)
            self._applied = now.generation
            self._desk.submit(
                partial(control.applied, self._instance, now.generation, self._clock())
            )

    async def stop(self) -> None:
        if self._thread is not None:
            self._stopped.set()
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            try:
                self._desk.now(self._look)
                self._failing = False
            except StoreError as exc:
                if not self._failing:
                    log.warning("%s", exc.message)
                self._failing = True

    def _look(self, connection: apsw.Connection) -> None:
        now = self._clock()
        if now - self._beaten >= _BEAT_S:
            if not members.beat(self._instance, now, connection) and self._loop is not None:
                # Stopped for so long that it was taken for gone.
                control.applied(self._instance, self._applied, now, connection)
            self._beaten = now
        # Another process wrote something: it says nothing of what this connection wrote.
        version = connection.pragma("data_version")
        if version != self._version:
            self._version = version
            if self._loop is not None and control.generation(connection) > self._known:
                self._tell(control.read(connection))
        if self._known <= self._applied:
            # After a long stop, what has been heard has to be applied first.
            self._heard = now

    def _tell(self, now: Control | None) -> None:
        if now is None or self._loop is None:
            return
        self._known = now.generation
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.take, now)
