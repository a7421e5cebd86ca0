"""Notifications between instances that something may have changed. A lost one only costs time."""

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tapeway.errors import StoreError
from tapeway.stores.postgres.pool import Pool, Session

CONTROL = "control"

_BATCH = 100
_NOTIFY = "SELECT pg_notify($1, topic) FROM unnest($2::text[]) AS topic"


class Notifications:
    """Sends notifications outside of transactions, and wakes the tasks that wait for a topic."""

    def __init__(self, pool: Pool, tasks: asyncio.TaskGroup) -> None:
        self.channel = "tapeway_" + hashlib.sha256(pool.address.schema.encode()).hexdigest()[:16]
        self._pool = pool
        self._tasks = tasks
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._unsent: set[str] = set()
        self._sending: asyncio.Task[None] | None = None

    def send(self, topic: str) -> None:
        """Notify the other instances and this one; equal topics waiting to be sent are sent once."""
        self.wake(topic)
        self._unsent.add(topic)
        if self._sending is None or self._sending.done():
            self._sending = self._tasks.create_task(self._send())

    def wake(self, topic: str) -> None:
        for event in self._waiting.get(topic, ()):
            event.set()

    def wake_all(self) -> None:
        """Wake all tasks: notifications may have been lost."""
        for topic in self._waiting:
            self.wake(topic)

    @contextmanager
    def listening(self, topic: str) -> Iterator[asyncio.Event]:
        """An event that is set by the next notification of a topic."""
        event = asyncio.Event()
        self._waiting.setdefault(topic, set()).add(event)
        try:
            yield event
        finally:
            self._waiting[topic].discard(event)
            if not self._waiting[topic]:
                del self._waiting[topic]

    async def _send(self) -> None:
        while self._unsent:
            batch = [self._unsent.pop() for _ in range(min(_BATCH, len(self._unsent)))]

            async def notify(session: Session, batch: list[str] = batch) -> None:
                await session.rows(_NOTIFY, self.channel, batch)

            with suppress(StoreError):
                await self._pool.read("send a notification", notify)


def lease_topic(name: str, key: bytes) -> str:
    """The topic of the lease on a key of a cassette."""
    return hashlib.sha256(name.encode() + b"\0" + key).hexdigest()[:32]
