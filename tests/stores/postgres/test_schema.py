"""Tables of another version are refused and left alone."""

import asyncio

import pytest

from tapeway.errors import StoreError
from tapeway.stores.postgres.schema import VERSION
from tapeway.stores.postgres.store import PostgresStore
from tests.stores.postgres_server import run
from tests.stores.recordings import HEAD, answers, bodies, recording


def _version_table(url: str) -> str:
    schema = url.rpartition("schema=")[2]
    return f'"{schema}".version'


async def _versions(dsn: str, url: str) -> list[int]:
    found = await run(dsn, f"SELECT number FROM {_version_table(url)} ORDER BY number")  # noqa: S608
    return [int(str(number)) for (number,) in found]


async def test_instances_that_open_it_at_once_make_the_tables_once(
    postgres_url: str, postgres_dsn: str
) -> None:
    stores = [PostgresStore(postgres_url) for _ in range(8)]
    await asyncio.gather(*[store.open() for store in stores])
    try:
        assert [await store.names() for store in stores] == [[]] * 8
    finally:
        for store in stores:
            await store.close()
    assert await _versions(postgres_dsn, postgres_url) == [VERSION]


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (99, f"newer tapeway.*version 99, and this one knows {VERSION}: update"),
        (1, f"version 1, and this tapeway reads version {VERSION}: use the tapeway that wrote it"),
    ],
)
async def test_another_version_is_refused_and_left_as_it_is(
    postgres_url: str, postgres_dsn: str, version: int, said: str
) -> None:
    store = PostgresStore(postgres_url)
    await store.open()
    await store.append("x", HEAD, recording(0))
    await store.close()
    table = _version_table(postgres_url)
    await run(postgres_dsn, f"UPDATE {table} SET number = {version}")  # noqa: S608

    with pytest.raises(StoreError, match=said):
        await PostgresStore(postgres_url).open()

    await run(postgres_dsn, f"UPDATE {table} SET number = {VERSION}")  # noqa: S608
    await store.open()
    assert bodies(await store.load("x", writable=False)) == answers(0)
    await store.close()
