"""Who asks the upstream for all: leases in the shared file, each under a number of its own."""

import apsw

from tapeway.core.model.cassette import Lease
from tapeway.stores import sqlite_instances as instances
from tapeway.stores.sqlite_connection import rows
from tapeway.stores.sqlite_instances import Instance


def claim(
    instance: Instance, name: str, key: bytes, now: float, connection: apsw.Connection
) -> tuple[Lease, bool] | None:
    """The lease, and whether it was taken from one that is gone; None while one holds it."""
    connection.execute("BEGIN IMMEDIATE")
    instances.bury(now, connection)
    holder = _holder(name, key, connection)
    if holder is not None and instances.is_there(holder, connection):
        connection.execute("COMMIT")
        return None
    # It may have been taken for gone itself, stopped for long.
    instances.enter(instance, now, connection)
    fence = connection.execute("UPDATE counter SET fence = fence + 1 RETURNING fence").get
    connection.execute(
        "INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?)", (name, key, fence, instance.id)
    )
    connection.execute("COMMIT")
    return Lease(name, key, fence), holder is not None


def is_held(name: str, key: bytes, now: float, connection: apsw.Connection) -> bool:
    """Whether somebody who is alive holds it."""
    holder = _holder(name, key, connection)
    if holder is None:
        return False
    instances.bury(now, connection)
    return instances.is_there(holder, connection)


def fences(name: str, now: float, connection: apsw.Connection) -> frozenset[int]:
    """Those of the leases that processes which are alive hold for a cassette."""
    instances.bury(now, connection)
    sql = "SELECT fence FROM lease WHERE name = ? AND instance IN (SELECT id FROM instance)"
    return frozenset([fence for (fence,) in rows(connection, sql, (name,))])


def give_back(lease: Lease, connection: apsw.Connection) -> None:
    """End a lease, unless it is somebody else's by now."""
    connection.execute(
        "DELETE FROM lease WHERE name = ? AND key = ? AND fence = ?",
        (lease.name, lease.key, lease.fence),
    )


def _holder(name: str, key: bytes, connection: apsw.Connection) -> str | None:
    found = connection.execute(
        "SELECT instance FROM lease WHERE name = ? AND key = ?", (name, key)
    ).get
    return None if found is None else str(found)
