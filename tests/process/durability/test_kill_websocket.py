"""SIGKILL while WebSocket turns and a session are recorded: what clients saw whole replays."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from tapeway.core.model.interaction import Interaction
from tapeway.testing import StandIn
from tests.process.serving import DEADLINE_S, Tapeway
from tests.process.strace import killed_at
from tests.server.websocket.conversing import (
    REALTIME,
    RESPONSES,
    Event,
    call,
    connected,
    create,
    next_event,
    turn,
)
from tests.server.websocket.json_rpc_service import news, notify, notifying
from tests.server.websocket.websocket_service import serving
from tests.stores.contract.conftest import opened
from tests.stores.contract.kinds import KINDS, Place

CLIENTS = 3
TURNS = 4
"""That each client asks for at most."""

DURABLE = [kind for kind in KINDS if kind.name in ("file", "sqlite", "postgresql")]


@dataclass(slots=True)
class Seen:
    """The turns whose end a client saw, in the order in which each client saw them."""

    turns: dict[int, list[tuple[Event, list[Event]]]] = field(default_factory=dict)
    count: int = 0

    def add(self, client: int, asked: Event, events: list[Event]) -> None:
        self.turns.setdefault(client, []).append((asked, events))
        self.count += 1


@pytest.fixture(params=DURABLE, ids=lambda kind: kind.name)
async def place(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with request.param.of_test(request, tmp_path) as place:
        yield place


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
async def test_each_turn_whose_end_a_client_saw_outlives_a_kill(
    tmp_path: Path, place: Place, delivery: str
) -> None:
    seen = Seen()
    async with StandIn() as upstream:
        options = ("--store", place.url, "--upstream", upstream.url, "--delivery", delivery)
        async with Tapeway(tmp_path, *options) as tapeway:
            async with _socket(tapeway, REALTIME) as session:
                said = await _talk(session)
                await _stored(place, "response.done")
                await _ask_until_killed(tapeway, seen)
            assert await tapeway.ended() == -signal.SIGKILL

    assert seen.count >= CLIENTS + 1
    async with Tapeway(tmp_path, "--store", place.url) as tapeway:
        # A database counts the killed instance as present for a while: its mode is in force, and the
        # change of a slot is answered with 202, because the killed instance does not follow.
        slot = {"cassette": "default", "mode": "replay"}
        assert (await tapeway.admin("PUT", "/api/v1/slots/again", slot))[0] in (200, 202)
        await _replay(tapeway, seen, "/@~again/v1/responses")
        async with _socket(tapeway, f"/@~again{REALTIME}") as session:
            assert await _talk(session) == said
        counts = (await tapeway.status())["counts"]
    assert (counts["replayed"], counts["miss"]) == (seen.count + 1, 0)


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
@pytest.mark.parametrize("store", ["file", "sqlite"])
async def test_a_client_sees_no_end_of_a_turn_before_the_turn_is_on_the_disk(
    tmp_path: Path, store: str, delivery: str
) -> None:
    """The process dies in the call that would have made the turn durable."""
    url = "cassettes" if store == "file" else "sqlite:cassettes.db"
    seen = Seen()
    async with StandIn() as upstream:
        options = ("--store", url, "--upstream", upstream.url, "--mode", "record")
        async with Tapeway(tmp_path, *options, "--delivery", delivery) as tapeway:
            async with _socket(tapeway) as client:
                await _turn(client, 0, "stored", seen)
                async with killed_at(tapeway.pid, "fsync,fdatasync"):
                    with pytest.raises(ConnectionClosed):
                        await _turn(client, 0, "lost", seen)
            assert await tapeway.ended() == -signal.SIGKILL

    assert seen.count == 1
    async with Tapeway(tmp_path, "--store", url, "--mode", "replay") as tapeway:
        await _replay(tapeway, seen)


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
async def test_messages_after_a_turn_outlive_a_kill_once_the_next_turn_is_answered(
    tmp_path: Path, place: Place, delivery: str
) -> None:
    async with serving(notifying(5)) as upstream:
        options = ("--store", place.url, "--upstream", upstream.url, "--delivery", delivery)
        async with Tapeway(tmp_path, *options) as tapeway:
            async with _socket(tapeway, "/rpc") as client:
                await client.send(json.dumps(call(1, "a")))
                seen = [await next_event(client) for _ in range(6)]
                await client.send(json.dumps(call(2, "b")))
                await next_event(client)
                tapeway.signal(signal.SIGKILL)
                await client.wait_closed()
            assert await tapeway.ended() == -signal.SIGKILL

    async with Tapeway(tmp_path, "--store", place.url) as tapeway:
        slot = {"cassette": "default", "mode": "replay"}
        assert (await tapeway.admin("PUT", "/api/v1/slots/again", slot))[0] in (200, 202)
        async with _socket(tapeway, "/@~again/rpc") as client:
            await client.send(json.dumps(call(1, "a")))
            assert [await next_event(client) for _ in seen] == seen


@pytest.mark.parametrize("store", ["file", "sqlite"])
async def test_the_service_gets_no_next_request_before_messages_after_a_turn_are_on_the_disk(
    tmp_path: Path, store: str
) -> None:
    """The process dies in the call that would have made the messages durable."""
    url = "cassettes" if store == "file" else "sqlite:cassettes.db"
    asked: list[Event] = []

    async def answer(socket: web.WebSocketResponse) -> None:
        async for message in socket:
            asked.append(json.loads(message.data))
            await notify(socket, asked[-1], [1])

    async with serving(answer) as upstream:
        options = ("--store", url, "--upstream", upstream.url, "--mode", "record")
        async with Tapeway(tmp_path, *options) as tapeway:
            async with _socket(tapeway, "/rpc") as client:
                await client.send(json.dumps(call(1, "a")))
                seen = [await next_event(client) for _ in range(2)]
                async with killed_at(tapeway.pid, "fsync,fdatasync"):
                    await client.send(json.dumps(call(2, "b")))
                    with pytest.raises(ConnectionClosed):
                        await next_event(client)
            assert await tapeway.ended() == -signal.SIGKILL

    assert [message["method"] for message in asked] == ["a"]
    async with (
        Tapeway(tmp_path, "--store", url, "--mode", "replay") as tapeway,
        _socket(tapeway, "/rpc") as client,
    ):
        await client.send(json.dumps(call(1, "a")))
        assert await next_event(client) == seen[0]


async def test_the_messages_before_the_first_request_outlive_a_kill_after_the_first_answer(
    tmp_path: Path, place: Place
) -> None:
    async def greet(socket: web.WebSocketResponse) -> None:
        await socket.send_json(news("welcome"))
        await notifying(0)(socket)

    async def talk(tapeway: Tapeway, path: str) -> list[Event]:
        async with _socket(tapeway, path) as client:
            said = [await next_event(client)]
            await client.send(json.dumps(call(1)))
            said.append(await next_event(client))
            if path == "/rpc":
                tapeway.signal(signal.SIGKILL)
                await client.wait_closed()
        return said

    async with serving(greet) as upstream:
        options = ("--store", place.url, "--upstream", upstream.url)
        async with Tapeway(tmp_path, *options) as tapeway:
            seen = await talk(tapeway, "/rpc")
            assert await tapeway.ended() == -signal.SIGKILL

    async with Tapeway(tmp_path, "--store", place.url) as tapeway:
        slot = {"cassette": "default", "mode": "replay"}
        assert (await tapeway.admin("PUT", "/api/v1/slots/again", slot))[0] in (200, 202)
        assert await talk(tapeway, "/@~again/rpc") == seen


def _socket(
    tapeway: Tapeway, path: str = RESPONSES
) -> AbstractAsyncContextManager[ClientConnection]:
    return connected(tapeway.proxy, path, dict([tapeway.login]))


async def _turn(client: ClientConnection, number: int, text: str, seen: Seen) -> list[Event]:
    """Ask for a turn that goes on from the client's last one, and note it once its end was seen."""
    asked = create(text)
    if number in seen.turns:
        asked["previous_response_id"] = seen.turns[number][-1][1][-1]["response"]["id"]
    events = await _answers(client, asked)
    seen.add(number, asked, events)
    return events


async def _answers(client: ClientConnection, asked: Event) -> list[Event]:
    events = await turn(client, asked)
    assert events[-1]["type"] == "response.completed", events[-1]
    return events


async def _talk(session: ClientConnection) -> list[Event]:
    """Three messages of a session, and what the service says up to the end of its answer."""
    content = [{"type": "input_text", "text": "hello"}]
    item = {"type": "message", "role": "user", "content": content}
    config = {"type": "realtime", "output_modalities": ["text"]}
    for event in (
        {"type": "session.update", "session": config},
        {"type": "conversation.item.create", "item": item},
        {"type": "response.create"},
    ):
        await session.send(json.dumps(event))
    said = [await next_event(session)]
    while said[-1]["type"] != "response.done":
        said.append(await next_event(session))
    return said


async def _stored(place: Place, mark: str) -> None:
    """Return once the store holds a recording with this text; a session is stored after a pause."""
    async with asyncio.timeout(DEADLINE_S), opened(place.again()) as store:
        while True:
            stored = await store.load("default", writable=False)
            recorded = [] if stored is None else stored.interactions
            exchanges = [
                interaction for interaction in recorded if isinstance(interaction, Interaction)
            ]
            if any(mark.encode() in exchange.response.body for exchange in exchanges):
                return
            await asyncio.sleep(0.01)


async def _ask_until_killed(tapeway: Tapeway, seen: Seen) -> None:
    """Several clients ask for turns, and the process is killed while most of these are to come."""

    connected = asyncio.Barrier(CLIENTS)

    async def ask(number: int) -> None:
        try:
            async with _socket(tapeway) as client:
                await connected.wait()
                for turn in range(TURNS):
                    await _turn(client, number, f"client {number}, turn {turn}", seen)
                    if seen.count == CLIENTS + 1:
                        tapeway.signal(signal.SIGKILL)
        except ConnectionClosed:
            pass

    async with asyncio.TaskGroup() as tasks:
        for number in range(CLIENTS):
            tasks.create_task(ask(number))


async def _replay(tapeway: Tapeway, seen: Seen, path: str = RESPONSES) -> None:
    for turns in seen.turns.values():
        async with _socket(tapeway, path) as client:
            for asked, events in turns:
                assert await _answers(client, asked) == events
