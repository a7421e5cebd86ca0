"""What is of PostgreSQL alone: its tables, roles, settings, and what goes by itself."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tapeway.core.model.control import Control, with_take
from tapeway.errors import StoreAway, StoreError
from tapeway.stores.postgres import instance
from tapeway.stores.postgres.operations import bodies as large_bodies
from tapeway.stores.postgres.operations import coordination
from tapeway.stores.postgres.pool import Pool, Session
from tapeway.stores.postgres.store import PostgresStore
from tests.stores.large_bodies import contents, large
from tests.stores.postgres.inside import pool_of
from tests.stores.postgres.statements import Statements
from tests.stores.postgres_server import run
from tests.stores.recordings import HEAD, answers, bodies, recording
from tests.stores.shared_instances import (
    WANTED,
    advanced,
    append_recordings,
    cursors_of,
    instances,
    key,
    other_answer,
    recordings_under,
    with_step,
)


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_url) as store:
        yield store


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def schema_of(url: str) -> str:
    return url.rpartition("schema=")[2]


@asynccontextmanager
async def role(dsn: str, *rights: str) -> AsyncIterator[str]:
    """The address as a role that may do this alone; `{role}` is its name."""
    name = f"guest_{abs(hash(rights)) % 10**9}"
    await run(dsn, f"CREATE ROLE {name} LOGIN PASSWORD 'synthetic-guest'")
    try:
        for right in rights:
            await run(dsn, right.format(role=name))
        hosts = urlsplit(dsn).netloc.rpartition("@")[2]
        yield f"postgresql://{name}:synthetic-guest@{hosts}/{urlsplit(dsn).path.lstrip('/')}"
    finally:
        await run(dsn, f"DROP OWNED BY {name}")
        await run(dsn, f"DROP ROLE {name}")


async def test_what_lies_in_another_schema_is_another_stores(
    postgres_url: str, postgres_dsn: str
) -> None:
    other = f"{postgres_url}_b"
    async with opened(postgres_url) as one, opened(other) as two:
        await one.append("x", HEAD, recording(0))

        assert await two.names() == []
    await run(postgres_dsn, f'DROP SCHEMA "{schema_of(other)}" CASCADE')


async def test_a_role_that_may_make_no_tables_works_with_those_there_are(
    postgres_url: str, postgres_dsn: str
) -> None:
    schema = schema_of(postgres_url)
    async with opened(postgres_url):
        pass
    rights = (
        f"GRANT USAGE ON SCHEMA {schema} TO {{role}}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {{role}}",
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {{role}}",
    )
    async with role(postgres_dsn, *rights) as dsn, opened(f"{dsn}?schema={schema}") as store:
        lease = await store.claim("x", key(0))
        await store.append("x", HEAD, with_step(recording(0), 1, lease=lease))
        await store.save("y", await store.load("x", writable=True) or pytest.fail("it is lost"))

        assert bodies(await store.load("y", writable=False)) == answers(0)
        assert await store.remove("x")


async def test_a_role_that_may_not_create_missing_tables_is_refused(
    postgres_url: str, postgres_dsn: str
) -> None:
    async with role(postgres_dsn) as dsn:
        with pytest.raises(StoreError, match=r"permission denied .*grant the role"):
            await PostgresStore(f"{dsn}?schema={schema_of(postgres_url)}").open()


async def test_a_wrong_password_is_refused_and_not_shown(postgres_dsn: str) -> None:
    parts = urlsplit(postgres_dsn)
    wrong = f"postgresql://{parts.username}:synthetic-wrong@{parts.hostname}:{parts.port}/postgres"

    with pytest.raises(StoreError, match="see the user, the password") as refused:
        await PostgresStore(wrong).open()

    assert not isinstance(refused.value, StoreAway)
    assert "synthetic-wrong" not in f"{refused.value!r} {refused.value.__cause__!r}"


async def test_a_recording_waits_for_the_disk_where_the_role_would_not(
    postgres_url: str, postgres_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    schema = schema_of(postgres_url)
    rights = (
        f"CREATE SCHEMA {schema} AUTHORIZATION {{role}}",
        "ALTER ROLE {role} SET synchronous_commit = off",
    )

    async def setting(session: Session) -> str:
        found = await session.row("SHOW synchronous_commit")
        assert found is not None
        return str(found["synchronous_commit"])

    async with role(postgres_dsn, *rights) as dsn:
        with caplog.at_level(logging.WARNING):
            async with opened(f"{dsn}?schema={schema}") as store:
                pool = pool_of(store)
                assert await pool.read("look", setting) == "off"
                assert await pool.write("look", setting) == "on"
                assert await pool.write("look", setting, durable=False) == "off"
    assert "synchronous_commit is off" in caplog.text


async def test_a_body_no_recording_refers_to_goes_and_others_stay(
    store: PostgresStore, tmp_path: Path
) -> None:
    used, lost = [b"a" * 300_000, b"b" * 300_000], [b"c" * 300_000]
    file = await store.keep("x", used)
    await store.append("x", HEAD, large(0, file))
    unused = await store.keep("x", lost)

    async def swept(session: Session) -> tuple[int, int]:
        while await large_bodies.sweep(0, session):
            pass
        found = await session.row(
            "SELECT (SELECT count(*) FROM @body) AS bodies, (SELECT count(*) FROM @piece) AS pieces"
        )
        assert found is not None
        return found["bodies"], found["pieces"]

    pool = pool_of(store)
    assert await pool.write("sweep", swept) == (1, 3)
    assert contents(await store.load("x", writable=False)) == [b"".join(used)]
    with pytest.raises(StoreError, match="is not there: keep it first"):
        await store.append("x", HEAD, large(1, unused))

    await store.edit("x", 0, None)
    assert await pool.write("sweep", swept) == (0, 0)


async def test_a_body_that_is_stored_twice_takes_room_once(store: PostgresStore) -> None:
    body = [b"a" * 300_000]
    first, second = await store.keep("x", body), await store.keep("y", body)
    assert first.digest == second.digest
    await store.append("x", HEAD, large(0, first))
    await store.append("y", HEAD, large(0, second))
    await store.remove("x")
    del first, second

    async def count(session: Session) -> int:
        found = await session.row("SELECT count(*) AS count FROM @piece")
        assert found is not None
        return int(found["count"])

    pool = pool_of(store)
    await instance.sweep(pool)
    assert await pool.read("count", count) == 2
    assert contents(await store.load("y", writable=False)) == [b"".join(body)]


async def test_the_cursors_of_takes_that_ended_are_swept_a_few_at_a_time(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordination, "BATCH", 2)
    pool = pool_of(store)
    control = await store.join(WANTED, lambda _: None)
    for name in ("x", "y", "z"):
        await append_recordings(store, 0, 1, 2, name=name)
        for number in range(3):
            assert await advanced(
                store, name, control.take_of(name), key(number), None, b"1", number
            )
    after = await store.steer(lambda now: with_take(now, "x"))
    assert await advanced(store, "x", after.take_of("x"), key(0), None, b"1", 0)

    async def left(session: Session) -> list[int]:
        tables = ("turn", "touched")
        found = [await session.row(f"SELECT count(*) AS count FROM @{table}") for table in tables]  # noqa: S608
        return [row["count"] for row in found if row is not None]

    async def some(session: Session) -> bool:
        return await coordination.forget_ended(after, session)

    assert await pool.write("sweep", some)
    assert await pool.read("count", left) == [8, 9]
    await instance.sweep_takes(pool, after)
    assert await pool.read("count", left) == [7, 7]
    assert await cursors_of(store, "x", after.take_of("x"), [key(0)])
    after = await store.steer(with_take)
    await instance.sweep_takes(pool, after)
    assert await pool.read("count", left) == [0, 0]


async def test_used_up_cursors_are_gone_within_a_minute_of_the_end_of_their_take(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The second sweep after the end of a take removes its cursors.
    assert 2 * 1.2 * coordination.SWEEP_S < 60
    monkeypatch.setattr(coordination, "SWEEP_S", 0.01)
    control = await store.join(WANTED, lambda _: None)
    await append_recordings(store, *range(5))
    for _ in range(20):
        for number in range(5):
            take = control.take_of("x")
            assert await advanced(store, "x", take, key(number), None, b"1", number)
        control = await store.steer(with_take)

    async def count(session: Session) -> int:
        found = await session.row(
            "SELECT (SELECT count(*) FROM @turn) + (SELECT count(*) FROM @touched) AS count"
        )
        assert found is not None
        return int(found["count"])

    await until(partial(_is_zero, pool_of(store), count))


async def test_who_comes_alone_removes_what_those_before_it_left(
    postgres_url: str,
) -> None:
    async with opened(postgres_url) as store:
        control = await store.join(WANTED, lambda _: None)
        await append_recordings(store, 0)
        assert await advanced(store, "x", control.take_of("x"), key(0), None, b"1", 0)

    async def count(session: Session) -> int:
        found = await session.row("SELECT count(*) AS count FROM @turn")
        assert found is not None
        return int(found["count"])

    async with opened(postgres_url) as store:
        assert await pool_of(store).read("count", count) == 1
        await store.join(WANTED, lambda _: None)
        assert await pool_of(store).read("count", count) == 0


async def _is_zero(pool: Pool, count: Callable[[Session], Awaitable[int]]) -> bool:
    return await pool.read("count", count) == 0


async def until(claim: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again until a claim is true."""
    for _ in range(6000):
        if await claim():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


async def test_only_one_instance_sweeps_at_a_time(store: PostgresStore) -> None:
    control = await store.join(WANTED, lambda _: None)
    assert await advanced(store, "x", control.takes, key(0), None, b"1", 0)
    after = await store.steer(with_take)
    pool = pool_of(store)

    async def while_another_sweeps(session: Session) -> Control | None:
        lock = instance.sweep_lock(session.schema)
        await session.run("SELECT pg_advisory_xact_lock($1)", lock)
        return await instance.sweep_takes(pool, after)

    assert await pool.write("sweep", while_another_sweeps) is None
    assert await cursors_of(store, "x", control.takes, [key(0)])
    assert await instance.sweep_takes(pool, after) == after
    assert await cursors_of(store, "x", control.takes, [key(0)]) == {}


async def test_a_document_that_was_changed_behind_its_back_is_not_served(
    store: PostgresStore, postgres_url: str, postgres_dsn: str
) -> None:
    await store.append("x", HEAD, recording(0))
    schema = schema_of(postgres_url)
    await run(postgres_dsn, f"UPDATE {schema}.interaction SET document = document || ' '")  # noqa: S608

    with pytest.raises(StoreError, match=r"postgresql:.*, cassette 'x', interaction 0: it is not"):
        await recordings_under(store, "x", [key(0)])


async def test_a_lease_is_renewed_as_long_as_its_instance_lives(postgres_url: str) -> None:
    async with instances(lambda: PostgresStore(postgres_url, lease_s=1)) as (one, other):
        lease = await one.claim("x", key(0))
        assert lease is not None
        # Each waits for half a second at least.
        for _ in range(5):
            assert await other.claim("x", key(0), wait=True) is None

        await one.append("x", HEAD, with_step(recording(0), 1, lease=lease))


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    """What the store asks; no sweep and no heartbeat asks anything."""
    monkeypatch.setattr(coordination, "SWEEP_S", 1e6)
    return Statements(monkeypatch)


async def test_a_recording_ends_its_lease_in_its_own_statement(
    statements: Statements, store: PostgresStore
) -> None:
    await append_recordings(store, 5)
    lease, unused = await store.claim("x", key(0)), await store.claim("x", key(1))
    assert lease is not None
    assert unused is not None

    await store.append("x", HEAD, with_step(recording(0), 1, lease=lease))
    assert await store.fences("x") == {unused.fence}

    await store.release_lease(unused)
    assert await store.fences("x") == frozenset()


async def test_recordings_that_wait_are_one_statement_and_their_numbers_and_leases_are(
    statements: Statements, store: PostgresStore
) -> None:
    await append_recordings(store, 500, 501)
    assert await store.claim("y", key(0)) is not None
    for wait in (1, 2):
        statements.executed.clear()
        leases = await asyncio.gather(*[store.claim("x", key(at)) for at in range(wait, 40, 2)])
        indexes = await asyncio.gather(*[store.reserve("x") for _ in leases])
        made = [
            with_step(other_answer(at, index), 1, lease=lease)
            for at, index, lease in zip(range(wait, 40, 2), indexes, leases, strict=True)
        ]
        await asyncio.gather(*[store.append("x", HEAD, one) for one in made])

        assert len({*indexes}) == len(leases)
        for part in ("@lease (name, key", "@numbering AS", "@interaction (cassette, number"):
            assert statements.count(part) <= 2, part
    assert await store.fences("x") == frozenset()
    assert await store.check() == []


async def test_only_the_number_of_a_recording_is_reserved_without_a_sync(
    statements: Statements, store: PostgresStore
) -> None:
    no_sync = "set_config('synchronous_commit', 'off', true)"
    number = await store.reserve("x")
    assert statements.count(no_sync) == 1

    lease = await store.claim("x", key(number))
    assert lease is not None
    await store.release_lease(lease)
    await append_recordings(store, number, number + 1)
    assert statements.count(no_sync) == 1


async def test_a_claim_nobody_waits_for_any_more_is_given_back(store: PostgresStore) -> None:
    async with asyncio.TaskGroup() as tasks:
        claiming = tasks.create_task(store.claim("x", key(0)))
        await asyncio.sleep(0)
        claiming.cancel()

    async with asyncio.timeout(60):
        while await store.claim("x", key(0), wait=True) is None:
            pass


async def test_tables_that_do_not_agree_are_named(
    store: PostgresStore, postgres_url: str, postgres_dsn: str
) -> None:
    file = await store.keep("x", [b"a" * 300_000])
    await store.append("x", HEAD, large(0, file))
    for number in range(1, 5):
        await store.append("x", HEAD, recording(number, *([1] if number == 4 else [])))
    await store.edit("x", 2, recording(7).interaction)
    await store.extend("y", HEAD, [recording(0).interaction])
    await store.save("z", await store.load("x", writable=False) or pytest.fail("it is lost"))
    assert await store.check() == []

    for damage in (
        "UPDATE {}.log SET live = false WHERE number = 3",
        "UPDATE {}.source SET count = 0 WHERE cassette = (SELECT id FROM {}.cassette WHERE name = 'y')",
        "UPDATE {}.interaction SET document = 'odd' WHERE number = 2",
        "DELETE FROM {}.piece WHERE number = 1",
    ):
        await run(postgres_dsn, damage.replace("{}", schema_of(postgres_url)))
    assert await store.check() == [
        "cassette 'y' counts 0 interactions and has 1: save it anew",
        "cassette 'x', interaction 3: its log lacks it",
        "cassette 'z', interaction 3: its log lacks it",
        "cassette 'x', interaction 2: it is not what was recorded",
        "cassette 'z', interaction 2: it is not what was recorded",
        f"the large body sha256-{file.digest} has 262144 of 300000 bytes",
    ]


async def test_the_start_names_parameters_without_effect_and_too_many_connections(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = PostgresStore(f"{postgres_url}&connections=100&channel_binding=require&keepalives=1")
    with caplog.at_level(logging.WARNING):
        await store.open()
    await store.close()

    assert caplog.text.count("without effect here: keepalives, channel_binding") == 1
    assert "may open 105 connections, and the server accepts 97" in caplog.text
