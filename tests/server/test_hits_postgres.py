"""Plain hits over PostgreSQL: hits that wait together share one statement."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.stores.postgres.store import PostgresStore
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.server.test_hits import ASK, HEAD, PROMPT, recording
from tests.server.test_hits_shared import hits_of, repeats
from tests.stores.postgres.statements import Statements
from tests.stores.postgres_server import fresh
from tests.support.fakes.broker import until


@pytest.fixture
async def url(postgres_dsn: str) -> AsyncIterator[str]:
    async with fresh(postgres_dsn) as url:
        yield url


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    return Statements(monkeypatch)


@asynccontextmanager
async def over_postgres(url: str, *made: Interaction) -> AsyncIterator[RunningProxy]:
    """A proxy that replays these recordings, or those that another one over this database has."""
    store = PostgresStore(url)
    if made:
        await store.open()
        await store.save("default", StoredCassette(HEAD, made))
        await store.close()
    async with running_proxy("http://127.0.0.1:9", mode="replay", store=store) as proxy:
        yield proxy


async def test_a_known_recording_is_answered_by_one_statement(
    url: str, statements: Statements
) -> None:
    async with over_postgres(url, *repeats(3)) as proxy, proxy.connect() as client:
        bodies = [(await client.ask(ASK)).body]
        statements.executed.clear()
        bodies += [(await client.ask(ASK)).body for _ in range(4)]

        assert statements.moves == 4
        # Beside the heartbeat.
        assert statements.count("FROM @interaction") == statements.moves
        assert hits_of(proxy).count == 4
        assert [entry.interaction for entry in proxy.journal] == [2, 2, 2, 1, 0]
        (counted,) = await proxy.broker.source.counts()
        assert counted.unused == 0

    assert bodies == [b"answer %d" % number for number in (0, 1, 2, 2, 2)]


async def test_equal_requests_at_once_get_each_the_next_recording_and_share_statements(
    url: str, statements: Statements
) -> None:
    async with over_postgres(url, *repeats(41)) as proxy, AsyncExitStack() as stack:
        await proxy.send(ASK)
        clients = [await stack.enter_async_context(proxy.connect()) for _ in range(40)]
        await until(lambda: len(proxy.connections()) >= 40)
        statements.gate.clear()
        statements.executed.clear()
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(client.ask(ASK)) for client in clients]
            await until(lambda: hits_of(proxy).counting == 40)
            statements.gate.set()
        found = sorted(int(task.result().body.split()[1]) for task in asked)

        assert hits_of(proxy).count == 40
        assert statements.moves <= 2

    assert found == list(range(1, 41))


async def test_instances_take_turns_and_see_at_once_what_another_changes(url: str) -> None:
    async with (
        over_postgres(url, *repeats(8)) as one,
        over_postgres(url) as two,
        one.connect() as first,
        two.connect() as second,
    ):
        bodies = []
        for _ in range(2):
            for client in (first, second):
                bodies += [(await client.ask(ASK)).body for _ in range(2)]
        assert bodies == [b"answer %d" % number for number in range(8)]
        assert hits_of(one).count
        assert hits_of(two).count

        await two.broker.rewind()
        assert (await first.ask(ASK)).body == b"answer 0"
        assert isinstance(two.store, PostgresStore)
        edited = recording(1, "/ask", PROMPT, method="POST", answer=b"edited")
        assert await two.store.edit("default", 1, edited)
        assert (await first.ask(ASK)).body == b"edited"
        await two.broker.set_mode("passthrough")
        assert (await first.ask(ASK)).status == 502


async def test_a_hit_in_doubt_is_counted_once(url: str, statements: Statements) -> None:
    async with over_postgres(url, *repeats(4)) as proxy, proxy.connect() as client:
        assert (await client.ask(ASK)).body == b"answer 0"
        statements.cuts.append("after")
        bodies = [(await client.ask(ASK)).body for _ in range(2)]

    assert bodies == [b"answer 1", b"answer 2"]


async def test_a_hit_that_may_have_been_counted_fails_and_is_not_counted_again(
    url: str, statements: Statements
) -> None:
    async with over_postgres(url, *repeats(4)) as proxy, proxy.connect() as client:
        assert (await client.ask(ASK)).body == b"answer 0"
        # As often as it is tried.
        statements.cuts += ["after"] * 4
        statements.executed.clear()
        failed = await client.ask(ASK)
        assert statements.moves == 4
        after = (await client.ask(ASK)).body
        entries = [(answer.outcome, answer.status, answer.interaction) for answer in proxy.journal]

    assert failed.status == 503
    assert json.loads(failed.body)["error"]["code"] == "store_unreachable"
    assert after == b"answer 2"
    assert entries == [("replayed", 200, 2), ("error", 503, None), ("replayed", 200, 0)]


async def test_the_only_recording_of_a_request_is_given_again_without_a_write(
    url: str, statements: Statements
) -> None:
    async with over_postgres(url, *repeats(1)) as proxy, proxy.connect() as client:
        bodies = [(await client.ask(ASK)).body for _ in range(2)]
        statements.executed.clear()
        bodies += [(await client.ask(ASK)).body for _ in range(4)]

        assert (
            statements.moves == statements.count("@interaction") == statements.count("@turn") == 0
        )
        assert statements.count("AS asked (name, token, seen, keys, number)") == 4
        assert hits_of(proxy).count == 5
        assert isinstance(proxy.store, PostgresStore)
        edited = recording(0, "/ask", PROMPT, method="POST", answer=b"edited")
        assert await proxy.store.edit("default", 0, edited)
        bodies.append((await client.ask(ASK)).body)

    assert bodies == [b"answer 0"] * 6 + [b"edited"]
