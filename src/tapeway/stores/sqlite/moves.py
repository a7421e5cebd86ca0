"""The steps of cursors in the shared file: those that wait share a transaction, and one wake-up.

The event loop itself makes the steps of simultaneous requests, over a connection of the event loop:
a step takes 20 µs, and the way to a thread and back several times that. A step goes into the
system's cache without a sync. Whatever could take longer is left to the thread of the shared file:
a file that another process holds or that was replaced, the checkpoint, an error, and all for a
while where a step took long. In the thread, steps gather until the thread is free.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from math import inf
from pathlib import Path

import apsw

from tapeway.core.model.control import STAYED, CursorMove, CursorState
from tapeway.errors import StoreError, StoreFull, copy_of
from tapeway.ports import MoveDone
from tapeway.stores.sql.cassette_rows import CASSETTE_VERSION
from tapeway.stores.sql.cursors import BEGIN, TOUCH, first_version
from tapeway.stores.sql.rows import indexable
from tapeway.stores.sqlite.connection import immediate_transaction
from tapeway.stores.sqlite.location import StoreLocation
from tapeway.stores.sqlite.operations import RECORDINGS, quick_text
from tapeway.stores.sqlite.worker_thread import WorkerThread
from tapeway.stores.support.serial_executor import result_of

_GO_ON = """
UPDATE turn SET state = ?, version = ? WHERE name = ? AND take = ? AND key = ? AND version = ?
"""
_BEGIN = quick_text(BEGIN, attached=False)
_VERSION = quick_text(CASSETTE_VERSION.format("$1"), attached=True)
_TOUCH_RECORDED = quick_text(TOUCH, attached=False)
"""For a recording that is known to be there."""

EXAMINE_S = 0.05
"""How long replays of what is remembered go on after the file was replaced."""

MOST_PAGES = 1000
"""With so many pages in the write-ahead log the thread makes a checkpoint, as SQLite by default."""

SLOW_S = 0.05
REST_S = 1.0
"""After steps slower than the first, the thread makes the steps for so many seconds."""


class AttachedRecordings:
    """The recordings file attached to a connection, while the path still leads to it."""

    def __init__(
        self,
        location: StoreLocation,
        clock: Callable[[], float],
        connected_to: Callable[[], object],
    ) -> None:
        """`connected_to` gives the identity of the file that was read."""
        self._location = location
        self._clock = clock
        self._connected_to = connected_to
        self._attached_to: object = None
        self._examined = -inf

    @property
    def current(self) -> bool:
        """Whether the file is attached and current, so that `attach` has nothing to do."""
        if self._attached_to is None:
            return False
        return self._was_examined() or self._examine() == self._attached_to

    def attach(self, connection: apsw.Connection) -> None:
        """Attach the file that was read."""
        if self._attached_to is not None and self._was_examined():
            return
        identity = self._examine()
        if identity == self._attached_to:
            return
        if self._attached_to is not None:
            connection.execute(f"DETACH {RECORDINGS}")
            self._attached_to = None
        if identity is not None:
            # Read-only, or every transaction would lock it too.
            how = "mode=ro" if self._location.role == "read" else "immutable=1"
            address = f"{self._location.path.resolve().as_uri()}?{how}"
            connection.execute(f"ATTACH ? AS {RECORDINGS}", (address,))
            self._attached_to = identity

    def _was_examined(self) -> bool:
        return self._clock() < self._examined + EXAMINE_S

    def _examine(self) -> object:
        identity = self._connected_to()
        # If the file was replaced, the next look-up examines the present file.
        identity = identity if identity == file_identity(self._location.path) else None
        self._examined = self._clock() if identity == self._attached_to else -inf
        return identity


class LoopConnection:
    """`open` and `close` are called in the thread, while the event loop makes no step."""

    def __init__(
        self,
        connect: Callable[[], apsw.Connection],
        recordings: AttachedRecordings,
        clock: Callable[[], float],
    ) -> None:
        self._connect = connect
        self._recordings = recordings
        self._clock = clock
        self._connection: apsw.Connection | None = None
        self._pages = 0
        self._resting_until = -inf

    @property
    def usable(self) -> bool:
        """Whether steps are to be made here and not in the thread."""
        return (
            self._connection is not None
            and self._pages < MOST_PAGES
            and self._clock() >= self._resting_until
            and self._recordings.current
        )

    def open(self) -> None:
        """Connect where need be, and attach the recordings; what fails is tried again next time."""
        self._pages = 0
        with suppress(apsw.Error, StoreError):
            if self._connection is None:
                self._connection = self._connect()
                self._connection.set_busy_timeout(0)
                self._connection.set_wal_hook(self._committed)
            self._recordings.attach(self._connection)

    def make(self, moves: Sequence[CursorMove]) -> bool:
        """Make steps as `make_steps`; False where the thread is to make them."""
        if self._connection is None:
            return False
        began = self._clock()
        try:
            make_steps(moves, self._connection)
        except Exception:
            # Any error: the thread meets it too, and reports it to the waiting callers.
            return False
        finally:
            now = self._clock()
            if now - began > SLOW_S:
                self._resting_until = now + REST_S
        return True

    def close(self) -> None:
        """Close the connection for good."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(apsw.Error):
                connection.close()

    def _committed(self, _: apsw.Connection, __: str, pages: int) -> int:
        self._pages = pages
        return apsw.SQLITE_OK


class CursorMoves:
    """Made in the order they were added, on the event loop."""

    def __init__(
        self, thread: WorkerThread, recordings: AttachedRecordings, here: LoopConnection
    ) -> None:
        self._thread = thread
        self._recordings = recordings
        self._here = here
        self._waiting: deque[tuple[CursorMove, MoveDone]] = deque()
        self._queued: deque[tuple[CursorMove, MoveDone]] = deque()
        self._begun = False
        self._in_thread = 0
        """Steps that the thread has not told about: later ones do not overtake them."""
        self._submitted = False

    def add(self, move: CursorMove, done: MoveDone) -> None:
        """Make a step soon; `done` is called on the event loop, once it is made or refused."""
        self._waiting.append((move, done))
        if not self._begun:
            self._begun = True
            loop = asyncio.get_running_loop()
            loop.call_soon(self._begin, loop)

    async def close(self) -> None:
        """Close the event loop's own connection."""
        await result_of(self._thread.submit_unconnected(self._here.close))

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._begun = False
        if not self._in_thread and self._here.usable:
            taken = list(self._waiting)
            if self._here.make([move for move, _ in taken]):
                self._waiting.clear()
                _tell(loop, taken, [None] * len(taken))
                return
        self._in_thread += len(self._waiting)
        self._queued.extend(self._waiting)
        self._waiting.clear()
        if not self._submitted:
            self._submitted = True
            self._thread.submit_unconnected(partial(self._make_queued, loop))

    def _make_queued(self, loop: asyncio.AbstractEventLoop) -> None:
        # Before looking: what is queued from now on is submitted again.
        self._submitted = False
        taken: list[tuple[CursorMove, MoveDone]] = []
        while self._queued:
            taken.append(self._queued.popleft())
        if not taken:
            return
        moves = [move for move, _ in taken]
        refused = self._make(moves)
        if isinstance(refused, StoreFull) and len(taken) > 1:
            # There may be room for some of them.
            outcomes = [self._make([move]) for move in moves]
        else:
            outcomes = [refused and copy_of(refused) for _ in moves]
        if not refused:
            self._here.open()
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._made, loop, taken, outcomes)

    def _made(
        self,
        loop: asyncio.AbstractEventLoop,
        taken: Sequence[tuple[CursorMove, MoveDone]],
        outcomes: Sequence[BaseException | None],
    ) -> None:
        self._in_thread -= len(taken)
        _tell(loop, taken, outcomes)

    def _make(self, moves: Sequence[CursorMove]) -> BaseException | None:
        try:
            self._thread.run_here(partial(self._attach_and_make, moves))
        except BaseException as exc:
            return exc
        return None

    def _attach_and_make(self, moves: Sequence[CursorMove], connection: apsw.Connection) -> None:
        self._recordings.attach(connection)
        make_steps(moves, connection)


def file_identity(path: Path) -> tuple[int, int] | None:
    """The identity of the file at a path; None without a file."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def make_steps(moves: Sequence[CursorMove], connection: apsw.Connection) -> None:
    """Make the steps in order, in a transaction; without a move the file is not locked.

    `after` of a step stays None where the cursor has moved on since, or the version of the cassette differs.
    """
    try:
        _make_steps(moves, connection)
    except BaseException:
        for move in moves:
            move.after = None
        raise


def _make_steps(moves: Sequence[CursorMove], connection: apsw.Connection) -> None:
    versions: dict[str, str | None] = {}
    steps = any(move.state is not None for move in moves)
    with immediate_transaction(connection) if steps else nullcontext():
        for move in moves:
            if move.cassette_version is not None and move.name not in versions:
                versions[move.name] = _version_of(move.name, connection)
            if move.cassette_version is not None and versions[move.name] != move.cassette_version:
                continue
            if move.state is None:
                move.after = STAYED
                continue
            move.after = _replace(connection, move, move.state)
            if move.after is not None and move.touched is not None:
                touched = move.name, move.take, move.touched
                _touch(connection, touched, recorded=move.cassette_version is not None)


def _replace(connection: apsw.Connection, move: CursorMove, state: bytes) -> CursorState | None:
    """Replace the expected state of a cursor by the new state; None if the state is another."""
    before, cursor = move.before, (move.name, move.take, indexable(move.key))
    if before is None:
        version = first_version()
        connection.execute(_BEGIN, (*cursor, state, version))
        return CursorState(state, version) if connection.changes() == 1 else None
    if isinstance(before, CursorMove):
        before = before.after
        if before is None:
            return None
    version = before.version + 1
    connection.execute(_GO_ON, (state, version, *cursor, before.version))
    return CursorState(state, version) if connection.changes() == 1 else None


def _version_of(name: str, connection: apsw.Connection) -> str | None:
    if RECORDINGS not in connection.db_names():
        return None
    cassette_version: str | None = connection.execute(_VERSION, (name,)).get
    return cassette_version


def _touch(connection: apsw.Connection, touched: tuple[str, int, int], *, recorded: bool) -> None:
    """Count a recording as used, if it is there; `recorded` says that this is known.

    This file is locked already, and who removes a recording comes here afterwards.
    """
    if recorded:
        connection.execute(_TOUCH_RECORDED, touched)
    elif RECORDINGS in connection.db_names():
        connection.execute(quick_text(TOUCH, attached=True), touched)


def _tell(
    loop: asyncio.AbstractEventLoop,
    taken: Sequence[tuple[CursorMove, MoveDone]],
    outcomes: Sequence[BaseException | None],
) -> None:
    (move, last), refused = taken[-1], outcomes[-1]
    for (earlier, done), outcome in zip(taken[:-1], outcomes[:-1], strict=True):
        # Each separately: an error in one result must not keep the other callers waiting.
        loop.call_soon(done, earlier, outcome)
    last(move, refused)
