"""What was removed or replaced is in no file of the store any more, once the call has returned."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.condition import Unchanged
from tapeway.errors import StoreError
from tapeway.formats.cassette_file import JSON, YAML
from tapeway.ports import CassetteStore
from tapeway.stores.file.store import FileStore
from tapeway.stores.postgres.store import PostgresStore
from tapeway.stores.sqlite import writer
from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.large_bodies import kept, large
from tests.stores.postgres_server import run
from tests.stores.recordings import HEAD, recording

SECRET = b"REMOVED-4f7d1c"
Change = Callable[[CassetteStore], Awaitable[object]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture(params=["file", "file-yaml", "sqlite"])
async def store(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[CassetteStore]:
    """An open store that keeps its cassettes in files below `folder`."""
    kinds: dict[str, CassetteStore] = {
        "file": FileStore(folder, JSON),
        "file-yaml": FileStore(folder, YAML),
        "sqlite": SqliteStore(folder / "calls.db"),
    }
    store = kinds[request.param]
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def sqlite(folder: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(folder / "calls.db")
    await store.open()
    yield store
    await store.close()


async def fill(store: CassetteStore, name: str = "x") -> None:
    """Recordings whose answers hold the secret, the last one in a large body."""
    for index in range(20):
        await store.append(name, HEAD, recording(index, body=SECRET + b" %d " % index * 50))
    body = await kept(store, [SECRET * 100_000], name)
    await store.append(name, HEAD, large(20, body))


async def left(store: CassetteStore, folder: Path) -> list[str]:
    """The files that hold the secret after the store has wiped them."""
    assert list(await store.erase()) == []
    found = [path for path in folder.rglob("*") if path.is_file()]
    assert found
    return [path.name for path in found if SECRET in path.read_bytes()]


async def save(store: CassetteStore) -> None:
    await store.save("x", StoredCassette(HEAD, (recording(0).interaction,)))


async def save_and_release(store: CassetteStore) -> None:
    await save(store)
    await store.release("x")


async def remove(store: CassetteStore) -> None:
    await store.append("other", HEAD, recording(0))
    await store.remove("x")


async def record_anew(store: CassetteStore) -> None:
    await store.append("x", HEAD, recording(21, *range(21)))
    await store.release("x")


@pytest.mark.parametrize("change", [save, save_and_release, remove, record_anew])
@pytest.mark.parametrize("released", [False, True])
async def test_nothing_is_left_of_what_was_replaced(
    store: CassetteStore, folder: Path, change: Change, released: bool
) -> None:
    await store.load("x", writable=True)
    await fill(store)
    if released:
        await store.release("x")
    assert any(SECRET in path.read_bytes() for path in folder.rglob("*") if path.is_file())
    await store.load("x", writable=True)

    await change(store)

    assert await left(store, folder) == []


async def replace_marked(store: SqliteStore) -> None:
    stat = await store.stat("x")
    assert stat is not None
    assert await store.save("x", StoredCassette(HEAD), Unchanged(stat.version))


async def remove_marked(store: SqliteStore) -> None:
    stat = await store.stat("x")
    assert stat is not None
    assert await store.remove("x", Unchanged(stat.version))


async def remove_last(store: SqliteStore) -> None:
    while (found := await store.load("x", writable=True)) and found.interactions:
        await store.save("x", replace(found, interactions=found.interactions[:-1]))


@pytest.mark.parametrize("change", [replace_marked, remove_marked, remove_last])
async def test_nothing_is_left_of_what_was_edited_in_a_database(
    sqlite: SqliteStore, folder: Path, change: Callable[[SqliteStore], Awaitable[None]]
) -> None:
    await fill(sqlite)

    await change(sqlite)

    assert await left(sqlite, folder) == []


async def test_nothing_is_left_of_replaced_metadata(sqlite: SqliteStore, folder: Path) -> None:
    secret = SECRET.decode()
    await sqlite.append("x", replace(HEAD, meta={**HEAD.meta, "note": secret}), recording(0))

    await sqlite.replace_head("x", HEAD)

    assert await left(sqlite, folder) == []


async def test_no_page_keeps_a_copy_of_a_row_that_was_moved(
    sqlite: SqliteStore, folder: Path
) -> None:
    chosen = random.Random(7)
    held: dict[int, bytes] = {}
    for index in range(600):
        mark = SECRET + b"-%04d" % index
        made = recording(index, body=mark + b"x" * chosen.randrange(900))
        target = f"/{chosen.randrange(99)}/{mark.decode()}"
        request = replace(made.exchange.request, target=target)
        await sqlite.append(
            "x", HEAD, replace(made, interaction=replace(made.exchange, request=request))
        )
        held[index] = mark
        if len(held) > 50 and chosen.random() < 0.6:
            gone = chosen.choice(list(held))
            del held[gone]
            await sqlite.append(
                "x", HEAD, replace(recording(1000 + index, gone), supersedes=(gone,))
            )

    assert await sqlite.erase() == []

    content = b"".join(path.read_bytes() for path in folder.glob("calls.db*"))
    for index in range(600):
        assert (SECRET + b"-%04d" % index in content) == (index in held)


async def test_a_stop_wipes_the_file_too(folder: Path) -> None:
    store = SqliteStore(folder / "calls.db")
    await store.open()
    await fill(store)
    await remove_last(store)
    await store.close()

    assert all(SECRET not in path.read_bytes() for path in folder.iterdir())


async def test_where_another_process_reads_the_file_the_answer_says_what_is_left(
    sqlite: SqliteStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "WIPE_MS", 20)
    await fill(sqlite)
    with closing(apsw.Connection(str(folder / "calls.db"))) as other:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM recordings").fetchall()
        await sqlite.remove("x")
        (said,) = await sqlite.erase()
        assert "may still be readable in the file or its -wal" in said
        assert "another process holds the file" in said
        assert "stop all processes that use the file" in said
        # Others go on recording.
        await sqlite.append("y", HEAD, recording(0))
        other.execute("COMMIT")

    assert await left(sqlite, folder) == []


async def test_a_file_that_is_too_large_to_be_rewritten_is_named(
    sqlite: SqliteStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "REWRITTEN_BYTES", 1)
    await fill(sqlite)
    await sqlite.remove("x")

    (said,) = await sqlite.erase()

    assert "too large to be rewritten" in said
    assert f"sqlite3 {folder / 'calls.db'} VACUUM" in said
    assert await left(sqlite, folder) == []


async def test_a_store_that_nothing_was_removed_from_is_not_rewritten(
    sqlite: SqliteStore, folder: Path
) -> None:
    await fill(sqlite)
    await remove_last(sqlite)
    await sqlite.erase()
    before = (folder / "calls.db").stat().st_mtime_ns

    assert await sqlite.erase() == []

    assert (folder / "calls.db").stat().st_mtime_ns == before


async def test_postgresql_names_what_only_its_server_can_wipe(
    postgres_url: str, postgres_dsn: str
) -> None:
    store = PostgresStore(postgres_url)
    await store.open()
    try:
        await fill(store)
        assert await store.erase() == []
        await store.edit("x", 20, None)
        (said,) = await store.erase()
        assert "until VACUUM FULL rewrites them" in said
        assert "replicas and backups" in said
        assert await store.erase() == []
    finally:
        await store.close()
    schema = postgres_url.rpartition("schema=")[2]
    assert await run(postgres_dsn, f'SELECT number FROM "{schema}".piece') == []  # noqa: S608


async def test_an_abandoned_change_leaves_nothing_either(sqlite: SqliteStore, folder: Path) -> None:
    def breaking() -> Iterator[bytes]:
        yield SECRET * 1_000_000
        raise StoreError("the upstream broke off")

    with pytest.raises(StoreError, match="broke off"):
        await sqlite.keep("x", breaking())

    assert await left(sqlite, folder) == []
