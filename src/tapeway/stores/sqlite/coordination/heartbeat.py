"""A thread that reports that this process is alive, picks up changes of mode by others, and removes the
cursors of ended takes.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial

import apsw

from tapeway.core.model.cassette import Lease
from tapeway.core.model.control import Control
from tapeway.errors import StoreError
from tapeway.stores.sqlite.coordination import control, cursors, members
from tapeway.stores.sqlite.coordination.members import ProcessMember
from tapeway.stores.sqlite.worker_thread import WorkerThread

log = logging.getLogger(__name__)

LOST_S = 5.0
"""After this many seconds without the shared file, a process no longer knows the state in force. It
is well below `members.STALE_S`, after which others consider it dead.
"""

SWEEP_S = 24.0
"""Of the cursors that a sweep finds, the next one removes those whose takes had ended by then: so they
are gone within a minute, and a request of such a take has had this long to end.
"""

_POLL_S = 0.05
_BEAT_S = 1.0


class HeartbeatThread:
    """Runs from `start` to `stop`, also while the event loop is busy."""

    def __init__(
        self, shared_thread: WorkerThread, instance: ProcessMember, clock: Callable[[], float]
    ) -> None:
        self._shared_thread = shared_thread
        self._instance = instance
        self._clock = clock
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._apply: Callable[[Control], None] = lambda _: None
        self._last_heard = self._last_beat = float("-inf")
        self._version: object = None
        self._known = self._applied = 0
        self._failing = False
        self._unreleased: deque[Lease] = deque()
        self._last_sweep = float("-inf")
        self._in_force_then: Control | None = None
        """What was in force at the last sweep."""
        self._to_sweep: Control | None = None
        """What was in force when takes had ended whose cursors are being removed."""

    @property
    def in_touch(self) -> bool:
        """Whether this process knows the state in force."""
        return self._clock() - self._last_heard <= LOST_S

    def start(self) -> None:
        """Start the heartbeat, if it does not run."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tapeway-heartbeat", daemon=True)
            self._thread.start()

    def follow(self, joined: Control, apply: Callable[[Control], None]) -> None:
        """Have every change after `joined` applied, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._known = self._applied = joined.generation
        self._apply = apply
        self._last_heard = self._clock()
        self.start()

    def apply(self, changed: Control) -> None:
        """Apply a change, unless it or a later one was applied; call it on the event loop."""
        if changed.generation > self._applied:
            self._apply(changed)
            self._applied = changed.generation
            self._shared_thread.submit(
                partial(control.applied, self._instance, changed.generation, self._clock())
            )

    def release_later(self, lease: Lease) -> None:
        """Release a lease as soon as the shared file can be written: it does not expire."""
        self._unreleased.append(lease)
        self.start()

    async def stop(self) -> None:
        if self._thread is not None:
            self._stopped.set()
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while not self._stopped.wait(_POLL_S):
            try:
                self._shared_thread.run_blocking(self._poll)
                self._failing = False
            except StoreError as exc:
                if not self._failing:
                    log.warning("%s", exc.message)
                self._failing = True

    def _poll(self, connection: apsw.Connection) -> None:
        now = self._clock()
        if now - self._last_beat >= _BEAT_S:
            if not members.beat(self._instance, now, connection) and self._loop is not None:
                # This process was suspended so long that others considered it dead.
                control.applied(self._instance, self._applied, now, connection)
            self._last_beat = now
        while self._unreleased:
            members.release_lease(self._unreleased[0], connection)
            self._unreleased.popleft()
        self._sweep(now, connection)
        # It changes with each write of another connection, not with those of this one.
        version = connection.pragma("data_version")
        if version != self._version:
            self._version = version
            if self._loop is not None and control.generation(connection) > self._known:
                self._apply_on_loop(control.read(connection))
        if self._known <= self._applied:
            # After a suspension, the change found must be applied first.
            self._last_heard = now

    def _sweep(self, now: float, connection: apsw.Connection) -> None:
        """Remove a batch of cursors of ended takes, where it is time: others wait for a batch only."""
        if now - self._last_sweep >= SWEEP_S:
            self._last_sweep, self._to_sweep = now, self._in_force_then
            self._in_force_then = control.read(connection)
        if self._to_sweep is not None and not cursors.forget_some(self._to_sweep, connection):
            self._to_sweep = None

    def _apply_on_loop(self, changed: Control | None) -> None:
        if changed is None or self._loop is None:
            return
        self._known = changed.generation
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.apply, changed)
