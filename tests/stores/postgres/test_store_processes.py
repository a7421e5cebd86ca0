"""PostgreSQL stores in several processes, some of which are suspended."""

import asyncio
import signal
from contextlib import AsyncExitStack

from tapeway.core.model.cassette import Lease
from tapeway.core.model.control import with_mode
from tapeway.ports import SharedStore
from tapeway.stores.postgres.store import PostgresStore
from tests.stores.postgres.instance_process import InstanceProcess, instance_process
from tests.stores.recordings import HEAD
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
        other.send("in-force")
        other.signal(signal.SIGCONT)

        assert await other.receive() == [True, "replay"]
