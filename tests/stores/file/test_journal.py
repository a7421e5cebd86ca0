"""The journal's text against torn writes, flipped bits and strangers."""

from collections.abc import Iterable
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapeway.core.model.cassette import CassetteHead
from tapeway.formats.fields import Document
from tapeway.stores.file import journal as file_journal
from tapeway.stores.file.journal import (
    CassetteJournal,
    Commit,
    Header,
    JournalDamaged,
    JournaledRecording,
)
from tests.support.thoroughness import examples

HEADER = Header(CassetteHead("2026", "run", {"a": [1]}), "base-digest")


class Recorded(NamedTuple):
    """A recording as a test compares it."""

    document: Document
    supersedes: tuple[int, ...] = ()


FIRST = Recorded({"index": 0, "kind": "http", "text": 'with "quotes"\n and é'})
SECOND = Recorded({"index": 1, "kind": "http"}, (0, 7))
THIRD = Recorded({"index": 2, "kind": "tool"})


def _payload(step: Header | Recorded | Commit) -> bytes:
    if isinstance(step, Recorded):
        return file_journal.recording_payload(*step)
    return file_journal.payload(step)


def _written(*batches: list[Header | Recorded | Commit]) -> list[bytes]:
    lines: list[bytes] = []
    for batch in batches:
        lines += file_journal.lines([_payload(step) for step in batch], len(lines))
    return lines


def _seen(steps: Iterable[JournaledRecording | Commit]) -> list[Recorded | Commit]:
    return [
        step if isinstance(step, Commit) else Recorded(step.document, step.supersedes)
        for step in steps
    ]


LINES = _written([HEADER, FIRST], [SECOND, Commit("digest")], [THIRD])
WHOLE = b"".join(LINES)


def _pending(
    journal: CassetteJournal, digest: str | None, documents: list[Document]
) -> list[Recorded | Commit]:
    return _seen(file_journal.pending(journal, digest, lambda: documents))


def _read(data: bytes) -> CassetteJournal | None:
    return file_journal.read(data, "x.journal")


def test_what_was_written_is_read() -> None:
    journal = _read(WHOLE)

    assert journal is not None
    assert journal.header == HEADER
    assert _seen(journal.steps) == [FIRST, SECOND, Commit("digest"), THIRD]
    assert (journal.size, journal.torn) == (len(WHOLE), 0)


def test_each_step_is_one_line() -> None:
    assert all(line.count(b"\n") == 1 and line.endswith(b"\n") for line in LINES)


def test_a_tail_torn_at_any_octet_is_told_and_left_out() -> None:
    ends = {len(b"".join(LINES[:number])): number for number in range(len(LINES) + 1)}
    for size in range(len(WHOLE) + 1):
        whole = max(end for end in ends if end <= size)

        journal = _read(WHOLE[:size])

        if ends[whole] == 0:
            assert journal is None
        else:
            assert journal is not None
            assert (journal.size, journal.torn) == (whole, size - whole)
            assert len(journal.steps) == ends[whole] - 1


@settings(max_examples=examples(600))
@given(st.integers(0, len(WHOLE) * 8 - 1))
def test_a_flipped_bit_is_never_taken_for_a_recording(bit: int) -> None:
    flipped = bytearray(WHOLE)
    flipped[bit // 8] ^= 1 << bit % 8
    # What the last batch holds was not yet said to be durable by anything after it.
    in_the_tail = bit // 8 >= len(WHOLE) - len(LINES[-1])

    if in_the_tail:
        journal = _read(bytes(flipped))
        assert journal is not None
        assert _seen(journal.steps) == [FIRST, SECOND, Commit("digest")]
        assert journal.torn == len(LINES[-1])
    else:
        with pytest.raises(JournalDamaged):
            _read(bytes(flipped))


@given(st.integers(0, len(WHOLE)), st.integers(1, 40), st.booleans())
def test_octets_lost_or_put_in_are_never_taken_for_a_recording(
    at: int, length: int, lose: bool
) -> None:
    changed = WHOLE[:at] + (WHOLE[at + length :] if lose else b"\0" * length + WHOLE[at:])

    try:
        journal = _read(changed)
    except JournalDamaged:
        return
    steps = _seen(journal.steps if journal else ())
    assert steps == [FIRST, SECOND, Commit("digest"), THIRD][: len(steps)]


def test_blocks_of_one_unfinished_batch_may_arrive_in_any_order() -> None:
    """A power cut may keep a later block of one write and lose an earlier one: not damage."""
    lost = b"\0" * len(LINES[2])

    journal = _read(b"".join(LINES[:2]) + lost + LINES[3])

    assert journal is not None
    assert _seen(journal.steps) == [FIRST]


def test_a_line_is_missed_where_it_was_durable() -> None:
    with pytest.raises(JournalDamaged, match="line 3"):
        _read(b"".join([*LINES[:2], LINES[4]]))


def test_a_line_break_lost_between_the_last_two_batches_is_damage() -> None:
    whole = b"".join(LINES[:4]).removesuffix(b"\n") + b" " + LINES[4]

    with pytest.raises(JournalDamaged, match="line 4"):
        _read(whole)


@pytest.mark.parametrize("stranger", [b"dear diary\n", b"{}\n", b"\n", LINES[1]])
def test_a_file_of_somebody_else_is_not_taken_for_a_torn_journal(stranger: bytes) -> None:
    with pytest.raises(JournalDamaged, match="line 1: this is not the first line"):
        _read(stranger)


@pytest.mark.parametrize("torn", [b"", LINES[0][:40], b"\0" * 300, b"\0" * 300 + LINES[1]])
def test_a_journal_torn_in_its_first_line_holds_nothing(torn: bytes) -> None:
    assert _read(torn) is None


@pytest.mark.parametrize("payload", [b'{"other":1}', b'{"interaction":1,"supersedes":[]}'])
def test_a_line_that_is_no_step_is_refused(payload: bytes) -> None:
    lines = file_journal.lines([file_journal.payload(HEADER), payload], 0)

    with pytest.raises(JournalDamaged, match="line 2"):
        _read(b"".join(lines))


def test_entries_before_the_commit_of_this_very_file_are_in_it() -> None:
    journal = _read(WHOLE)
    assert journal is not None

    assert _pending(journal, "digest", []) == [THIRD]
    assert _pending(journal, "base-digest", []) == [FIRST, SECOND, THIRD]


def test_in_a_file_edited_since_those_entries_are_that_stand_there() -> None:
    journal = _read(WHOLE)
    assert journal is not None
    renumbered = {**FIRST.document, "index": 9}

    assert _pending(journal, "edited", [renumbered]) == [SECOND, THIRD]
    assert _pending(journal, None, []) == [FIRST, SECOND, THIRD]


def test_one_that_stands_there_once_accounts_for_one() -> None:
    twice = b"".join(_written([HEADER, FIRST, Recorded(FIRST.document | {"index": 1})]))
    journal = _read(twice)
    assert journal is not None

    assert len(_pending(journal, "edited", [FIRST.document])) == 1
