"""A server that goes away, connections that break, notifications that never arrive."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]
import pytest

from tapeway.core.model.cassette import Lease, StoredCassette
from tapeway.core.model.condition import Unchanged
from tapeway.core.model.control import Control, with_mode, with_take
from tapeway.errors import StoreAway, StoreError
from tapeway.ports import SharedStore
from tapeway.stores.postgres import notifications, pool
from tapeway.stores.postgres.pool import Session
from tapeway.stores.postgres.store import PostgresStore
from tests.stores.postgres.inside import pool_of
from tests.stores.postgres_server import PASSWORD, QUOTED, PostgresServer, run
from tests.stores.recordings import HEAD, answers, bodies, indexes, recording
from tests.stores.shared_instances import (
    WANTED,
    advanced,
    cursors_of,
    found_indexes,
    instances,
    key,
    next_state,
    other_answer,
    recordings_under,
    with_step,
)

TIMEOUT_S = 60


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """The server, which a test may stop."""
    if os.environ.get("TAPEWAY_TEST_POSTGRES_DSN"):
        pytest.skip("the server of TAPEWAY_TEST_POSTGRES_DSN is not ours to stop")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    yield server
    if not server.runs:
        server.start()


@pytest.fixture
async def pair(postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    async with instances(lambda: PostgresStore(postgres_url)) as stores:
        yield [store for store in stores if isinstance(store, PostgresStore)]


def knows(store: SharedStore) -> bool:
    return store.trouble is None


async def until(work: Callable[[], Awaitable[object]]) -> None:
    """Try it again until the store is no longer away."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                await work()
            except StoreAway:
                await asyncio.sleep(0.05)
            else:
                return


async def test_what_was_acknowledged_is_there_after_the_server_crashed_under_load(
    server: PostgresServer, pair: list[PostgresStore]
) -> None:
    acknowledged: list[int] = []
    failed: list[BaseException] = []
    crashed = asyncio.Event()

    async def record(store: SharedStore, first: int) -> None:
        for number in range(first, first + 60):
            try:
                await store.append("x", HEAD, with_step(other_answer(0, number), 1))
            except StoreError as exc:
                failed.append(exc)
            else:
                acknowledged.append(number)
            if len(acknowledged) == 100:
                crashed.set()

    async def crash() -> None:
        await crashed.wait()
        await asyncio.to_thread(server.stop, "immediate")
        await asyncio.to_thread(server.start)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(crash())
        for worker in range(6):
            tasks.create_task(record(pair[worker % 2], worker * 100))

    found = indexes(await pair[0].load("x", writable=False))
    assert set(acknowledged) <= set(found)
    assert len(found) == len(set(found))
    assert all(isinstance(exc, StoreAway) for exc in failed)
    (turn,) = (await cursors_of(pair[0], "x", 1, [key(0)])).values()
    assert int(turn.state) == len(found)
    outline = await pair[1].outline("x")
    assert outline is not None
    assert outline.count == len(found)


async def _fences_after_a_crash(server: PostgresServer, store: PostgresStore) -> frozenset[int]:
    await asyncio.to_thread(server.stop, "immediate")
    await asyncio.to_thread(server.start)
    await until(lambda: store.fences("x"))
    return await store.fences("x")


@pytest.fixture
async def late_wal(server: PostgresServer) -> AsyncIterator[None]:
    """A crash loses what was committed without a sync in the last ten seconds."""
    await run(server.dsn, "ALTER SYSTEM SET wal_writer_delay = '10s'")
    await run(server.dsn, "SELECT pg_reload_conf()")
    yield
    await run(server.dsn, "ALTER SYSTEM RESET wal_writer_delay")
    await run(server.dsn, "SELECT pg_reload_conf()")


@pytest.mark.usefixtures("late_wal")
async def test_a_crash_of_the_server_brings_no_lease_back(
    server: PostgresServer, pair: list[PostgresStore]
) -> None:
    # Its instance lives on, so the lease would never end: an eject would wait for ever.
    store = pair[0]
    lease = await store.claim("x", key(7))
    assert lease is not None
    await store.release_lease(lease)

    assert await _fences_after_a_crash(server, store) == frozenset()


@pytest.mark.usefixtures("late_wal")
async def test_a_crash_brings_no_lease_back_that_was_given_back_later(
    server: PostgresServer, pair: list[PostgresStore]
) -> None:
    store = pair[0]
    lease = await store.claim("x", key(7))
    assert lease is not None
    server.stop("immediate")
    await store.release_lease(lease)
    server.start()
    async with asyncio.timeout(TIMEOUT_S):
        await until(lambda: store.fences("x"))
        while await store.fences("x"):  # noqa: ASYNC110 - the next beat ends it, no event
            await asyncio.sleep(0.01)

    assert await _fences_after_a_crash(server, store) == frozenset()


async def test_every_method_says_that_the_server_is_away_and_works_again_by_itself(
    server: PostgresServer, pair: list[PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapeway.stores.postgres.instance.PATIENCE_S", 0.2)
    store, other = pair
    await store.join(WANTED, lambda _: None)
    lease = await store.claim("x", key(7))
    assert lease is not None
    await store.append("x", HEAD, recording(0))
    server.stop("immediate")

    asked: list[Callable[[], Awaitable[object]]] = [
        lambda: store.load("x", writable=False),
        lambda: store.append("x", HEAD, recording(1)),
        lambda: store.save("x", StoredCassette(HEAD)),
        lambda: store.remove("x"),
        store.names,
        lambda: store.stat("x"),
        lambda: store.outline("x"),
        lambda: recordings_under(store, "x", [key(0)]),
        lambda: store.documents("x", [0]),
        lambda: store.page("x", after=None, limit=1),
        lambda: store.near("x", "POST", "/", 1),
        lambda: store.used("x", [1]),
        lambda: store.titles("x", [1]),
        lambda: store.reserve("x"),
        lambda: store.replace_head("x", HEAD),
        lambda: store.edit("x", 0, None),
        lambda: store.extend("x", HEAD, [recording(0).interaction]),
        lambda: cursors_of(store, "x", 1, [key(0)]),
        lambda: advanced(store, "x", 1, key(0), None, b"1", 0),
        lambda: store.claim("x", key(0)),
        lambda: store.steer(with_take),
        lambda: store.keep("x", [b"body"]),
        lambda: other.join(WANTED, lambda _: None),
    ]
    for request in asked:
        with pytest.raises(StoreAway, match="it works again once") as away:
            await request()
        for secret in (PASSWORD, QUOTED):
            assert secret not in f"{away.value!r} {away.value.__cause__!r}"
    await store.release_lease(lease)

    server.start()
    await until(lambda: store.append("x", HEAD, recording(1)))
    await until(other.names)
    # What could not be given back then is given back as soon as the database answers.
    async with asyncio.timeout(60):
        while await other.claim("x", key(7), wait=True) is None:
            pass
    assert indexes(await other.load("x", writable=False)) == [0, 1]


@pytest.mark.slow
async def test_an_instance_that_lost_the_server_is_out_of_touch_until_it_knows_again(
    server: PostgresServer, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Control] = []
    async with instances(lambda: PostgresStore(postgres_url, touch_s=1), 1) as (store,):
        await store.join(WANTED, heard.append)
        assert knows(store)
        server.stop("immediate")
        async with asyncio.timeout(TIMEOUT_S):
            while knows(store):  # noqa: ASYNC110 - a clock tells it, no event
                await asyncio.sleep(0.05)
        server.start()
        async with instances(lambda: PostgresStore(postgres_url, touch_s=1), 1) as (other,):
            await other.join(WANTED, lambda _: None)
            await until(lambda: other.steer(lambda now: with_mode(now, "replay")))
        async with asyncio.timeout(TIMEOUT_S):
            while not knows(store):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    assert heard[-1].mode == "replay"
    assert "could not" in caplog.text
    assert "answers again" in caplog.text
    assert PASSWORD not in caplog.text
    assert QUOTED not in caplog.text


@pytest.mark.slow
async def test_a_server_that_hears_but_does_not_answer_is_away(
    server: PostgresServer, pair: list[PostgresStore]
) -> None:
    await pair[0].append("x", HEAD, recording(0))
    with server.frozen():
        async with asyncio.timeout(TIMEOUT_S):
            with pytest.raises(StoreAway, match="in time"):
                await recordings_under(pair[0], "x", [key(0)])

    await until(lambda: pair[0].append("x", HEAD, recording(1)))


async def test_a_broken_connection_is_not_noticed_by_who_asks(
    pair: list[PostgresStore], postgres_dsn: str
) -> None:
    await pair[0].append("x", HEAD, recording(0))
    for number in range(1, 4):
        await run(postgres_dsn, TERMINATE)

        assert found_indexes(await recordings_under(pair[0], "x", [key(0)])) == [0]
        await pair[0].append("x", HEAD, recording(number))


TERMINATE = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE application_name = 'tapeway' AND pid <> pg_backend_pid()"
)


async def test_who_waits_for_a_lease_is_not_lost_with_the_connection_it_listens_on(
    pair: list[PostgresStore], postgres_dsn: str
) -> None:
    one, other = pair
    for _ in range(3):
        lease = await one.claim("x", key(0))
        assert lease is not None
        async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(claimed(other))
            await run(postgres_dsn, TERMINATE)
            await one.release_lease(lease)
            later = await waiting
        await other.release_lease(later)


async def claimed(store: SharedStore) -> Lease:
    while (lease := await store.claim("x", key(0), wait=True)) is None:
        pass
    return lease


@pytest.fixture
def no_notifications(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hears another instance."""

    async def lose(_: notifications.Notifications) -> None:
        return

    # A server loses no notification by itself.
    monkeypatch.setattr(notifications.Notifications, "_send", lose)


@pytest.mark.usefixtures("no_notifications")
async def test_without_a_single_notification_leases_pass_on_and_changes_come_into_force(
    pair: list[PostgresStore],
) -> None:
    one, other = pair
    heard: list[Control] = []
    await one.join(WANTED, lambda _: None)
    await other.join(WANTED, heard.append)
    lease = await one.claim("x", key(0))
    assert lease is not None

    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(claimed(other))
        await one.append("x", HEAD, with_step(recording(0), 1, lease=lease))
        await waiting
    control = await one.steer(with_take)
    await other.confirm()

    assert heard[-1] == control


class _Cut:
    """Breaks the connection of a commit, before it reaches the server or after its answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, done: bool) -> None:
        self.left = 0
        self._done = done
        self._run = Session.run
        monkeypatch.setattr(Session, "run", lambda *args: self.run(*args))

    async def run(self, session: Session, sql: str, *args: object) -> int:
        if sql.endswith("COMMIT") and self.left:
            self.left -= 1
            if self._done:
                await self._run(session, sql)
            session.connection.terminate()
            raise ConnectionResetError
        return await self._run(session, sql, *args)


@pytest.mark.parametrize("done", [True, False], ids=["after", "before"])
async def test_what_was_in_doubt_took_place_once(
    pair: list[PostgresStore], monkeypatch: pytest.MonkeyPatch, *, done: bool
) -> None:
    one, other = pair
    await one.join(WANTED, lambda _: None)
    lease = await one.claim("x", key(0))
    cut = _Cut(monkeypatch, done=done)

    cut.left = 3
    await one.append("x", HEAD, with_step(recording(0), 1, lease=lease))
    cut.left = 2
    await one.extend("x", HEAD, [recording(1).interaction])
    cut.left = 2
    claim = await one.claim("x", key(1))
    cut.left = 2
    before = await one.steer(with_take)
    cut.left = 2
    after = await one.steer(with_take)
    _, extended = indexes(await other.load("x", writable=False))
    cut.left = 2
    assert not await one.edit("x", 99, None)
    cut.left = 2
    assert await one.edit("x", extended, None)
    cut.left = 0

    assert indexes(await other.load("x", writable=False)) == [0]
    ((state),) = [turn.state for turn in (await cursors_of(other, "x", 1, [key(0)])).values()]
    assert state == next_state(None)
    assert claim is not None
    await one.append("x", HEAD, with_step(recording(1), 1, lease=claim))
    assert after.takes == before.takes + 1


async def test_a_change_in_doubt_is_made_once_though_others_make_theirs_since(
    pair: list[PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the commit is lost after each change that is put in force by a statement like
    this, and before the next try another instance goes on.
    """
    one, other = pair
    before = await one.join(WANTED, lambda _: None)
    run, others = Session.run, list[tuple[str, Callable[[], Awaitable[object]]]]()
    in_force: list[Session] = []
    named = "SET name = $2"

    async def cut(session: Session, sql: str, *args: object) -> int:
        done = await run(session, sql, *args)
        if others and others[0][0] in sql:
            in_force.append(session)
        if sql.endswith("COMMIT") and session in in_force:
            in_force.clear()
            await others.pop()[1]()
            session.connection.terminate()
            raise ConnectionResetError
        return done

    monkeypatch.setattr(Session, "run", cut)

    others.append(("UPDATE @control", lambda: other.steer(with_take)))
    steered = await one.steer(with_take)
    assert steered.takes == before.takes + 1
    assert (await other.steer(with_take)).takes == before.takes + 3

    others.append((named, lambda: other.append("x", HEAD, recording(1))))
    await one.save("x", StoredCassette(HEAD, (recording(0).interaction,)))
    assert bodies(await one.load("x", writable=False)) == answers(0, 1)

    others.append(("SET name = NULL", lambda: other.append("x", HEAD, recording(2))))
    assert await one.remove("x")
    assert bodies(await one.load("x", writable=False)) == answers(2)

    await one.append("y", HEAD, recording(3))
    others.append((named, lambda: other.append("y", HEAD, recording(4))))
    await one.replace_cassette("x", "y")
    assert bodies(await one.load("x", writable=False)) == answers(3)
    assert bodies(await one.load("y", writable=False)) == answers(4)

    mine = replace(HEAD, run_id="mine")
    others.append(("meta = $4", lambda: other.replace_head("x", HEAD)))
    await one.replace_head("x", mine)
    outline = await one.outline("x")
    assert outline is not None
    assert outline.head == HEAD

    stat = await one.stat("x")
    assert stat is not None
    others.append((named, lambda: other.append("x", HEAD, recording(5))))
    assert await one.save("x", StoredCassette(HEAD), Unchanged(stat.version))
    assert bodies(await one.load("x", writable=False)) == answers(5)
    assert others == []


class _CutAt:
    """Breaks the connection at one statement, before the server runs it or `after`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, after: bool) -> None:
        self.left = 0
        self._after = after
        for name in ("run", "rows", "each"):
            monkeypatch.setattr(Session, name, self._follow(getattr(Session, name)))

    def _follow(self, statement: Callable[..., Awaitable[object]]) -> object:
        async def follow(session: Session, sql: str, *args: object) -> object:
            self.left -= 1
            if self.left != 0:
                return await statement(session, sql, *args)
            if self._after:
                await statement(session, sql, *args)
            session.connection.terminate()
            raise ConnectionResetError

        return follow


@pytest.mark.parametrize("after", [True, False], ids=["after", "before"])
@pytest.mark.parametrize(
    ("size", "statements"), [(10, 2), (300_000, 8)], ids=["together with others", "alone"]
)
async def test_a_recording_whose_connection_is_lost_at_any_statement_is_made_once(
    pair: list[PostgresStore],
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    statements: int,
    *,
    after: bool,
) -> None:
    one, other = pair
    await one.append("x", HEAD, recording(0))
    cut, state, number = _CutAt(monkeypatch, after=after), None, 0
    reached = True
    while reached:
        number += 1
        made = with_step(recording(number, number - 1, body=b"%d" % number * size), 1)
        assert made.step is not None
        made = replace(made, step=replace(made.step, key=key(0)))
        cut.left = number
        await one.append("x", HEAD, made)
        reached, cut.left = cut.left <= 0, 0

        state = next_state(state)
        assert [
            cursor.state for cursor in (await cursors_of(other, "x", 1, [key(0)])).values()
        ] == [state]
        assert indexes(await other.load("x", writable=False)) == [number]
        assert await other.check() == []
    assert number > statements


async def test_a_load_sees_one_moment_while_another_instance_saves(
    pair: list[PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    await one.save("x", StoredCassette(HEAD, (recording(0).interaction,)))
    rows, saved = Session.rows, list[bool]()

    async def interrupted(session: Session, sql: str, *args: object) -> object:
        found = await rows(session, sql, *args)
        if not saved:
            saved.append(True)
            after = StoredCassette(replace(HEAD, run_id="later"), (recording(1).interaction,))
            await other.save("x", after)
        return found

    monkeypatch.setattr(Session, "rows", interrupted)
    found = await one.load("x", writable=False)

    assert found is not None
    assert (found.head, bodies(found)) == (HEAD, answers(0))


async def test_one_connection_is_enough_for_leaders_and_those_who_wait(postgres_url: str) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        instances(lambda: PostgresStore(f"{postgres_url}&connections=1")) as stores,
    ):

        async def serve(store: SharedStore, number: int) -> None:
            while not await recordings_under(store, "x", [key(number % 3)]):
                lease = await store.claim("x", key(number % 3), wait=True)
                if lease is None:
                    continue
                if await recordings_under(store, "x", [key(number % 3)]):
                    await store.release_lease(lease)
                else:
                    made = with_step(recording(number % 3), 1, lease=lease)
                    await store.append("x", HEAD, made)

        async with asyncio.TaskGroup() as tasks:
            for number in range(60):
                tasks.create_task(serve(stores[number % 2], number))

        assert len(bodies(await stores[0].load("x", writable=False))) == 3


async def test_connections_that_are_all_in_use_are_not_waited_for_without_end(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "COMMAND_S", 0.2)
    async with instances(lambda: PostgresStore(f"{postgres_url}&connections=1"), 1) as (store,):
        assert isinstance(store, PostgresStore)
        held, release = asyncio.Event(), asyncio.Event()

        async def hold(_: Session) -> None:
            held.set()
            await release.wait()

        async with asyncio.TaskGroup() as tasks:
            holding = tasks.create_task(pool_of(store).read("hold", hold))
            await held.wait()
            with pytest.raises(StoreAway, match=r"all 1 connections are in use; .*connections="):
                await store.names()
            release.set()
            await holding

        assert await store.names() == []
    assert pool.PATIENCE_S > pool.COMMAND_S


async def test_an_instance_that_stops_during_its_heartbeat_does_not_come_back(
    postgres_url: str, postgres_dsn: str
) -> None:
    """Who starts next would take it for alive, and go on with its take."""
    store = PostgresStore(postgres_url)
    await store.open()
    schema = pool_of(store).address.schema
    await store.join(WANTED, lambda _: None)
    blocker = await asyncpg.connect(postgres_dsn, statement_cache_size=0)
    await blocker.execute("SELECT pg_advisory_lock(hashtext($1))", schema)
    await blocker.execute(_HELD_BACK.format(schema=schema))

    async def beats(sql: str, *, wanted: bool) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while bool(await blocker.fetchval(sql, schema)) != wanted:  # noqa: ASYNC110 - only the server knows
                await asyncio.sleep(0.01)

    # The next heartbeat by itself would come seconds later.
    store._driver.heartbeat.beat_now()
    await beats(_WAIT, wanted=True)
    async with asyncio.TaskGroup() as tasks:
        closing = tasks.create_task(store.close())
        # Enough for one that does not wait for its heartbeat.
        await asyncio.wait((closing,), timeout=0.5)
        await blocker.execute("SELECT pg_advisory_unlock(hashtext($1))", schema)
    await beats(_WAIT, wanted=False)
    await beats(_RUN, wanted=False)
    alive = await blocker.fetch(_ALIVE.format(schema=schema))
    await blocker.close()

    assert alive == []


_HELD_BACK = """
CREATE FUNCTION "{schema}".held_back() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_advisory_xact_lock(hashtext('{schema}')); RETURN NEW; END $$;
CREATE TRIGGER held_back BEFORE INSERT ON "{schema}".instance
FOR EACH ROW EXECUTE FUNCTION "{schema}".held_back()
"""
_WAIT = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND $1 <> ''"
_RUN = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = 'tapeway' AND state <> 'idle' AND position($1 in query) > 0
"""
_ALIVE = 'SELECT name FROM "{schema}".instance'


async def test_an_instance_says_why_the_database_lets_it_in_no_more(
    postgres_url: str, postgres_dsn: str
) -> None:
    role = f"r_{secrets.token_hex(4)}"
    await run(postgres_dsn, f"CREATE ROLE {role} SUPERUSER LOGIN PASSWORD 'first'")
    try:
        address = urlsplit(postgres_url)
        place = f"{role}:first@{address.hostname}:{address.port}"
        store = PostgresStore(address._replace(netloc=place).geturl(), touch_s=0.5)
        await store.open()
        await store.join(WANTED, lambda _: None)
        assert knows(store)

        await run(postgres_dsn, f"ALTER ROLE {role} PASSWORD 'second'")
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1"
        async with asyncio.timeout(TIMEOUT_S):
            while "password authentication failed" not in str(store.trouble):
                # A connection that was let in just before shows only now.
                await run(postgres_dsn, end, role)
                await asyncio.sleep(0.05)
        await store.close()
    finally:
        await run(postgres_dsn, f"DROP OWNED BY {role} CASCADE")
        await run(postgres_dsn, f"DROP ROLE {role}")
