"""PostgreSQL stores in several processes, some of which are suspended or killed."""

import asyncio
import random
import signal
from contextlib import AsyncExitStack

import pytest

from tapeway.core.model.cassette import Lease
from tapeway.core.model.control import with_mode
from tapeway.ports import SharedStore
from tapeway.stores.postgres.store import PostgresStore
from tests.stores.postgres.instance_process import InstanceProcess, instance_process
from tests.stores.recordings import HEAD, answers, bodies, indexes
from tests.stores.shared_instances import (
    WANTED,
    found_bodies,
    instances,
    key,
    other_answer,
    recordings_under,
    with_step,
)

TIMEOUT_S = 60


async def taken_over(store: SharedStore, number: int) -> Lease:
    """The lease, once its owner has lost it."""
    async with asyncio.timeout(TIMEOUT_S):
        while (lease := await store.claim("x", key(number), wait=True)) is None:
            pass
    return lease


async def several(stack: AsyncExitStack, url: str, count: int) -> list[InstanceProcess]:
    """`count` processes that open the store at the same time."""
    entered = [stack.enter_async_context(instance_process(url)) for _ in range(count)]
    return await asyncio.gather(*entered)


async def test_instances_that_start_at_the_same_time_create_the_tables_once(
    postgres_url: str,
) -> None:
    async with AsyncExitStack() as stack:
        others = await several(stack, postgres_url, 3)

        for number, other in enumerate(others):
            assert await other.ask("record", number) == ["recorded", number]


@pytest.mark.slow
async def test_four_processes_record_into_one_cassette_and_take_turns(postgres_url: str) -> None:
    async with AsyncExitStack() as stack:
        others = await several(stack, postgres_url, 4)

        for number, other in enumerate(others):
            other.send("record-many", number * 50, 50)
        for other in others:
            outcomes = []
            while isinstance(answer := await other.receive(), list):
                outcomes.append(answer[0])
            assert outcomes == ["recorded"] * 50

        states = await asyncio.gather(*[other.ask("turns", 125) for other in others])

    turns = [turn for each in states if isinstance(each, list) for turn in each]
    assert sorted(turns) == list(range(1, 501))
    async with instances(lambda: PostgresStore(postgres_url), 1) as (store,):
        found = await store.load("x", writable=False)
        assert sorted(indexes(found)) == list(range(200))
        outline = await store.outline("x")
        assert outline is not None
        assert outline.count == 200


async def test_what_was_acknowledged_is_there_after_its_process_was_killed(
    postgres_url: str,
) -> None:
    acknowledged: set[int] = set()
    for attempt in range(2):
        async with instance_process(postgres_url) as other:
            other.send("record-many", attempt * 100, 100)
            # Somewhere in the middle.
            for _ in range(random.randrange(5, 60)):
                answer = await other.receive()
                assert isinstance(answer, list)
                acknowledged.add(answer[1])
            other.signal(signal.SIGKILL)

    async with instances(lambda: PostgresStore(postgres_url), 1) as (store,):
        found = await store.load("x", writable=False)
        assert acknowledged
        assert acknowledged <= set(indexes(found))
        assert sorted(bodies(found)) == sorted(answers(*indexes(found)))
        outline = await store.outline("x")
        assert outline is not None
        assert outline.count == len(indexes(found))


async def test_the_lease_of_a_killed_process_passes_to_another(postgres_url: str) -> None:
    async with instances(lambda: PostgresStore(postgres_url, lease_s=1), 1) as (store,):
        async with instance_process(postgres_url, lease_s=1) as other:
            assert await other.ask("claim", 0) is True
            assert await store.claim("x", key(0)) is None
            other.signal(signal.SIGKILL)

        lease = await taken_over(store, 0)
        await store.append("x", HEAD, with_step(other_answer(0, 0), 1, lease=lease))


async def test_an_instance_suspended_for_longer_than_its_lease_records_nothing(
    postgres_url: str,
) -> None:
    async with (
        instances(lambda: PostgresStore(postgres_url, lease_s=1), 1) as (store,),
        instance_process(postgres_url, lease_s=1) as other,
    ):
        assert await other.ask("claim", 0) is True
        other.signal(signal.SIGSTOP)
        lease = await taken_over(store, 0)
        await store.append("x", HEAD, with_step(other_answer(0, 5, body=b"ours"), 1, lease=lease))
        other.signal(signal.SIGCONT)

        assert await other.ask("record", 0) == ["Fenced", 0]
        assert found_bodies(await recordings_under(store, "x", [key(0)])) == [b"ours"]


async def test_an_instance_suspended_while_the_mode_changed_does_not_act_on_the_old_mode(
    postgres_url: str,
) -> None:
    async with (
        instances(lambda: PostgresStore(postgres_url, touch_s=1.5), 1) as (store,),
        instance_process(postgres_url, touch_s=1.5) as other,
    ):
        await store.join(WANTED, lambda _: None)
        assert await other.ask("join") == "auto"
        assert await other.ask("in-force") == [True, "auto"]
        other.signal(signal.SIGSTOP)
        await store.steer(lambda now: with_mode(now, "replay"))
        # Once it is no longer waited for, it must not go on.
        async with asyncio.timeout(TIMEOUT_S):
            while (await store.steer(lambda now: now))[1]:
                pass
        other.send("in-force")
        other.signal(signal.SIGCONT)

        assert await other.receive() in ([False, "auto"], [False, "replay"], [True, "replay"])
        async with asyncio.timeout(TIMEOUT_S):
            while await other.ask("in-force") != [True, "replay"]:
                pass


async def test_a_stopped_instance_is_named_as_one_that_has_not_applied_a_change(
    postgres_url: str,
) -> None:
    async with (
        instances(lambda: PostgresStore(postgres_url), 1) as (store,),
        instance_process(postgres_url) as other,
    ):
        await store.join(WANTED, lambda _: None)
        await other.ask("join")
        other.signal(signal.SIGSTOP)

        _, laggards = await store.steer(lambda now: with_mode(now, "replay"))

        assert len(laggards) == 1
        other.signal(signal.SIGCONT)
