"""Turns and sessions under the options of a replay: each means what it means over HTTP."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import Interaction
from tapeway.core.streams.pacing import Pace, Schedule
from tapeway.engine.journal import Tally
from tapeway.engine.recording.selection import Policy
from tapeway.engine.report.standards import Standards
from tapeway.engine.report.summary import RecordingsInMemory, report_of
from tapeway.ports import CassetteStore
from tapeway.server.proxy import ProxyOptions
from tapeway.server.websocket import turns
from tapeway.stores.memory import MemoryStore
from tests.server.in_process_proxy import MIB, RunningProxy, running_proxy
from tests.server.websocket.conversing import (
    Event,
    call,
    connected,
    create,
    delivered,
    next_events,
    turn,
)
from tests.server.websocket.json_rpc_service import notifying
from tests.server.websocket.responses_service import answer_responses
from tests.server.websocket.websocket_service import serving

HOUR_S = 3600.0
T = TypeVar("T")


async def _turn(client: ClientConnection) -> list[Event]:
    return await turn(client, create("a"))


async def _echo(client: ClientConnection) -> str | bytes:
    await client.send("hello")
    return await asyncio.wait_for(client.recv(), 60)


async def _echoed(proxy: RunningProxy) -> str | bytes:
    """The answer to a session of one message, once the session has ended."""
    async with connected(proxy.url, "/feed") as client:
        said = await _echo(client)
    await proxy.proxy.wait_until_idle()
    return said


async def _an_hour_apart(store: CassetteStore) -> MemoryStore:
    """A copy of the recordings in which each message came an hour after the one before."""
    stored = await store.load("default", writable=False)
    assert stored is not None
    items: list[Interaction] = []
    for interaction in stored.interactions:
        assert isinstance(interaction, Interaction)
        chunks = [
            (piece, HOUR_S * 1000 * at) for at, piece in enumerate(interaction.response.pieces())
        ]
        spread = type(interaction.response).of_chunks(interaction.response.head, chunks)
        items.append(
            replace(interaction, response=replace(spread, verdict=interaction.response.verdict))
        )
    copy = MemoryStore()
    await copy.save("default", replace(stored, interactions=tuple(items)))
    return copy


@pytest.mark.parametrize(("pace", "factor"), [(Pace(1), 1.0), (Pace(0.5), 0.5), (Pace(0), 0.0)])
async def test_the_messages_of_a_turn_are_due_as_recorded_times_the_pace(
    pace: Pace, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    due: list[float] = []

    class Noted(Schedule):
        """Notes when messages are due, and has each one sent at once."""

        def divided(
            self, times: Sequence[float], pieces: Sequence[T]
        ) -> Iterator[tuple[float, Sequence[T]]]:
            for due_s, together in super().divided(times, pieces):
                due.extend([due_s] * len(together))
                yield 0.0, together

    async with serving(answer_responses) as service, running_proxy(service.url) as proxy:
        async with connected(proxy.url) as client:
            recorded = await _turn(client)
        slow = await _an_hour_apart(proxy.store)

    monkeypatch.setattr(turns, "Schedule", Noted)
    options = ProxyOptions(max_body=MIB, body_idle_s=10, pace=pace)
    async with (
        running_proxy(mode="replay", store=slow, options=options) as proxy,
        connected(proxy.url) as client,
    ):
        assert await _turn(client) == recorded
    assert due == [HOUR_S * factor * at for at in range(len(recorded))]


async def test_a_message_after_the_end_of_a_turn_comes_at_the_latest_before_the_next_answer() -> (
    None
):
    async def ask(client: ClientConnection, id: int, count: int) -> list[Event]:
        await client.send(json.dumps(call(id)))
        return await next_events(client, count)

    async with serving(notifying(1)) as service, running_proxy(service.url) as proxy:
        async with connected(proxy.url, "/rpc") as client:
            await ask(client, 1, 2)
        slow = await _an_hour_apart(proxy.store)

    async with (
        running_proxy(mode="replay", store=slow, options=delivered(pace=Pace(1))) as proxy,
        connected(proxy.url, "/rpc") as client,
    ):
        await ask(client, 1, 1)
        said = await ask(client, 2, 2)
    assert [message.get("id") for message in said] == [None, 2]


@pytest.mark.parametrize(("pace", "factor"), [(Pace(1), 1.0), (Pace(0.5), 0.5), (Pace(0), 0.0)])
async def test_a_message_of_a_session_comes_after_its_recorded_gap_times_the_pace(
    pace: Pace, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    sleep = asyncio.sleep

    async def noted(delay: float, result: Any = None) -> Any:
        if delay < HOUR_S / 10:
            return await sleep(delay, result)
        waited.append(delay)
        return result

    async with serving() as service, running_proxy(service.url) as proxy:
        assert await _echoed(proxy) == "hello"
        slow = await _an_hour_apart(proxy.store)

    monkeypatch.setattr(asyncio, "sleep", noted)
    options = ProxyOptions(max_body=MIB, body_idle_s=10, pace=pace)
    async with running_proxy(mode="replay", store=slow, options=options) as proxy:
        assert await _echoed(proxy) == "hello"
    assert waited == ([HOUR_S * factor] if factor else [])


async def test_a_turn_that_is_used_up_is_a_miss_or_answers_in_turn_as_repeats_says() -> None:
    answers: dict[Repeats, list[Any]] = {}
    async with serving(answer_responses) as service, running_proxy(service.url) as proxy:
        async with connected(proxy.url) as client:
            recorded = [await _turn(client) for _ in range(2)]
        store = proxy.store
    for rule in ("last", "miss", "cycle"):
        policy = Policy(repeats=rule)
        async with (
            running_proxy(mode="replay", store=store, policy=policy) as proxy,
            connected(proxy.url) as client,
        ):
            answers[rule] = [await _turn(client) for _ in range(4)]

    one, two = recorded
    assert answers["last"] == [one, two, two, two]
    assert answers["cycle"] == [one, two, one, two]
    assert answers["miss"][:2] == [one, two]
    assert [message["error"]["code"] for [message] in answers["miss"][2:]] == ["replay_miss"] * 2


async def test_a_session_that_is_used_up_is_a_miss_or_answers_again_as_repeats_says() -> None:
    async with serving() as service, running_proxy(service.url) as proxy:
        assert await _echoed(proxy) == "hello"
        store = proxy.store
    for rule in ("last", "miss", "cycle"):
        policy = Policy(repeats=rule)
        async with running_proxy(mode="replay", store=store, policy=policy) as proxy:
            assert await _echoed(proxy) == "hello"
            if rule != "miss":
                assert await _echoed(proxy) == "hello"
                continue
            async with connected(proxy.url, "/feed") as client:
                with pytest.raises(ConnectionClosed):
                    await _echo(client)
            assert client.close_code == 4424


async def test_in_auto_with_repeats_miss_a_turn_that_is_used_up_is_asked_for_again() -> None:
    policy = Policy(repeats="miss")
    async with (
        serving(answer_responses) as service,
        running_proxy(service.url, mode="auto", policy=policy) as proxy,
        connected(proxy.url) as client,
    ):
        one, two = [await _turn(client) for _ in range(2)]
        assert one != two
        await proxy.broker.rewind()
        assert [await _turn(client) for _ in range(2)] == [one, two]
        assert proxy.journal.counts == {"recorded": 2, "replayed": 2}


async def test_turns_and_sessions_older_than_the_age_allowed_are_stale() -> None:
    async with serving(answer_responses) as service, running_proxy(service.url) as proxy:
        async with connected(proxy.url) as client:
            await _turn(client)
        async with connected(proxy.url, "/feed") as client:
            await client.send("hello")
        await proxy.proxy.wait_until_idle()
        cassette = proxy.broker.cassette("default")
        assert cassette is not None
        reports = [
            await report_of(
                RecordingsInMemory(cassette), Tally(), Standards(max_age=age), "2999-01-31"
            )
            for age in (30, 1_000_000)
        ]

    old, new = [
        [(recording.method, recording.path) for recording in report.stale] for report in reports
    ]
    assert sorted(old) == [("WEBSOCKET", "/feed"), ("WEBSOCKET", "/v1/responses")]
    assert new == []
