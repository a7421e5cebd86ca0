"""A SQLite file of another version, or that somebody else has put something into."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tapeway.errors import CassetteCorrupt, CassetteLocked, StoreError, StoreFull
from tapeway.stores.sqlite import upgrade
from tests.stores.large_bodies import contents
from tests.stores.recordings import HEAD, bodies, indexes, recording
from tests.stores.shared_instances import append_recordings
from tests.stores.small_disks import read_only, small_disk
from tests.stores.sqlite.conftest import opened
from tests.stores.sqlite.other_process import peer

VERSION_7 = Path(__file__).parent / "data" / "version-7.sql"


@pytest.fixture
async def made(file: Path) -> Path:
    """A store's file of this tapeway's version."""
    async with opened(file) as store:
        await append_recordings(store, 0, 1, 2)
    return file


@pytest.fixture
def old(file: Path) -> Path:
    """A file that the version before wrote: recordings, one of a tool, one with a large body."""
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(VERSION_7.read_text())
    return file


def run(file: Path, sql: str) -> list[Any]:
    with closing(apsw.Connection(str(file))) as connection:
        return connection.execute(sql).fetchall()


async def recorded(file: Path) -> list[bytes]:
    async with opened(file) as store:
        return bodies(await store.load("x", writable=False))


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (9, "newer tapeway: its tables are of version 9, and this one knows 8: update tapeway"),
        (6, "version 6, and this tapeway reads version 8: use the tapeway that wrote it"),
    ],
)
async def test_another_version_is_refused_and_left_as_it_is(
    made: Path, version: int, said: str
) -> None:
    run(made, f"PRAGMA user_version = {version}")
    before = made.read_bytes()

    with pytest.raises(CassetteCorrupt, match=said):
        await recorded(made)
    with pytest.raises(CassetteCorrupt, match=said):
        async with opened(made) as store:
            await append_recordings(store, 3)
    assert made.read_bytes() == before


FOREIGN = {
    "the trigger 'spy'": "CREATE TRIGGER spy AFTER INSERT ON documents BEGIN "
    "UPDATE documents SET text = x'00'; END",
    "the view 'everything'": "CREATE VIEW everything AS SELECT * FROM documents",
    "the table 'notes'": "CREATE TABLE notes (text)",
    "the table 'generated'": "CREATE TABLE generated (a, b AS (hex(a)))",
    "the table 'words'": "CREATE VIRTUAL TABLE words USING fts5(text)",
    "the index 'computed'": "CREATE INDEX computed ON documents (length(text) / id)",
    "the index 'partial'": "CREATE INDEX partial ON recordings (number) WHERE abs(number) > 1",
}


@pytest.mark.parametrize("what", FOREIGN)
async def test_a_file_with_a_part_that_tapeway_did_not_make_is_refused_by_name(
    made: Path, what: str
) -> None:
    run(made, FOREIGN[what])
    before = made.read_bytes()

    with pytest.raises(CassetteCorrupt, match=f"holds {what}, which tapeway did not make"):
        await recorded(made)
    with pytest.raises(CassetteCorrupt, match="which tapeway did not make"):
        async with opened(made) as store:
            await append_recordings(store, 3)
    assert made.read_bytes() == before


async def test_a_part_that_comes_while_the_file_is_open_does_not_run(made: Path) -> None:
    async with opened(made) as store:
        await append_recordings(store, 3)
        run(made, FOREIGN["the trigger 'spy'"])
        await append_recordings(store, 4)
        with pytest.raises(CassetteCorrupt, match="holds the trigger 'spy'"):
            bodies(await store.load("x", writable=False))
    assert run(made, "SELECT count(*), min(length(text)) > 1 FROM documents") == [(5, 1)]


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE documents ADD COLUMN computed INTEGER AS (length(text))",
        "ALTER TABLE cassettes RENAME COLUMN meta TO mete",
        "DROP INDEX uses_of_body; CREATE INDEX uses_of_body ON uses (abs(body))",
    ],
)
async def test_a_table_that_somebody_else_changed_is_refused_by_name(made: Path, sql: str) -> None:
    run(made, sql)

    with pytest.raises(CassetteCorrupt, match=r"'.*' is not as tapeway makes it"):
        await recorded(made)


async def test_a_file_without_one_of_its_tables_is_refused_by_name(made: Path) -> None:
    run(made, "DROP TABLE uses")

    with pytest.raises(CassetteCorrupt, match="lacks the index 'uses_of_body'"):
        await recorded(made)


async def test_what_sqlite_itself_adds_for_its_planner_is_no_foreign_part(made: Path) -> None:
    run(made, "ANALYZE")

    assert len(await recorded(made)) == 3


# The version before.


async def test_a_file_of_the_version_before_is_upgraded_with_a_copy_beside_it(
    old: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(old) as store:
        assert await store.names() == ["suite/x", "y"]
        found = await store.load("suite/x", writable=False)
        assert contents(found) == [
            *(b'{"answer": 0}', b'{"answer": 4}', b'{"answer": 2}', b"large " * 100)
        ]
        assert indexes(found) == [0, 4, 2, 5]
        assert await store.check() == []
        await store.append("suite/x", HEAD, recording(6))
    copy = old.with_name("calls.db.version-7")

    assert f"{copy} is a copy of it as it was" in caplog.text
    assert run(old, "PRAGMA user_version") == [(8,)]
    assert run(copy, "PRAGMA user_version") == [(7,)]
    assert run(copy, "SELECT count(*) FROM interaction") == [(5,)]
    assert copy.stat().st_mode & 0o777 == 0o600
    async with opened(old) as store:
        assert len(bodies(await store.load("suite/x", writable=False))) == 5
        assert await store.check() == []
    assert {path.name for path in old.parent.iterdir()} == {
        *("calls.db", "calls.db.lock", "calls.db.version-7")
    }


async def test_a_copy_that_is_there_already_is_not_replaced(old: Path) -> None:
    copy = old.with_name("calls.db.version-7")
    copy.write_text("precious")

    async with opened(old) as store:
        assert await store.names() == ["suite/x", "y"]

    assert copy.read_text() == "precious"
    assert run(old.with_name("calls.db.version-7-2"), "PRAGMA user_version") == [(7,)]


@pytest.mark.parametrize("last", ["_copied", "_copy_cassette"])
async def test_an_upgrade_that_breaks_off_leaves_the_file_as_it_was(
    old: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    with monkeypatch.context() as patch:

        def break_off(*_: object) -> None:
            raise OSError("killed")

        patch.setattr(upgrade, last, break_off)
        with pytest.raises(OSError, match="killed"):
            async with opened(old):
                pass
    assert run(old, "PRAGMA user_version") == [(7,)]
    assert run(old, "SELECT count(*) FROM interaction") == [(5,)]

    async with opened(old) as store:
        assert await store.names() == ["suite/x", "y"]


async def test_a_file_of_the_version_before_with_a_foreign_part_is_refused_by_name(
    old: Path,
) -> None:
    run(old, "CREATE TRIGGER spy AFTER DELETE ON lost BEGIN DELETE FROM state; END")

    with pytest.raises(CassetteCorrupt, match="holds the trigger 'spy'"):
        async with opened(old):
            pass
    assert run(old, "PRAGMA user_version") == [(7,)]


async def test_a_file_of_the_version_before_that_cannot_be_written_says_what_to_do(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "calls.db")) as connection:
        connection.executescript(VERSION_7.read_text())

    with read_only(folder), pytest.raises(StoreError, match="open it once where it can be"):
        async with opened(folder / "calls.db"):
            pass


async def test_a_file_of_the_version_before_is_left_as_it_is_on_a_full_disk(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "disk"
    with small_disk(folder, kib=1024):
        file = folder / "calls.db"
        with closing(sqlite3.connect(file)) as connection:
            connection.executescript(VERSION_7.read_text())
        before = file.read_bytes()
        (folder / "ballast").write_bytes(b"\0" * _room(folder))
        with pytest.raises(StoreFull):
            async with opened(file):
                pass
        (folder / "ballast").unlink()
        assert run(file, "PRAGMA user_version") == [(7,)]
        assert run(file, "SELECT count(*) FROM interaction") == [(5,)]
        assert len(file.read_bytes()) == len(before)


async def test_a_file_of_the_version_before_is_not_upgraded_while_another_process_has_it(
    old: Path,
) -> None:
    with peer(old, upgrades=False) as other, pytest.raises(CassetteLocked) as refused:
        async with opened(old):
            pass
    assert f"process {other.pid}" in refused.value.message


def _room(folder: Path) -> int:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize - 60 * 1024
