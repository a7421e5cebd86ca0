"""What one recording costs: the same for the 10th as for the 20,000th."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapeway.stores.file import writer
from tapeway.stores.file.cassette import FileCassette
from tapeway.stores.file.journal import payload_of
from tapeway.stores.support import durable_files
from tests.stores.recordings import HEAD, recording
from tests.support.memory import measured_memory

MEASURED = (10, 1_000, 20_000)
CALLS = ("open", "write", "fsync", "fdatasync", "fstat", "stat", "rename", "unlink", "listdir")


class CallCount:
    """Counts the calls to the disk and the octets written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: Counter[str] = Counter()
        for name in CALLS:
            monkeypatch.setattr(os, name, self._counted(name, getattr(os, name)))

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            if name == "write":
                self.calls["octets"] += len(args[1])
            return call(*args, **kwargs)

        return counted


def test_a_recording_costs_the_same_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches bring the numbers up fast; each measured recording is appended alone."""
    cassette = FileCassette(tmp_path, "x")
    cassette.append(HEAD, [payload_of(recording(0))])
    count, costs = 1, []
    for number in MEASURED:
        # The index has the same number of digits each time: it stands in the document.
        filler = [payload_of(recording(10_000))] * (number - 1 - count)
        cassette.append(HEAD, filler)
        with monkeypatch.context() as patch:
            counted = CallCount(patch)
            cassette.append(HEAD, [payload_of(recording(10_000))])
        costs.append(counted.calls)
        count = number

    sequence_digits = [2 * (len(str(number)) - len(str(MEASURED[0]))) for number in MEASURED]
    for cost, digits in zip(costs, sequence_digits, strict=True):
        cost["octets"] -= digits
    assert costs[0] == costs[1] == costs[2]
    assert {name: costs[0][name] for name in CALLS if costs[0][name]} == {
        "write": 1,
        "fdatasync": 1,
        "fstat": 1,
    }


def test_a_long_journal_is_folded_one_recording_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable_files, "WINDOW", 16 * 1024)
    monkeypatch.setattr(writer, "WRITTEN_AT_ONCE", 16 * 1024)
    cassette = FileCassette(tmp_path, "x")
    for start in range(0, 120, 20):
        payloads = [
            payload_of(recording(index, body=b"%08d" % index * 2_000))
            for index in range(start, start + 20)
        ]
        cassette.append(HEAD, payloads)
    size = (tmp_path / "x.journal").stat().st_size

    with measured_memory() as memory:
        cassette.release()

    assert memory.peak < size / 4
    found = FileCassette(tmp_path, "x").load(writable=False)
    assert found is not None
    assert [interaction.index for interaction in found.interactions] == [*range(120)]
