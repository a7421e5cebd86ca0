"""A change on one instance is in force for each later request on another, which nobody tells of it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tapeway.core.model.cassette import StoredCassette
from tapeway.stores.postgres import notifications
from tapeway.stores.postgres.operations import coordination
from tapeway.stores.postgres.store import PostgresStore
from tests.server import test_hits as hits
from tests.server.in_process_proxy import RunningProxy, running_proxy

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
async def pair(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[RunningProxy]]:
    async def nothing(*_: object) -> None:
        return

    # Neither heartbeats nor notifications tell of a change.
    monkeypatch.setattr(coordination, "in_force", nothing)
    monkeypatch.setattr(notifications.Notifications, "_send", nothing)
    store = PostgresStore(postgres_url)
    await store.open()
    recordings = (hits.recording(0, "/a"), hits.recording(1, "/a"))
    await store.save("default", StoredCassette(hits.HEAD, recordings))
    await store.save("other", StoredCassette(hits.HEAD, recordings))
    await store.close()
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                running_proxy(NOBODY, mode="replay", store=PostgresStore(postgres_url))
            )
            for _ in range(2)
        ]


async def _outcomes(proxy: RunningProxy, count: int = 1) -> list[bytes]:
    return [(await proxy.ask(b"GET /a")).outcome for _ in range(count)]


async def test_a_mode_is_in_force_where_hits_were_answered_from_memory(
    pair: list[RunningProxy],
) -> None:
    one, other = pair
    assert await _outcomes(other, 5) == [b"replayed"] * 5
    assert other.proxy.hits is not None
    assert other.proxy.hits.count > 0

    await one.broker.set_mode("passthrough")
    assert await _outcomes(other) == [b"error"]
    assert other.broker.mode == "passthrough"

    await one.broker.set_mode("replay")
    assert await _outcomes(other, 3) == [b"replayed"] * 3


async def test_a_take_begins_everywhere_at_once(pair: list[RunningProxy]) -> None:
    one, other = pair
    first = [(await other.ask(b"GET /a")).value(b"Tapeway-Interaction") for _ in range(3)]
    await one.broker.rewind()
    again = [(await other.ask(b"GET /a")).value(b"Tapeway-Interaction") for _ in range(3)]

    assert first == again == [b"0", b"1", b"1"]


async def test_an_active_cassette_and_a_slot_are_in_force_everywhere_at_once(
    pair: list[RunningProxy],
) -> None:
    one, other = pair
    await _outcomes(other, 3)
    await one.broker.insert("other")
    assert (await other.ask(b"GET /a")).value(b"tapeway-cassette") == b"other"

    await one.broker.set_slot("w1", "default")
    assert (await other.ask(b"GET /@~w1/a")).value(b"tapeway-cassette") == b"default"
    await one.broker.remove_slot("w1")
    assert (await other.ask(b"GET /@~w1/a")).status == 404
