"""A large body that was damaged on disk: never given, and replaced when it is recorded anew."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import apsw
import pytest

from tapeway.errors import CassetteCorrupt, StoreError
from tapeway.formats.cassette_file import YAML
from tapeway.ports import CassetteStore
from tapeway.stores.file.store import FileStore
from tapeway.stores.postgres.store import PostgresStore
from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.large_bodies import body, contents, kept, large
from tests.stores.postgres_server import fresh, run
from tests.stores.recordings import HEAD
from tests.stores.remote.far_side import far_side
from tests.stores.shared_instances import key, recordings_under

NewStore = Callable[[], CassetteStore]
Damage = Callable[[], Awaitable[None]]

WHOLE = body(1) * 3


async def damage_sqlite(file: Path) -> None:
    with closing(apsw.Connection(str(file))) as connection:
        connection.execute("UPDATE pieces SET data = CAST('!' || substr(data, 2) AS BLOB)")


async def damage_pieces(dsn: str, url: str) -> None:
    schema = url.rpartition("schema=")[2]
    await run(dsn, f'UPDATE "{schema}".piece SET data = set_byte(data, 0, 33)')  # noqa: S608


@pytest.fixture(params=["file", "file-yaml", "sqlite", "postgresql", "remote"])
async def damaged_store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[NewStore, Damage]]:
    """Makes stores over one place, and flips a byte of the bodies that lie there."""
    root, database = tmp_path / "cassettes", tmp_path / "calls.db"

    async def damage_files() -> None:
        for path in root.glob("*.assets/sha256-*"):
            path.write_bytes(b"!" + path.read_bytes()[1:])

    match request.param:
        case "sqlite":
            yield lambda: SqliteStore(database), lambda: damage_sqlite(database)
        case "postgresql":
            dsn = request.getfixturevalue("postgres_dsn")
            async with fresh(dsn) as url:
                yield lambda: PostgresStore(url), lambda: damage_pieces(dsn, url)
        case "remote":
            async with far_side(FileStore(root)) as far:
                yield far.store, damage_files
        case kind:
            yield (
                (
                    (lambda: FileStore(root, YAML))
                    if kind == "file-yaml"
                    else lambda: FileStore(root)
                ),
                damage_files,
            )


@asynccontextmanager
async def opened(store: CassetteStore) -> AsyncIterator[CassetteStore]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def given(store: CassetteStore) -> list[bytes]:
    found = await store.load("x", writable=False)
    return await asyncio.to_thread(contents, found)


async def test_a_damaged_body_is_never_given_and_recording_it_anew_mends_it(
    damaged_store: tuple[NewStore, Damage],
) -> None:
    new, damage = damaged_store
    async with opened(new()) as store:
        await store.append("x", HEAD, large(0, await kept(store, [WHOLE])))
    await damage()
    async with opened(new()) as store:
        for _ in range(2):
            with pytest.raises((CassetteCorrupt, StoreError)):
                await given(store)

        await store.load("x", writable=True)
        await store.append("x", HEAD, large(1, await kept(store, [WHOLE]), 0))

        assert await given(store) == [WHOLE]
    async with opened(new()) as store:
        assert await given(store) == [WHOLE]


async def test_another_instance_that_read_the_damaged_body_gives_the_mended_one(
    pair: list[CassetteStore],
    postgres_dsn: str,
    postgres_url: str,
) -> None:
    one, other = pair
    await one.append("x", HEAD, large(0, await kept(one, [WHOLE])))
    await damage_pieces(postgres_dsn, postgres_url)
    shared = other.shared
    assert shared is not None
    # A look-up finds the recording: the request may be about to be recorded anew.
    assert len(await recordings_under(shared, "x", [key(0)])) == 1
    with pytest.raises(CassetteCorrupt, match="not what was recorded"):
        await given(other)

    await kept(one, [WHOLE])

    assert await given(other) == [WHOLE]
