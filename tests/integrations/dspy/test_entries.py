"""Where ReplayCache keeps its entries: each whole and durable at once, those of others untouched."""

import json
import multiprocessing
import stat
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from tapeway.core.json_text import Json
from tapeway.errors import CassetteCorrupt, StoreError
from tapeway.integrations.blocking_cassette import BlockingCassette
from tapeway.integrations.dspy.entries import CassetteEntryStore, EntryStore, FileEntryStore

ABOUT = {"dspy_version": "3.4.1"}


def entry(asked: str, said: str) -> dict[str, Json]:
    return {
        "request": {"model": "m", "prompt": asked, "_fn_identifier": "dspy.f"},
        "response": {"type": "json", "data": {"said": said}},
    }


@pytest.fixture(params=["file", "folder", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    return request.param, tmp_path / "store"


def store_at(place: tuple[str, Path]) -> EntryStore:
    kind, path = place
    if kind == "file":
        return FileEntryStore(path.with_suffix(".json"), ABOUT)
    address = str(path) if kind == "folder" else f"sqlite:{path}.db"
    return CassetteEntryStore(BlockingCassette(address, "suite/qa", repeats="last"))


def test_entries_come_back_by_their_key_and_the_newest_counts(place: tuple[str, Path]) -> None:
    one = store_at(place)
    assert one.read() is None
    one.put("k1", entry("a", "1"))
    one.put("k2", entry("b", "2"))
    one.put("k1", entry("a", "3"))
    one.close()

    again = store_at(place)
    found = again.read()
    again.put("k2", entry("b", "4"))
    again.close()
    last = store_at(place)

    assert found == {"k1": entry("a", "3"), "k2": entry("b", "2")}
    assert last.read() == {"k1": entry("a", "3"), "k2": entry("b", "4")}
    last.close()


def test_a_file_is_readable_private_and_says_where_it_came_from(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "er" / "qa.json"
    store = FileEntryStore(file, ABOUT)
    store.put("k", entry("é", "1"))

    written = json.loads(file.read_text("utf-8"))
    assert written["entries"] == {"k": entry("é", "1")}
    assert written["metadata"]["dspy_version"] == "3.4.1"
    assert written["metadata"]["created_at"] <= written["metadata"]["last_updated"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["qa.json"]


def test_an_entry_has_the_same_lines_however_often_the_file_is_written(tmp_path: Path) -> None:
    file = tmp_path / "qa.json"
    fields = entry("a", "1")
    fields["request"] = {"_fn_identifier": "dspy.f", "model": "m"}
    FileEntryStore(file, ABOUT).put("k1", fields)
    first = file.read_text("utf-8").partition('"k1"')[2].partition("\n    }")[0]
    FileEntryStore(file, ABOUT).put("k2", entry("b", "2"))

    assert first in file.read_text("utf-8")


def test_a_file_that_another_process_wrote_meanwhile_keeps_both(tmp_path: Path) -> None:
    one, other = (FileEntryStore(tmp_path / "qa.json", ABOUT) for _ in range(2))
    assert one.read() is other.read() is None
    one.put("k1", entry("a", "1"))
    other.put("k2", entry("b", "2"))
    one.put("k3", entry("c", "3"))

    assert set(FileEntryStore(tmp_path / "qa.json", ABOUT).read() or {}) == {"k1", "k2", "k3"}


def _write(path: str, who: int, together: Barrier) -> None:
    store = FileEntryStore(Path(path), ABOUT)
    together.wait()
    for number in range(10):
        store.put(f"{who}-{number}", entry(str(who), str(number)))


@pytest.mark.slow
def test_processes_that_record_into_one_file_lose_nothing(tmp_path: Path) -> None:
    start = multiprocessing.get_context("spawn")
    file = str(tmp_path / "qa.json")
    together = start.Barrier(3)
    writers = [start.Process(target=_write, args=(file, who, together)) for who in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert len(FileEntryStore(Path(file), ABOUT).read() or {}) == 30


def test_a_broken_file_is_named_with_its_line_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "qa.json"
    file.write_text('{\n "metadata": {},\n "entries": {"k": {"request": {}}}\n}')
    store = FileEntryStore(file, ABOUT)

    for deed in (store.read, lambda: store.put("x", entry("a", "1"))):
        with pytest.raises(CassetteCorrupt, match=r"qa\.json line 3: entries\.k"):
            deed()
    assert file.read_text().endswith('{"k": {"request": {}}}\n}')


def test_a_failed_write_leaves_the_file_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "qa.json"
    store = FileEntryStore(file, ABOUT)
    store.put("k", entry("a", "1"))
    before = file.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tapeway.stores.support.durable_files.write_all", full)
    with pytest.raises(StoreError, match="no room to write the recording"):
        store.put("k2", entry("b", "2"))

    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["qa.json"]
