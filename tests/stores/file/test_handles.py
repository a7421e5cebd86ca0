"""Handles of cassettes that are recorded to: few are open, and nobody else gets in meanwhile."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tapeway.errors import CassetteEdited, CassetteLocked
from tapeway.stores.file import handles, store
from tapeway.stores.file.handles import HandleBudget
from tapeway.stores.file.store import FileStore
from tests.stores.recordings import HEAD, answers, bodies, recording
from tests.support import fork_server

MOST = 3
NAMES = [f"{folder}c{at}" for at in range(6) for folder in ("", "deep/er/")]

_RECORDS_AND_DIES = """
import asyncio, os, signal
from pathlib import Path
from tapeway.stores.file import store
from tapeway.stores.file.handles import HandleBudget
from tapeway.stores.file.store import FileStore
from tests.stores.recordings import HEAD, recording
async def main():
    store.HandleBudget = lambda: HandleBudget(lambda: 1)
    files = FileStore(Path({root!r}))
    await files.open()
    for name in "abcdefghij":
        await files.append(name, HEAD, recording(0))
        # One that is still in use when the next one opens its handles is not parked.
        if name > "a" and list(Path({root!r}).glob(".tapeway~*")):
            break
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


@pytest.fixture
async def few(root: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FileStore]:
    """A store that keeps the handles of three cassettes open."""
    monkeypatch.setattr(store, "HandleBudget", lambda: HandleBudget(lambda: MOST))
    files = FileStore(root)
    await files.open()
    yield files
    await files.close()


def open_below(root: Path) -> list[str]:
    """The files and folders below a root that this process has open."""
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    found = [os.readlink(link) for link in links if os.path.islink(link)]
    return [text for text in found if text.startswith(str(root))]


async def test_cassettes_that_are_not_recorded_to_give_their_handles_back(
    few: FileStore, root: Path
) -> None:
    for number in range(3):
        for name in NAMES:
            await few.append(name, HEAD, recording(number))
            # And that of the process's own lock.
            assert len(open_below(root)) <= 3 * MOST + 1

    for name in NAMES:
        assert bodies(await few.load(name, writable=True)) == answers(0, 1, 2)
    for name in NAMES:
        await few.release(name)
        assert not (root / f"{name}.journal").exists()
    assert len(open_below(root)) <= 1
    assert bodies(await few.load(NAMES[0], writable=False)) == answers(0, 1, 2)


async def test_what_was_loaded_to_record_and_let_go_unused_can_be_recorded_later(
    few: FileStore, root: Path
) -> None:
    for name in NAMES:
        assert await few.load(name, writable=True) is None
    assert len(open_below(root)) <= 3 * MOST + 1

    for name in NAMES:
        await few.release(name)

    for name in NAMES:
        await few.append(name, HEAD, recording(0))
        assert bodies(await few.load(name, writable=True)) == answers(0)
    other = FileStore(root)
    await other.open()
    with pytest.raises(CassetteLocked):
        await other.append(NAMES[-1], HEAD, recording(1))
    await other.close()


async def test_nobody_else_records_into_a_cassette_that_gave_its_handles_back(
    few: FileStore, root: Path
) -> None:
    other = FileStore(root)
    await other.open()
    for name in NAMES:
        await few.append(name, HEAD, recording(0))

    for name in NAMES:
        with pytest.raises(CassetteLocked, match=f"process {os.getpid()} records"):
            await other.append(name, HEAD, recording(1))
        assert bodies(await other.load(name, writable=False)) == answers(0)
    await few.close()
    await other.close()
    await other.open()
    for name in NAMES:
        await other.append(name, HEAD, recording(1))
        assert bodies(await other.load(name, writable=True)) == answers(0, 1)
    await other.close()
    assert not list(root.glob(".tapeway~*"))


async def test_what_a_killed_process_had_given_back_is_free(root: Path) -> None:
    source = _RECORDS_AND_DIES.format(root=str(root))
    killed = await asyncio.create_subprocess_exec(*fork_server.command(), "-c", source)
    assert await killed.wait() == -9
    assert len(list(root.glob(".tapeway~*"))) == 1
    store = FileStore(root)
    await store.open()

    for name in ("a", "b"):
        await store.append(name, HEAD, recording(1))
        assert bodies(await store.load(name, writable=True)) == answers(0, 1)

    await store.close()
    assert not list(root.glob(".tapeway~*"))


async def test_a_journal_that_was_changed_meanwhile_takes_nothing(
    few: FileStore, root: Path
) -> None:
    for name in NAMES:
        await few.append(name, HEAD, recording(0))
    journal = root / f"{NAMES[0]}.journal"
    journal.write_bytes(journal.read_bytes() + b"edited\n")

    with pytest.raises(CassetteEdited, match="was changed meanwhile: eject"):
        await few.append(NAMES[0], HEAD, recording(1))
    with pytest.raises(CassetteEdited):
        await few.release(NAMES[0])


async def test_a_lock_file_that_names_any_other_file_keeps_nobody_out(
    files: FileStore, root: Path, tmp_path: Path
) -> None:
    root.mkdir()
    for number, lock_path in enumerate(["../../etc/passwd", "../x.lock", "/etc/passwd", "~", "\0"]):
        assert not handles.is_lock_path(lock_path)
        (root / f".x{number}.lock").write_bytes(b"1 " + lock_path.encode() + b"\n")
        await files.append(f"x{number}", HEAD, recording(0))
