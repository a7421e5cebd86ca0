"""One writer a cassette, and people who edit its file meanwhile."""

import asyncio
import json
import logging
import os
import threading
from itertools import count, takewhile
from pathlib import Path

import pytest

from tapeway.core.model.cassette import StoredCassette
from tapeway.errors import CassetteEdited, CassetteLocked
from tapeway.formats.native.document import save
from tapeway.stores.file.cassette import FileCassette
from tapeway.stores.file.journal import payload_of
from tapeway.stores.file.store import FileStore
from tests.stores.crashes.recording_process import writers
from tests.stores.recordings import HEAD, answers, bodies, record, recording


async def test_a_second_writer_is_told_who_holds_the_cassette(files: FileStore, root: Path) -> None:
    second = FileStore(root)
    await files.load("x", writable=True)

    for attempt in (second.load("x", writable=True), second.append("x", HEAD, recording(0))):
        with pytest.raises(CassetteLocked, match=f"process {os.getpid()} records"):
            await attempt
    assert await second.load("x", writable=False) is None

    await files.release("x")
    await second.load("x", writable=True)
    await second.close()


async def test_another_process_cannot_write_until_the_holder_is_gone(
    files: FileStore, root: Path
) -> None:
    with writers(f"file:{root}", [0]) as (writer,):
        with pytest.raises(CassetteLocked, match=f"process {writer.pid} records"):
            await files.load("x", writable=True)
        writer.acknowledged(1)
        assert bodies(await files.load("x", writable=False))[:1] == answers(0)
        await files.release("x")

    assert bodies(await files.load("x", writable=True))[:1] == answers(0)


async def test_two_processes_that_take_turns_lose_nothing(root: Path) -> None:
    first, second = FileStore(root), FileStore(root)
    for number in range(0, 20, 2):
        await record(first, number)
        await record(second, number + 1)

    assert bodies(await first.load("x", writable=False)) == answers(*range(20))


async def test_a_reader_beside_a_writer_never_misses_or_doubles_a_recording(root: Path) -> None:
    """The writer folds all the time; each read shows what was acknowledged before it began."""
    kept: list[int] = []
    seen: list[tuple[int, list[bytes]]] = []
    end = threading.Event()

    def write() -> None:
        # However busy the machine is, each of the two waits for the other.
        for number in takewhile(lambda number: number < 30 or len(seen) <= 10, count()):
            cassette = FileCassette(root, "x")
            cassette.append(HEAD, [payload_of(recording(number))])
            kept.append(number)
            cassette.release()
        end.set()

    def read() -> None:
        while not end.is_set():
            before = len(kept)
            found = FileCassette(root, "x").load(writable=False)
            seen.append((before, bodies(found) if found else []))

    await asyncio.gather(*[asyncio.to_thread(work) for work in (write, read, read)])

    assert len(seen) > 10
    for before, found in seen:
        assert found == answers(*range(len(found)))
        assert len(found) >= before


async def test_a_cassette_recorded_by_another_since_it_was_read_is_not_appended_to(
    files: FileStore, root: Path
) -> None:
    await record(files, 0)
    await files.load("x", writable=False)
    other = FileStore(root)
    await record(other, 1)

    with pytest.raises(CassetteEdited, match="loaded anew"):
        await files.append("x", HEAD, recording(1))

    await files.release("x")
    await record(files, 2)
    assert bodies(await files.load("x", writable=True)) == answers(0, 1, 2)


async def test_a_file_edited_while_loaded_is_not_overwritten(
    files: FileStore, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await record(files, 0, 1)
    await files.load("x", writable=True)
    await files.append("x", HEAD, recording(2))
    edited = (root / "x.json").read_text().replace('"answer": 1', '"answer": "edited"')
    (root / "x.json").write_text(edited)

    with pytest.raises(CassetteEdited, match=r"x\.json was changed .*x\.journal"):
        await files.release("x")
    assert (root / "x.json").read_text() == edited

    with caplog.at_level(logging.WARNING):
        found = await files.load("x", writable=True)
    assert "recordings go on top" in caplog.text
    expected = [answers(0)[0], b'{"answer": "edited"}', answers(2)[0]]
    assert bodies(found) == expected
    await files.release("x")
    assert bodies(await files.load("x", writable=False)) == expected


async def test_an_edit_while_the_final_form_is_being_written_is_not_overwritten(
    files: FileStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program saves the file after the store has read the file, and before the rename."""
    await record(files, 0)
    await files.append("x", HEAD, recording(1))
    edited = (root / "x.json").read_text().replace('"answer": 0', '"answer": "edited"')
    sync = os.fdatasync

    def edit_and_sync(fd: int) -> None:
        (root / "x.json").write_text(edited)
        sync(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", edit_and_sync)
        with pytest.raises(CassetteEdited, match=r"x\.json was changed .*x\.journal"):
            await files.release("x")

    assert (root / "x.json").read_text() == edited
    assert sorted(path.name for path in root.iterdir() if "x.json" in path.name) == ["x.json"]
    found = await files.load("x", writable=False)
    assert bodies(found) == [b'{"answer": "edited"}', *answers(1)]


@pytest.mark.parametrize("write", ["append", "save"])
async def test_an_edit_of_the_same_length_at_the_same_time_is_seen(
    files: FileStore, root: Path, write: str
) -> None:
    await record(files, 0)
    found = await files.load("x", writable=True)
    assert found is not None
    before = (root / "x.json").stat()
    (root / "x.json").write_text((root / "x.json").read_text().replace("smoke", "ekoms"))
    os.utime(root / "x.json", ns=(before.st_atime_ns, before.st_mtime_ns))

    twice = StoredCassette(HEAD, (*found.interactions, *found.interactions))
    with pytest.raises(CassetteEdited):
        await (files.save("x", twice) if write == "save" else record(files, 1))
    assert "ekoms" in (root / "x.json").read_text()


async def test_a_file_written_anew_with_the_same_content_is_no_edit(
    files: FileStore, root: Path
) -> None:
    await record(files, 0)
    await files.load("x", writable=True)
    text = (root / "x.json").read_bytes()
    (root / "x.json").unlink()
    (root / "x.json").write_bytes(text)

    await record(files, 1)

    assert bodies(await files.load("x", writable=True)) == answers(0, 1)


async def test_a_file_deleted_while_loaded_is_an_edit_too(files: FileStore, root: Path) -> None:
    await record(files, 0)
    await files.append("x", HEAD, recording(1))
    (root / "x.json").unlink()

    with pytest.raises(CassetteEdited):
        await files.release("x")

    found = await files.load("x", writable=True)
    assert bodies(found) == answers(1)
    assert found is not None
    assert found.head == HEAD


async def test_a_file_that_came_into_being_while_loaded_is_an_edit_too(
    files: FileStore, root: Path
) -> None:
    await files.append("x", HEAD, recording(1))
    (root / "x.json").write_bytes(save(StoredCassette(HEAD, (recording(0).interaction,))))

    with pytest.raises(CassetteEdited):
        await files.release("x")

    assert bodies(await files.load("x", writable=True)) == answers(0, 1)


async def test_numbers_given_away_by_an_edit_are_told_apart(files: FileStore, root: Path) -> None:
    await record(files, 0)
    await files.append("x", HEAD, recording(1))
    await files.append("x", HEAD, recording(2, 1))
    document = json.loads((root / "x.json").read_text())
    document["interactions"].append(dict(document["interactions"][0], index=1, tags=["mine"]))
    (root / "x.json").write_text(json.dumps(document))
    with pytest.raises(CassetteEdited):
        await files.release("x")

    found = await files.load("x", writable=True)

    assert bodies(found) == answers(0, 0, 2)


async def test_a_journal_taken_away_is_not_written_into_the_void(
    files: FileStore, root: Path
) -> None:
    await files.append("x", HEAD, recording(0))
    (root / "x.journal").unlink()

    with pytest.raises(CassetteEdited, match="removed"):
        await files.append("x", HEAD, recording(1))
    with pytest.raises(CassetteEdited, match="removed"):
        await files.release("x")
    assert not (root / "x.json").exists()


async def test_one_bad_cassette_does_not_keep_the_others_from_their_final_form(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = FileStore(root)
    for name in ("a", "b", "c"):
        await store.append(name, HEAD, recording(0))
    (root / "b.json").write_text("mine")

    with pytest.raises(CassetteEdited, match=r"b\.json"):
        await store.close()

    assert (root / "a.json").exists()
    assert (root / "c.json").exists()
    assert "cassette 'b' at stop" in caplog.text
