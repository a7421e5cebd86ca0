"""An event loop in a thread of its own, for code that cannot await."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads, also for one that runs an event loop itself.

    It does not keep the process from ending.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[None, None, T]) -> T:
        """What the coroutine gives or raises. It goes on where waiting for it is interrupted."""
        if os.getpid() != self._process:
            work.close()
            raise RuntimeError("the thread of this stayed in the process this one was forked from")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        """Wait for the thread to end."""
        if os.getpid() == self._process:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def abandon(self, work: Coroutine[None, None, None]) -> None:
        """Do this last and end, with nobody waiting; whatever goes wrong is nobody's any more."""
        if os.getpid() != self._process or self._loop.is_closed():
            work.close()
            return
        done = asyncio.run_coroutine_threadsafe(work, self._loop)
        done.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
