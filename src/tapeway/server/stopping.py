"""How a process hears that it is to stop."""

import asyncio
import os
import signal
from collections.abc import Callable

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def stop_on_signals(at_once: Callable[[], None] = lambda: None) -> asyncio.Event:
    """An event that the first signal sets; the second one ends the process, `at_once` before it."""
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            # A second signal means now: what is acknowledged is on disk already.
            at_once()
            os._exit(1)
        stopping.set()

    loop = asyncio.get_running_loop()
    for each in STOPPING:
        # One that is started by nohup is to outlive its terminal.
        if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN:
            loop.add_signal_handler(each, stop)
    return stopping
