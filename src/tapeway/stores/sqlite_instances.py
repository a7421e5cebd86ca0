"""The processes that use a store now, each with a heartbeat in the shared file.

Time is the machine's own clock that no one sets, the same for all its processes.
"""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

from tapeway.stores.sqlite_connection import rows

STALE_S = 15.0
"""An instance not heard of for so long is taken for gone, and its leases with it."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One that uses a store: its name, as people are told it, and its process."""

    id: str
    pid: int
    space: int

    @classmethod
    def of_this_process(cls, mark: str) -> "Instance":
        """A new one in this process; `mark` tells it from others there."""
        pid = os.getpid()
        return cls(f"{socket.gethostname()}:{pid}-{mark}", pid, _space())


def enter(instance: Instance, now: float, connection: apsw.Connection) -> None:
    """Be one of them."""
    connection.execute(
        "INSERT OR IGNORE INTO instance VALUES (?, ?, ?, ?, 0, 0)",
        (instance.id, instance.pid, instance.space, now),
    )


def beat(instance: Instance, now: float, connection: apsw.Connection) -> bool:
    """Be heard of, which renews all its leases; False where it was taken for gone."""
    return bool(
        connection.execute(
            "UPDATE instance SET seen = ? WHERE id = ? RETURNING 1", (now, instance.id)
        ).get
    )


def leave(instance: Instance, connection: apsw.Connection) -> None:
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
