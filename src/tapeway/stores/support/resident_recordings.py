"""Which recordings of cassettes that stay in files are in memory too."""

import threading
from collections import deque
from weakref import ref

from tapeway.core.model.lazy_interaction import LazyInteraction

MOST_RESIDENT = 64 * 1024 * 1024
MOST_FILES = 64
_OBJECTS = 600
"""The memory of a recording beside the text, roughly."""


class ResidentRecordings:
    """Which recordings are in memory too: those that were read last. For any thread."""

    def __init__(self, most_bytes: int = MOST_RESIDENT, most_files: int = MOST_FILES) -> None:
        self._most_bytes = most_bytes
        self._most_files = most_files
        self._guard = threading.Lock()
        self._read: deque[tuple[ref[LazyInteraction], int]] = deque()
        self._size = 0
        self._files = 0

    def take_file(self) -> bool:
        """Count a file that is held open; False where there are enough of them."""
        with self._guard:
            if self._files >= self._most_files:
                return False
            self._files += 1
            return True

    def return_file(self) -> None:
        """Count one less."""
        with self._guard:
            self._files -= 1

    def add(self, item: LazyInteraction, size: int) -> None:
        """Count a recording with a text of this size; without room the earlier ones are forgotten."""
        size += _OBJECTS
        with self._guard:
            self._read.append((ref(item), size))
            self._size += size
            while self._size > self._most_bytes:
                oldest, size = self._read.popleft()
                self._size -= size
                if (recording := oldest()) is not None:
                    recording.forget()
