"""Replays in memory that two processes share: each is counted once, and the newest are entered."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.engine import journal as engine_journal
from tapeway.engine.journal import (
    BUCKETS_MS,
    Attempts,
    RequestJournal,
    ServedRequest,
    Tally,
    next_of,
)
from tapeway.workers import replays
from tapeway.workers.replays import (
    CountedReplays,
    ReplayMemory,
    ReplayReader,
    ReplaysRead,
    ReplayWriter,
)

RING = 4
ONE = ServedRequest("", 0.0, "c", "r", "GET", "/", "replayed", 200, 1, 0.0, b"key", sent=10)
KINDS = [
    ONE,
    ONE._replace(path="/other", interaction=2, key=b"other", tokens=(1, 2, 3), model="a/b"),
    ONE._replace(interaction=3, key=b"third", unmarked=True, status=500),
]


@contextmanager
def both_sides(ring: int = RING) -> Iterator[tuple[ReplayWriter, ReplayReader]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replays, "MOST_ATTEMPTS", ring)
        memory = ReplayMemory.make(0)
        written = ReplayMemory(os.dup(memory.fd), 0)
        reader = ReplayReader(memory)
    try:
        yield ReplayWriter(written), reader
    finally:
        reader.close()
        written.close()


NO_ATTEMPTS = {"attempts": None}
milliseconds = st.one_of(st.sampled_from(BUCKETS_MS).map(float), st.floats(0, 100_000))
written = st.lists(st.tuples(st.integers(0, len(KINDS) - 1), milliseconds), max_size=2 * RING + 1)


def _ids(read: ReplaysRead) -> list[str]:
    return [served.id for _, served in read.entered]


def _journal() -> RequestJournal:
    journal = RequestJournal(RING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_journal, "MOST_ATTEMPTS", RING)
        journal.tallies["c"] = Tally()
    return journal


def _known(journal: RequestJournal) -> list[object]:
    """All that it tells, and whether the newest replays can be retried."""
    tally = journal.tallies["c"]
    retried = [tally.attempts.add(each, 2, "live") for each in (b"key", b"other", b"third")]
    for measure in journal.measures.values():
        measure.ms = round(measure.ms, 3)
    tallied = replace(tally, attempts=Attempts())
    return [list(journal), journal.measures, journal.counts, retried, asdict(tallied) | NO_ATTEMPTS]


@given(st.lists(written, min_size=1).filter(any))
def test_whenever_it_is_read_all_are_counted_once_and_the_newest_are_entered(
    between_looks: list[list[tuple[int, float]]],
) -> None:
    expected, found = _journal(), _journal()
    number = 0
    with both_sides() as (writer, reader):
        for entry in KINDS:
            reader.know(entry)
        for each in between_looks:
            for kind, ms in each:
                number += 1
                id = f"tw-{number}"
                writer.add(kind, id.encode(), number, 10.0 + number, ms)
                expected.add(next_of(KINDS[kind], id, 10.0 + number, ms))
            read = reader.read()
            for _, served in read.entered:
                found.enter(served)
            for counted in read.counted:
                found.count_replays(*counted)

    assert _known(found) == _known(expected)


def test_a_replay_of_a_kind_that_is_not_known_yet_waits_with_those_after_it() -> None:
    with both_sides() as (writer, reader):
        for number, kind in enumerate((0, 1, 0)):
            writer.add(kind, b"tw-%d" % number, 0.0, 0.0, 1.0)

        reader.know(KINDS[0])
        first = reader.read()
        assert _ids(first) == ["tw-0"]
        assert [each.entry for each in first.counted] == [KINDS[0]]
        reader.know(KINDS[1])
        second = reader.read()
        assert _ids(second) == ["tw-1", "tw-2"]
        assert [each.entry for each in second.counted] == [KINDS[1]]


def test_what_is_written_over_while_it_is_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with both_sides() as (writer, reader):
        for number in range(RING):
            writer.add(0, b"tw-%d" % number, 0.0, 0.0, 1.0)
        reader.know(ONE)
        read = ReplayMemory.entry

        def meanwhile(memory: ReplayMemory, number: int) -> tuple[int, str, float, float, float]:
            if number == 1:
                for later in range(RING, RING + 2):
                    writer.add(0, b"tw-%d" % later, 0.0, 0.0, 1.0)
            return read(memory, number)

        monkeypatch.setattr(ReplayMemory, "entry", meanwhile)
        assert _ids(reader.read()) == ["tw-2", "tw-3"]
        monkeypatch.undo()
        assert _ids(reader.read()) == ["tw-4", "tw-5"]


def test_what_a_process_counted_is_there_after_it_was_killed() -> None:
    code = (
        "import os, signal, sys\n"
        "from tapeway.workers.replays import ReplayMemory, ReplayWriter\n"
        "writer = ReplayWriter(ReplayMemory(int(sys.argv[1]), 10))\n"
        "for number in range(5):\n"
        "    writer.add(2, b'tw-%d' % number, 1.0, 2.0, 7.0)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    memory = ReplayMemory.make(10)
    reader = ReplayReader(memory)
    for entry in KINDS:
        reader.know(entry)
    subprocess.run([sys.executable, "-c", code, str(memory.fd)], pass_fds=[memory.fd], check=False)
    found = reader.read()

    assert _ids(found) == [f"tw-{number}" for number in range(5)]
    assert found.counted == [CountedReplays(KINDS[2], [0, 0, 0, 5, *[0] * 12], 35.0)]
    reader.close()
