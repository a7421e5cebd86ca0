"""A thread with a connection of its own: what it is given is done in order, off the event loop."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import apsw

from tapeway.stores.shared.serial_executor import outcome
from tapeway.stores.sqlite.connection import store_error

T = TypeVar("T")


class WorkerThread:
    """Connects when there is something to do. What fails is undone, and told as a StoreError.

    Who waits for a result may leave: the work is done all the same.
    """

    def __init__(
        self,
        place: str,
        deed: str,
        connect: Callable[[], apsw.Connection],
        which: Callable[[], object] = lambda: None,
    ) -> None:
        """Connects anew when `which` says that the file is another one."""
        self._place = place
        self._deed = deed
        self._connect = connect
        self._which = which
        self._seen: object = None
        self._connection: apsw.Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tapeway-sqlite")

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def submit(self, work: Callable[[apsw.Connection], T]) -> "Future[T]":
        return self._thread.submit(self._do, work)

    async def run(self, work: Callable[[apsw.Connection], T]) -> T:
        return await outcome(self.submit(work))

    def now(self, work: Callable[[apsw.Connection], T]) -> T:
        """The same from a thread that may wait."""
        return self.submit(work).result()

    def in_turn(self, work: Callable[[], T]) -> "Future[T]":
        """Work that connects by itself, or not."""
        return self._thread.submit(work)

    def do(self, work: Callable[[apsw.Connection], T]) -> T:
        """Work at once; call it only in the desk's own thread."""
        return self._do(work)

    def drop(self) -> None:
        """Let go of the connection; call it only in the desk's own thread."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(apsw.Error):
                connection.close()

    async def close(self) -> None:
        """Do what is waiting, and let go."""
        await outcome(self._thread.submit(self.drop))
        self._thread.shutdown()

    def _do(self, work: Callable[[apsw.Connection], T]) -> T:
        number = 0
        try:
            seen = self._which()
            if seen != self._seen:
                self.drop()
            if self._connection is None:
                self._connection, self._seen = self._connect(), seen
            try:
                return work(self._connection)
            except apsw.Error:
                number = self._connection.system_errno
                raise
            finally:
                self._undo(self._connection)
        except apsw.Error as exc:
            raise store_error(exc, self._place, self._deed, number) from exc

    def _undo(self, connection: apsw.Connection) -> None:
        if connection.in_transaction:
            with suppress(apsw.Error):
                connection.execute("ROLLBACK")
