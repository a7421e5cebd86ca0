"""The `.gitignore` beside the first cassette of a folder."""

import subprocess
from pathlib import Path
from unittest import mock

import pytest

from tapeway.stores.file.store import FileStore
from tests.stores.recordings import HEAD, record, recording


def _begin_repository(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True)


def _untracked(folder: Path) -> list[str]:
    command = ["git", "-C", str(folder), "status", "--porcelain", "-uall"]
    said = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    return sorted(line[3:] for line in said.splitlines())


async def test_git_sees_cassettes_and_neither_journals_nor_locks(
    files: FileStore, root: Path
) -> None:
    _begin_repository(root.parent)
    await record(files, 0)
    await files.append("suite/y", HEAD, recording(0))

    assert (root / "suite" / "y.journal").exists()
    assert (root / "suite" / ".y.lock").exists()
    assert _untracked(root) == ["cassettes/.gitignore", "cassettes/x.json"]


@pytest.mark.parametrize("present", ["x.json", "suite/.keep", "y.journal", ".gitignore"])
async def test_a_folder_that_is_in_use_already_is_left_as_it_is(
    files: FileStore, root: Path, present: str
) -> None:
    (root / present).parent.mkdir(parents=True)
    (root / present).write_text("mine\n")

    await files.append("new", HEAD, recording(0))

    assert (root / present).read_text() == "mine\n"
    assert (root / ".gitignore").exists() == (present == ".gitignore")


async def test_a_folder_that_has_one_is_not_read_for_each_new_cassette(files: FileStore) -> None:
    await files.append("first", HEAD, recording(0))

    with mock.patch("os.scandir", side_effect=AssertionError) as read:
        await files.append("second", HEAD, recording(0))

    assert not read.called


async def test_a_folder_that_was_empty_gets_one_and_reading_makes_none(
    files: FileStore, root: Path
) -> None:
    root.mkdir()
    await files.load("x", writable=False)
    assert not (root / ".gitignore").exists()

    await files.append("x", HEAD, recording(0))

    assert "*.journal" in (root / ".gitignore").read_text().splitlines()
