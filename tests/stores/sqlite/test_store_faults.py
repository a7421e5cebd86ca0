"""A SQLite store on a disk that is full, damaged, failing, slow, or held by somebody else."""

import asyncio
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import apsw
import pytest

from soak.faults import fill
from tapeway.errors import (
    CassetteCorrupt,
    CassetteLocked,
    StoreFull,
    StorePoisoned,
)
from tapeway.stores.sqlite import connection as sqlite_connection
from tapeway.stores.sqlite import writer
from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.recordings import HEAD, answers, bodies, is_poisoned, recording
from tests.stores.shared_instances import append_recordings, found_indexes
from tests.stores.small_disks import small_disk


async def test_a_full_disk_refuses_what_it_cannot_take_and_works_again(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    acknowledged: list[int] = []
    with small_disk(root, kib=1024):
        (root / "ballast").write_bytes(b"\0" * 200_000)
        store = SqliteStore(root / "calls.db")
        await store.open()
        try:
            with pytest.raises(StoreFull, match="all that was acknowledged is kept") as caught:
                await _fill(store, acknowledged)
            assert caught.value.status == 507
            assert acknowledged
            assert not await is_poisoned(store)
            assert found_indexes(await store.page("x", after=None, limit=999)) == acknowledged

            (root / "ballast").unlink()
            await store.append("x", HEAD, recording(1001))
        finally:
            await store.close()
        store = SqliteStore(root / "calls.db")
        await store.open()
        try:
            found = bodies(await store.load("x", writable=False))
            assert found == [*[b"%d" % n * 4000 for n in acknowledged], *answers(1001)]
            assert await store.check() == []
        finally:
            await store.close()


async def test_a_large_body_that_finds_no_room_leaves_nothing(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    with small_disk(root, kib=6 * 1024):
        store = SqliteStore(root / "calls.db")
        await store.open()
        try:
            await append_recordings(store, 0)
            (root / "ballast").write_bytes(b"\0" * 200_000)
            with pytest.raises(StoreFull):
                await store.keep("x", [b"x" * 1_000_000] * 12)
            (root / "ballast").unlink()
            await append_recordings(store, 1)
            assert bodies(await store.load("x", writable=True)) == answers(0, 1)
        finally:
            await store.close()


async def test_a_rewrite_that_finds_no_room_leaves_the_room_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another process can take the room between the look and the rewrite.
    unlimited = SimpleNamespace(f_bavail=2**40, f_frsize=1)
    for seen in (True, False):
        root = tmp_path / f"disk-{seen}"
        with small_disk(root, kib=8 * 1024):
            store = SqliteStore(root / "calls.db")
            await store.open()
            try:
                items = [recording(n, body=b"%d" % n * 1000).exchange for n in range(500)]
                await store.extend("x", HEAD, items)
                await store.close()
                await store.open()
                await store.append("x", HEAD, recording(500, 0))
                (root / "ballast").write_bytes(b"\0" * (_free(root) - 500_000))
                with monkeypatch.context() as patched:
                    if not seen:
                        patched.setattr(os, "statvfs", lambda _: unlimited)
                    (said,) = await store.erase()
                assert "no room" in said
                assert _free(root) >= 400_000
                await store.append("y", HEAD, recording(0))
            finally:
                await store.close()


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


async def test_a_damaged_page_is_named_and_never_taken_for_empty(
    file: Path, tmp_path: Path
) -> None:
    store = SqliteStore(file)
    await store.open()
    await store.extend(
        "x", HEAD, [recording(n, body=b"%d" % n * 3000).exchange for n in range(800)]
    )
    await store.close()
    assert file.stat().st_size > sqlite_connection.CHECKED_BYTES
    data = bytearray(file.read_bytes())
    for page in range(40, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xa5" * 64
    file.write_bytes(data)

    store = SqliteStore(file)
    await store.open()
    try:
        with pytest.raises(CassetteCorrupt, match="restore it") as caught:
            await store.load("x", writable=False)
        assert str(file) in caught.value.message
        assert await store.check()
        with pytest.raises((CassetteCorrupt, StorePoisoned)):
            await _fill(store, [])
        assert await is_poisoned(store)
        with pytest.raises(StorePoisoned):
            await store.append("x", HEAD, recording(2000))
    finally:
        await store.close()


async def test_a_small_damaged_file_is_refused_when_it_is_opened(file: Path) -> None:
    store = SqliteStore(file)
    await store.open()
    await append_recordings(store, *range(50))
    await store.close()
    data = bytearray(file.read_bytes())
    data[4096 * 3 : 4096 * 3 + 500] = b"\xa5" * 500
    file.write_bytes(data)

    store = SqliteStore(file)
    with pytest.raises(CassetteCorrupt, match=r"calls\.db is no SQLite file, or damaged"):
        await store.open()
    assert file.read_bytes() == data


async def test_a_document_that_cannot_be_read_is_named(file: Path, store: SqliteStore) -> None:
    await append_recordings(store, 0, 1)
    connection = apsw.Connection(str(file))
    document = b'{"kind": "htp"}'
    connection.execute(
        "UPDATE documents SET text = ?, sha256 = ? WHERE id = 2",
        (document, hashlib.sha256(document).digest()),
    )
    connection.close()

    with pytest.raises(CassetteCorrupt, match=r"calls\.db, cassette 'x', interaction 1: .*'http'"):
        await store.documents("x", [1])
    assert len(await store.documents("x", [0])) == 1
    (problem,) = await store.check()
    assert "interaction 1" in problem


async def test_after_a_failed_sync_nothing_is_acknowledged_until_it_is_written_anew(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await append_recordings(store, 0)
    with monkeypatch.context() as patch:
        patch.setattr(writer, "immediate_transaction", _failing)
        with pytest.raises(StorePoisoned, match="check the disk"):
            await append_recordings(store, 1)
    assert await is_poisoned(store)
    for _ in range(2):
        with pytest.raises(StorePoisoned, match="an earlier write failed"):
            await append_recordings(store, 2)
    # What is there can be replayed.
    assert bodies(await store.load("x", writable=False)) == answers(0)

    await store.release("x")

    assert not await is_poisoned(store)
    await append_recordings(store, 3)
    assert bodies(await store.load("x", writable=False)) == answers(0, 3)


async def test_loading_to_record_mends_what_can_be_mended(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await append_recordings(store, 0)
    with monkeypatch.context() as patch:
        patch.setattr(writer, "immediate_transaction", _failing)
        with pytest.raises(StorePoisoned):
            await append_recordings(store, 1)

    assert bodies(await store.load("x", writable=True)) == answers(0)
    assert not await is_poisoned(store)


async def test_a_locked_file_is_waited_for_and_then_reported(
    file: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connection, "BUSY_MS", 60)
    await append_recordings(store, 0)
    with _held(file):
        with pytest.raises(CassetteLocked, match="another process holds the file") as caught:
            await append_recordings(store, 1)
        assert caught.value.status == 503
        assert bodies(await store.load("x", writable=False)) == answers(0)
    await append_recordings(store, 2)
    assert bodies(await store.load("x", writable=False)) == answers(0, 2)


async def test_a_disk_that_takes_its_time_holds_up_neither_replay_nor_the_loop(
    file: Path, store: SqliteStore
) -> None:
    await append_recordings(store, 0)
    before = _changes(file)
    with _held(file):
        async with asyncio.TaskGroup() as tasks:
            waiting = [
                tasks.create_task(append_recordings(store, number)) for number in range(1, 9)
            ]
            # Who reads does not wait for the thread that writes.
            assert bodies(await store.load("x", writable=False)) == answers(0)
            assert not any(task.done() for task in waiting)
            _let_go.pop().execute("ROLLBACK")
    assert bodies(await store.load("x", writable=False)) == answers(*range(9))
    # Those that waited share one or two syncs.
    assert _changes(file) - before <= 2


async def _fill(store: SqliteStore, acknowledged: list[int]) -> None:
    for index in range(1000):
        made = recording(index, index - 300, body=b"%d" % index * 4000)
        await store.append("x", HEAD, made)
        acknowledged.append(index)


_let_go: list[apsw.Connection] = []


@contextmanager
def _held(file: Path) -> Iterator[None]:
    """The right to write it, as another program holds it."""
    connection = apsw.Connection(str(file))
    connection.execute("BEGIN IMMEDIATE")
    _let_go.append(connection)
    try:
        yield
    finally:
        _let_go.clear()
        connection.close()


@contextmanager
def _failing(*_: object) -> Iterator[None]:
    if _:
        raise apsw.IOError("disk I/O error")
    yield


def _changes(file: Path) -> int:
    """How many transactions there were."""
    with closing(apsw.Connection(str(file))) as connection:
        count: int = connection.execute("SELECT changes FROM file").get
    return count


async def test_a_store_on_a_full_disk_replays(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    with small_disk(root, kib=1024):
        store = SqliteStore(root / "calls.db")
        await store.open()
        await append_recordings(store, *range(20))
        await store.close()
        fill(root / "ballast")

        await store.open()
        try:
            assert bodies(await store.load("x", writable=False)) == answers(*range(20))
            assert await store.check() == []
            with pytest.raises(StoreFull):
                await append_recordings(store, 20)
            assert bodies(await store.load("x", writable=False)) == answers(*range(20))
        finally:
            await store.close()
