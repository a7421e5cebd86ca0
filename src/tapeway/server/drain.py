"""Waiting for somebody outside, which the end of the process breaks off.

How a process hears that it is to stop.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tapeway.errors import Draining

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class OpenWaits:
    """All that waits at the time."""

    def __init__(self) -> None:
        self._open: set[asyncio.Timeout] = set()
        self._over = False

    @asynccontextmanager
    async def wait(self) -> AsyncIterator[None]:
        """What is done inside raises Draining when it is broken off, even before it begins."""
        limit = asyncio.timeout(0 if self._over else None)
        try:
            async with limit:
                self._open.add(limit)
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise Draining(
                "tapeway is stopping and broke this request off; nothing was stored"
            ) from None
        finally:
            self._open.discard(limit)

    def break_off(self) -> None:
        """Break off what waits now and what will."""
        self._over = True
        now = asyncio.get_running_loop().time()
        for each in self._open:
            each.reschedule(now)


class Stopping(asyncio.Event):
    """Set by the first signal; the second one ends the process, with `at_once` done before it."""

    at_once: Callable[[], None] | None = None

    def hear(self) -> None:
        """A signal came."""
        if self.is_set():
            if self.at_once is not None:
                self.at_once()
            # A second signal means now: what is acknowledged is on disk already.
            os._exit(1)
        self.set()


def stop_on_signals() -> Stopping:
    """What the signals set that stop a process."""
    stopping = Stopping()
    loop = asyncio.get_running_loop()
    for each in STOPPING:
        # One that is started by nohup is to outlive its terminal.
        if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN:
            loop.add_signal_handler(each, stopping.hear)
    return stopping
