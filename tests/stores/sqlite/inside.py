"""The connections of a store, for tests that count the steps of SQLite or limit its files."""

from collections.abc import Callable

import apsw

from tapeway.stores.sqlite.runtime import Runtime
from tapeway.stores.sqlite.store import SqliteStore


def runtime_of(store: SqliteStore) -> Runtime:
    """The threads and connections of an open store."""
    # A store shows nobody its connections, and limits of SQLite hold for one connection alone.
    runtime = store._opened
    assert runtime is not None
    return runtime


async def on_readers(store: SqliteStore, work: Callable[[apsw.Connection], object]) -> None:
    """Have the work done on each connection that reads."""
    # Nor does the runtime, which chooses a reader for each statement.
    for reader in runtime_of(store)._readers.values():
        await reader.run(work)


async def on_shared(store: SqliteStore, work: Callable[[apsw.Connection], object]) -> None:
    """Have the work done on both connections to the shared file: the thread's and the event loop's."""
    runtime = runtime_of(store)
    # The event loop's connection is opened by its first move, which may be yet to come.
    here = runtime.moves._here

    def on_both(connection: apsw.Connection) -> None:
        here.open()
        for connection_of_store in (connection, here._connection):
            assert connection_of_store is not None
            work(connection_of_store)

    await runtime.shared_thread.run(on_both)
