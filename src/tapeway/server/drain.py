"""Stopping a process: the signals, and waits that end with the stop."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tapeway.errors import Draining

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class OpenWaits:
    """Waits for clients and upstreams that a stop can abort, all at once."""

    def __init__(self) -> None:
        self._timeouts: set[asyncio.Timeout] = set()
        self._aborted = False

    @asynccontextmanager
    async def wait(self) -> AsyncIterator[None]:
        """Run the block. Raises Draining when the drain aborts the block, even before its start."""
        timeout = asyncio.timeout(0 if self._aborted else None)
        try:
            async with timeout:
                self._timeouts.add(timeout)
                yield
        except TimeoutError:
            if not timeout.expired():
                raise
            raise Draining(
                "tapeway is stopping and aborted this request; nothing was stored"
            ) from None
        finally:
            self._timeouts.discard(timeout)

    def break_off(self) -> None:
        """Abort all waits, now and from now on."""
        self._aborted = True
        now = asyncio.get_running_loop().time()
        for timeout in self._timeouts:
            timeout.reschedule(now)


class Stopping(asyncio.Event):
    """Set by the first signal. A second one ends the process."""

    def on_signal(self) -> None:
        if self.is_set():
            # At once: whatever was acknowledged is durable already.
            os._exit(1)
        self.set()


def stop_on_signals() -> Stopping:
    """An event that SIGTERM, SIGINT and SIGHUP set."""
    stopping = Stopping()
    loop = asyncio.get_running_loop()
    for stop_signal in _STOP_SIGNALS:
        # Under nohup SIGHUP is ignored: the process must outlive its terminal.
        if stop_signal != signal.SIGHUP or signal.getsignal(stop_signal) != signal.SIG_IGN:
            loop.add_signal_handler(stop_signal, stopping.on_signal)
    return stopping
