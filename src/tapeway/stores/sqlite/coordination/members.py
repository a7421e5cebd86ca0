"""The processes that use a store now, each with a heartbeat in the shared file.

Time is the machine's own clock that no one sets, the same for all its processes.

Who asks the upstream for all: leases in the shared file, each under a number of its own.
"""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

from tapeway.core.model.cassette import Lease
from tapeway.stores.sqlite.connection import rows

STALE_S = 15.0
"""An instance not heard of for so long is taken for gone, and its leases with it."""


@dataclass(frozen=True, slots=True)
class ProcessMember:
    """One that uses a store: its name, as people are told it, and its process."""

    id: str
    pid: int
    space: int

    @classmethod
    def of_this_process(cls, mark: str) -> "ProcessMember":
        """A new one in this process; `mark` tells it from others there."""
        pid = os.getpid()
        return cls(f"{socket.gethostname()}:{pid}-{mark}", pid, _space())


def enter(instance: ProcessMember, now: float, connection: apsw.Connection) -> None:
    """Be one of them."""
    connection.execute(
        "INSERT OR IGNORE INTO instance VALUES (?, ?, ?, ?, 0, 0)",
        (instance.id, instance.pid, instance.space, now),
    )


def beat(instance: ProcessMember, now: float, connection: apsw.Connection) -> bool:
    """Be heard of, which renews all its leases; False where it was taken for gone."""
    return bool(
        connection.execute(
            "UPDATE instance SET seen = ? WHERE id = ? RETURNING 1", (now, instance.id)
        ).get
    )


def leave(instance: ProcessMember, connection: apsw.Connection) -> None:
    """Be gone, and give back every lease."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("DELETE FROM lease WHERE instance = ?", (instance.id,))
    connection.execute("DELETE FROM instance WHERE id = ?", (instance.id,))
    connection.execute("COMMIT")


def bury(now: float, connection: apsw.Connection) -> None:
    """Remove those that are gone, so that who is left is alive.

    Their leases stay for who takes them over, under a higher number.
    """
    found = rows(connection, "SELECT id, pid, space, seen FROM instance")
    for id_, pid, space, seen in found:
        if now - seen > STALE_S or not _is_alive(pid, space):
            connection.execute("DELETE FROM instance WHERE id = ?", (id_,))


def is_there(id_: str, connection: apsw.Connection) -> bool:
    """Whether an instance was not buried."""
    return connection.execute("SELECT 1 FROM instance WHERE id = ?", (id_,)).get is not None


def _is_alive(pid: int, space: int) -> bool:
    # In another container the same number is another process.
    if space != _space():
        return True
    with suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return not _is_zombie(pid)
    return True


def _is_zombie(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] in ("Z", "X")


def _space() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def claim(
    instance: ProcessMember, name: str, key: bytes, now: float, connection: apsw.Connection
) -> tuple[Lease, bool] | None:
    """The lease, and whether it was taken from one that is gone; None while one holds it."""
    connection.execute("BEGIN IMMEDIATE")
    bury(now, connection)
    holder = _holder(name, key, connection)
    if holder is not None and is_there(holder, connection):
        connection.execute("COMMIT")
        return None
    # It may have been taken for gone itself, stopped for long.
    enter(instance, now, connection)
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
    bury(now, connection)
    return is_there(holder, connection)


def fences(name: str, now: float, connection: apsw.Connection) -> frozenset[int]:
    """Those of the leases that processes which are alive hold for a cassette."""
    bury(now, connection)
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
