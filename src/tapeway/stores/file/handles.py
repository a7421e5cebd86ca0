"""Which cassettes have open handles: the ones used last, within the limit of open files.

A cassette under recording has three handles: folder, lock and journal. While other cassettes need
handles, the cassette is parked, without any handle, and the right to record stays with this
process. The cassette's lock file then names a lock file of the process, which is held as long as
the process lives.
"""

import fcntl
import os
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tapeway.descriptors import max_open_cassettes
from tapeway.stores.support.durable_files import create_file, open_file

# No cassette has a tilde in the name, and so none has this lock file.
_PROCESS_LOCK = r"\.tapeway~[0-9a-f]{16}\.lock"
_FILE = re.compile(_PROCESS_LOCK)
_LOCK_PATH = re.compile(rf"(?:\.\./){{0,8}}{_PROCESS_LOCK}")


class Parkable(Protocol):
    """An owner of handles that can be closed and reopened."""

    def park(self) -> bool:
        """Close the handles; False while it is in use."""


class HandleBudget:
    """Parks the least recently used owners before a new one opens handles. Thread-safe."""

    def __init__(self, most: Callable[[], int] = max_open_cassettes) -> None:
        self._most = most
        self._guard = threading.Lock()
        self._open: OrderedDict[Parkable, None] = OrderedDict()

    def make_room(self) -> None:
        """Park as many as there are too many."""
        with self._guard:
            excess = len(self._open) + 1 - self._most()
            oldest = list(self._open) if excess > 0 else []
        for handle in oldest:
            if excess <= 0:
                return
            if handle.park():
                excess -= 1
                self.forget(handle)

    def used(self, cassette: Parkable) -> None:
        """Note that the cassette has open handles and was used last."""
        with self._guard:
            self._open[cassette] = None
            self._open.move_to_end(cassette)

    def forget(self, cassette: Parkable) -> None:
        """Note that it has none."""
        with self._guard:
            self._open.pop(cassette, None)


class ProcessLock:
    """A file in the store's folder that is locked as long as this process lives."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._guard = threading.Lock()
        self._name = ""
        self._fd = -1

    def name(self) -> str:
        """Its name; the first call makes it. Raises OSError."""
        with self._guard:
            if self._fd < 0:
                self._make()
            return self._name

    def close(self) -> None:
        """Remove it."""
        with self._guard:
            if self._fd >= 0:
                with suppress(OSError):
                    (self._root / self._name).unlink()
                os.close(self._fd)
                self._fd = -1

    def _make(self) -> None:
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in filter(_FILE.fullmatch, os.listdir(folder)):
                # Those of processes that were killed.
                is_held(folder, name)
            while self._fd < 0:
                self._name = f".tapeway~{secrets.token_hex(8)}.lock"
                fd = create_file(folder, self._name, os.O_RDWR)
                fcntl.flock(fd, fcntl.LOCK_EX)
                if os.fstat(fd).st_nlink:
                    self._fd = fd
                else:
                    # Another process took the file for a leftover before it was locked.
                    os.close(fd)
        finally:
            os.close(folder)


def is_lock_path(text: str) -> bool:
    """Whether this is the path of a process's lock file from a cassette's folder."""
    return _LOCK_PATH.fullmatch(text) is not None


def is_held(folder: int, lock_path: str) -> bool:
    """Whether the process with this lock file lives; a dead process's lock file is removed.

    Raises OSError, CassetteCorrupt.
    """
    try:
        fd = open_file(folder, lock_path, os.O_RDWR, lock_path)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        with suppress(FileNotFoundError):
            os.unlink(lock_path, dir_fd=folder)
        return False
    finally:
        os.close(fd)
