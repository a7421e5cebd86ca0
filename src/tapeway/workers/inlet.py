"""The other end of the pipe that a worker's news comes through."""

import fcntl
import os
from contextlib import suppress

from tapeway.workers.frames import Frames
from tapeway.workers.news import News, read

_CAPACITY = 1024 * 1024
"""Linux gives so much to any user: some thousand requests, before the worker has to keep them."""

_PIECE = 1024 * 1024


class Inlet:
    """Reads what a worker told; after its end, what it told last."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._frames = Frames()
        os.set_blocking(pipe, False)
        # Not every system has it; a smaller one does.
        with suppress(OSError, AttributeError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _CAPACITY)

    def read(self) -> list[News]:
        """All that was told until now and not read yet."""
        found: list[News] = []
        while True:
            try:
                data = os.read(self._pipe, _PIECE)
            except BlockingIOError:
                return found
            if not data:
                return found
            found += [read(each) for each in self._frames.feed(data)]

    def fileno(self) -> int:
        return self._pipe

    def close(self) -> None:
        """Let go of it."""
        os.close(self._pipe)
