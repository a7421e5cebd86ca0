"""Tables of another version: older ones are upgraded, newer ones are left alone."""

import asyncio
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import pytest

from tapeway.errors import StoreError
from tapeway.stores.postgres import schema
from tapeway.stores.postgres.pool import Session
from tapeway.stores.postgres.store import PostgresStore
from tests.stores.large_bodies import contents
from tests.stores.postgres_server import run
from tests.stores.recordings import HEAD, answers, recording
from tests.stores.shared_instances import WANTED, found_bodies, key, with_step

VERSION_1 = Path(__file__).with_name("schema_v1.sql")
X = [*answers(0, 2), b"a large body"]


@pytest.fixture
async def old_url(postgres_url: str, postgres_dsn: str) -> str:
    """A store as the tapeway of schema version 1 left it."""
    name = _schema(postgres_url)
    connection = await asyncpg.connect(postgres_dsn)
    try:
        tables = VERSION_1.read_text().replace("@", f'"{name}".')
        await connection.execute(f'CREATE SCHEMA "{name}"; {tables}')
    finally:
        await connection.close()
    return postgres_url


def _schema(url: str) -> str:
    return url.rpartition("schema=")[2]


async def _versions(dsn: str, url: str) -> list[int]:
    found = await run(dsn, f'SELECT number FROM "{_schema(url)}".version ORDER BY number')  # noqa: S608
    return [int(str(number)) for (number,) in found]


async def _catalogue(dsn: str, url: str) -> dict[str, list[list[object]]]:
    """The tables of a store, whatever its indexes and constraints are called."""
    name = _schema(url)
    columns = await run(
        dsn,
        "SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name "
        "FROM information_schema.columns WHERE table_schema = $1 ORDER BY 1, ordinal_position",
        name,
    )
    constraints = await run(
        dsn,
        "SELECT conrelid::regclass::text, contype::text, pg_get_constraintdef(oid) AS definition "
        "FROM pg_constraint WHERE connamespace = $1::regnamespace ORDER BY 1, 2, 3",
        name,
    )
    indexes = await run(
        dsn,
        "SELECT tablename, substring(indexdef FROM ' ON .*') FROM pg_indexes "
        "WHERE schemaname = $1 ORDER BY 1, 2",
        name,
    )
    storage = await run(
        dsn,
        "SELECT attrelid::regclass::text, attname, attstorage::text, reloptions "
        "FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
        "WHERE relnamespace = $1::regnamespace AND relkind = 'r' AND attnum > 0 ORDER BY 1, attnum",
        name,
    )
    tables = {"columns": columns, "constraints": constraints, "indexes": indexes}
    return {
        kind: [[str(value).replace(name, "@") for value in row] for row in rows]
        for kind, rows in (tables | {"storage": storage}).items()
    }


async def test_an_older_store_is_upgraded_and_keeps_what_it_holds(
    old_url: str, postgres_dsn: str
) -> None:
    store = PostgresStore(old_url)
    await store.open()
    try:
        assert await store.names() == ["x", "y"]
        assert contents(await store.load("x", writable=False)) == X
        assert contents(await store.load("y", writable=False)) == answers(0)
        assert found_bodies(await store.find("x", [key(2)])) == answers(2)
        outline = await store.outline("x")
        assert outline is not None
        assert outline.count == 3
        assert outline.sources == {("openai", "https://api.openai.com")}
        assert (await store.turns("x", 1, [key(0)]))[key(0)].state == b"1"
        assert await store.unused_count("x", [1]) == 2
        assert [each.index for each in await store.unused("x", [1], 9)] == [2, 3]
        assert found_bodies(await store.near("x", "POST", "/v1/2", 1)) == answers(2)
        assert await store.check() == []
    finally:
        await store.close()
    assert await _versions(postgres_dsn, old_url) == [1, 4]


async def test_an_upgraded_store_is_recorded_into(old_url: str) -> None:
    store = PostgresStore(old_url)
    await store.open()
    try:
        assert (await store.join(WANTED, lambda _: None)).takes == 2
        assert await store.reserve("x") == 4
        lease = await store.claim("x", key(5))
        assert lease is not None
        assert lease.fence == 2
        await store.append("x", HEAD, with_step(recording(5), 2, lease=lease))
        assert await store.edit("x", 2, None)
        file = await store.keep("x", [b"a large body"])
        assert file.size == 12
        await store.replace_cassette("z", "y")
        assert contents(await store.load("x", writable=False)) == [
            *answers(0),
            b"a large body",
            *answers(5),
        ]
        assert await store.names() == ["x", "z"]
        assert await store.check() == []
    finally:
        await store.close()


async def test_upgraded_tables_are_those_of_a_new_store(old_url: str, postgres_dsn: str) -> None:
    new_url = f"{old_url}_new"
    for url in (old_url, new_url):
        store = PostgresStore(url)
        await store.open()
        await store.close()
    try:
        upgraded = await _catalogue(postgres_dsn, old_url)
        assert upgraded == await _catalogue(postgres_dsn, new_url)
        assert upgraded["columns"]
    finally:
        await run(postgres_dsn, f'DROP SCHEMA "{_schema(new_url)}" CASCADE')


async def test_instances_that_open_it_at_once_upgrade_it_once(
    old_url: str, postgres_dsn: str
) -> None:
    stores = [PostgresStore(old_url) for _ in range(8)]
    await asyncio.gather(*[store.open() for store in stores])
    try:
        assert [await store.names() for store in stores] == [["x", "y"]] * 8
    finally:
        for store in stores:
            await store.close()
    assert await _versions(postgres_dsn, old_url) == [1, 4]


async def test_where_a_step_fails_the_tables_stay_as_they_were(
    old_url: str, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def upgrade_3_to_4(session: Session) -> None:
        await session.run("DELETE FROM @interaction")
        await session.run("ALTER TABLE @absent RENAME COLUMN one TO other")

    before = await _catalogue(postgres_dsn, old_url)
    with monkeypatch.context() as newer:
        newer.setattr(schema, "VERSION", 4)
        newer.setitem(schema.UPGRADES, 3, upgrade_3_to_4)
        with pytest.raises(StoreError, match=r"could not upgrade its tables .*absent"):
            await PostgresStore(old_url).open()

    assert await _catalogue(postgres_dsn, old_url) == before
    assert await _versions(postgres_dsn, old_url) == [1]
    store = PostgresStore(old_url)
    await store.open()
    assert contents(await store.load("x", writable=False)) == X
    await store.close()


async def test_tables_that_an_older_instance_uses_are_left_until_it_has_ended(
    old_url: str, postgres_dsn: str
) -> None:
    table = f'"{_schema(old_url)}".instance'
    await run(
        postgres_dsn,
        f"INSERT INTO {table} VALUES (gen_random_uuid(), 'host:1', 1, clock_timestamp())",  # noqa: S608
    )
    with pytest.raises(StoreError, match=r"version 1, and instances .*\(host:1\): stop those"):
        await PostgresStore(old_url).open()
    assert await _versions(postgres_dsn, old_url) == [1]

    await run(postgres_dsn, f"UPDATE {table} SET seen = seen - interval '7 s'")  # noqa: S608
    store = PostgresStore(old_url)
    await store.open()
    await store.close()
    assert await _versions(postgres_dsn, old_url) == [1, 4]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("INSERT INTO {} VALUES (99)", "newer tapeway.*version 99, and this one knows 4: update"),
        ("UPDATE {} SET number = 0", "version 0, and there is no upgrade from version 0 to 1"),
    ],
)
async def test_a_version_that_is_not_known_is_refused(
    old_url: str, postgres_dsn: str, change: str, said: str
) -> None:
    await run(postgres_dsn, change.format(f'"{_schema(old_url)}".version'))
    before = await _catalogue(postgres_dsn, old_url)

    with pytest.raises(StoreError, match=said):
        await PostgresStore(old_url).open()
    assert await _catalogue(postgres_dsn, old_url) == before
