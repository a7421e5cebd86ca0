"""The processes that use a store now, and the leases they hold, in the shared file.

A lease lives as long as its process: it has no expiry of its own. Times are of the machine's
monotonic clock, the same for all processes.
"""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

from tapeway.core.model.cassette import Lease
from tapeway.stores.sql.statements import Op, quick_run
from tapeway.stores.sqlite.connection import immediate_transaction, rows

STALE_S = 15.0
"""After this many seconds without a heartbeat a process is considered dead, and its leases have
ended.
"""


@dataclass(frozen=True, slots=True)
class ProcessMember:
    """A process that uses a store; `id` names it for people, `space` is its pid namespace."""

    id: str
    pid: int
    space: int

    @classmethod
    def of_this_process(cls, suffix: str) -> "ProcessMember":
        """This process; `suffix` distinguishes several stores in it."""
        pid = os.getpid()
        return cls(f"{socket.gethostname()}:{pid}-{suffix}", pid, _pid_namespace())


def register(instance: ProcessMember, now: float, connection: apsw.Connection) -> None:
    """Add a process, if it is not registered."""
    connection.execute(
        "INSERT OR IGNORE INTO instance VALUES (?, ?, ?, ?, 0, 0)",
        (instance.id, instance.pid, instance.space, now),
    )


def beat(instance: ProcessMember, now: float, connection: apsw.Connection) -> bool:
    """Report that a process is alive; False where it was removed as dead."""
    return bool(
        connection.execute(
            "UPDATE instance SET seen = ? WHERE id = ? RETURNING 1", (now, instance.id)
        ).get
    )


def leave(instance: ProcessMember, connection: apsw.Connection) -> None:
    """Remove a process and its leases."""
    with immediate_transaction(connection):
        connection.execute("DELETE FROM lease WHERE instance = ?", (instance.id,))
        connection.execute("DELETE FROM instance WHERE id = ?", (instance.id,))


def remove_dead(now: float, connection: apsw.Connection) -> None:
    """Remove dead processes, so that those left are alive.

    Their leases stay until another process takes them over, under a higher fence.
    """
    found = rows(connection, "SELECT id, pid, space, seen FROM instance")
    for id_, pid, space, seen in found:
        if now - seen > STALE_S or not _is_alive(pid, space):
            connection.execute("DELETE FROM instance WHERE id = ?", (id_,))


def is_registered(id_: str, connection: apsw.Connection) -> bool:
    """Whether a process was not removed."""
    return connection.execute("SELECT 1 FROM instance WHERE id = ?", (id_,)).get is not None


def claim(
    instance: ProcessMember, name: str, key: bytes, now: float, connection: apsw.Connection
) -> tuple[Lease, bool] | None:
    """The lease, and whether it was taken over from a dead process; None while a live one holds it."""
    with immediate_transaction(connection):
        remove_dead(now, connection)
        holder = _holder(name, key, connection)
        if holder is not None and is_registered(holder, connection):
            return None
        # This process may itself have been removed as dead while it was suspended.
        register(instance, now, connection)
        fence = connection.execute("UPDATE counter SET fence = fence + 1 RETURNING fence").get
        connection.execute(
            "INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?)", (name, key, fence, instance.id)
        )
    return Lease(name, key, fence), holder is not None


def is_held(name: str, key: bytes, now: float, connection: apsw.Connection) -> bool:
    """Whether a live process holds the lease."""
    holder = _holder(name, key, connection)
    if holder is None:
        return False
    remove_dead(now, connection)
    return is_registered(holder, connection)


def fences(name: str, now: float, connection: apsw.Connection) -> frozenset[int]:
    """The fences of the leases that live processes hold for a cassette."""
    remove_dead(now, connection)
    sql = "SELECT fence FROM lease WHERE name = ? AND instance IN (SELECT id FROM instance)"
    return frozenset([fence for (fence,) in rows(connection, sql, (name,))])


def release_lease(lease: Lease, connection: apsw.Connection) -> None:
    """End a lease, unless another process took it over."""
    connection.execute(
        "DELETE FROM lease WHERE name = ? AND key = ? AND fence = ?",
        (lease.name, lease.key, lease.fence),
    )


def end(lease: Lease) -> Op[int]:
    """The same, once a recording that was made under it is durable."""
    return (
        yield from quick_run(
            "DELETE FROM @lease WHERE name = $1 AND key = $2 AND fence = $3",
            *(lease.name, lease.key, lease.fence),
        )
    )


def _holder(name: str, key: bytes, connection: apsw.Connection) -> str | None:
    found = connection.execute(
        "SELECT instance FROM lease WHERE name = ? AND key = ?", (name, key)
    ).get
    return None if found is None else str(found)


def _is_alive(pid: int, space: int) -> bool:
    # In another pid namespace (a container) the same number is another process.
    if space != _pid_namespace():
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


def _pid_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
