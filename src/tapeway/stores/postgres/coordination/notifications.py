"""Words between instances that something may have changed. Nothing depends on their arrival."""

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tapeway.errors import StoreError
from tapeway.stores.postgres.pool import Pool, Session

CONTROL = "control"

_MOST_AT_ONCE = 100
_NOTIFY = "SELECT pg_notify($1, hint) FROM unnest($2::text[]) AS hint"


class Notifications:
    """Sends them outside of all transactions, and wakes those who wait for one."""

    def __init__(self, pool: Pool, tasks: asyncio.TaskGroup) -> None:
        self.channel = "tapeway_" + hashlib.sha256(pool.address.schema.encode()).hexdigest()[:16]
        self._pool = pool
        self._tasks = tasks
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._unsent: set[str] = set()
        self._sending: asyncio.Task[None] | None = None

    def send(self, hint: str) -> None:
        """At most one for each matter at a time; to others, and to this instance too."""
        self.wake(hint)
        self._unsent.add(hint)
        if self._sending is None or self._sending.done():
            self._sending = self._tasks.create_task(self._send())

    def wake(self, hint: str) -> None:
        for event in self._waiting.get(hint, ()):
            event.set()

    def wake_all(self) -> None:
        """Hints may have been lost."""
        for hint in self._waiting:
            self.wake(hint)

    @contextmanager
    def expected(self, hint: str) -> Iterator[asyncio.Event]:
        """An event that is set when a hint comes from now on."""
        event = asyncio.Event()
        self._waiting.setdefault(hint, set()).add(event)
        try:
            yield event
        finally:
            self._waiting[hint].discard(event)
            if not self._waiting[hint]:
                del self._waiting[hint]

    async def _send(self) -> None:
        while self._unsent:
            batch = [self._unsent.pop() for _ in range(min(_MOST_AT_ONCE, len(self._unsent)))]

            async def notify(session: Session, batch: list[str] = batch) -> None:
                await session.rows(_NOTIFY, self.channel, batch)

            with suppress(StoreError):
                await self._pool.read("send a hint", notify)


def hint_of(name: str, key: bytes) -> str:
    """What stands for a key of a cassette."""
    return hashlib.sha256(name.encode() + b"\0" + key).hexdigest()[:32]
