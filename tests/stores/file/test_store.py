"""The file store's own promises: what lies where, who may read it, and what it does not touch."""

import asyncio
import errno
import hashlib
import json
import logging
import os
import shutil
import stat
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tapeway.core.model.cassette import Recording, StoredCassette
from tapeway.errors import CassetteCorrupt, ConfigError, StoreError
from tapeway.formats.native import document
from tapeway.stores.file import append_log, paths, store
from tapeway.stores.file.handles import HandleBudget
from tapeway.stores.file.journal import payload_of
from tapeway.stores.file.store import FileStore
from tapeway.stores.support.serial_executor import SerialExecutor
from tests.stores.recordings import HEAD, answers, bodies, facts, record, recording
from tests.stores.small_disks import read_only

DATA = Path(__file__).parents[2] / "formats" / "data"


async def test_a_recording_is_in_the_journal_and_in_the_file_after_release(
    files: FileStore, root: Path
) -> None:
    await files.append("a/b", HEAD, recording(0))
    assert _files(root) == [".gitignore", "a/.b.lock", "a/b.journal"]

    await files.release("a/b")
    assert _files(root) == [".gitignore", "a/.b.lock", "a/b.json"]
    document = json.loads((root / "a/b.json").read_text())
    assert document["run_id"] == HEAD.run_id
    assert document["interactions"][0]["response"]["json"] == {"answer": 0}


async def test_recordings_of_one_turn_wake_a_thread_once_for_one_write_and_one_sync(
    files: FileStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await files.append("x", HEAD, recording(0))
    calls: Counter[str] = Counter()

    def count(place: object, name: str) -> None:
        real = getattr(place, name)

        def counted(*args: Any) -> Any:
            calls[name] += 1
            return real(*args)

        monkeypatch.setattr(place, name, counted)

    count(append_log, "write_all")
    count(append_log, "sync_data")
    count(SerialExecutor, "start")
    async with asyncio.TaskGroup() as tasks:
        for number in range(1, 30):
            tasks.create_task(files.append("x", HEAD, recording(number)))

    assert calls == {"start": 1, "write_all": 1, "sync_data": 1}
    assert len((root / "x.journal").read_bytes().splitlines()) == 31


async def test_what_is_appended_in_the_turn_of_a_release_is_in_the_file(
    files: FileStore, root: Path
) -> None:
    await asyncio.gather(files.append("x", HEAD, recording(0)), files.release("x"))
    assert len(json.loads((root / "x.json").read_text())["interactions"]) == 1


@pytest.mark.parametrize("size", [10, store.WRITTEN_ON_THE_LOOP + 1])
async def test_the_text_of_a_large_recording_is_made_in_a_thread_and_of_a_small_one_at_once(
    size: int, files: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def noted(made: Recording) -> bytes:
        threads.append(threading.current_thread())
        return payload_of(made)

    monkeypatch.setattr(store, "payload_of", noted)
    made = recording(0).exchange
    response = replace(made.response, body=b"x" * size)
    await files.append("x", HEAD, Recording(replace(made, response=response)))
    (thread,) = threads
    assert (thread is threading.main_thread()) == (size == 10)


async def test_where_no_thread_can_be_had_whoever_records_is_told(
    files: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await files.append("x", HEAD, recording(0))

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(SerialExecutor, "start", refuse)
    appends = [files.append("x", HEAD, recording(number)) for number in (1, 2)]
    ended = await asyncio.gather(*appends, return_exceptions=True)
    assert [type(error) for error in ended] == [RuntimeError, RuntimeError]
    monkeypatch.undo()
    await files.append("x", HEAD, recording(3))


async def test_what_keeps_a_batch_from_being_begun_is_told_to_all_who_wait(
    files: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await files.append("x", HEAD, recording(0))

    def full(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(HandleBudget, "used", full)
    appends = [files.append("x", HEAD, recording(number)) for number in (1, 2)]
    assert [
        type(outcome) for outcome in await asyncio.gather(*appends, return_exceptions=True)
    ] == [
        OSError,
        OSError,
    ]
    monkeypatch.undo()
    await files.append("x", HEAD, recording(3))


async def test_closing_folds_every_cassette(root: Path) -> None:
    store = FileStore(root)
    await store.open()
    for name in ("a", "b"):
        await store.append(name, HEAD, recording(0))
    await store.close()

    assert _files(root) == [".a.lock", ".b.lock", ".gitignore", "a.json", "b.json"]


async def test_nothing_recorded_leaves_the_file_untouched(files: FileStore, root: Path) -> None:
    await record(files, 0)
    before = facts(root / "x.json")

    await files.load("x", writable=True)
    await files.release("x")

    assert facts(root / "x.json") == before


async def test_the_same_cassette_saved_again_leaves_the_file_untouched(
    files: FileStore, root: Path
) -> None:
    await record(files, 0, 1)
    before = facts(root / "x.json")
    found = await files.load("x", writable=True)
    assert found is not None

    await files.save("x", found)

    assert facts(root / "x.json") == before


async def test_a_new_recording_changes_no_line_of_the_old_ones(
    files: FileStore, root: Path
) -> None:
    await record(files, 0)
    text = (root / "x.json").read_text()
    (root / "x.json").write_text(text.replace('"OK"', '"Fine"').replace("smoke", "by hand"))
    edited = (root / "x.json").read_text()

    await record(files, 1)

    assert (root / "x.json").read_text().startswith(edited.removesuffix("\n  ]\n}\n") + ",\n")


async def test_calls_of_other_kinds_and_odd_fields_of_theirs_survive(
    files: FileStore, root: Path
) -> None:
    data = DATA
    root.mkdir()
    for source in ("agenttape_chat.json", "agenttape_async.json"):
        (root / "x.json").write_bytes((data / source).read_bytes())
        before = json.loads((root / "x.json").read_text())["interactions"]

        await record(files, 100)

        after = json.loads((root / "x.json").read_text())["interactions"]
        assert after[:-1] == before
        assert after[-1]["index"] == len(before)


async def test_texts_that_agenttape_keeps_beside_are_found(files: FileStore, root: Path) -> None:
    content = b"long " * 1000
    digest = hashlib.sha256(content).hexdigest()
    (root / "x.assets").mkdir(parents=True)
    asset = root / "x.assets" / f"sha256-{digest}"
    asset.write_bytes(content)
    response = {
        "status_code": 200,
        "headers": {},
        "text": {"__agenttape_asset__": f"sha256:{digest}"},
    }
    call = {"kind": "http", "request": {"method": "GET", "url": "http://h/"}, "response": response}
    (root / "x.json").write_text(json.dumps({"version": "1", "interactions": [call]}))

    assert bodies(await files.load("x", writable=False)) == [content]

    asset.unlink()
    with pytest.raises(CassetteCorrupt, match=r"x\.json line 1: .*text: .* is missing"):
        await files.load("x", writable=False)


async def test_names_and_stat_look_no_further_than_cassettes(files: FileStore, root: Path) -> None:
    await record(files, 0, name="a/b")
    await files.append("c", HEAD, recording(0))
    for stray in ("notes.txt", ".hidden.json", "a/-x.json", "x.json.tmp"):
        (root / stray).write_text("")
    (root / "folder.json").mkdir()
    (root / "link.json").symlink_to(root / "a/b.json")

    assert await files.names() == ["a/b", "c"]
    found = await files.stat("a/b")
    assert found is not None
    assert found.size_bytes == (root / "a/b.json").stat().st_size
    assert await files.stat("a/c") is None
    assert await files.stat("no/folder") is None


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
async def test_only_the_owner_may_read_whatever_the_umask(root: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store = FileStore(root)
        await store.open()
        await store.append("a/x", HEAD, recording(0))
        journal = stat.S_IMODE((root / "a/x.journal").stat().st_mode)
        await store.close()
    finally:
        os.umask(before)

    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*"))}
    assert journal == 0o600
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items())
    assert len(modes) == 5


async def test_replay_writes_nothing_at_all(files: FileStore, root: Path, tmp_path: Path) -> None:
    """Not even where a recorder left a journal behind."""
    await record(files, 0)
    await files.append("x", HEAD, recording(1))
    left = tmp_path / "left"
    shutil.copytree(root, left, ignore=shutil.ignore_patterns("*.lock"))
    before = {path: facts(path) for path in (left, *left.rglob("*"))}

    store = FileStore(left)
    await store.open()
    assert bodies(await store.load("x", writable=False)) == answers(0, 1)
    await store.release("x")
    await store.close()

    assert {path: facts(path) for path in (left, *left.rglob("*"))} == before
    assert len(before) == 4


async def test_a_folder_that_cannot_be_written_replays_and_says_so_when_recording(
    root: Path, files: FileStore
) -> None:
    await record(files, 0)
    (root / ".x.lock").unlink()
    with read_only(root):
        assert bodies(await files.load("x", writable=False)) == answers(0)
        with pytest.raises(StoreError, match="take the lock") as caught:
            await files.append("x", HEAD, recording(1))
        assert caught.value.status == 503
        with pytest.raises(StoreError):
            await files.load("new/one", writable=True)


def _files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def _symlink(path: Path) -> None:
    path.with_name("target").write_bytes(document.save(StoredCassette(HEAD)))
    path.symlink_to(path.with_name("target"))


def _hard_link(path: Path) -> None:
    path.with_name("target").write_bytes(document.save(StoredCassette(HEAD)))
    os.link(path.with_name("target"), path)


def _device(path: Path) -> None:
    os.symlink("/dev/zero", path)


STRANGE = [_symlink, _hard_link, _device, os.mkfifo, Path.mkdir]


@pytest.mark.parametrize("file", ["x.json", "x.journal", ".x.lock"])
@pytest.mark.parametrize("put", STRANGE, ids=lambda put: put.__name__.strip("_"))
async def test_anything_but_a_regular_file_of_its_own_is_refused(
    files: FileStore, root: Path, file: str, put: Any
) -> None:
    root.mkdir()
    put(root / file)
    before = {path.name: path.lstat() for path in root.iterdir()}

    with pytest.raises(CassetteCorrupt, match=file):
        await files.load("x", writable=True)
    if file != ".x.lock":
        with pytest.raises(CassetteCorrupt, match=file):
            await files.load("x", writable=False)

    assert {path.name: path.lstat() for path in root.iterdir() if path.name in before} == before


async def test_a_folder_below_the_root_may_not_be_a_link(
    files: FileStore, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    root.mkdir()
    (root / "a").symlink_to(tmp_path / "elsewhere")

    for writable in (True, False):
        with pytest.raises(StoreError, match="symbolic link"):
            await files.load("a/x", writable=writable)
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = FileStore(tmp_path / "link")

    await record(store, 0)

    assert await store.names() == ["x"]


async def test_a_root_that_is_a_file_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match="not a folder"):
        await FileStore(tmp_path / "file").open()


@pytest.mark.parametrize(("there", "new"), [("Foo", "foo"), ("a/Foo", "a/fOO"), ("A/x", "a/x")])
async def test_a_name_that_differs_only_in_case_is_refused(
    files: FileStore, there: str, new: str
) -> None:
    await record(files, 0, name=there)

    with pytest.raises(StoreError, match="only in case") as caught:
        await files.append(new, HEAD, recording(0))

    assert caught.value.status == 409
    assert await files.names() == [there]
    await record(files, 1, name=there)


async def test_a_folder_is_not_read_for_each_cassette_that_is_new(
    files: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []
    listdir = os.listdir

    def noted(folder: object) -> list[str]:
        read.append(folder)
        return listdir(folder)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(paths, "LOOK_UPS", 20)
    await record(files, 0, name="first")
    monkeypatch.setattr(os, "listdir", noted)
    for number in range(60):
        await record(files, number, name=f"x{number}")
        await files.release(f"x{number}")
        await record(files, number, name=f"x{number}")
    assert len(read) <= 4

    with pytest.raises(StoreError, match="only in case"):
        await files.append("X7", HEAD, recording(0))
    await files.remove("x7")
    await record(files, 0, name="X7")
    assert "X7" in await files.names()


async def test_a_name_that_another_process_adds_is_seen_after_so_many_others(
    files: FileStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "LOOK_UPS", 5)
    await record(files, 0, name="first")
    (root / "Foo.json").write_bytes((root / "first.json").read_bytes())
    for number in range(5):
        await files.append(f"x{number}", HEAD, recording(0))

    with pytest.raises(StoreError, match=r"'Foo.json' .* only in case"):
        await files.append("foo", HEAD, recording(0))


async def test_a_new_store_knows_nothing_of_what_another_saw_in_a_folder_of_that_number(
    files: FileStore, root: Path
) -> None:
    # The number of a folder that is gone is given to the next one.
    await record(files, 0, name="first")
    (root / "Foo.json").write_bytes((root / "first.json").read_bytes())
    other = FileStore(root)
    await other.open()
    try:
        with pytest.raises(StoreError, match=r"'Foo.json' .* only in case"):
            await other.append("foo", HEAD, recording(0))
    finally:
        await other.close()


async def test_where_case_is_not_told_apart_a_new_twin_is_refused_at_once(
    files: FileStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await record(files, 0, name="x")
    (root / "Foo.json").write_bytes((root / "x.json").read_bytes())
    look = os.stat

    def insensitive(path: object, **options: Any) -> os.stat_result:
        return look("Foo.json" if path == "foo.json" else path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", insensitive)
    with pytest.raises(StoreError, match=r"'Foo.json' .* only in case"):
        await files.append("foo", HEAD, recording(0))


async def test_what_a_killed_process_left_half_written_is_removed(
    files: FileStore, root: Path
) -> None:
    await record(files, 0, name="x")
    await files.close()
    (root / ".x.0123abcd.tmp").touch()
    (root / ".x.lock").write_text("12345\n")

    await files.open()
    # One that fails leaves it to the next.
    (root / "x.yaml").touch()
    with pytest.raises(CassetteCorrupt, match="are both there"):
        await files.append("x", HEAD, recording(1))
    (root / "x.yaml").unlink()
    await files.append("x", HEAD, recording(1))

    assert not (root / ".x.0123abcd.tmp").exists()
    await files.close()
    assert (root / ".x.lock").read_bytes() == b""


async def test_a_cassette_and_a_folder_cannot_share_a_name(files: FileStore) -> None:
    await record(files, 0, name="a")
    with pytest.raises(StoreError, match=r"a\.json is no folder"):
        await files.append("a.json/b", HEAD, recording(0))

    await record(files, 0, name="b.json/c")
    with pytest.raises(CassetteCorrupt, match=r"b\.json is not a regular file"):
        await files.load("b", writable=True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "",
            r"x\.json line 1: Expecting value: .*; the file was left as it is: repair it, or move",
        ),
        ('{\n  "version": "1",\n  "interactions": [],,\n}', r"x\.json line 3: "),
        (
            '{\n"version": "2",\n"interactions": []}',
            r"x\.json line 2: version: .* version 2; .* reads 1: update tapeway; "
            "the file was left as it is$",
        ),
        (
            '{"log": {}}',
            r"x\.json line 1: this is no cassette, .*: move it away, or convert another tool's file "
            "with tapeway cassette convert; the file was left as it is$",
        ),
        (
            '{"version": "1", "interactions": [\n{"kind": "http",\n"request": {"method": "GET",'
            ' "url": "/"},\n"response": {\n"status_code": 99}}]}',
            r"x\.json line 5: interactions\[0\]\.response\.status_code: must be .* not 99",
        ),
    ],
)
async def test_a_file_that_cannot_be_read_is_named_with_line_and_reason_and_kept(
    files: FileStore, root: Path, text: str, said: str
) -> None:
    root.mkdir()
    (root / "x.json").write_text(text)
    before = facts(root / "x.json")

    for writable in (True, False):
        with pytest.raises(CassetteCorrupt, match=said):
            await files.load("x", writable=writable)
    with pytest.raises(CassetteCorrupt, match=said):
        await files.append("x", HEAD, recording(0))
    with pytest.raises(CassetteCorrupt, match=said):
        await files.save("x", StoredCassette(HEAD))
    await files.release("x")

    assert facts(root / "x.json") == before
    assert (root / "x.json").read_text() == text


async def test_a_close_without_time_leaves_what_the_next_load_continues_from(
    files: FileStore, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b", "c"):
        await files.append(name, HEAD, recording(0))
        await files.append(name, HEAD, recording(1, 0))
    journals = {path: path.read_bytes() for path in root.glob("*.journal")}
    assert len(journals) == 3
    caplog.set_level(logging.INFO)

    await files.close(within_s=0)

    assert {path: path.read_bytes() for path in root.glob("*.journal")} == journals
    assert "3 cassettes keep their journals" in caplog.text
    await files.open()
    for name in ("a", "b", "c"):
        assert bodies(await files.load(name, writable=False)) == answers(1)
        await files.load(name, writable=True)
        await files.append(name, HEAD, recording(2))
    await files.close()
    assert not list(root.glob("*.journal"))
    await files.open()
    assert bodies(await files.load("a", writable=False)) == answers(1, 2)


@pytest.mark.parametrize(
    ("slow", "quick", "within_s"),
    [
        (b"x" * 4_000_000, b"", 0.3),
        (b"[" + b"{}," * 100_000 + b"{}]", b"[" + b'"x",' * 70_000 + b'"x"]', 1),
    ],
    ids=["bytes", "objects"],
)
async def test_a_close_begins_no_fold_that_would_take_too_long(
    files: FileStore, root: Path, slow: bytes, quick: bytes, within_s: float
) -> None:
    await files.append("slow", HEAD, recording(0, body=slow))
    await files.append("quick", HEAD, recording(0, body=quick))

    await files.close(within_s=within_s)

    assert [path.stem for path in root.glob("*.journal")] == ["slow"]
    assert [path.stem for path in root.glob("*.json")] == ["quick"]


async def test_a_cassette_whose_first_recording_was_not_written_whole_is_not_there(
    files: FileStore, root: Path
) -> None:
    await files.append("a/x", HEAD, recording(0))
    journal = root / "a" / "x.journal"
    whole = journal.read_bytes()
    await files.release("a/x")
    (root / "a" / "x.json").unlink()

    for size in range(len(whole) + 1):
        journal.write_bytes(whole[:size])
        there = size == len(whole)
        assert await files.names() == (["a/x"] if there else [])
        assert (await files.stat("a/x") is not None) == there
        if size % 50 == 0 or there:
            assert (await FileStore(root).load("a/x", writable=False) is not None) == there


@pytest.mark.parametrize("text", [b"not a journal\n", b"0\n1\n"])
async def test_a_journal_that_is_damaged_is_listed_and_refused(
    files: FileStore, root: Path, text: bytes
) -> None:
    root.mkdir()
    (root / "x.journal").write_bytes(text)

    assert await files.names() == ["x"]
    assert await files.stat("x") is not None
    with pytest.raises(CassetteCorrupt):
        await files.load("x", writable=False)
