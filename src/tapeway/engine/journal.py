"""The last requests, and why each hit or missed. Bounded; nothing in it is a secret."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from tapeway.core.matching.key import key_text
from tapeway.core.misses.miss import NearestRecording
from tapeway.core.model.control import Outcome

_WAITING = 1000
"""Entries a slow follower may lag behind before it is let go."""


class ServedRequest(NamedTuple):
    """One proxied request. `at` is seconds since the epoch; `path` is redacted."""

    id: str
    at: float
    cassette: str
    route: str
    method: str
    path: str
    outcome: Outcome
    status: int
    interaction: int | None
    duration_ms: float
    key: bytes | None
    message: str | None = None
    nearest: tuple[NearestRecording, ...] = ()
    suggestion: str | None = None
    attempt: int | None = None

    @property
    def match_key(self) -> str | None:
        return key_text(self.key) if self.key else None


Feed = asyncio.Queue[ServedRequest | None]
"""New entries, oldest first; None ends it."""


class Entries(Protocol):
    """Whatever takes entries."""

    def add(self, entry: ServedRequest) -> None: ...


class RequestJournal:
    """Keeps the newest `size` entries and tells followers of each new one."""

    def __init__(self, size: int) -> None:
        self._entries: deque[ServedRequest] = deque(maxlen=size)
        self._followers: set[Feed] = set()
        self._closed = False

    def __iter__(self) -> Iterator[ServedRequest]:
        return reversed(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: ServedRequest) -> None:
        self._entries.append(entry)
        if self._followers:
            self._tell(entry)

    def clear(self) -> None:
        self._entries.clear()

    def close(self) -> None:
        """End every follower, and those to come."""
        self._closed = True
        for follower in list(self._followers):
            self._let_go(follower)

    @contextmanager
    def follow(self) -> Iterator[Feed]:
        """Entries from now on; None when the journal closes or the follower lags too far behind."""
        feed: Feed = asyncio.Queue(_WAITING)
        self._followers.add(feed)
        try:
            if self._closed:
                self._let_go(feed)
            yield feed
        finally:
            self._followers.discard(feed)

    def _tell(self, entry: ServedRequest) -> None:
        for follower in list(self._followers):
            try:
                follower.put_nowait(entry)
            except asyncio.QueueFull:
                self._let_go(follower)

    def _let_go(self, follower: Feed) -> None:
        self._followers.discard(follower)
        if follower.full():
            follower.get_nowait()
        follower.put_nowait(None)
