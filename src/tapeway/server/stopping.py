"""How a process hears that it is to stop."""

import asyncio
import os
import signal
from collections.abc import Callable

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


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
