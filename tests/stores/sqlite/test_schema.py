"""A SQLite file of another version: an older one is upgraded, a newer one is left alone."""

import fcntl
import os
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from tapeway.core.cassette.recording_keys import index_keys
from tapeway.core.matching.key import key_digest, request_key
from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.core.model.messages import Request
from tapeway.errors import CassetteCorrupt, StoreError
from tapeway.stores.sqlite import schema
from tapeway.stores.sqlite.coordination import shared_file
from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.recordings import HEAD, answers, bodies, recording
from tests.stores.shared_instances import WANTED, append_recordings, instances, key
from tests.stores.small_disks import read_only
from tests.stores.sqlite.upgrading_process import UPGRADES
from tests.support import fork_server

PROJECT = Path(__file__).parents[3]


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """A store's file of this tapeway's version."""
    file = tmp_path / "disk" / "calls.db"
    async with instances(lambda: SqliteStore(file), 1) as (store,):
        await append_recordings(store, 0, 1, 2)
    return file


@pytest.fixture
def newer_tapeway(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, a tapeway that writes version 4 and upgrades what is older."""
    monkeypatch.setattr(schema, "VERSION", 4)
    monkeypatch.setattr(schema, "UPGRADES", dict(UPGRADES))


def rows(file: Path, sql: str) -> list[Any]:
    with closing(apsw.Connection(str(file))) as connection:
        return connection.execute(sql).fetchall()


async def recorded(file: Path) -> list[bytes]:
    async with instances(lambda: SqliteStore(file), 1) as (store,):
        return bodies(await store.load("x", writable=False))


@pytest.mark.parametrize("writes_first", [False, True])
@pytest.mark.usefixtures("newer_tapeway")
async def test_an_older_file_is_upgraded_step_by_step_and_keeps_what_it_holds(
    file: Path, writes_first: bool
) -> None:
    store = SqliteStore(file)
    await store.open()
    if writes_first:
        await append_recordings(store, 3)
    assert bodies(await store.load("x", writable=False)) == answers(*range(3 + writes_first))
    assert len(await store.find("x", [key(1)])) == 1
    await append_recordings(store, 4)
    assert await store.check() == []
    await store.close()

    assert rows(file, "PRAGMA user_version") == [(4,)]
    assert rows(file, "SELECT step FROM upgraded") == [("2 to 3",), ("3 to 4",)]
    assert rows(file, "SELECT DISTINCT note FROM cassette") == [("upgraded",)]


@pytest.mark.usefixtures("newer_tapeway")
async def test_where_a_step_fails_the_file_stays_as_it_was(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def upgrade_3_to_4(connection: apsw.Connection) -> None:
        connection.execute("DELETE FROM interaction")
        connection.execute("ALTER TABLE absent RENAME COLUMN one TO other")

    before = rows(file, "SELECT * FROM sqlite_schema")
    monkeypatch.setitem(schema.UPGRADES, 3, upgrade_3_to_4)
    for _ in range(2):
        with pytest.raises(CassetteCorrupt, match=r"from version 2 to 4 \(.*no such table"):
            await recorded(file)

    assert rows(file, "PRAGMA user_version") == [(2,)]
    assert rows(file, "SELECT * FROM sqlite_schema") == before
    monkeypatch.undo()
    assert await recorded(file) == answers(0, 1, 2)


def test_processes_that_open_it_at_once_upgrade_it_once(file: Path) -> None:
    command = [*fork_server.command(), "-m", "tests.stores.sqlite.upgrading_process", str(file)]
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen(command, cwd=PROJECT, text=True, stdin=pipe, stdout=pipe) for _ in range(4)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [process.communicate(timeout=60)[0] for process in processes] == ["3\n"] * 4
    finally:
        for process in processes:
            process.kill()
            process.communicate()

    assert rows(file, "PRAGMA user_version") == [(4,)]
    assert rows(file, "SELECT step FROM upgraded") == [("2 to 3",), ("3 to 4",)]


@pytest.mark.usefixtures("newer_tapeway")
async def test_an_older_file_that_cannot_be_written_says_so(file: Path) -> None:
    with read_only(file.parent), pytest.raises(StoreError, match="where the file is read-only"):
        await recorded(file)


@pytest.mark.usefixtures("newer_tapeway")
async def test_an_old_copy_is_refused_before_it_is_upgraded(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = file.read_bytes()
    with monkeypatch.context() as older:
        older.setattr(schema, "VERSION", 2)
        async with instances(lambda: SqliteStore(file), 1) as (store,):
            await append_recordings(store, 3)
    file.write_bytes(copy)

    with pytest.raises(CassetteCorrupt, match="an old copy"):
        await recorded(file)
    assert file.read_bytes() == copy


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (9, "version 9, and this one knows 2: update tapeway"),
        (0, "version 0, and there is no upgrade from version 0 to 1"),
    ],
)
async def test_a_version_that_is_not_known_is_refused(file: Path, version: int, said: str) -> None:
    rows(file, f"PRAGMA user_version = {version}")
    before = file.read_bytes()

    with pytest.raises(CassetteCorrupt, match=said):
        await recorded(file)
    with pytest.raises(CassetteCorrupt, match=said):
        async with instances(lambda: SqliteStore(file), 1) as (store,):
            await append_recordings(store, 3)
    assert file.read_bytes() == before


async def test_recordings_of_version_1_that_hold_credentials_are_found_by_the_new_keys(
    file: Path,
) -> None:
    request = RequestRedaction().redact(
        HEAD.run_id, Request("openai", "GET", "/v1/y?api_key=k-0123456789abcdef")
    )
    one = replace(recording(3), interaction=replace(recording(3).exchange, request=request))
    async with instances(lambda: SqliteStore(file), 1) as (store,):
        await store.append("x", HEAD, one)
    # As version 1 indexed it, by its request without the credential.
    old = key_digest(request_key(Request("openai", "GET", "/v1/y")))
    with closing(apsw.Connection(str(file))) as connection:
        connection.execute("DELETE FROM key WHERE length(digest) <> 32")
        connection.execute(
            "UPDATE key SET digest = ? WHERE digest = ?", (old, key_digest(request_key(request)))
        )
        connection.pragma("user_version", 1)

    async with instances(lambda: SqliteStore(file), 1) as (store,):
        assert await store.find("x", [old]) == []
        for digest in index_keys(one.exchange):
            assert [each.item.index for each in await store.find("x", [digest])] == [3]
        assert bodies(await store.load("x", writable=False)) == answers(0, 1, 2, 3)
    assert rows(file, "PRAGMA user_version") == [(2,)]


class TestTheSharedFile:
    """It is made anew where nobody uses it: another process uses it in these tests."""

    @pytest.fixture
    def used(self, file: Path) -> Path:
        """A shared file as the first tapeway made it, without a version, in use by a process."""
        path = file.with_name("calls.db.shared")
        with closing(apsw.Connection(str(path))) as connection:
            connection.pragma("journal_mode", "wal")
            connection.execute(shared_file.TABLES)
            connection.execute("INSERT INTO counter VALUES (7, 0)")
            connection.execute("INSERT INTO turn VALUES ('x', 1, x'00', x'31', 1)")
        return path

    @pytest.fixture(autouse=True)
    def other_process(self, used: Path) -> Any:
        lock = os.open(used.with_name("calls.db.lock"), os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield
        os.close(lock)

    async def test_one_of_an_older_tapeway_is_upgraded_where_there_is_a_step(
        self, file: Path, used: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for version in range(shared_file.VERSION):
            monkeypatch.setitem(shared_file.UPGRADES, version, lambda _: None)
        async with instances(lambda: SqliteStore(file), 2) as stores:
            for store in stores:
                assert (await store.turns("x", 1, [b"\0"]))[b"\0"].state == b"1"
                await store.join(WANTED, lambda _: None)
            lease = await stores[0].claim("x", b"k")

        assert lease is not None
        assert lease.fence == 8
        assert rows(used, "PRAGMA user_version") == [(shared_file.VERSION,)]

    async def test_where_a_step_fails_it_stays_as_it_was(
        self, file: Path, used: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def upgrade(connection: apsw.Connection) -> None:
            connection.execute("DELETE FROM turn")
            connection.execute("ALTER TABLE absent RENAME COLUMN one TO other")

        for version in range(shared_file.VERSION):
            monkeypatch.setitem(shared_file.UPGRADES, version, upgrade)
        with pytest.raises(CassetteCorrupt, match=r"calls\.db\.shared: .* from version 0 to 2"):
            async with instances(lambda: SqliteStore(file), 1) as (store,):
                await store.join(WANTED, lambda _: None)

        assert rows(used, "SELECT name, take FROM turn") == [("x", 1)]
        assert rows(used, "PRAGMA user_version") == [(0,)]

    async def test_one_of_a_newer_tapeway_is_refused(self, file: Path, used: Path) -> None:
        rows(used, "PRAGMA user_version = 9")

        with pytest.raises(CassetteCorrupt, match="version 9, and this one knows 2: update"):
            async with instances(lambda: SqliteStore(file), 1) as (store,):
                await store.join(WANTED, lambda _: None)
        assert rows(used, "SELECT name, take FROM turn") == [("x", 1)]

    async def test_one_that_an_older_tapeway_uses_is_refused_where_it_cannot_be_upgraded(
        self, file: Path, used: Path
    ) -> None:
        rows(used, "PRAGMA user_version = 1")

        with pytest.raises(CassetteCorrupt, match="no upgrade from version 1 to 2: use the tape"):
            async with instances(lambda: SqliteStore(file), 1) as (store,):
                await store.join(WANTED, lambda _: None)
        assert rows(used, "SELECT name, take FROM turn") == [("x", 1)]
