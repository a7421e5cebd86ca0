"""How a long journal becomes the final form of its cassette."""

from pathlib import Path

import pytest

from tapeway.stores.file import writer
from tapeway.stores.file.cassette import FileCassette
from tapeway.stores.file.journal import payload_of
from tapeway.stores.support import durable_files
from tests.stores.recordings import HEAD, recording
from tests.support.memory import measured_memory


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
