"""A journal of another version is refused and left alone.

`data/version-1.journal` was written by the first tapeway; it holds the recordings 0, 1, and 2 in
the place of 0.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tapeway.core.model.cassette import StoredCassette
from tapeway.errors import CassetteCorrupt
from tapeway.stores.file import journal
from tapeway.stores.file.cassette import FileCassette
from tapeway.stores.file.store import FileStore
from tests.stores.recordings import HEAD, answers, bodies, recording

OLD = (Path(__file__).parent / "data" / "version-1.journal").read_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One with an old journal and no file: all there is stands in the journal."""
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "x.journal").write_bytes(OLD)
    return folder


def with_version(version: str) -> bytes:
    """The old journal, with another version in its first line."""
    first, *rest = OLD.splitlines(keepends=True)
    text = first.split(b" ", 3)[3].rstrip().replace(b'"journal":1', f'"journal":{version}'.encode())
    return b"".join([*journal.lines([text], 0), *rest])


async def test_the_first_version_is_read_as_it_was_written(folder: Path) -> None:
    store = FileStore(folder)
    await store.open()
    found = await store.load("x", writable=True)
    await store.append("x", HEAD, recording(3))
    await store.close()

    assert found is not None
    assert found.head == HEAD
    assert bodies(found) == answers(2, 1)
    assert bodies(FileCassette(folder, "x").load(writable=False)) == answers(2, 1, 3)


@pytest.mark.parametrize(
    "asked",
    [
        lambda store: store.load("x", writable=False),
        lambda store: store.load("x", writable=True),
        lambda store: store.append("x", HEAD, recording(3)),
        lambda store: store.save("x", StoredCassette(HEAD)),
    ],
    ids=["replay", "record", "append", "save"],
)
async def test_a_newer_journal_is_named_and_left_as_it_is(
    folder: Path, asked: Callable[[FileStore], Awaitable[object]]
) -> None:
    # Whatever its lines say by then.
    newer = with_version("7") + b"".join(journal.lines([b'{"unheard":"of"}'], 4))
    (folder / "x.journal").write_bytes(newer)
    store = FileStore(folder)
    await store.open()

    with pytest.raises(CassetteCorrupt) as refused:
        await asked(store)
    await store.close()

    assert str(refused.value) == (
        f"{folder / 'x.journal'} was written by a newer tapeway: its lines are of version 7, and "
        "this one knows 1: update tapeway, or use another store; it was left as it is"
    )
    assert (folder / "x.journal").read_bytes() == newer
    assert not (folder / "x.json").exists()


def test_an_older_journal_is_refused(folder: Path) -> None:
    (folder / "x.journal").write_bytes(with_version("0"))

    with pytest.raises(CassetteCorrupt, match=r"this tapeway reads version 1.*left as it is"):
        FileCassette(folder, "x").load(writable=True)


@pytest.mark.parametrize("version", ['"1"', "null", "true", "1.5"])
def test_what_is_no_version_begins_no_journal(folder: Path, version: str) -> None:
    (folder / "x.journal").write_bytes(with_version(version))

    with pytest.raises(CassetteCorrupt, match="line 1: this is not the first line of a journal"):
        FileCassette(folder, "x").load(writable=False)
