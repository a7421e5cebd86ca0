"""The `.gitignore` beside the first cassette of a folder."""

import subprocess
from pathlib import Path

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


async def test_a_repository_s_root_gets_one_too(files: FileStore, root: Path) -> None:
    root.mkdir()
    _begin_repository(root)
    (root / "old.json").write_text("{}")

    await files.append("new", HEAD, recording(0))

    assert _untracked(root) == [".gitignore", "old.json"]


async def test_one_that_is_there_stays_as_it_is(files: FileStore, root: Path) -> None:
    root.mkdir()
    (root / ".gitignore").write_text("mine\n")

    await files.append("new", HEAD, recording(0))

    assert (root / ".gitignore").read_text() == "mine\n"


async def test_it_is_there_before_the_first_lock(
    files: FileStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr(
        "fcntl.flock", lambda *_: seen.append(sorted(path.name for path in root.iterdir()))
    )

    await files.append("x", HEAD, recording(0))

    assert ".gitignore" in seen[0]


async def test_a_folder_that_was_empty_gets_one_and_reading_makes_none(
    files: FileStore, root: Path
) -> None:
    root.mkdir()
    await files.load("x", writable=False)
    assert not (root / ".gitignore").exists()

    await files.append("x", HEAD, recording(0))

    assert "*.journal" in (root / ".gitignore").read_text().splitlines()
