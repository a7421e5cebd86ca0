"""Disks that are full, fail, or take their time."""

import asyncio
import errno
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tapeway.errors import CassetteEdited, StoreError, StoreFull, StorePoisoned
from tapeway.stores.file.cassette import FileCassette
from tapeway.stores.file.journal import payload_of
from tapeway.stores.file.store import FileStore
from tests.stores.file.disks import FaultyDisk
from tests.stores.recordings import HEAD, answers, bodies, record, recording
from tests.stores.small_disks import small_disk
from tests.support.thoroughness import step


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    return FaultyDisk(monkeypatch)


def _poisoned(store: FileStore) -> bool:
    return isinstance(store.trouble, StorePoisoned)


async def test_a_full_disk_refuses_what_it_cannot_take_and_works_again(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    with small_disk(root, kib=256):
        (root / "ballast").write_bytes(b"\0" * 188_000)
        store = FileStore(root)
        kept: list[bytes] = []

        async def fill() -> None:
            for index in range(100):
                body = b"%04d" % index + b"x" * 9000
                await store.append("x", HEAD, recording(index, body=body))
                kept.append(body)

        with pytest.raises(StoreFull, match="no room") as caught:
            await fill()
        assert caught.value.status == 507
        assert 3 <= len(kept) <= 7
        journal = (root / "x.journal").read_bytes()
        assert journal.endswith(b"\n")
        assert journal.count(b"\n") == len(kept) + 1

        # Small ones still fit, and so does everything once there is room.
        await store.append("x", HEAD, recording(50))
        (root / "ballast").unlink()
        await store.append("x", HEAD, recording(51, body=b"y" * 9000))
        assert bodies(await store.load("x", writable=True)) == [*kept, *answers(50), b"y" * 9000]
        await store.close()

        again = await FileStore(root).load("x", writable=False)
        assert bodies(again) == [*kept, *answers(50), b"y" * 9000]


async def test_a_disk_too_full_for_the_final_form_keeps_the_journal(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    with small_disk(root, kib=64):
        store = FileStore(root)
        for index in range(4):
            await store.append("x", HEAD, recording(index, body=b"%d" % index * 9000))
        with pytest.raises(StoreFull):
            await store.release("x")

        assert sorted(path.name for path in root.iterdir()) == [
            ".gitignore",
            ".x.lock",
            "x.journal",
        ]
        assert len(bodies(await store.load("x", writable=True))) == 4
        with pytest.raises(StoreFull):
            await store.close()


async def test_a_disk_full_from_the_start_leaves_nothing_behind(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    with small_disk(root, kib=64):
        (root / "ballast").write_bytes(b"\0" * 57_344)
        store = FileStore(root)

        with pytest.raises(StoreFull):
            await store.append("x", HEAD, recording(0, body=b"x" * 20_000))

        assert sorted(path.name for path in root.iterdir()) == [".gitignore", ".x.lock", "ballast"]
        await store.close()
        assert sorted(path.name for path in root.iterdir()) == [".gitignore", ".x.lock", "ballast"]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
async def test_no_space_no_quota_and_too_large_are_the_same(
    files: FileStore, root: Path, disk: FaultyDisk, error: int
) -> None:
    await files.append("x", HEAD, recording(0))
    disk.error = error
    disk.fails_at = lambda _, name: name == "write"
    with pytest.raises(StoreFull):
        await files.append("x", HEAD, recording(1))

    disk.fails_at = lambda _, name: False
    await files.append("x", HEAD, recording(2))

    assert not _poisoned(files)
    assert bodies(await files.load("x", writable=True)) == answers(0, 2)


async def test_a_short_write_is_gone_on_with(
    files: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: whole_write(fd, bytes(data[:7])))

    await record(files, 0, 1)

    assert bodies(await files.load("x", writable=True)) == answers(0, 1)


@pytest.mark.parametrize("call", ["fdatasync", "write"])
async def test_after_a_failed_sync_nothing_is_acknowledged_until_it_is_written_anew(
    files: FileStore, root: Path, disk: FaultyDisk, call: str
) -> None:
    await files.append("x", HEAD, recording(0))
    disk.fails_at = lambda _, name: name == call
    with pytest.raises(StorePoisoned, match="check the disk") as caught:
        await files.append("x", HEAD, recording(1))
    assert caught.value.status == 503

    # The next sync would succeed, and say nothing about the pages that were lost.
    disk.fails_at = lambda _, name: False
    with pytest.raises(StorePoisoned, match="earlier sync failed"):
        await files.append("x", HEAD, recording(2))
    assert _poisoned(files)

    await files.release("x")
    assert not _poisoned(files)
    assert not (root / "x.journal").exists()
    await files.append("x", HEAD, recording(3))
    assert bodies(await files.load("x", writable=True)) == answers(0, 3)


async def test_loading_a_poisoned_cassette_writes_it_anew(
    files: FileStore, root: Path, disk: FaultyDisk
) -> None:
    await files.append("x", HEAD, recording(0))
    disk.fails_at = lambda _, name: name == "fdatasync"
    with pytest.raises(StorePoisoned):
        await files.append("x", HEAD, recording(1))
    disk.fails_at = lambda _, name: False

    assert bodies(await files.load("x", writable=True)) == answers(0)

    assert not _poisoned(files)
    assert not (root / "x.journal").exists()


async def test_a_poisoned_cassette_that_could_not_be_written_anew_stays_so(
    root: Path, disk: FaultyDisk
) -> None:
    store = FileStore(root)
    await store.append("x", HEAD, recording(0))
    disk.fails_at = lambda _, name: name in ("fdatasync", "fsync")
    with pytest.raises(StorePoisoned):
        await store.append("x", HEAD, recording(1))
    with pytest.raises(StorePoisoned):
        await store.release("x")
    with pytest.raises(StorePoisoned):
        await store.load("x", writable=True)
    assert _poisoned(store)

    # Well again: the journal, perhaps whole in memory only, is written anew before anything else.
    disk.fails_at = lambda _, name: False
    await store.append("x", HEAD, recording(2))
    assert not _poisoned(store)
    assert (root / "x.json").exists()
    found = bodies(await store.load("x", writable=True))
    assert [body for body in found if body in answers(0, 2)] == answers(0, 2)
    await store.close()


async def test_one_poisoned_cassette_does_not_stop_the_others(
    files: FileStore, disk: FaultyDisk
) -> None:
    disk.fails_at = lambda _, name: name == "fdatasync"
    with pytest.raises(StorePoisoned):
        await files.append("x", HEAD, recording(0))
    disk.fails_at = lambda _, name: False

    await record(files, 1, name="y")

    assert bodies(await files.load("y", writable=True)) == answers(1)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_whichever_call_fails_nothing_acknowledged_is_lost_or_doubled(
    root: Path, disk: FaultyDisk, error: int
) -> None:
    """Every call in turn, over a cassette that exists: claim, append, supersede, fold, claim."""
    disk.error = error
    for failing in range(1, 200):
        folder = root / str(failing)
        seed = FileCassette(folder, "x")
        seed.append(HEAD, [payload_of(recording(0)), payload_of(recording(1))])
        seed.release()
        told = {0, 1}
        start = disk.count
        disk.fails_at = partial(_at, start + failing)

        cassette = FileCassette(folder, "x")
        _attempt(partial(cassette.load, writable=True))
        if _attempt(partial(cassette.append, HEAD, [payload_of(recording(2, 0))])):
            told = {1, 2}
        if _attempt(partial(cassette.append, HEAD, [payload_of(recording(3))])):
            told |= {3}
        _attempt(cassette.release)
        done = disk.count < start + failing
        disk.fails_at = lambda _, __: False

        for writable in (False, True):
            after = FileCassette(folder, "x")
            found = [int(body[11:-1]) for body in bodies(after.load(writable=writable))]
            assert told <= set(found), (failing, found)
            assert len(found) == len(set(found)), (failing, found)
            assert (0 in found) == (2 not in found), (failing, found)
            after.release()
        if done:
            return
    pytest.fail("the store never came to its end")


def test_a_fold_that_fails_after_a_sync_that_failed_brings_nothing_back(
    root: Path, disk: FaultyDisk
) -> None:
    cassette = FileCassette(root, "x")
    cassette.append(HEAD, [payload_of(recording(0))])
    cassette.append(HEAD, [payload_of(recording(1, 0))])
    disk.fails_at = lambda _, name: name == "fdatasync"
    assert not _attempt(partial(cassette.append, HEAD, [payload_of(recording(2))]))
    disk.fails_at = lambda _, name: name == "fsync"
    assert not _attempt(cassette.release)
    disk.fails_at = lambda _, __: False

    assert bodies(FileCassette(root, "x").load(writable=False)) == answers(1)


def _at(wanted: int, number: int, _: str) -> bool:
    return number == wanted


def _attempt(step: Callable[[], object]) -> bool:
    try:
        step()
    except StoreError:
        return False
    return True


async def test_a_slow_disk_holds_up_neither_the_loop_nor_other_cassettes(
    files: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, go_on = threading.Event(), threading.Event()
    sync = os.fdatasync

    def wait_once(fd: int) -> None:
        if not slow.is_set():
            slow.set()
            assert go_on.wait(30)
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", wait_once)
    async with asyncio.TaskGroup() as tasks:
        held = [tasks.create_task(files.append("x", HEAD, recording(0)))]
        await asyncio.to_thread(slow.wait, 30)
        held += [tasks.create_task(files.append("x", HEAD, recording(n))) for n in range(1, 9)]
        await record(files, 0, name="y")
        assert not any(task.done() for task in held)
        syncs = Counter[str]()
        monkeypatch.setattr(os, "fdatasync", lambda fd: (syncs.update(["sync"]), sync(fd)))
        go_on.set()

    assert syncs["sync"] == 1, "those that waited are synced together"
    assert bodies(await files.load("x", writable=True)) == answers(*range(9))


async def test_a_torn_tail_of_any_length_is_cut_and_said(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cassette = FileCassette(root, "x")
    for number in range(3):
        cassette.append(HEAD, [payload_of(recording(number))])
    whole = (root / "x.journal").read_bytes()
    cassette.release()
    (root / "x.json").unlink()
    last = whole.rstrip(b"\n").rindex(b"\n") + 1

    for size in (last, *range(len(whole) - 1, last, -1)[:: step(9)]):
        (root / "x.journal").write_bytes(whole[:size])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            again = FileCassette(root, "x")
            assert bodies(again.load(writable=True)) == answers(0, 1)
        assert (f"the last {size - last} bytes" in caplog.text) == (size > last)
        assert (root / "x.journal").stat().st_size == last
        (root / "x.journal").rename(root / "kept")
        with pytest.raises(CassetteEdited):
            again.release()
    (root / "kept").rename(root / "x.journal")
    again = FileCassette(root, "x")
    again.append(HEAD, [payload_of(recording(9))])
    again.release()
    assert bodies(FileCassette(root, "x").load(writable=False)) == answers(0, 1, 9)


@pytest.mark.parametrize("at", [-1, -2, -40])
def test_a_last_line_that_was_whole_is_not_called_never_acknowledged(
    root: Path, caplog: pytest.LogCaptureFixture, at: int
) -> None:
    cassette = FileCassette(root, "x")
    for number in range(2):
        cassette.append(HEAD, [payload_of(recording(number))])
    data = bytearray((root / "x.journal").read_bytes())
    cassette.release()
    (root / "x.json").unlink()
    data[at] ^= 1
    (root / "x.journal").write_bytes(data)

    for writable, done in ((False, "it is passed over"), (True, "cut off")):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert bodies(FileCassette(root, "x").load(writable=writable)) == answers(0)
        assert (
            "checksum is wrong, so that it was never finished, or was acknowledged" in caplog.text
        )
        assert done in caplog.text


async def test_a_damaged_journal_is_refused_and_kept(files: FileStore, root: Path) -> None:
    await record(files, 0)
    for number in (1, 2, 3):
        await files.append("x", HEAD, recording(number))
    data = bytearray((root / "x.journal").read_bytes())
    await files.release("x")
    data[data.index(b'{"answer":2}') + 3] ^= 1
    (root / "x.journal").write_bytes(data)

    for writable in (True, False):
        with pytest.raises(StoreError, match=r"x\.journal line 3: .* left as it is"):
            await files.load("x", writable=writable)

    assert (root / "x.journal").read_bytes() == data
