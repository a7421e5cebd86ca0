"""What a snapshot of a cassette's files costs, and what it says of them."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tapeway.core.model.cassette import StoredCassette
from tapeway.errors import CassetteCorrupt, CassetteEdited
from tapeway.formats.native import document
from tapeway.stores.file import snapshot
from tapeway.stores.file.cassette import FileCassette
from tapeway.stores.file.journal import payload_of
from tapeway.stores.file.paths import Paths
from tapeway.stores.support import durable_files
from tests.stores.recordings import HEAD, recording

_LARGE = b" " * (2 * durable_files.WINDOW)


def _large_file(root: Path) -> Path:
    """A cassette's file that is not hashed at once."""
    root.mkdir(exist_ok=True)
    file = root / "x.json"
    written = document.save(StoredCassette(HEAD, (recording(0).interaction,)))
    file.write_bytes(written + _LARGE)
    return file


def test_the_digest_is_that_of_the_file(root: Path) -> None:
    data = _large_file(root).read_bytes()
    paths = Paths(root, "x", document.JSON)
    folder = os.open(root, os.O_RDONLY)
    try:
        found, again = snapshot.take(folder, paths), snapshot.take(folder, paths)
    finally:
        os.close(folder)

    assert found.digest == again.digest == hashlib.sha256(data).hexdigest()
    assert found.state == again.state


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
