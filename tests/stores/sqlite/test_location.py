"""The file of a SQLite store: what is taken for one, who may read it, what is beside it."""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw
import pytest

from tapeway.engine.recording.call import scratch_of
from tapeway.errors import CassetteCorrupt, CassetteEdited, ConfigError, StoreError
from tapeway.stores.sqlite import connection as sqlite_connection
from tapeway.stores.sqlite import location
from tests.stores.recordings import HEAD, answers, bodies, recording
from tests.stores.shared_instances import append_recordings
from tests.stores.small_disks import read_only, small_disk
from tests.stores.sqlite.conftest import opened


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


async def recorded(file: Path) -> list[bytes]:
    async with opened(file) as store:
        return bodies(await store.load("x", writable=False))


async def test_nothing_is_made_before_something_is_written(file: Path) -> None:
    async with opened(file) as store:
        assert await store.names() == []
        assert await store.load("x", writable=False) is None
        assert await store.outline("x") is None
        assert not await store.remove("x")
        await store.release("x")

    assert list(file.parent.iterdir()) == []


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
async def test_nobody_else_may_read_any_of_the_files(tmp_path: Path, mask: int) -> None:
    file = tmp_path / "sub" / "deep" / "calls.db"
    with umask(mask):
        async with opened(file) as store:
            await append_recordings(store, 0)

            names = {path.name for path in file.parent.iterdir()}
            assert {"calls.db", "calls.db-wal", "calls.db-shm", "calls.db.lock"} <= names
            for path in file.parent.iterdir():
                assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.parent.parent.stat().st_mode) == 0o700
    assert sorted(path.name for path in file.parent.iterdir()) == ["calls.db", "calls.db.lock"]


async def test_a_file_that_others_could_read_is_closed_to_them(file: Path) -> None:
    async with opened(file) as store:
        await append_recordings(store, 0)
    file.chmod(0o644)

    async with opened(file) as store:
        await append_recordings(store, 1)

    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", ".lock"])
async def test_a_link_in_the_place_of_a_file_is_not_followed(file: Path, ending: str) -> None:
    async with opened(file) as store:
        await append_recordings(store, 0)
    target = file.with_name("elsewhere")
    place = file.with_name(file.name + ending)
    if place.exists():
        place.rename(target)
    else:
        target.write_bytes(b"")
    place.symlink_to(target)
    before = target.read_bytes()

    with pytest.raises(CassetteCorrupt, match="symbolic link"):
        async with opened(file) as store:
            await append_recordings(store, 1)

    assert target.read_bytes() == before


async def test_a_second_name_is_refused(file: Path) -> None:
    async with opened(file) as store:
        await append_recordings(store, 0)
    os.link(file, file.with_name("twin"))

    with pytest.raises(CassetteCorrupt, match="second name"):
        await recorded(file)


async def test_a_folder_that_is_a_link_may_be_used(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    async with opened(tmp_path / "link" / "calls.db") as store:
        await append_recordings(store, 0)

    assert await recorded(tmp_path / "real" / "calls.db") == answers(0)


@pytest.mark.parametrize("kind", ["folder", "fifo", "text", "truncated", "foreign", "newer"])
async def test_what_is_no_store_is_refused_and_left_as_it_is(file: Path, kind: str) -> None:
    if kind == "folder":
        file.mkdir()
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "text":
        file.write_text("version: '1'\n" * 100)
    else:
        async with opened(file) as store:
            await append_recordings(store, *range(30))
    if kind == "truncated":
        os.truncate(file, 6000)
    elif kind in ("foreign", "newer"):
        connection = apsw.Connection(str(file))
        connection.execute(f"PRAGMA {'application_id' if kind == 'foreign' else 'user_version'}=9")
        connection.close()
    before = file.read_bytes() if file.is_file() else b""

    with pytest.raises(CassetteCorrupt) as caught:
        await recorded(file)
    with pytest.raises(CassetteCorrupt):
        async with opened(file) as store:
            await append_recordings(store, 1)

    assert str(file) in caught.value.message
    assert "newer tapeway" in caught.value.message or kind != "newer"
    assert not file.is_file() or file.read_bytes() == before


async def test_an_empty_file_that_held_recordings_is_not_begun_anew(file: Path) -> None:
    async with opened(file) as store:
        await append_recordings(store, 0)
    os.truncate(file, 0)

    for _ in range(2):
        with pytest.raises(CassetteCorrupt, match="is empty, though"):
            await recorded(file)
    assert file.stat().st_size == 0


@pytest.mark.parametrize("writes", [False, True])
async def test_a_file_that_another_process_fills_meanwhile_was_not_emptied(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: bool
) -> None:
    filled = tmp_path / "filled.db"
    async with opened(filled) as store:
        await append_recordings(store, 0)
    examine = location.StoreLocation.examine

    def filled_then(place: location.StoreLocation) -> os.stat_result:
        found = examine(place)
        if not found.st_size:
            file.write_bytes(filled.read_bytes())
            place.lock.write_bytes(filled.with_name("filled.db.lock").read_bytes())
        return found

    file.touch(0o600)
    async with opened(file) as store:
        monkeypatch.setattr(location.StoreLocation, "examine", filled_then)
        await (append_recordings(store, 1) if writes else store.names())
        assert await store.names() == ["x"]


async def test_an_empty_file_of_somebody_becomes_a_store(file: Path) -> None:
    file.touch()
    async with opened(file) as store:
        assert await store.names() == []
        await append_recordings(store, 0)

    assert await recorded(file) == answers(0)


async def test_a_removed_file_is_begun_anew(file: Path) -> None:
    async with opened(file) as store:
        await append_recordings(store, 0)
    file.unlink()
    async with opened(file) as store:
        await append_recordings(store, 1)

    assert await recorded(file) == answers(1)


async def test_a_log_without_its_file_is_not_thrown_away(file: Path) -> None:
    log = file.with_name("calls.db-wal")
    log.write_bytes(b"recordings")

    with pytest.raises(CassetteCorrupt, match="put that back"):
        async with opened(file) as store:
            await append_recordings(store, 0)
    assert log.read_bytes() == b"recordings"


async def test_a_file_that_lost_its_log_says_what_is_missing(file: Path, tmp_path: Path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    async with opened(file) as store:
        await append_recordings(store, 0)
    async with opened(file) as store:
        await append_recordings(store, 1)
        await append_recordings(store, 2)
        for name in ("calls.db", "calls.db.lock"):
            (copies / name).write_bytes(file.with_name(name).read_bytes())

    # As it was while it was in use, but for the log.
    for writes in (False, True):
        with pytest.raises(CassetteCorrupt, match="lacks the last 2 changes"):
            async with opened(copies / "calls.db") as store:
                await (append_recordings(store, 3) if writes else store.names())
    (copies / "calls.db.lock").unlink()
    assert await recorded(copies / "calls.db") == answers(0)


async def test_a_file_that_lost_its_log_before_the_first_checkpoint_is_refused(
    file: Path, tmp_path: Path
) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    async with opened(file) as store:
        await append_recordings(store, *range(20))
        for name in ("calls.db", "calls.db.lock"):
            (copies / name).write_bytes(file.with_name(name).read_bytes())
    copy = copies / "calls.db"
    before = copy.read_bytes()
    assert before

    for writes in (False, True):
        with pytest.raises(CassetteCorrupt, match="-wal was removed"):
            async with opened(copy) as store:
                await (append_recordings(store, 3) if writes else store.names())
    assert copy.read_bytes() == before
    for path in copies.iterdir():
        path.unlink()
    async with opened(copy) as store:
        await append_recordings(store, 3)
    assert await recorded(copy) == answers(3)


async def test_an_old_copy_in_the_place_of_the_file_says_what_is_missing(file: Path) -> None:
    async with opened(file) as store:
        await append_recordings(store, 0)
    copy = file.read_bytes()
    async with opened(file) as store:
        await append_recordings(store, 1)
    file.write_bytes(copy)

    with pytest.raises(CassetteCorrupt, match="an old copy"):
        await recorded(file)


async def test_a_file_removed_while_in_use_is_recorded_into_no_more(file: Path) -> None:
    async with opened(file) as store:
        await append_recordings(store, 0)
        file.rename(file.with_name("moved.db"))
        with pytest.raises((CassetteEdited, CassetteCorrupt)):
            await append_recordings(store, 1)


async def test_a_file_put_in_its_place_is_what_is_read(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    await _fill(other, 5)
    await _fill(file, 0)
    async with opened(file) as store:
        assert bodies(await store.load("x", writable=False)) == answers(0)
        await store.release("x")
        other.rename(file)
        assert bodies(await store.load("x", writable=False)) == answers(5)
        await store.append("x", HEAD, recording(6))
        file.rename(other)
        with pytest.raises((CassetteEdited, CassetteCorrupt)):
            await store.append("x", HEAD, recording(7))


async def test_nothing_of_another_file_answers_for_what_was_loaded(
    file: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    await _fill(other, 5)
    await _fill(file, 0)
    async with opened(file) as store:
        loaded = await store.load("x", writable=False)
        other.rename(file)
        with pytest.raises(CassetteEdited, match="was replaced since"):
            bodies(loaded)


async def _fill(file: Path, *numbers: int) -> None:
    async with opened(file) as store:
        await append_recordings(store, *numbers)


async def test_what_cannot_be_written_can_be_replayed(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    file = folder / "calls.db"
    await _fill(file, 0)
    with read_only(folder):
        async with opened(file) as store, opened(file) as other:
            assert bodies(await store.load("x", writable=False)) == answers(0)
            assert bodies(await other.load("x", writable=False)) == answers(0)
            assert scratch_of(store) is None
            assert await store.erase() == []
            with pytest.raises(StoreError, match="permissions") as caught:
                await append_recordings(store, 1)
            assert caught.value.status == 503
            with pytest.raises(StoreError, match="permissions"):
                await store.load("x", writable=True)
            await store.release("x")
    assert await recorded(file) == answers(0)


@pytest.mark.parametrize("full", [False, True])
async def test_a_file_with_a_log_that_nobody_uses_is_replayed_from_a_disk_that_takes_nothing(
    tmp_path: Path, *, full: bool
) -> None:
    """As in a backup of a file and its log, without SQLite's file for memory in common."""
    folder = tmp_path / "disk"
    with small_disk(folder, 2048):
        async with opened(tmp_path / "calls.db") as store:
            await append_recordings(store, 0, 1)
            for ending in ("", "-wal", ".lock"):
                shutil.copy(tmp_path / f"calls.db{ending}", folder / f"calls.db{ending}")
        with nothing_taken(folder, full=full):
            before = sorted(folder.iterdir())
            async with opened(folder / "calls.db") as copy, opened(folder / "calls.db") as other:
                assert bodies(await copy.load("x", writable=False)) == answers(0, 1)
                assert bodies(await other.load("x", writable=False)) == answers(0, 1)
            assert sorted(folder.iterdir()) == before
        assert await recorded(folder / "calls.db") == answers(0, 1)


@contextmanager
def nothing_taken(folder: Path, *, full: bool) -> Iterator[None]:
    """A disk that is full or read-only."""
    if not full:
        with read_only(folder):
            yield
        return
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    yield
    filler.unlink()


async def test_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        f"30 22 0:40 / {tmp_path} rw shared:2 - nfs4 server:/export rw,vers=4.2\n"
        f"31 30 0:41 / {tmp_path}/here rw - tmpfs tmpfs rw\n"
    )
    (tmp_path / "here").mkdir()
    monkeypatch.setattr(location, "MOUNTS", table)

    with pytest.raises(ConfigError, match=r"network file system \(nfs4\)"):
        await recorded(tmp_path / "calls.db")
    async with opened(tmp_path / "here" / "calls.db") as store:
        await append_recordings(store, 0)


async def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sub").write_text("")

    with pytest.raises(ConfigError, match="is not a folder"):
        async with opened(tmp_path / "sub" / "calls.db"):
            pass


@pytest.mark.parametrize(
    ("version", "good"), [("3.51.2", False), ("3.51.3", True), ("3.9.0", False)]
)
def test_a_sqlite_that_loses_commits_is_refused(version: str, good: bool) -> None:
    if good:
        sqlite_connection.refuse_old_library(version)
        return
    with pytest.raises(ConfigError, match=r"brings 3\.51\.3 or newer"):
        sqlite_connection.refuse_old_library(version)


async def test_a_setting_that_does_not_take_is_noticed(file: Path) -> None:
    connection = apsw.Connection(":memory:")
    with pytest.raises(StoreError, match="does not take the setting"):
        sqlite_connection.set_and_check(connection, "no_such_setting", 1)
    connection.close()


async def test_without_a_write_ahead_log_recordings_are_kept_all_the_same(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where memory cannot be shared: SQLite answers with the journal it goes on using."""
    monkeypatch.setattr(sqlite_connection, "WAL", "memory")
    async with opened(file) as store, opened(file) as other:
        await append_recordings(store, 0, 1)
        assert bodies(await other.load("x", writable=False)) == answers(0, 1)
        await store.release("x")
        await append_recordings(other, 2)
        assert bodies(await store.load("x", writable=False)) == answers(0, 1, 2)

    assert caplog.text.count("does not support a write-ahead log") == 1
    assert await recorded(file) == answers(0, 1, 2)
