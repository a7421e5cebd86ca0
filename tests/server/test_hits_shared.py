"""Plain hits over a shared store: the store counts each hit before its answer is given."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import get_args

import apsw
import pytest

from tapeway.core.model.cassette import Recording, StoredCassette
from tapeway.core.model.control import CursorMove, Repeats
from tapeway.core.model.interaction import Interaction
from tapeway.server.hits import Hits
from tapeway.stores.sqlite import moves as cursor_moves
from tapeway.stores.sqlite.store import SqliteStore
from tests.server.in_process_proxy import HitsOn, RunningProxy, running_proxy
from tests.server.test_hits import ASK, HEAD, PROMPT, recording, recordings, said
from tests.stores.sqlite.statements import watched
from tests.support.fakes.broker import until

NEXT = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"
KINDS = ["/", "/next", "/part", "/moved", "/limited", "/none", "/large", "/query?b=2&a=1"]


def repeats(count: int) -> list[Interaction]:
    return [
        recording(number, "/ask", PROMPT, method="POST", answer=b"answer %d" % number)
        for number in range(count)
    ]


@asynccontextmanager
async def over_sqlite(
    path: Path, *made: Interaction, hits: HitsOn = "front"
) -> AsyncIterator[RunningProxy]:
    """A proxy that replays these recordings, or those that another one over this file has."""
    store = SqliteStore(path)
    if made:
        await store.open()
        await store.save("default", StoredCassette(HEAD, made))
        await store.close()
    async with running_proxy("http://127.0.0.1:9", mode="replay", store=store, hits=hits) as proxy:
        yield proxy


def hits_of(proxy: RunningProxy) -> Hits:
    assert proxy.proxy.hits is not None
    return proxy.proxy.hits


async def test_a_known_recording_is_answered_at_once_by_one_step_of_its_cursor(
    tmp_path: Path,
) -> None:
    with watched() as statements:
        async with over_sqlite(tmp_path / "c.db", *repeats(3)) as proxy, proxy.connect() as client:
            bodies = [(await client.ask(ASK)).body]
            before = hits_of(proxy).count
            await client.ask(NEXT)
            statements.executed.clear()
            bodies += [(await client.ask(ASK)).body for _ in range(4)]

            assert hits_of(proxy).count == before + 4
            assert [entry.interaction for entry in proxy.journal][:4] == [2, 2, 2, 1]
            assert {answer.outcome for answer in list(proxy.journal)[:4]} == {"replayed"}
            assert await proxy.broker.source.counts()

    assert bodies == [b"answer 0", b"answer 1", b"answer 2", b"answer 2", b"answer 2"]
    # No document is read, and no cursor but by the step itself.
    assert statements.count("SELECT i.place") == 0
    assert statements.count("SELECT key, state") == 0
    assert statements.count("UPDATE turn SET state") == 4
    # The last answer was used already when it was given again.
    assert statements.count("INSERT INTO touched") == 2


@pytest.mark.parametrize("target", KINDS)
async def test_answers_are_the_same_on_both_paths(tmp_path: Path, target: str) -> None:
    asked = [f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode()] * 3
    found: list[bytes] = []
    for hits in get_args(HitsOn):
        path = tmp_path / f"{hits}.db"
        async with over_sqlite(path, *recordings(), hits=hits) as proxy:
            found += [await said(proxy, [request]) for request in asked]

    assert found[:3] == found[3:6] == found[6:]


async def test_instances_take_turns_and_none_answers_with_what_is_over(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with (
        over_sqlite(path, *repeats(12)) as one,
        over_sqlite(path) as two,
        one.connect() as first,
        two.connect() as second,
    ):
        bodies = []
        for _ in range(3):
            bodies += [(await first.ask(ASK)).body, (await first.ask(ASK)).body]
            bodies += [(await second.ask(ASK)).body, (await second.ask(ASK)).body]
        assert hits_of(one).count
        assert hits_of(two).count

    assert bodies == [b"answer %d" % number for number in range(12)]


async def test_equal_requests_at_once_get_each_the_next_recording(tmp_path: Path) -> None:
    with watched() as statements:
        async with over_sqlite(tmp_path / "c.db", *repeats(41)) as proxy, AsyncExitStack() as stack:
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
            assert hits_of(proxy).counting == 0

    assert found == list(range(1, 41))
    assert statements.count("UPDATE turn SET state") == 40
    assert statements.count("UPDATE counter") <= 2


async def test_what_is_edited_rewound_or_in_another_mode_is_so_at_once(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with (
        over_sqlite(path, *repeats(3)) as one,
        over_sqlite(path) as two,
        one.connect() as client,
    ):
        assert [(await client.ask(ASK)).body for _ in range(2)] == [b"answer 0", b"answer 1"]
        await two.broker.rewind()
        assert (await client.ask(ASK)).body == b"answer 0"
        store = two.store
        assert isinstance(store, SqliteStore)
        changed = recording(1, "/ask", PROMPT, method="POST", answer=b"edited")
        assert await store.edit("default", 1, changed)
        assert (await client.ask(ASK)).body == b"edited"
        await two.broker.set_mode("passthrough")
        assert (await client.ask(ASK)).status == 502


async def test_a_step_that_fails_has_the_request_take_the_ordinary_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = cursor_moves.make_steps
    failed: list[str] = []

    def full_twice(moves: Sequence[CursorMove], connection: apsw.Connection) -> None:
        # On the event loop, and then in the thread.
        if len(failed) < 2:
            failed.append("full")
            raise apsw.FullError("database or disk is full")
        make(moves, connection)

    async with over_sqlite(tmp_path / "c.db", *repeats(3)) as proxy, proxy.connect() as client:
        assert (await client.ask(ASK)).body == b"answer 0"
        monkeypatch.setattr(cursor_moves, "make_steps", full_twice)
        bodies = [(await client.ask(ASK)).body for _ in range(2)]
        assert len(failed) == 2
        assert hits_of(proxy).count == 1

    assert bodies == [b"answer 1", b"answer 2"]


async def test_what_comes_while_a_hit_is_counted_is_answered_after_it(tmp_path: Path) -> None:
    with watched() as statements:
        async with over_sqlite(tmp_path / "c.db", *repeats(5), recording(5, "/next")) as proxy:
            await proxy.send(ASK)
            await proxy.send(NEXT)
            async with proxy.connect() as client:
                statements.gate.clear()
                await client.send(ASK)
                await until(lambda: hits_of(proxy).counting == 1)
                await client.send(NEXT + ASK)
                # The end comes too, while the first answer is still to come.
                client.finish()
                statements.gate.set()
                rest = await client.rest()

    assert rest.count(b"HTTP/1.1 200 OK") == 3
    places = [rest.index(text) for text in (b"answer 1", b"recorded", b"answer 2")]
    assert places == sorted(places)


async def test_a_hit_that_is_counted_is_in_flight_also_if_its_client_leaves(
    tmp_path: Path,
) -> None:
    with watched() as statements:
        async with over_sqlite(tmp_path / "c.db", *repeats(3)) as proxy:
            await proxy.send(ASK)
            async with proxy.connect() as client:
                statements.gate.clear()
                await client.send(ASK)
                await until(lambda: proxy.proxy.in_flight == 1)
                client.reset()
            await until(lambda: not proxy.connections())
            async with asyncio.TaskGroup() as group:
                idle = group.create_task(proxy.proxy.wait_until_idle())
                await asyncio.sleep(0)
                assert not idle.done()
                statements.gate.set()

            assert [entry.interaction for entry in proxy.journal] == [1, 0]
            assert (await proxy.send(ASK)).body == b"answer 2"


async def test_the_only_recording_of_a_request_is_given_again_without_a_write(
    tmp_path: Path,
) -> None:
    path = tmp_path / "c.db"
    with watched() as statements:
        async with over_sqlite(path, *repeats(1)) as proxy, proxy.connect() as client:
            bodies = [(await client.ask(ASK)).body for _ in range(2)]
            statements.executed.clear()
            holder = apsw.Connection(f"{path}.shared")
            # Others write as long as they like.
            holder.execute("BEGIN IMMEDIATE")
            bodies += [(await client.ask(ASK)).body for _ in range(5)]
            own = [statement for statement in statements.executed if statement != "BEGIN IMMEDIATE"]
            holder.execute("COMMIT")
            holder.close()

            assert hits_of(proxy).count == 6
            assert len(proxy.journal) == 7
            (counted,) = await proxy.broker.source.counts()
            assert (counted.interactions, counted.unused) == (1, 0)

    assert bodies == [b"answer 0"] * 7
    assert len(own) == sum(text.startswith("SELECT c.token") for text in own) == 5


async def test_a_recording_that_another_adds_to_the_only_one_comes_next(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with (
        over_sqlite(path, *repeats(1)) as one,
        over_sqlite(path) as two,
        one.connect() as first,
        two.connect() as second,
    ):
        for client in (first, second, first, second, first):
            assert (await client.ask(ASK)).body == b"answer 0"
        added = replace(repeats(2)[1], index=1)
        await two.store.append("default", HEAD, Recording(added))
        bodies = [(await client.ask(ASK)).body for client in (first, second, first)]
        await two.broker.rewind()
        bodies += [(await client.ask(ASK)).body for client in (first, second, first)]

    assert bodies == [b"answer 1"] * 3 + [b"answer 0", b"answer 1", b"answer 1"]


@pytest.mark.parametrize("repeat", ["cycle", "first", "miss"])
async def test_by_another_repeat_rule_each_request_is_counted(
    tmp_path: Path, repeat: Repeats
) -> None:
    with watched() as statements:
        async with over_sqlite(tmp_path / "c.db", *repeats(1)) as proxy, proxy.connect() as client:
            await client.ask(ASK)
            proxy.broker.repeats = repeat
            statements.executed.clear()
            await client.ask(ASK)

    if repeat != "miss":
        assert statements.count("UPDATE turn SET state") == 1
    assert statements.count("BEGIN") >= 1


async def test_where_requests_may_be_recorded_the_only_recording_is_not_counted_either(
    tmp_path: Path,
) -> None:
    with watched() as statements:
        async with over_sqlite(tmp_path / "c.db", *repeats(1)) as proxy, proxy.connect() as client:
            await proxy.broker.set_mode("auto")
            assert (await client.ask(ASK)).body == b"answer 0"
            statements.executed.clear()
            assert (await client.ask(ASK)).body == b"answer 0"

    assert hits_of(proxy).count == 1
    assert statements.count("UPDATE turn SET state") == 0
