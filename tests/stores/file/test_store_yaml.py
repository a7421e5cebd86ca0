"""Cassettes in YAML files: which file is a cassette's, and that it stays what it was."""

from pathlib import Path

import pytest
import yaml

from tapeway.core.model.cassette import StoredCassette
from tapeway.errors import CassetteCorrupt, CassetteEdited, StoreError
from tapeway.formats.cassette_file import JSON, YAML
from tapeway.formats.yaml import parser as yaml_parser
from tapeway.stores.file.store import FileStore
from tests.formats.test_cassette_file import DATA
from tests.stores.large_bodies import assets, body, contents, large
from tests.stores.recordings import HEAD, answers, bodies, facts, record, recording

ASSET = "sha256-2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"


def file(root: Path, name: str, *numbers: int) -> Path:
    """A cassette's file with these recordings."""
    root.mkdir(exist_ok=True)
    path = root / name
    serializer = JSON if name.endswith(".json") else YAML
    items = tuple([recording(number).interaction for number in numbers])
    path.write_bytes(serializer.save(StoredCassette(HEAD, items)))
    return path


@pytest.mark.parametrize("ending", [".yaml", ".yml"])
async def test_a_yaml_file_is_read_and_written_in_yaml(
    files: FileStore, root: Path, ending: str
) -> None:
    path = file(root, f"x{ending}", 0)

    assert await files.names() == ["x"]
    assert bodies(await files.load("x", writable=False)) == answers(0)
    await record(files, 1)

    assert sorted(entry.name for entry in root.iterdir()) == [".gitignore", ".x.lock", path.name]
    written = yaml.safe_load(path.read_text())
    assert [interaction["response"]["json"] for interaction in written["interactions"]] == [
        {"answer": 0},
        {"answer": 1},
    ]
    assert bodies(await files.load("x", writable=True)) == answers(0, 1)


async def test_a_new_cassette_is_written_in_the_notation_asked_for_and_an_old_one_stays(
    root: Path,
) -> None:
    file(root, "old.json", 0)
    store = FileStore(root, YAML)
    assert store.url == f"file:{root}?format=yaml"
    await store.open()
    await record(store, 1, name="old")
    await record(store, 1, name="new")
    await record(store, 2, name="new")
    await store.close()

    assert sorted(path.name for path in root.glob("*")) == [
        *(".gitignore", ".new.lock", ".old.lock", "new.yaml", "old.json"),
    ]
    assert (root / "old.json").read_bytes() == file(root, "same.json", 0, 1).read_bytes()
    assert (root / "new.yaml").read_bytes() == file(root, "same.yaml", 1, 2).read_bytes()


async def test_a_new_recording_changes_no_line_of_the_old_ones(
    files: FileStore, root: Path
) -> None:
    path = file(root, "x.yaml", 0, 1)
    before = path.read_text()

    await record(files, 2)

    assert path.read_text().startswith(before)


async def test_nothing_recorded_leaves_the_file_untouched(files: FileStore, root: Path) -> None:
    path = file(root, "x.yaml", 0)
    path.write_text("# by hand\n" + path.read_text())
    before = facts(path)

    await files.load("x", writable=True)
    await files.release("x")

    assert facts(path) == before


@pytest.mark.parametrize("names", [("x.json", "x.yaml"), ("x.json", "x.yml"), ("x.yaml", "x.yml")])
async def test_two_files_of_one_cassette_are_refused_and_left(
    files: FileStore, root: Path, names: tuple[str, str]
) -> None:
    before = [facts(file(root, name, 0)) for name in names]

    for writable in (True, False):
        with pytest.raises(CassetteCorrupt) as refused:
            await files.load("x", writable=writable)
        assert f"{names[0]} and {names[1]} are both there" in refused.value.message
    with pytest.raises(CassetteCorrupt):
        await files.append("x", HEAD, recording(1))

    assert await files.names() == ["x"]
    assert await files.stat("x") is not None
    assert [facts(root / name) for name in names] == before


async def test_a_folder_that_looks_like_a_file_is_other_cassettes(
    files: FileStore, root: Path
) -> None:
    await record(files, 0, name="x.yaml/y")
    await record(files, 1)

    assert await files.names() == ["x", "x.yaml/y"]
    assert (root / "x.json").is_file()


async def test_what_was_recorded_before_a_crash_goes_into_the_yaml_file(root: Path) -> None:
    path = file(root, "x.yaml", 0)
    crashed = FileStore(root)
    await crashed.open()
    await crashed.append("x", HEAD, recording(1))
    # The one that holds the lock is gone after a crash.
    (root / ".x.lock").unlink()

    store = FileStore(root)
    await store.open()
    assert bodies(await store.load("x", writable=True)) == answers(0, 1)
    await store.close()

    assert len(yaml.safe_load(path.read_text())["interactions"]) == 2
    assert not (root / "x.journal").exists()
    with pytest.raises(StoreError):
        await crashed.close()


async def test_a_cassette_that_changed_its_notation_while_loaded_was_edited(
    files: FileStore, root: Path
) -> None:
    path = file(root, "x.json", 0)
    await files.load("x", writable=True)
    await files.append("x", HEAD, recording(1))
    file(root, "x.yaml", 5)
    path.unlink()

    with pytest.raises(CassetteEdited, match=r"x\.json was changed"):
        await files.release("x")

    assert bodies(await files.load("x", writable=True)) == answers(5, 1)


async def test_a_fault_is_named_with_file_line_and_place(files: FileStore, root: Path) -> None:
    path = file(root, "x.yaml", 0)
    text = path.read_text().replace("status_code: 200", "status_code: ok")
    path.write_text(text)
    line = text.split("\n").index("      status_code: ok") + 1

    said = rf"x\.yaml line {line}: interactions\[0\]\.response\.status_code: must be a whole"
    for writable in (True, False):
        with pytest.raises(CassetteCorrupt, match=said):
            await files.load("x", writable=writable)
    assert path.read_text() == text


async def test_large_bodies_lie_beside_a_yaml_file(root: Path) -> None:
    store = FileStore(root, YAML)
    await store.open()
    for number in (0, 1):
        await store.append("x", HEAD, large(number, await store.keep("x", [body(number)])))
    await store.release("x")
    assert contents(await store.load("x", writable=True)) == [body(0), body(1)]

    await store.append("x", HEAD, recording(2, 0))
    await store.release("x")
    assert len(assets(root)) == 1
    await store.close()


async def test_texts_that_agenttape_keeps_beside_a_yaml_file_are_read(
    files: FileStore, root: Path
) -> None:
    path = file(root, "x.yaml", 0)
    before = "      json:\n        answer: 0\n"
    digest = ASSET.replace("-", ":")
    assert before in path.read_text()
    path.write_text(
        path.read_text().replace(
            before, f"      text:\n        __agenttape_asset__: '{digest}'\n        size: 1\n"
        )
    )

    with pytest.raises(CassetteCorrupt, match="is missing: restore it"):
        await files.load("x", writable=False)
    (root / "x.assets").mkdir()
    (root / "x.assets" / ASSET).write_bytes(b"x")

    assert bodies(await files.load("x", writable=False)) == [b"x"]


async def test_a_cassette_of_agenttape_may_be_recorded_into(files: FileStore, root: Path) -> None:
    root.mkdir()
    (root / "x.yaml").write_bytes((DATA / "agenttape_async.yaml").read_bytes())

    await record(files, 0)

    found = await files.load("x", writable=False)
    assert bodies(found)[-1:] == answers(0)
    assert found is not None
    assert len(found.interactions) == 5


async def test_what_is_too_large_for_yaml_is_said_and_stays_in_the_journal(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(root, YAML)
    await store.open()
    await store.append("x", HEAD, recording(0))
    monkeypatch.setattr(yaml_parser, "MAX_SIZE", 100)

    with pytest.raises(StoreError, match="too much for YAML"):
        await store.release("x")

    assert bodies(await store.load("x", writable=True)) == answers(0)
    monkeypatch.undo()
    await store.close()
    assert (root / "x.yaml").is_file()
