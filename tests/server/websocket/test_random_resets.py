"""WebSocket connections break at random places on both sides: nothing is lost, and nothing is left."""

import asyncio
import contextlib
import json
import os
import socket
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import WSMsgType, web
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, WebSocketException

from tapeway.core.model.control import Delivery
from tapeway.server.proxy import ProxyOptions
from tapeway.upstream.client import Limits
from tests.server.in_process_proxy import MIB, RunningProxy, running_proxy
from tests.server.test_random_resets import faults, turns
from tests.server.websocket.responses_service import events
from tests.server.websocket.websocket_service import serving
from tests.support.fakes.broker import until
from tests.support.thoroughness import runs_everything

CONNECTIONS = 10_000 if runs_everything() else 300
AT_ONCE = 10
PATHS = ("/v1/responses", "/v1/responses", "/feed")
ENDS = ("response.completed", "error")


def _leave(client: ClientConnection) -> None:
    if not client.transport.is_closing():
        _linger(client.transport.get_extra_info("socket"))
        client.transport.abort()


def _linger(found: socket.socket) -> None:
    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Breaking:
    """A service that answers requests, and breaks some of its connections off."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw

    async def __call__(self, client: web.WebSocketResponse) -> None:
        with contextlib.suppress(ConnectionError, RuntimeError):
            while (message := await client.receive()).type in (WSMsgType.TEXT, WSMsgType.BINARY):
                asked = json.loads(message.data)
                for event in events({"input": asked["input"]}):
                    if self._draw.random() < 0.02:
                        await self._break(client)
                        return
                    await client.send_json(event)
                    await turns(self._draw)
            await client.close()

    async def _break(self, client: web.WebSocketResponse) -> None:
        kind = self._draw.choice(("reset", "half", "close", "silence"))
        if kind == "close":
            await client.close(code=1011, message=b"broken")
            return
        # The connection may be gone.
        with (
            contextlib.suppress(OSError, ValueError),
            socket.socket(fileno=os.dup(client.get_extra_info("socket").fileno())) as found,
        ):
            if kind == "half":
                found.shutdown(socket.SHUT_WR)
            elif kind == "reset":
                _linger(found)
                found.shutdown(socket.SHUT_RDWR)
        await client.receive()


class Talking:
    """Clients, and the requests whose answers they have seen to the end."""

    def __init__(self, proxy: RunningProxy, draw: Random) -> None:
        self._url = proxy.url.replace("http", "ws")
        self._draw = draw
        self.answered: set[str] = set()

    async def talk(self, number: int) -> None:
        """Ask a few times, and leave somewhere."""
        draw = self._draw
        path = draw.choice(PATHS)
        with contextlib.suppress(WebSocketException, InvalidHandshake, OSError):
            async with connect(self._url + path) as client:
                for turn in range(draw.randrange(1, 4)):
                    if not await self._ask(client, f"{number}.{turn}", path):
                        return
                if draw.random() < 0.5:
                    _leave(client)

    async def _ask(self, client: ClientConnection, text: str, path: str) -> bool:
        """Ask, and read the answer to its end; or leave within the answer, and say so."""
        kind = "response.create" if path == PATHS[0] else "question"
        await client.send(json.dumps({"type": kind, "input": text}))
        leaves = self._draw.choice((None, None, None, 0, 1, 3))
        found: list[Any] = []
        while not found or found[-1]["type"] not in ENDS:
            if leaves is not None and len(found) >= leaves:
                await turns(self._draw)
                _leave(client)
                return False
            # A service that has fallen silent is left by its client.
            async with asyncio.timeout(0.5):
                found.append(json.loads(await client.recv()))
        if path == PATHS[0] and found[-1]["type"] == ENDS[0]:
            self.answered.add(text)
        return True


def _sockets() -> set[str]:
    """The sockets of this process that are open."""
    found: set[str] = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(os.readlink(each))
    return {each for each in found if each.startswith("socket:")}


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
async def test_connections_that_break_lose_nothing_and_leave_nothing(
    caplog: pytest.LogCaptureFixture, delivery: Delivery
) -> None:
    draw = Random(delivery)
    options = ProxyOptions(max_body=8 * MIB, body_idle_s=10, delivery=delivery)
    before = _sockets()
    async with serving(Breaking(draw)) as service:
        with faults(caplog) as found:
            limits = Limits(connect_s=60, idle_s=0.5)
            async with running_proxy(
                service.url, mode="record", options=options, limits=limits
            ) as proxy:
                tasks = len(asyncio.all_tasks())
                talking = Talking(proxy, draw)
                for start in range(0, CONNECTIONS // 2, AT_ONCE):
                    numbers = range(start, start + AT_ONCE)
                    await asyncio.gather(*[talking.talk(each) for each in numbers])
                await proxy.proxy.wait_until_idle()
                await until(lambda: not proxy.connections())
                stored = [json.loads(each.request.body) for each in await proxy.recorded()]
                await until(lambda: len(asyncio.all_tasks()) <= tasks)
    await until(lambda: not _sockets() - before)

    assert found == []
    assert talking.answered
    assert talking.answered <= {each["input"] for each in stored if "input" in each}
