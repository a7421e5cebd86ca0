"""Whether a process of this machine, which shares a file, is alive."""

import os
from contextlib import suppress
from pathlib import Path


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
