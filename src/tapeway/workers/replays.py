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
from typing import NamedTuple

from tapeway.engine.journal import BUCKETS_MS, MOST_ATTEMPTS

MOST_KINDS = 16_384
"""Of more kinds, replays are reported one by one as other requests are."""
LONGEST_ID = 32

_WORD = 8
_BUCKETS = len(BUCKETS_MS) + 1
_KIND = _BUCKETS + 1
"""Words of a kind: how many took how long, as Measure has it, and the milliseconds in sum."""
_NOTHING = bytes(_KIND * _WORD)
_ENTRY = Struct(f"=Q{LONGEST_ID}sddd")
"""The kind's number, and of the entry the id, the monotonic time, the time and the milliseconds."""


class CountedReplays(NamedTuple):
    """How many replays of a kind took how long, and the milliseconds in sum."""

    kind: int
    within: Sequence[int]
    ms: float


class EnteredReplay(NamedTuple):
    """A replay of a kind at this monotonic time; the rest is what `next_of` is called with."""

    at: float
    kind: int
    id: str
    time: float
    ms: float


class ReplayMemory:
    """The memory of one worker, as both processes see it; `journal_size` is the supervisor's.

    It takes the file descriptor over. Raises OSError.
    """

    def __init__(self, fd: int, journal_size: int) -> None:
        # A retry is told by the attempts before it, as many as are remembered.
        self.ring = max(journal_size, MOST_ATTEMPTS)
        self.first_entry = (1 + MOST_KINDS * _KIND) * _WORD
        size = self.first_entry + self.ring * _ENTRY.size
        try:
            if os.fstat(fd).st_size < size:
                os.truncate(fd, size)
            self.bytes = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        words = memoryview(self.bytes)[: self.first_entry]
        self.counts, self.sums = words.cast("Q"), words.cast("d")

    @staticmethod
    def make() -> int:
        """A file descriptor of new memory, which a worker can inherit."""
        if hasattr(os, "memfd_create"):
            return os.memfd_create("tapeway-replays")
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())

    def close(self) -> None:
        """Let go of the memory."""
        self.counts.release()
        self.sums.release()
        self.bytes.close()


class ReplayWriter:
    """The worker's side."""

    def __init__(self, memory: ReplayMemory) -> None:
        self._memory = memory
        self._entered = 0

    def add(self, kind: int, id: bytes, at: float, time: float, ms: float) -> None:
        """Count and enter a replay: a kind's number, and what EnteredReplay says."""
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
        self._counted: dict[int, bytes] = {}
        self._entered = 0

    def entered(self, kinds: int) -> list[EnteredReplay]:
        """The replays that were not read yet, oldest first: as many as there is room for.

        It ends before the first one that is not of the first so many kinds.
        """
        memory = self._memory
        end = memory.counts[0]
        begin = max(self._entered, end - memory.ring)
        found = [self._entry(number) for number in range(begin, end)]
        # Meanwhile the oldest ones may have been written over.
        lost = max(0, memory.counts[0] - memory.ring - begin)
        known = list(takewhile(lambda each: each.kind < kinds, found[lost:]))
        self._entered = begin + lost + len(known)
        return known

    def _entry(self, number: int) -> EnteredReplay:
        place = self._memory.first_entry + number % self._memory.ring * _ENTRY.size
        kind, id, at, time, ms = _ENTRY.unpack_from(self._memory.bytes, place)
        return EnteredReplay(at, kind, id.rstrip(b"\0").decode(), time, ms)

    def counted(self, kinds: int) -> list[CountedReplays]:
        """Of the first so many kinds, what was not read yet; `entered` comes before."""
        found: list[CountedReplays] = []
        for kind in range(kinds):
            first = (1 + kind * _KIND) * _WORD
            now = self._memory.bytes[first : first + _KIND * _WORD]
            before = self._counted.get(kind, _NOTHING)
            if now != before:
                self._counted[kind] = now
                found.append(_difference(kind, now, before))
        return found

    def close(self) -> None:
        self._memory.close()


_KIND_WORDS = Struct(f"={_BUCKETS}Qd")


def _difference(kind: int, now: bytes, before: bytes) -> CountedReplays:
    *within, ms = _KIND_WORDS.unpack(now)
    *within_before, ms_before = _KIND_WORDS.unpack(before)
    new = [one - other for one, other in zip(within, within_before, strict=True)]
    return CountedReplays(kind, new, ms - ms_before)
