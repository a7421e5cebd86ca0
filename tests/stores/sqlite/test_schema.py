"""A SQLite file of another version is refused and left alone."""

import fcntl
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tapeway.errors import CassetteCorrupt
from tapeway.stores.sql.tables import CURSORS
from tapeway.stores.sqlite import shared_file
from tapeway.stores.sqlite.operations import main_text
from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.recordings import bodies
from tests.stores.shared_instances import WANTED, append_recordings, instances

PROJECT = Path(__file__).parents[3]


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """A store's file of this tapeway's version."""
    file = tmp_path / "disk" / "calls.db"
    async with instances(lambda: SqliteStore(file), 1) as (store,):
        await append_recordings(store, 0, 1, 2)
    return file


def rows(file: Path, sql: str) -> list[Any]:
    with closing(apsw.Connection(str(file))) as connection:
        return connection.execute(sql).fetchall()


async def recorded(file: Path) -> list[bytes]:
    async with instances(lambda: SqliteStore(file), 1) as (store,):
        return bodies(await store.load("x", writable=False))


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (9, "newer tapeway: its tables are of version 9, and this one knows 7: update tapeway"),
        (5, "version 5, and this tapeway reads version 7: use the tapeway that wrote it"),
    ],
)
async def test_another_version_is_refused_and_left_as_it_is(
    file: Path, version: int, said: str
) -> None:
    rows(file, f"PRAGMA user_version = {version}")
    before = file.read_bytes()

    with pytest.raises(CassetteCorrupt, match=said):
        await recorded(file)
    with pytest.raises(CassetteCorrupt, match=said):
        async with instances(lambda: SqliteStore(file), 1) as (store,):
            await append_recordings(store, 3)
    assert file.read_bytes() == before


class TestTheSharedFile:
    """It is made anew where nobody uses it: another process uses it in these tests."""

    @pytest.fixture
    def used(self, file: Path) -> Path:
        """A shared file as the first tapeway made it, without a version, in use by a process."""
        path = file.with_name("calls.db.shared")
        with closing(apsw.Connection(str(path))) as connection:
            connection.pragma("journal_mode", "wal")
            connection.execute(main_text(CURSORS) + shared_file.TABLES)
            connection.execute("INSERT INTO turn VALUES ('x', 1, x'00', x'31', 1)")
        return path

    @pytest.fixture(autouse=True)
    def other_process(self, used: Path) -> Any:
        lock = os.open(used.with_name("calls.db.lock"), os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield
        os.close(lock)

    @pytest.mark.parametrize(
        ("version", "said"),
        [
            (9, "version 9, and this one knows 4: update"),
            (2, "version 2, and this tapeway reads version 4: use the tapeway that wrote it"),
        ],
    )
    async def test_one_of_another_version_is_refused(
        self, file: Path, used: Path, version: int, said: str
    ) -> None:
        rows(used, f"PRAGMA user_version = {version}")

        with pytest.raises(CassetteCorrupt, match=said):
            async with instances(lambda: SqliteStore(file), 1) as (store,):
                await store.join(WANTED, lambda _: None)
        assert rows(used, "SELECT name, take FROM turn") == [("x", 1)]
