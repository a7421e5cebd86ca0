"""Messages that come as fast as they are read leave the event loop to others in between.

The clock is a counter: each look at it takes a millisecond, whatever the machine does meanwhile.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tapeway.core.model.control import Mode
from tapeway.core.model.messages import ResponseHead
from tapeway.core.streams.pacing import AT_ONCE
from tapeway.core.websocket.messages import Close, WebSocketMessage
from tapeway.server.websocket.live_lines import LiveLines
from tapeway.stores.memory import MemoryStore
from tapeway.upstream.message_socket import MessageSocket
from tests.server.in_process_proxy import running_proxy
from tests.server.websocket.conversing import connected, delivered
from tests.server.websocket.websocket_service import serving

MANY = 200
MOST = 8
"""Five looks at the clock, one more that finds the time over, and a message of each direction."""
Send = Callable[..., Awaitable[None]]


class Turns:
    """How many frames were sent in each turn of the event loop."""

    def __init__(self) -> None:
        self._number = 0
        self._frames: Counter[int] = Counter()

    def begin(self) -> None:
        self._number += 1
        asyncio.get_running_loop().call_soon(self.begin)

    def counting(self, send: Send) -> Send:
        async def counted(*args: Any, **more: Any) -> None:
            self._frames[self._number] += 1
            await send(*args, **more)

        return counted

    @property
    def most(self) -> int:
        return max(self._frames.values())

    @property
    def sent(self) -> int:
        return self._frames.total()


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    looks = count()
    clock = SimpleNamespace(monotonic=lambda: next(looks) / 1000, sleep=lambda s: None)
    monkeypatch.setattr("tapeway.cooperative.time", clock)
    return Turns()


@pytest.mark.parametrize("data", ["x" * 100, b"\xff" * 100], ids=["text", "binary"])
@pytest.mark.parametrize("mode", ["passthrough", "record", "auto", "replay"])
async def test_a_fast_service_leaves_the_loop_to_others(
    mode: Mode, data: str | bytes, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def feed(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        for _ in range(MANY):
            await (socket.send_str(data) if isinstance(data, str) else socket.send_bytes(data))
        await socket.receive()
        await socket.close()

    store = MemoryStore()
    async with serving(feed) as service:
        if mode == "replay":
            async with running_proxy(service.url, mode="record", store=store) as proxy:
                await take_all(proxy.url)
        async with running_proxy(
            service.url, mode=mode, store=store, options=delivered(pace=AT_ONCE)
        ) as proxy:
            monkeypatch.setattr(
                web.WebSocketResponse,
                "send_frame",
                turns.counting(web.WebSocketResponse.send_frame),
            )
            turns.begin()
            await take_all(proxy.url)

    assert turns.sent >= MANY
    assert turns.most <= MOST


async def take_all(url: str) -> None:
    async with connected(url, "/feed") as client:
        await client.send("hello")
        for _ in range(MANY):
            await client.recv()
        await client.send("bye")
        await client.wait_closed()


@pytest.mark.parametrize("mode", ["passthrough", "record", "auto"])
async def test_a_fast_client_leaves_the_loop_to_others(
    mode: Mode, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def take(socket: web.WebSocketResponse) -> None:
        for _ in range(MANY):
            await socket.receive()
        await socket.close()

    async with serving(take) as service, running_proxy(service.url, mode=mode) as proxy:
        monkeypatch.setattr(
            aiohttp.ClientWebSocketResponse,
            "send_frame",
            turns.counting(aiohttp.ClientWebSocketResponse.send_frame),
        )
        turns.begin()
        async with connected(proxy.url, "/feed") as client:
            for _ in range(MANY):
                await client.send("x" * 100)
            await client.wait_closed()

    assert turns.sent >= MANY
    assert turns.most <= MOST


async def test_a_long_text_is_checked_in_steps(turns: Turns) -> None:
    text = "ü".encode() * (2 * 1024 * 1024)

    class Once:
        """A connection with a single message."""

        closed = False

        async def receive(self) -> aiohttp.WSMessage:
            return aiohttp.WSMessage(aiohttp.WSMsgType.TEXT, text, None)

        async def send_frame(self, message: bytes, opcode: aiohttp.WSMsgType) -> None: ...

    socket = MessageSocket(Once(), lambda: None, None)
    async with asyncio.TaskGroup() as tasks:
        receiving = tasks.create_task(socket.receive())
        await asyncio.sleep(0)
        assert not receiving.done()
        receiving.cancel()

    # Nothing is lost where the receiver was cancelled, and broken text is refused.
    assert await socket.receive() == WebSocketMessage(text)
    text += b"\xc3"
    assert await socket.receive() == Close(aiohttp.WSCloseCode.INVALID_TEXT)


async def test_what_a_feed_said_before_its_recording_began_is_taken_in_steps(turns: Turns) -> None:
    lines = LiveLines(ResponseHead(200, "OK"))
    lines.precede((b"%d" % number, float(number)) for number in range(MANY))
    lines.end("complete")
    taken: list[float] = []

    def take(pieces: Sequence[bytes], at_ms: float) -> bool:
        taken.append(at_ms)
        # The recorder moves to a file what has come.
        return len(taken) == 1

    assert await lines.receive(2**20, take)
    assert taken == [0.0]
    async with asyncio.TaskGroup() as tasks:
        rest = tasks.create_task(lines.receive(2**20, take))
        await asyncio.sleep(0)
        assert len(taken) <= MOST
    assert not rest.result()
    assert taken == [*map(float, range(MANY))]
