"""A connection to the shared file that the event loop uses itself: it waits for nobody.

A step of a cursor takes 20 µs, and the way to a thread and back several times that. It is made into
the system's cache without a sync. What could take longer is left to the thread: a file that another
process holds or that was replaced, the checkpoint, an error, and all for a while where a step took
long.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf

import apsw

from tapeway.core.model.control import CursorMove
from tapeway.errors import StoreError
from tapeway.stores.sqlite.moves import steps
from tapeway.stores.sqlite.moves.sight import RecordingsInSight

MOST_PAGES = 1000
"""Pages of the write-ahead log from which on the thread makes a checkpoint, as SQLite does by default."""

SLOW_S = 0.05
REST_S = 1.0
"""After steps slower than the first, the thread makes the steps for so many seconds."""


class LoopConnection:
    """`open` and `close` are called in the thread, while the event loop makes no step."""

    def __init__(
        self,
        connect: Callable[[], apsw.Connection],
        in_sight: RecordingsInSight,
        clock: Callable[[], float],
    ) -> None:
        self._connect = connect
        self._in_sight = in_sight
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
            and self._in_sight.current
        )

    def open(self) -> None:
        """Connect where need be, and attach the recordings; what fails is tried again next time."""
        self._pages = 0
        with suppress(apsw.Error, StoreError):
            if self._connection is None:
                self._connection = self._connect()
                self._connection.set_busy_timeout(0)
                self._connection.set_wal_hook(self._committed)
            self._in_sight.attach(self._connection)

    def make(self, moves: Sequence[CursorMove]) -> bool:
        """Make steps as `steps.make`; False where the thread is to make them."""
        if self._connection is None:
            return False
        began = self._clock()
        try:
            steps.make(moves, self._connection)
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
