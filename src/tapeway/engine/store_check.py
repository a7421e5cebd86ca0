"""Looks whether a store works now, for readiness probes."""

import asyncio
from collections.abc import Awaitable, Callable

from tapeway.errors import StoreAway, StoreError, describe

FRESH_S = 0.2
PATIENCE_S = 0.5
HANGS_S = 5.0
_FAILED = -1


class StoreCheck:
    """Looks at a store, to read it or to write into it.

    Looking takes a write to the disk or a call to another machine. One look serves everybody for
    a moment, and nobody waits long for it: a disk that hangs must not hang a readiness probe. No look
    counts that found something, or that began before the store last failed a request.
    """

    def __init__(
        self, url: str, look: Callable[[], Awaitable[object]], tasks: asyncio.TaskGroup
    ) -> None:
        """`look` raises StoreError for what is wrong with the store at `url`."""
        self._url = url
        self._look_at_store = look
        self._tasks = tasks
        self._look: asyncio.Task[StoreError | None] | None = None
        self._begun = 0.0
        self._failures = 0
        """How many requests the store had failed when the look began."""
        self.passed = 0
        """The same, of the last look, if it found nothing."""

    async def error(self, failures: int) -> StoreError | None:
        """What is wrong now; None if nothing is. The store has failed so many requests so far."""
        now = asyncio.get_running_loop().time
        if self._look is None or (self._look.done() and self._is_old(failures, now())):
            self._begun, self._failures = now(), failures
            self._look = self._tasks.create_task(self._found())
        look = self._look
        await asyncio.wait((look,), timeout=PATIENCE_S)
        if not look.done():
            hangs = self.passed != failures or now() - self._begun > HANGS_S
            message = f"{self._url} takes too long to answer: see what holds it up"
            return StoreAway(message) if hangs else None
        self.passed = self._failures if look.result() is None else _FAILED
        # The look of somebody else may have begun too early.
        return look.result() if failures <= self._failures else await self.error(failures)

    def _is_old(self, failures: int, now: float) -> bool:
        if self._look is None or self._look.result() is not None:
            return True
        return failures > self._failures or now - self._begun > FRESH_S

    def cancel(self) -> None:
        """Look no longer."""
        if self._look is not None:
            self._look.cancel()

    async def _found(self) -> StoreError | None:
        try:
            await self._look_at_store()
        except StoreError as exc:
            return exc
        except Exception as exc:
            return StoreError(f"{self._url} cannot be used: {describe(exc)}")
        return None
