"""What a snapshot of a cassette's files costs, and what it says of them."""

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapeway.core.model.cassette import StoredCassette
from tapeway.errors import CassetteCorrupt, CassetteEdited
from tapeway.formats.native import document
from tapeway.stores.file import snapshot
from tapeway.stores.file.cassette import FileCassette
from tapeway.stores.file.journal import payload_of
from tapeway.stores.file.snapshot import FileDigest, Snapshot
from tests.stores.recordings import HEAD, recording

_LARGE = b" " * snapshot._HASHED_MEANWHILE
_WAIT_S = 30


def _large_file(root: Path) -> Path:
    """A cassette's file of more than a mebibyte."""
    root.mkdir(exist_ok=True)
    file = root / "x.json"
    written = document.save(StoredCassette(HEAD, (recording(0).interaction,)))
    file.write_bytes(written + _LARGE)
    return file


def test_the_digest_of_a_large_file_is_computed_in_a_thread_and_of_a_small_one_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[str] = []
    real = snapshot._digest

    def watched(data: bytes) -> str:
        threads.append(threading.current_thread().name)
        return real(data)

    monkeypatch.setattr(snapshot, "_digest", watched)

    for data in (_LARGE, _LARGE[1:]):
        digest = FileDigest(data)
        assert digest.hex == digest.hex == hashlib.sha256(data).hexdigest()
    assert threads == ["tapeway-digest", threading.current_thread().name]


def test_without_a_thread_the_digest_is_computed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)

    assert FileDigest(_LARGE).hex == hashlib.sha256(_LARGE).hexdigest()


@pytest.mark.parametrize("writable", [False, True])
def test_a_file_is_parsed_while_its_digest_is_computed(
    writable: bool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _large_file(root)
    parsed, waited = threading.Event(), list[bool]()
    digest, cassette = snapshot._digest, Snapshot.cassette

    def slow(data: bytes) -> str:
        waited.append(parsed.wait(_WAIT_S))
        return digest(data)

    def told(self: Snapshot, *rest: Any) -> StoredCassette:
        found = cassette(self, *rest)
        parsed.set()
        return found

    monkeypatch.setattr(snapshot, "_digest", slow)
    monkeypatch.setattr(Snapshot, "cassette", told)
    loaded = FileCassette(root, "x")
    try:
        found = loaded.load(writable=writable)
    finally:
        loaded.release()

    assert found is not None
    assert len(found.interactions) == 1
    assert waited == [True]


def test_an_edit_of_a_large_file_since_it_was_loaded_is_seen(root: Path) -> None:
    file = _large_file(root)
    loaded = FileCassette(root, "x")
    loaded.load(writable=False)
    file.write_bytes(file.read_bytes()[:-1] + b"\n")

    with pytest.raises(CassetteEdited):
        loaded.append(HEAD, [payload_of(recording(1))])


@pytest.mark.parametrize("damage", [lambda text: b"no" + text, lambda text: text[: len(text) // 2]])
def test_what_a_large_file_was_when_it_could_not_be_read_is_remembered(
    damage: Callable[[bytes], bytes], root: Path
) -> None:
    file = _large_file(root)
    whole = file.read_bytes()
    file.write_bytes(damage(whole.rstrip()) + _LARGE)
    loaded = FileCassette(root, "x")
    with pytest.raises(CassetteCorrupt):
        loaded.load(writable=False)
    file.write_bytes(whole)

    with pytest.raises(CassetteEdited):
        loaded.append(HEAD, [payload_of(recording(1))])
