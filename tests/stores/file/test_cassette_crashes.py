"""A crash at any moment: all that was acknowledged is there afterwards, large bodies among it."""

from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from tapeway.core.model.cassette import StoredCassette
from tapeway.errors import CassetteCorrupt, StoreError
from tapeway.stores.file.cassette import FileCassette
from tapeway.stores.file.journal import payload_of
from tests.stores.file.disks import FaultyDisk, WatchedDisk
from tests.stores.large_bodies import assets, body, contents, large, name
from tests.stores.recordings import HEAD, answers, bodies, recording


@pytest.fixture
def disk(tmp_path: Path) -> WatchedDisk:
    (tmp_path / "store").mkdir()
    return WatchedDisk(tmp_path / "store")


def test_no_crash_while_recording_loses_what_was_acknowledged(
    disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _record(disk, monkeypatch)

    assert len(disk.states) > 100
    for folder, state in disk.crashes(tmp_path):
        found = bodies_of(folder)
        assert found[: len(state.acknowledged)] == state.acknowledged, state.at
        assert found in (answers(*range(len(found))), [])
        assert len(found) <= len(state.acknowledged) + 2, state.at


def test_no_crash_while_folding_loses_or_doubles_a_recording(
    disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Over a cassette that exists, with a recording that takes the place of another."""
    cassette = FileCassette(disk.folder, "x")
    cassette.append(HEAD, [payload_of(recording(index)) for index in range(3)])
    cassette.release()
    cassette.append(HEAD, [payload_of(recording(3, 1)), payload_of(recording(4))])
    disk.settle()
    disk.acknowledged.extend(answers(0, 3, 2, 4))

    with disk.watching(monkeypatch):
        cassette.release()

    assert {"write", "fsync", "fdatasync", "rename", "unlink"} <= set(disk.calls)
    for folder, state in disk.crashes(tmp_path):
        assert bodies_of(folder) == answers(0, 3, 2, 4), (state.at, state.condition)
        # And the next one to record goes on from there.
        again = FileCassette(folder, "x")
        assert bodies(again.load(writable=True)) == answers(0, 3, 2, 4)
        again.append(HEAD, [payload_of(recording(5))])
        again.release()
        assert bodies_of(folder) == answers(0, 3, 2, 4, 5), (state.at, state.condition)
        assert sorted(path.name for path in folder.iterdir()) == [".gitignore", ".x.lock", "x.json"]


def test_no_crash_while_saving_leaves_half_of_each(
    disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cassette = FileCassette(disk.folder, "x")
    cassette.append(HEAD, [payload_of(recording(index)) for index in range(3)])
    cassette.release()
    cassette.append(HEAD, [payload_of(recording(3))])
    disk.settle()

    with disk.watching(monkeypatch):
        cassette.save(StoredCassette(HEAD, (recording(7).interaction,)))
    cassette.release()

    for folder, state in disk.crashes(tmp_path):
        assert bodies_of(folder) in (answers(0, 1, 2, 3), answers(7)), (state.at, state.condition)


@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
def test_the_model_sees_a_sync_that_is_left_out(
    call: str, disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The negative control: a model that never loses anything would prove nothing."""
    disk.forgets = call

    _record(disk, monkeypatch)

    assert any(
        bodies_of(folder)[: len(state.acknowledged)] != state.acknowledged
        for folder, state in disk.crashes(tmp_path)
    )


def bodies_of(folder: Path) -> list[bytes]:
    found = FileCassette(folder, "x").load(writable=False)
    return bodies(found) if found else []


def _record(disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    cassette = FileCassette(disk.folder, "x")
    numbers = count()
    with disk.watching(monkeypatch):
        for size in (1, 2, 1, 2):
            batch = [next(numbers) for _ in range(size)]
            cassette.append(HEAD, [payload_of(recording(number)) for number in batch])
            disk.acknowledged.extend(answers(*batch))
        cassette.release()


def found_in(folder: Path) -> list[bytes]:
    stored = FileCassette(folder, "x").load(writable=False)
    return contents(stored) if stored else []


def _record_large(cassette: FileCassette, index: int, *supersedes: int) -> None:
    file = cassette.keep([body(index)])
    made = large(index, file, *supersedes)
    cassette.check(made.exchange)
    cassette.append(HEAD, [payload_of(made)])


def test_no_crash_loses_a_body_whose_recording_was_acknowledged(
    disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cassette = FileCassette(disk.folder, "x")
    with disk.watching(monkeypatch):
        cassette.claim()
        for index in range(3):
            _record_large(cassette, index)
            disk.acknowledged.append(body(index))
        cassette.release()

    assert len(disk.states) > 100
    for folder, state in disk.crashes(tmp_path):
        found = found_in(folder)
        assert found[: len(state.acknowledged)] == state.acknowledged, (state.at, state.condition)
        assert found == [body(index) for index in range(len(found))]


@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
def test_each_sync_of_a_body_is_needed(
    call: str, disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The negative control: without it a recording comes back whose body does not."""
    cassette = FileCassette(disk.folder, "x")
    cassette.append(HEAD, [payload_of(recording(9))])
    disk.settle()
    with disk.watching(monkeypatch):
        disk.forgets = call
        file = cassette.keep([body(0)])
        disk.forgets = ""
        cassette.append(HEAD, [payload_of(large(0, file))])

    lost = 0
    for folder, _ in disk.crashes(tmp_path):
        try:
            found_in(folder)
        except CassetteCorrupt:
            lost += 1
    assert lost


def test_no_crash_while_folding_loses_a_body_that_is_referred_to(
    disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Over a cassette that exists, one body replaced and one that nothing refers to."""
    cassette = FileCassette(disk.folder, "x")
    cassette.claim()
    for index in range(2):
        _record_large(cassette, index)
    cassette.release()
    cassette.claim()
    _record_large(cassette, 2, 0)
    cassette.keep([b"nobody's"])
    disk.settle()

    with disk.watching(monkeypatch):
        cassette.release()

    numbers = count()
    for folder, state in disk.crashes(tmp_path):
        next(numbers)
        assert found_in(folder) == [body(2), body(1)], (state.at, state.condition)
        # And the next one to record goes on from there and leaves nothing behind.
        again = FileCassette(folder, "x")
        again.claim()
        _record_large(again, 3)
        again.release()
        assert found_in(folder) == [body(2), body(1), body(3)]
        assert assets(folder) == sorted(name(body(number)) for number in (1, 2, 3))
    assert next(numbers) > 5


@pytest.mark.parametrize("nth", range(1, 18))
def test_whatever_fails_while_a_body_is_kept_what_was_acknowledged_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    cassette = FileCassette(tmp_path, "x")
    cassette.append(HEAD, [payload_of(recording(0))])
    kept = [b'{"answer": 0}']
    with monkeypatch.context() as patch:
        calls = ("open", "write", "fsync", "fdatasync", "rename", "mkdir", "close", "fchmod")
        disk = FaultyDisk(patch, calls)
        disk.fails_at = lambda number, _: number == nth
        with suppress(StoreError):
            _record_large(cassette, 1)
            kept.append(body(1))

    assert disk.count >= nth
    assert found_in(tmp_path)[: len(kept)] == kept
    assert [asset for asset in assets(tmp_path) if asset.endswith(".tmp")] == []
