"""A database that can be read and not written: replays go on, and recordings fail with the reason."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import pytest

from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.control import with_mode
from tapeway.errors import StoreAway, StoreError, StoreFull
from tapeway.ports import SharedStore
from tapeway.stores.postgres.operations import coordination
from tapeway.stores.postgres.operations.coordination import OUT_OF_TOUCH_S
from tapeway.stores.postgres.store import PostgresStore
from tests.process.serving import eventually
from tests.server import test_hits as hits
from tests.server.in_process_proxy import running_proxy
from tests.stores.postgres.inside import fill, make_room
from tests.stores.postgres.test_store import role, schema_of
from tests.stores.postgres_server import run
from tests.stores.recordings import HEAD, bodies, recording
from tests.stores.shared_instances import WANTED, instances

_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = $1"
_CUT_OFF = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1"


@dataclass(frozen=True, slots=True)
class Database:
    """A database that refuses to write, or writes again, when it is told."""

    url: str
    error: type[StoreError]
    reason: str
    refuse: Callable[[], Awaitable[object]]
    allow: Callable[[], Awaitable[object]]


@asynccontextmanager
async def _full(dsn: str, url: str) -> AsyncIterator[Database]:
    schema = schema_of(url)

    async def refuse() -> None:
        for (table,) in await run(dsn, _TABLES, schema):
            await fill(dsn, schema, str(table))

    yield Database(url, StoreFull, "could not extend file", refuse, partial(make_room, dsn, schema))


@asynccontextmanager
async def _read_only(dsn: str, url: str) -> AsyncIterator[Database]:
    async with role(dsn, "ALTER ROLE {role} SUPERUSER") as as_role:
        name = as_role.partition("//")[2].partition(":")[0]

        async def refuse() -> None:
            await run(dsn, f"ALTER ROLE {name} SET default_transaction_read_only = on")
            await run(dsn, _CUT_OFF, name)

        async def allow() -> None:
            await run(dsn, f"ALTER ROLE {name} RESET default_transaction_read_only")

        address = f"{as_role}?schema={schema_of(url)}"
        yield Database(address, StoreAway, "default_transaction_read_only", refuse, allow)


@pytest.fixture(params=[_full, _read_only], ids=["full", "read-only"])
async def database(
    request: pytest.FixtureRequest, postgres_dsn: str, postgres_url: str
) -> AsyncIterator[Database]:
    store = PostgresStore(postgres_url)
    await store.open()
    await store.save("default", StoredCassette(hits.HEAD, (hits.recording(0, "/a"),)))
    await store.close()
    make: Callable[[str, str], AbstractAsyncContextManager[Database]] = request.param
    async with make(postgres_dsn, postgres_url) as database:
        yield database


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """By how many seconds the clock of the instances is ahead."""
    ahead = [0.0]
    monkeypatch.setattr(coordination, "boot_clock", lambda: time.monotonic() + ahead[0])
    monkeypatch.setattr("tapeway.stores.postgres.instance.PATIENCE_S", 0.0)
    return ahead


async def test_what_is_in_force_is_known_while_nothing_can_be_written(
    database: Database, ahead: list[float]
) -> None:
    async with instances(lambda: PostgresStore(database.url)) as stores:
        for store in stores:
            await store.join(WANTED, lambda _: None)
        await database.refuse()
        await _long_after(stores, ahead)
        for store in stores:
            with pytest.raises(database.error, match=database.reason):
                await store.append("x", HEAD, recording(0))
            with pytest.raises(database.error, match=database.reason):
                await store.check_writes()
            with pytest.raises(database.error, match=database.reason):
                await store.steer(lambda now: with_mode(now, "replay"))

        await database.allow()
        one, other = stores
        for store in stores:
            await _until_written(store)
        await other.steer(lambda now: with_mode(now, "replay"))
        await one.append("x", HEAD, recording(0))
        assert len(bodies(await other.load("x", writable=False))) == 1


async def _long_after(stores: Sequence[SharedStore], ahead: list[float]) -> None:
    """Let twice the time pass after which an instance without the store is out of touch."""
    for _ in range(2):
        ahead[0] += OUT_OF_TOUCH_S
        await eventually(lambda: [store.trouble for store in stores] == [None] * len(stores))


async def _until_written(store: SharedStore) -> None:
    for _ in range(6000):
        try:
            return await store.check_writes()
        except StoreError:
            await asyncio.sleep(0.01)
    raise TimeoutError


async def test_replays_go_on_while_nothing_can_be_written(
    database: Database, ahead: list[float]
) -> None:
    store = PostgresStore(database.url)
    async with running_proxy("http://127.0.0.1:9", mode="replay", store=store) as proxy:
        assert (await proxy.ask(b"GET /a")).status == 200
        await database.refuse()
        await _long_after([store], ahead)
        for _ in range(3):
            assert (await proxy.ask(b"GET /a")).status == 200
        await database.allow()


async def test_sessions_that_may_only_read_are_known_at_the_start(
    postgres_dsn: str, postgres_url: str
) -> None:
    async with _read_only(postgres_dsn, postgres_url) as database:
        store = PostgresStore(postgres_url)
        await store.open()
        await store.close()
        await database.refuse()
        reading = PostgresStore(database.url)
        await reading.open()
        try:
            assert reading.shared is None
            with pytest.raises(StoreError, match="can only be read"):
                await reading.check_writes()
        finally:
            await reading.close()
