"""Memory in which a worker counts its replays, and which the supervisor reads when somebody looks.

A replay is counted and entered by two writes into memory: no system call, and nothing to decode for
each of them. It survives the worker, however that ends. Replays that differ in nothing but their id,
their time and how long they took are one kind, which has a number; what they have in common goes
through the pipe, once. The newest replays are there one by one, in a ring.

One process writes and one reads. The reader looks after the worker said something, or ended: what
was written before that is whole.
"""

import mmap
import os
import tempfile
from bisect import bisect_left
from collections.abc import Sequence
from itertools import takewhile
from struct import Struct
from typing import NamedTuple, Self

from tapeway.engine.journal import BUCKETS_MS, MOST_ATTEMPTS, ServedRequest, next_of

MOST_KINDS = 16_384
"""Of more kinds, replays are reported one by one as other requests are."""
LONGEST_ID = 32

_WORD = 8
_BUCKETS = len(BUCKETS_MS) + 1
_KIND = _BUCKETS + 1
"""Words of a kind: how many took how long, as Measure has it, and the milliseconds in sum."""
_KIND_WORDS = Struct(f"={_BUCKETS}Qd")
_NOTHING = bytes(_KIND * _WORD)
_ENTRY = Struct(f"=Q{LONGEST_ID}sddd")
"""The kind's number, and of the entry the id, the monotonic time, the time and the milliseconds."""


class CountedReplays(NamedTuple):
    """How many replays like this one took how long, and the milliseconds in sum."""

    entry: ServedRequest
    within: Sequence[int]
    ms: float


class ReplaysRead(NamedTuple):
    """Replays that were not read before: the newest, each with its monotonic time, and all counted."""

    entered: list[tuple[float, ServedRequest]]
    counted: list[CountedReplays]


class ReplayMemory:
    """The memory of one worker, as both processes see it; `journal_size` is the supervisor's.

    The file descriptor `fd` is closed with it. Raises OSError.
    """

    def __init__(self, fd: int, journal_size: int) -> None:
        self.fd = fd
        # A retry is told by the attempts before it, as many as are remembered.
        self.ring = max(journal_size, MOST_ATTEMPTS)
        self.first_entry = (1 + MOST_KINDS * _KIND) * _WORD
        size = self.first_entry + self.ring * _ENTRY.size
        try:
            if os.fstat(fd).st_size < size:
                os.truncate(fd, size)
            self.bytes = mmap.mmap(fd, size)
        except BaseException:
            os.close(fd)
            raise
        words = memoryview(self.bytes)[: self.first_entry]
        self.counts, self.sums = words.cast("Q"), words.cast("d")

    @classmethod
    def make(cls, journal_size: int) -> Self:
        """New memory, whose file descriptor a worker can inherit. Raises OSError."""
        if hasattr(os, "memfd_create"):
            return cls(os.memfd_create("tapeway-replays"), journal_size)
        with tempfile.TemporaryFile() as file:
            return cls(os.dup(file.fileno()), journal_size)

    def entry(self, number: int) -> tuple[int, str, float, float, float]:
        """An entry's kind, id, monotonic time, time and milliseconds."""
        place = self.first_entry + number % self.ring * _ENTRY.size
        kind, id, at, time, ms = _ENTRY.unpack_from(self.bytes, place)
        return kind, id.rstrip(b"\0").decode(), at, time, ms

    def counted(self, kind: int) -> bytes:
        """The words of a kind."""
        first = (1 + kind * _KIND) * _WORD
        return self.bytes[first : first + _KIND * _WORD]

    def close(self) -> None:
        """Let go of the memory."""
        self.counts.release()
        self.sums.release()
        self.bytes.close()
        os.close(self.fd)


class ReplayWriter:
    """The worker's side."""

    def __init__(self, memory: ReplayMemory) -> None:
        self._memory = memory
        self._entered = 0

    def add(self, kind: int, id: bytes, at: float, time: float, ms: float) -> None:
        """Count and enter a replay of a kind: its id, monotonic time, time and milliseconds."""
        memory, entered = self._memory, self._entered
        counts, first = memory.counts, 1 + kind * _KIND
        counts[first + (0 if ms <= BUCKETS_MS[0] else bisect_left(BUCKETS_MS, ms))] += 1
        memory.sums[first + _BUCKETS] += ms
        place = memory.first_entry + entered % memory.ring * _ENTRY.size
        _ENTRY.pack_into(memory.bytes, place, kind, id, at, time, ms)
        self._entered = counts[0] = entered + 1


class ReplayReader:
    """The supervisor's side; `close` closes the memory."""

    def __init__(self, memory: ReplayMemory) -> None:
        self._memory = memory
        self._kinds: list[ServedRequest] = []
        self._counted: dict[int, bytes] = {}
        self._entered = 0

    def know(self, entry: ServedRequest) -> None:
        """Know what the replays of the next kind have in common: those of others wait."""
        self._kinds.append(entry)

    def read(self) -> ReplaysRead:
        """What was not read yet; of the entries, as many as there is room for."""
        memory, kinds = self._memory, self._kinds
        end = memory.counts[0]
        begin = max(self._entered, end - memory.ring)
        found = [memory.entry(number) for number in range(begin, end)]
        # The oldest ones may have been written over, some of them meanwhile.
        kept = max(begin, memory.counts[0] - memory.ring)
        known = list(takewhile(lambda each: each[0] < len(kinds), found[kept - begin :]))
        # Whoever decides for workers reads between any two requests: not all kinds are looked at.
        changed = {each[0] for each in known} if kept == self._entered else range(len(kinds))
        self._entered = kept + len(known)
        entered = [(at, next_of(kinds[kind], id, time, ms)) for kind, id, at, time, ms in known]
        return ReplaysRead(entered, [*filter(None, map(self._count, changed))])

    def _count(self, kind: int) -> CountedReplays | None:
        now, before = self._memory.counted(kind), self._counted.get(kind, _NOTHING)
        if now == before:
            return None
        self._counted[kind] = now
        *within, ms = _KIND_WORDS.unpack(now)
        *within_before, ms_before = _KIND_WORDS.unpack(before)
        new = [one - other for one, other in zip(within, within_before, strict=True)]
        return CountedReplays(self._kinds[kind], new, ms - ms_before)

    def close(self) -> None:
        self._memory.close()
