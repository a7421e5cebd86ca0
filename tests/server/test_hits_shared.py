"""Plain hits over a shared store: the store counts each hit before its answer is given."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import get_args

import pytest

from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.cassette import Recording, StoredCassette, TakenRecording
from tapeway.core.model.control import CursorMove, CursorState, Repeats
from tapeway.core.model.interaction import Interaction
from tapeway.errors import StoreFull
from tapeway.ports import MoveDone
from tapeway.server.hits import Hits
from tests.server.in_process_proxy import HitsOn, RunningProxy, running_proxy
from tests.server.test_hits import ASK, HEAD, PROMPT, recording, recordings, said
from tests.stores.model_store import ModelPlace, ModelStore
from tests.support.fakes.broker import until
from tests.support.reuse import REUSED

NEXT = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"
KINDS = ["/", "/next", "/part", "/moved", "/limited", "/none", "/large", "/query?b=2&a=1"]


class WatchedStore(ModelStore):
    """A shared store that notes what it is asked, and answers steps when it is let."""

    def __init__(self, place: ModelPlace) -> None:
        super().__init__(place)
        self.moves: list[CursorMove] = []
        self.looks = 0
        self.fails = 0
        """How many of the next steps fail."""
        self._held: list[tuple[CursorMove, MoveDone]] | None = None

    async def documents(self, name: str, indexes: Sequence[int]) -> Sequence[TakenRecording]:
        self.looks += 1
        return await super().documents(name, indexes)

    async def cursors(
        self, name: str, take: int, keys: Sequence[bytes]
    ) -> Mapping[bytes, CursorState]:
        self.looks += 1
        return await super().cursors(name, take, keys)

    def advance(self, move: CursorMove, done: MoveDone) -> None:
        self.moves.append(move)
        if self.fails:
            self.fails -= 1
            asyncio.get_running_loop().call_soon(done, move, StoreFull("the disk is full"))
        elif self._held is None:
            super().advance(move, done)
        else:
            self._held.append((move, done))

    def hold(self) -> None:
        """Answer no step until `let_go`."""
        self._held = []

    def let_go(self) -> None:
        held, self._held = self._held or [], None
        for move, done in held:
            super().advance(move, done)

    @property
    def written(self) -> int:
        """How many cursors were moved; a step with nowhere to go only compares."""
        return sum(move.state is not None for move in self.moves)


def repeats(count: int) -> list[Interaction]:
    return [
        recording(number, "/ask", PROMPT, method="POST", answer=b"answer %d" % number)
        for number in range(count)
    ]


@asynccontextmanager
async def over_shared(
    place: ModelPlace, *made: Interaction, hits: HitsOn = "front", rules: Rules = NO_RULES
) -> AsyncIterator[tuple[RunningProxy, WatchedStore]]:
    """A proxy that replays these recordings, or those that another one over this place has."""
    store = WatchedStore(place)
    if made:
        await store.open()
        await store.save("default", StoredCassette(HEAD, made))
    running = running_proxy(
        "http://127.0.0.1:9", mode="replay", store=store, hits=hits, rules=rules
    )
    async with running as proxy:
        yield proxy, store


@pytest.fixture
def place() -> ModelPlace:
    return ModelPlace()


def hits_of(proxy: RunningProxy) -> Hits:
    assert proxy.proxy.hits is not None
    return proxy.proxy.hits


async def test_a_known_recording_is_answered_at_once_by_one_step_of_its_cursor(
    place: ModelPlace,
) -> None:
    async with over_shared(place, *repeats(3)) as (proxy, store), proxy.connect() as client:
        bodies = [(await client.ask(ASK)).body]
        before = hits_of(proxy).count
        await client.ask(NEXT)
        store.moves.clear()
        store.looks = 0
        bodies += [(await client.ask(ASK)).body for _ in range(4)]

        assert hits_of(proxy).count == before + 4
        assert [entry.interaction for entry in proxy.journal][:4] == [2, 2, 2, 1]
        assert {answer.outcome for answer in list(proxy.journal)[:4]} == {"replayed"}
        assert await proxy.broker.source.counts()
        # No document is read, and no cursor but by the step itself.
        assert store.looks == 0
        assert store.written == 4
        # The last answer was used already when it was given again.
        assert [move.touched for move in store.moves] == [1, 2, None, None]

    assert bodies == [b"answer 0", b"answer 1", b"answer 2", b"answer 2", b"answer 2"]


@pytest.mark.parametrize("target", KINDS)
async def test_answers_are_the_same_on_both_paths(target: str) -> None:
    asked = [f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode()] * 3
    found: list[bytes] = []
    for hits in get_args(HitsOn):
        async with over_shared(ModelPlace(), *recordings(), hits=hits) as (proxy, _):
            found += [await said(proxy, [request]) for request in asked]

    assert found[:3] == found[3:6] == found[6:]


async def test_instances_take_turns_and_none_answers_with_what_is_over(place: ModelPlace) -> None:
    async with (
        over_shared(place, *repeats(12)) as (one, _),
        over_shared(place) as (two, _),
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


async def test_equal_requests_at_once_get_each_the_next_recording(place: ModelPlace) -> None:
    async with over_shared(place, *repeats(41)) as (proxy, store), AsyncExitStack() as stack:
        await proxy.send(ASK)
        clients = [await stack.enter_async_context(proxy.connect()) for _ in range(40)]
        await until(lambda: len(proxy.connections()) >= 40)
        store.hold()
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(client.ask(ASK)) for client in clients]
            await until(lambda: hits_of(proxy).counting == 40)
            store.let_go()
        found = sorted(int(task.result().body.split()[1]) for task in asked)

        assert hits_of(proxy).count == 40
        assert hits_of(proxy).counting == 0

    assert found == list(range(1, 41))


async def test_what_is_edited_rewound_or_in_another_mode_is_so_at_once(place: ModelPlace) -> None:
    async with (
        over_shared(place, *repeats(3)) as (one, _),
        over_shared(place) as (two, store),
        one.connect() as client,
    ):
        assert [(await client.ask(ASK)).body for _ in range(2)] == [b"answer 0", b"answer 1"]
        await two.broker.rewind()
        assert (await client.ask(ASK)).body == b"answer 0"
        changed = recording(1, "/ask", PROMPT, method="POST", answer=b"edited")
        assert await store.edit("default", 1, changed)
        assert (await client.ask(ASK)).body == b"edited"
        await two.broker.set_mode("passthrough")
        assert (await client.ask(ASK)).status == 502


async def test_a_step_that_fails_has_the_request_take_the_ordinary_path(place: ModelPlace) -> None:
    async with over_shared(place, *repeats(3)) as (proxy, store), proxy.connect() as client:
        assert (await client.ask(ASK)).body == b"answer 0"
        store.fails = 1
        bodies = [(await client.ask(ASK)).body for _ in range(2)]
        assert store.fails == 0
        assert hits_of(proxy).count == 1

    assert bodies == [b"answer 1", b"answer 2"]


async def test_what_comes_while_a_hit_is_counted_is_answered_after_it(place: ModelPlace) -> None:
    async with over_shared(place, *repeats(5), recording(5, "/next")) as (proxy, store):
        await proxy.send(ASK)
        await proxy.send(NEXT)
        async with proxy.connect() as client:
            store.hold()
            await client.send(ASK)
            await until(lambda: hits_of(proxy).counting == 1)
            await client.send(NEXT + ASK)
            # The end comes too, while the first answer is still to come.
            client.finish()
            store.let_go()
            rest = await client.rest()

    assert rest.count(b"HTTP/1.1 200 OK") == 3
    places = [rest.index(text) for text in (b"answer 1", b"recorded", b"answer 2")]
    assert places == sorted(places)


async def test_a_hit_that_is_counted_is_in_flight_also_if_its_client_leaves(
    place: ModelPlace,
) -> None:
    async with over_shared(place, *repeats(3)) as (proxy, store):
        await proxy.send(ASK)
        async with proxy.connect() as client:
            store.hold()
            await client.send(ASK)
            await until(lambda: proxy.proxy.in_flight == 1)
            client.reset()
        await until(lambda: not proxy.connections())
        async with asyncio.TaskGroup() as group:
            idle = group.create_task(proxy.proxy.wait_until_idle())
            await asyncio.sleep(0)
            assert not idle.done()
            store.let_go()

        assert [entry.interaction for entry in proxy.journal] == [1, 0]
        assert (await proxy.send(ASK)).body == b"answer 2"


async def test_the_only_recording_of_a_request_is_given_again_without_a_write(
    place: ModelPlace,
) -> None:
    async with over_shared(place, *repeats(1)) as (proxy, store), proxy.connect() as client:
        bodies = [(await client.ask(ASK)).body for _ in range(2)]
        store.moves.clear()
        bodies += [(await client.ask(ASK)).body for _ in range(5)]

        assert hits_of(proxy).count == 6
        assert len(proxy.journal) == 7
        (counted,) = await proxy.broker.source.counts()
        assert (counted.interactions, counted.unused) == (1, 0)
        assert (len(store.moves), store.written) == (5, 0)
        assert all(move.seen for move in store.moves)

    assert bodies == [b"answer 0"] * 7


async def test_a_recording_that_another_adds_to_the_only_one_comes_next(place: ModelPlace) -> None:
    async with (
        over_shared(place, *repeats(1)) as (one, _),
        over_shared(place) as (two, store),
        one.connect() as first,
        two.connect() as second,
    ):
        for client in (first, second, first, second, first):
            assert (await client.ask(ASK)).body == b"answer 0"
        added = replace(repeats(2)[1], index=1)
        await store.append("default", HEAD, Recording(added))
        bodies = [(await client.ask(ASK)).body for client in (first, second, first)]
        await two.broker.rewind()
        bodies += [(await client.ask(ASK)).body for client in (first, second, first)]

    assert bodies == [b"answer 1"] * 3 + [b"answer 0", b"answer 1", b"answer 1"]


@pytest.mark.parametrize("repeat", ["cycle", "first", "miss"])
async def test_by_another_repeat_rule_each_request_is_counted(
    place: ModelPlace, repeat: Repeats
) -> None:
    async with over_shared(place, *repeats(1)) as (proxy, store), proxy.connect() as client:
        await client.ask(ASK)
        proxy.broker.repeats = repeat
        store.moves.clear()
        store.looks = 0
        await client.ask(ASK)

    if repeat != "miss":
        assert store.written == 1
    assert store.looks or store.written


async def test_where_requests_may_be_recorded_the_only_recording_is_not_counted_either(
    place: ModelPlace,
) -> None:
    shared = over_shared(place, *repeats(1), rules=REUSED)
    async with shared as (proxy, store), proxy.connect() as client:
        await proxy.broker.set_mode("auto")
        assert (await client.ask(ASK)).body == b"answer 0"
        store.moves.clear()
        assert (await client.ask(ASK)).body == b"answer 0"
        assert hits_of(proxy).count == 1

    assert store.written == 0
