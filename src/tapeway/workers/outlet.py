"""A worker's end of the pipe its news goes through.

What is told is in the pipe when `add` returns, so it outlives the worker, whatever ends that, and is
there before a client has its answer. Nobody is woken for it: that there is something to read is said
at most twenty times a second, and whoever needs to know earlier looks into the pipe.
"""

import asyncio
import logging
import os
from collections.abc import Callable

from tapeway.engine.journal import ServedRequest
from tapeway.engine.report import Noted
from tapeway.workers.frames import pack
from tapeway.workers.news import News, written

log = logging.getLogger(__name__)

_HINT_S = 0.05
_MOST_WAITING = 64 * 1024 * 1024
"""So much may wait for a reader who does not read; what comes then is not told."""


class Outlet:
    """Takes the place of a journal and of counts that are kept elsewhere.

    `connections` says how many were opened to upstreams, `hint` that there is something to read.
    """

    def __init__(
        self,
        pipe: int,
        *,
        clock: Callable[[], float],
        connections: Callable[[], int],
        hint: Callable[[], None],
    ) -> None:
        self._pipe = pipe
        self._clock = clock
        self._connections = connections
        self._hint = hint
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()
        self._noted: list[Noted] = []
        self._hinted = False
        self._watched = False
        self._dropped = False
        os.set_blocking(pipe, False)

    def note(self, noted: Noted) -> None:
        """Tell how a request ended; it goes out with what is entered next."""
        self._noted.append(noted)
        self._remind()

    def add(self, entry: ServedRequest) -> None:
        """Tell what the journal is to say of a request."""
        self._tell(entry)
        self._remind()
        self._write()

    def flush(self) -> None:
        """Put into the pipe what waits, as far as there is room."""
        if self._noted:
            self._tell(None)
        self._write()

    def _write(self) -> None:
        waiting = self._waiting
        while waiting:
            try:
                count = os.write(self._pipe, waiting)
            except BlockingIOError:
                break
            except OSError:
                # Nobody will ever read it.
                waiting.clear()
                break
            del waiting[:count]
        self._watch(bool(waiting))

    def _tell(self, entry: ServedRequest | None) -> None:
        noted = tuple(self._noted)
        self._noted.clear()
        if len(self._waiting) > _MOST_WAITING:
            self._drop()
            return
        self._waiting += pack(written(News(self._clock(), noted, entry, self._connections())))

    def _remind(self) -> None:
        if not self._hinted:
            self._hinted = True
            self._loop.call_later(_HINT_S, self._say)

    def _say(self) -> None:
        self._hinted = False
        self.flush()
        self._hint()

    def _drop(self) -> None:
        if not self._dropped:
            self._dropped = True
            log.error(
                "requests are missing in the journal: the process that keeps it does not read"
            )

    def _watch(self, wanted: bool) -> None:
        if wanted == self._watched:
            return
        self._watched = wanted
        if wanted:
            self._loop.add_writer(self._pipe, self._write)
        else:
            self._loop.remove_writer(self._pipe)
