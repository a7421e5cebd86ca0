"""Files and names the file store does not touch, and what it says about them."""

import os
from pathlib import Path
from typing import Any

import pytest

from tapeway.core.model.cassette import StoredCassette
from tapeway.errors import CassetteCorrupt, StoreError
from tapeway.formats.native import document
from tapeway.stores.file.store import FileStore
from tests.stores.recordings import HEAD, facts, record, recording


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

    with pytest.raises(StoreError, match="not a folder"):
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
        ("", r"x\.json line 1: Expecting value"),
        ('{\n  "version": "1",\n  "interactions": [],,\n}', r"x\.json line 3: "),
        ('{\n"version": "2",\n"interactions": []}', r"x\.json line 2: version: .* update it"),
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
