"""Breaks WebSocket connections at random places on both sides: nothing is lost, nothing is left.

python -m soak.socket_resets [file|sqlite|memory ...] [--connections 10000] [--seed N]

Each store is asked through both deliveries. A line says what clients saw, and how many open files and
how much memory the process had early and at the end. Where something was lost or left the run ends
with 1. The same seed gives the same breaks.
"""

import argparse
import asyncio
import contextlib
import json
import os
import socket
import struct
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import uvloop
from aiohttp import WSMsgType, web
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from tapeway.core.model.control import Delivery
from tapeway.core.model.interaction import Interaction
from tapeway.ports import CassetteStore
from tapeway.upstream.client import Limits
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.server.test_random_resets import turns
from tests.server.websocket.conversing import ENDS, Event, call, create, delivered
from tests.server.websocket.json_rpc_service import news
from tests.server.websocket.responses_service import events
from tests.server.websocket.websocket_service import serving
from tests.stores.contract.kinds import KINDS, Kind
from tests.support.fakes.broker import until
from tests.support.faults import faults

AT_ONCE = 10
RESPONSES, RPC, FEED = "/v1/responses", "/rpc", "/feed"
PATHS = (RESPONSES, RESPONSES, RPC, FEED)
LATE = 3
"""Notifications after each result."""
DELIVERIES: tuple[Delivery, ...] = ("buffer", "stream")
_LEFT_S = 0.5
"""After so long a silence a client leaves, and tapeway gives up a service whose client has left."""


@dataclass
class Outcome:
    """What clients saw, and what is wrong."""

    answered: int = 0
    notified: int = 0
    wrong: list[str] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    """In KiB, early and at the end."""

    def measure(self) -> None:
        """Add the open files and the memory of now."""
        self.files.append(len(_open_files()))
        self.memory.append(_memory_kib())


class Breaking:
    """A service that answers requests, and breaks some of its connections off."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw

    async def __call__(self, client: web.WebSocketResponse) -> None:
        with contextlib.suppress(ConnectionError, RuntimeError):
            while (message := await client.receive()).type in (WSMsgType.TEXT, WSMsgType.BINARY):
                for event in _answers(json.loads(message.data)):
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


def _answers(asked: Event) -> list[Event]:
    if "jsonrpc" not in asked:
        return events({"input": asked["input"]})
    result = {"jsonrpc": "2.0", "id": asked["id"], "result": asked["method"]}
    return [result, *[news(asked["method"], number) for number in range(LATE)]]


class Talking:
    """Clients, and what they have seen of answers that they saw to the end."""

    def __init__(self, proxy: RunningProxy, draw: Random) -> None:
        self._url = proxy.url.replace("http", "ws")
        self._draw = draw
        self.answered: set[str] = set()
        self.called: dict[str, int] = {}
        """By the method of a call, how many messages were seen from the result on."""

    async def talk(self, number: int) -> None:
        """Ask a few times, and leave somewhere."""
        draw = self._draw
        path = draw.choice(PATHS)
        with contextlib.suppress(WebSocketException, OSError):
            async with connect(self._url + path) as client:
                for turn in range(draw.randrange(1, 4)):
                    if not await self._ask(client, f"{number}.{turn}", path):
                        return
                if draw.random() < 0.5:
                    _leave(client)

    async def _ask(self, client: ClientConnection, text: str, path: str) -> bool:
        """Ask, and read the answer to its end; or leave within the answer, and say so."""
        asked = {"type": "question", "input": text} if path == FEED else create(text)
        await client.send(json.dumps(call(1, text) if path == RPC else asked))
        leaves = self._draw.choice((None, None, None, 0, 1, 3))
        found: list[Any] = []
        while not _is_whole(found, path):
            if leaves is not None and len(found) >= leaves:
                await turns(self._draw)
                _leave(client)
                return False
            # A service that has fallen silent is left by its client.
            async with asyncio.timeout(_LEFT_S):
                found.append(json.loads(await client.recv()))
            if path == RPC:
                self.called[text] = len(found)
        if path == RESPONSES and found[-1]["type"] == ENDS[0]:
            self.answered.add(text)
        return True

    def lost(self, stored: Sequence[Interaction]) -> list[str]:
        """What was seen and is not stored."""
        asked = [json.loads(exchange.request.body) for exchange in stored]
        inputs = {request["input"] for request in asked if "input" in request}
        lines = {
            request["method"]: len(item.response.pieces())
            for request, item in zip(asked, stored, strict=True)
            if "method" in request
        }
        lost = [f"the turn {lost_input}" for lost_input in sorted(self.answered - inputs)]
        return lost + [
            f"{seen - lines.get(method, 0)} messages of the call {method}"
            for method, seen in self.called.items()
            if seen > lines.get(method, 0)
        ]


def _is_whole(found: Sequence[Event], path: str) -> bool:
    if path == RPC:
        return len(found) == 1 + LATE
    return bool(found) and found[-1]["type"] in ENDS


def _leave(client: ClientConnection) -> None:
    if not client.transport.is_closing():
        _linger(client.transport.get_extra_info("socket"))
        client.transport.abort()


def _linger(found: socket.socket) -> None:
    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _open_files() -> set[str]:
    """The files and sockets of this process that are open."""
    found: set[str] = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(os.readlink(path))
    return found


def _memory_kib() -> int:
    [line] = [row for row in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in row]
    return int(line.split()[1])


async def broken(
    store: CassetteStore | None, delivery: Delivery, draw: Random, connections: int
) -> Outcome:
    """So many connections, most of which break."""
    outcome, before = Outcome(), _open_files()
    with faults() as found:
        async with (
            serving(Breaking(draw)) as service,
            running_proxy(
                service.url,
                mode="record",
                store=store,
                options=delivered(delivery),
                limits=Limits(connect_s=60, idle_s=_LEFT_S),
            ) as proxy,
        ):
            tasks = len(asyncio.all_tasks())
            talking, room = Talking(proxy, draw), asyncio.Semaphore(AT_ONCE)

            async def talk(number: int) -> None:
                async with room:
                    await talking.talk(number)
                if number == connections // 5:
                    outcome.measure()

            await asyncio.gather(*[talk(number) for number in range(connections)])
            await proxy.proxy.wait_until_idle()
            await until(lambda: not proxy.connections())
            outcome.measure()
            stored = await proxy.recorded()
            await until(lambda: len(asyncio.all_tasks()) <= tasks)
    await until(lambda: not {file for file in _open_files() - before if "socket:" in file})
    outcome.answered, outcome.notified = len(talking.answered), sum(talking.called.values())
    left = [f"{file} is still open" for file in sorted(_open_files() - before)]
    outcome.wrong = [*found, *talking.lost(stored), *left]
    return outcome


async def _run(kind: Kind, connections: int, seed: int) -> int:
    wrong = 0
    for delivery in DELIVERIES:
        with tempfile.TemporaryDirectory(prefix="tapeway-resets-") as folder:
            async with kind.place(Path(folder), "") as place:
                draw = Random(f"{seed} {delivery}")
                outcome = await broken(place.again(), delivery, draw, connections)
        memory = " to ".join([f"{size / 1024:.0f}" for size in outcome.memory])
        sys.stdout.write(
            f"{kind.name}, {delivery}: {connections} connections, {outcome.answered} turns and "
            f"{outcome.notified} messages of calls seen, open files {outcome.files}, "
            f"memory {memory} MiB, {len(outcome.wrong)} faults\n"
        )
        sys.stdout.write("".join([f"  {message}\n" for message in outcome.wrong[:20]]))
        sys.stdout.flush()
        wrong += len(outcome.wrong)
    return wrong


def _kind(name: str) -> Kind:
    """The kind of store of this name. Raises ArgumentTypeError."""
    kinds = {kind.name: kind for kind in KINDS}
    if name not in kinds:
        raise argparse.ArgumentTypeError(f"there is no store {name!r}: use {', '.join(kinds)}")
    return kinds[name]


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m soak.socket_resets", description=__doc__)
    default = [_kind(name) for name in ("file", "sqlite")]
    parser.add_argument("stores", nargs="*", type=_kind, default=default)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    wrong = [uvloop.run(_run(store, given.connections, given.seed)) for store in given.stores]
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
