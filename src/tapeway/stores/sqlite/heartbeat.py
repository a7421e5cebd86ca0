"""A thread that reports the process as alive, picks up changes of mode, and removes the cursors of
ended takes.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import apsw

from tapeway.core.model.control import Control
from tapeway.errors import StoreError
from tapeway.stores.sql import coordination
from tapeway.stores.sql.coordination import BEAT_S, Member
from tapeway.stores.sqlite.connection import immediate_transaction
from tapeway.stores.sqlite.operations import run
from tapeway.stores.sqlite.worker_thread import WorkerThread

log = logging.getLogger(__name__)

BUSY_MS = 1000
"""How long a report waits for a lock. Changes by other processes are read only afterwards."""

POLL_S = 0.05


class HeartbeatThread:
    """Runs from `start` to `stop`, also while the event loop or other threads of the store are busy."""

    def __init__(self, path: str, connect: Callable[[], apsw.Connection], member: Member) -> None:
        """`connect` gives a connection to the shared file."""

        def connected() -> apsw.Connection:
            connection = connect()
            connection.set_busy_timeout(BUSY_MS)
            return connection

        self._file = WorkerThread(path, "use the shared file", connected)
        self._member = member
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last_beat = self._last_sweep = float("-inf")
        self._version: object = None
        self._in_force: Control | None = None
        self._handed_over: tuple[int, float] = 0, float("-inf")
        """The number of the last change that the event loop was given, and when."""
        self._reported = 0
        self._failing = False
        self._in_force_then: Control | None = None
        """What was in force at the last sweep."""
        self._to_sweep: Control | None = None
        """What was in force when takes had ended whose cursors are being removed."""

    def start(self) -> None:
        """Start the heartbeat; changes are applied on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="tapeway-heartbeat", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        if self._thread is not None:
            self._stopped.set()
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while not self._stopped.wait(POLL_S):
            # The report comes first: a change before the report is read below, a later one waits.
            reported, asked_at = self._try(self._report), self._member.clock()
            if self._try(self._pick_up):
                if not reported:
                    # Replays go on: what is in force can be read from a full disk, for example.
                    self._member.muted()
                # After a suspension, the change found must be applied first.
                self._member.heard(self._in_force, asked_at)
                self._hand_over_change(asked_at)
                self._failing = self._failing and not reported
        self._file.disconnect()

    def _try(self, work: Callable[[apsw.Connection], None]) -> bool:
        """Whether the work was done; the log says once why not."""
        try:
            self._file.run_here(work)
        except StoreError as exc:
            if not self._failing:
                log.warning("%s", exc.message)
            self._failing = True
            return False
        return True

    def _report(self, connection: apsw.Connection) -> None:
        """Make the writes that are due."""
        member, applied, now = self._member, self._member.applied, self._member.clock()
        run(coordination.give_back_owed(member), connection, quick=True)
        if now - self._last_beat >= BEAT_S or applied != self._reported:
            run(coordination.beat(member), connection, quick=True)
            member.beaten(now)
            self._last_beat, self._reported = now, applied
        self._sweep(now, connection)

    def _pick_up(self, connection: apsw.Connection) -> None:
        """Read the state in force after a change by another process."""
        # The value changes with writes of other connections.
        version = connection.pragma("data_version")
        if version != self._version:
            self._in_force = run(coordination.in_force(), connection, quick=True)
            self._version = version

    def _sweep(self, now: float, connection: apsw.Connection) -> None:
        """Remove a batch of cursors of ended takes when a sweep is due. Other writers wait for one batch."""
        if now - self._last_sweep >= coordination.SWEEP_S:
            self._last_sweep, self._to_sweep = now, self._in_force_then
            self._in_force_then = run(coordination.in_force(), connection, quick=True)
        if self._to_sweep is not None:
            with immediate_transaction(connection):
                more = run(coordination.forget_ended(self._to_sweep), connection, quick=True)
            if not more:
                self._to_sweep = None

    def _hand_over_change(self, now: float) -> None:
        """Have the event loop apply a change: at once, and with each heartbeat until it succeeds."""
        change, loop, (number, at) = self._in_force, self._loop, self._handed_over
        if change is None or loop is None or not self._member.is_behind(change):
            return
        if change.generation != number or now - at >= BEAT_S:
            self._handed_over = change.generation, now
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._member.apply, change)


def this_process() -> str:
    """The name of this process for the others: process number and number namespace."""
    return f"{os.getpid()} {_namespace()}"


def has_ended(process: str) -> bool:
    """Whether a process has certainly ended; False if the number may mean another process."""
    pid, _, namespace = process.partition(" ")
    # In another pid namespace (a container) the number means a different process.
    if not pid.isdigit() or namespace != str(_namespace()):
        return False
    with suppress(PermissionError):
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            return True
        return _is_zombie(int(pid))
    return False


def _is_zombie(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] in ("Z", "X")


def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
