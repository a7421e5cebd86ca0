"""The file store's own promises: what lies where, who may read it, and what is left alone."""

import hashlib
import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from tapeway.errors import CassetteCorrupt, StoreError
from tapeway.stores.file.store import FileStore
from tests.stores.mounts import read_only
from tests.stores.recordings import HEAD, answers, bodies, facts, record, recording

DATA = Path(__file__).parents[1] / "formats" / "data"


async def test_a_recording_is_in_the_journal_and_in_the_file_after_release(
    files: FileStore, root: Path
) -> None:
    await files.append("a/b", HEAD, recording(0))
    assert _files(root) == ["a/.b.lock", "a/b.journal"]

    await files.release("a/b")
    assert _files(root) == ["a/.b.lock", "a/b.json"]
    document = json.loads((root / "a/b.json").read_text())
    assert document["run_id"] == HEAD.run_id
    assert document["interactions"][0]["response"]["json"] == {"answer": 0}


async def test_closing_folds_every_cassette(root: Path) -> None:
    store = FileStore(root)
    await store.open()
    for name in ("a", "b"):
        await store.append(name, HEAD, recording(0))
    await store.close()

    assert _files(root) == [".a.lock", ".b.lock", "a.json", "b.json"]


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
    assert len(modes) == 4


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
    assert len(before) == 3


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
