"""Crashes and failing calls at any moment: no large body of a recording that counts is lost."""

import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from tapeway.errors import CassetteCorrupt, StoreError
from tapeway.stores.file.cassette import FileCassette
from tapeway.stores.file.journal import payload_of
from tests.stores.disk_model import WatchedDisk
from tests.stores.large_bodies import assets, body, contents, large, name
from tests.stores.recordings import HEAD, recording


@pytest.fixture
def disk(tmp_path: Path) -> WatchedDisk:
    (tmp_path / "store").mkdir()
    return WatchedDisk(tmp_path / "store")


def found_in(folder: Path) -> list[bytes]:
    stored = FileCassette(folder, "x").load(writable=False)
    return contents(stored) if stored else []


def _record(cassette: FileCassette, index: int, *supersedes: int) -> None:
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
            _record(cassette, index)
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
        _record(cassette, index)
    cassette.release()
    cassette.claim()
    _record(cassette, 2, 0)
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
        _record(again, 3)
        again.release()
        assert found_in(folder) == [body(2), body(1), body(3)]
        assert assets(folder) == sorted(name(body(each)) for each in (1, 2, 3))
    assert next(numbers) > 5


@pytest.mark.parametrize("nth", range(1, 18))
def test_whatever_fails_while_a_body_is_kept_what_was_acknowledged_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    cassette = FileCassette(tmp_path, "x")
    cassette.append(HEAD, [payload_of(recording(9))])
    kept = [b'{"answer": 9}']
    number = count(1)

    def failing(call: str, real: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*args: object, **kwargs: object) -> object:
            if next(number) == nth:
                if call == "close":
                    real(*args)
                raise OSError(5, "Input/output error")
            return real(*args, **kwargs)

        return wrapped

    with monkeypatch.context() as patch:
        for call in ("open", "write", "fsync", "fdatasync", "rename", "mkdir", "close", "fchmod"):
            patch.setattr(os, call, failing(call, getattr(os, call)))
        with suppress(StoreError):
            _record(cassette, 0)
            kept.append(body(0))

    assert next(number) > nth
    assert found_in(tmp_path)[: len(kept)] == kept
    assert [each for each in assets(tmp_path) if each.endswith(".tmp")] == []
