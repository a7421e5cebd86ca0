"""What became of each request: counts per outcome and cassette, and the last requests one by one.

Bounded; nothing in it is a secret.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tapeway.core.json_text import Json
from tapeway.core.matching.key import key_text
from tapeway.core.misses.miss import NearestRecording
from tapeway.core.model.control import Outcome

MOST_MISSES = 10_000
"""Further ones are not named: a client that goes on missing must not fill the memory."""

TOKENS = ("prompt_tokens", "completion_tokens", "total_tokens")

MOST_TRIES = 1024
"""Calls that may be repeated and are remembered; of more, the oldest are taken for done."""

_EQUAL_CALLS = 16
"""Equal calls at the same time, of which each may be repeated."""

_WAITING = 1000
"""Entries a slow follower may lag behind before it is let go."""


class ServedRequest(NamedTuple):
    """One proxied request. `at` is seconds since the epoch; `path` is redacted.

    `tokens` are those that the upstream would have charged for a replay, in the order of `TOKENS`.
    `attempt` says which try of one call it is, from 1, where the SDK says so.
    """

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
    tokens: tuple[int, ...] = ()

    @property
    def match_key(self) -> str | None:
        return key_text(self.key) if self.key else None


Feed = asyncio.Queue[ServedRequest | None]
"""New entries, oldest first; None ends it."""


def tokens_of(usage: Mapping[str, Json]) -> tuple[int, ...]:
    """The tokens a recorded call was charged for, in the order of `TOKENS`."""
    prompt, completion, total = map(usage.get, TOKENS)
    # People edit usage by hand, and `true` is an int too.
    return (
        prompt if type(prompt) is int else 0,
        completion if type(completion) is int else 0,
        total if type(total) is int else 0,
    )


class ServedRequests(Protocol):
    """Takes note of each request that was served, here or in another process."""

    def add(self, served: ServedRequest) -> None: ...


class Attempts:
    """How each try of a call ended, so that the next try can be told from a call of its own."""

    def __init__(self) -> None:
        self._ended: dict[tuple[bytes, int], list[Outcome]] = {}

    def follow(self, key: bytes, number: int, outcome: Outcome) -> Outcome | None:
        """Note how a try ended; how the one ended that it repeats, None where there was none."""
        repeated = None
        if number > 1 and (before := self._ended.get((key, number - 1))):
            repeated = before.pop()
        alike = self._ended.pop((key, number), [])
        self._ended[key, number] = [*alike[1 - _EQUAL_CALLS :], outcome]
        if len(self._ended) > MOST_TRIES:
            del self._ended[next(iter(self._ended))]
        return repeated


@dataclass(slots=True)
class Tally:
    """Counts for one cassette since it was loaded.

    A call that its SDK repeated is one call, counted as what its last try got. A miss stays listed
    whatever came of a later try.
    """

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    retries: int = 0
    misses: list[str] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOKENS, 0))
    attempts: Attempts = field(default_factory=Attempts)

    def add(self, served: ServedRequest) -> None:
        """Count a request, and for a replay the tokens the upstream would have charged for it."""
        outcome = served.outcome
        before = None
        if served.key is not None:
            # Some SDKs begin to count with the second try.
            before = self.attempts.follow(served.key, served.attempt or 1, outcome)
        if before is not None:
            self.retries += 1
            self.outcomes[before] -= 1
        self.outcomes[outcome] += 1
        if outcome == "miss" and before != "miss" and len(self.misses) < MOST_MISSES:
            self.misses.append(f"{served.method} {served.path}")
        for name, count in zip(TOKENS, served.tokens, strict=False):
            self.tokens[name] += count


class RequestJournal:
    """Counts requests, keeps the newest `size` of them, and tells followers of each new one.

    `tallies` has the cassettes that are loaded; one that another process of ours serves from is
    there from its first request on.
    """

    def __init__(self, size: int) -> None:
        self.counts: Counter[Outcome] = Counter()
        self.tallies: dict[str, Tally] = {}
        self._entries: deque[ServedRequest] = deque(maxlen=size)
        self._followers: set[Feed] = set()
        self._closed = False

    def __iter__(self) -> Iterator[ServedRequest]:
        return reversed(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, served: ServedRequest) -> None:
        self.counts[served.outcome] += 1
        if (tally := self.tallies.get(served.cassette)) is not None:
            tally.add(served)
        self._entries.append(served)
        if self._followers:
            self._tell(served)

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
