"""A thread with a connection to a SQLite file: work runs in order, off the event loop."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

import apsw

from tapeway.stores.sqlite.connection import store_error
from tapeway.stores.support.serial_executor import result_of

T = TypeVar("T")


class WorkerThread:
    """Connects at the first work. Failed work is rolled back and raised as a StoreError.

    A caller that stops waiting does not cancel the work.
    """

    def __init__(
        self,
        path: str,
        action: str,
        connect: Callable[[], apsw.Connection],
        identity: Callable[[], object] = lambda: None,
    ) -> None:
        """`action` names the work in errors; where `identity` changes, it connects again."""
        self._path = path
        self._action = action
        self._connect = connect
        self._identity = identity
        self._connected_to: object = None
        self._connection: apsw.Connection | None = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="tapeway-sqlite")

    @property
    def connected(self) -> bool:
        return self._connection is not None

    @property
    def connected_to(self) -> object:
        """The identity of the connected file, None without a connection."""
        return self._connected_to if self.connected else None

    def submit(self, work: Callable[[apsw.Connection], T]) -> "Future[T]":
        return self._executor.submit(self.run_here, work)

    async def run(self, work: Callable[[apsw.Connection], T]) -> T:
        return await result_of(self.submit(work))

    def submit_unconnected(self, work: Callable[[], T]) -> "Future[T]":
        """Work that is not given the connection; it may call `run_here`."""
        return self._executor.submit(work)

    def run_here(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run work at once; call only in the worker's thread."""
        number = 0
        try:
            identity = self._identity()
            if identity != self._connected_to:
                self.disconnect()
            if self._connection is None:
                self._connection, self._connected_to = self._connect(), identity
            try:
                return work(self._connection)
            except apsw.Error:
                number = self._connection.system_errno
                raise
            finally:
                self._roll_back(self._connection)
        except apsw.Error as exc:
            raise store_error(exc, self._path, self._action, number) from exc

    def disconnect(self) -> None:
        """Close the connection; call only in the worker's thread."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(apsw.Error):
                connection.close()

    async def close(self) -> None:
        """Finish the submitted work, then disconnect."""
        await result_of(self._executor.submit(self.disconnect))
        self._executor.shutdown()

    def _roll_back(self, connection: apsw.Connection) -> None:
        if connection.in_transaction:
            with suppress(apsw.Error):
                connection.execute("ROLLBACK")
