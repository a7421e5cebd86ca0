"""What a WebSocket message costs beside bare aiohttp servers, in one interleaved run.

python -m bench.websocket

`aiohttp` is a server that answers each message with the same 200 messages, and `relay` a server that
passes messages on in both directions and looks at nothing. tapeway stands in front of the same
server: it records turns (OpenAI Responses) in both deliveries, and sessions. A message is small, as
those of a service that speaks word by word are. No connection compresses.

With `serve`, or `relay` and the URL of an upstream, it is one of these servers.
"""

import asyncio
import base64
import json
import os
import resource
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from operator import truediv
from pathlib import Path
from typing import Any

import uvloop
from aiohttp import ClientSession, TCPConnector, WSMsgType, web

from bench.figures import Figure, Table, figure, text
from bench.replay import Server, started, tapeway

BLOCKS, TURNS = 9, 40
SESSIONS = 1000
TURN_PATH, SESSION_PATH, HELLO_PATH = "/v1/responses", "/v1/feed", "/v1/hello"
HELLO = "hello"
_RESPONSE: dict[str, object] = {"id": "resp_0123456789abcdef01234567", "output": []}
_DELTA: dict[str, object] = {
    "type": "response.output_text.delta",
    "item_id": "msg_0123456789abcdef",
    "output_index": 0,
    "content_index": 0,
}
_EVENTS: list[dict[str, object]] = [
    {"type": "response.created", "response": _RESPONSE},
    *({**_DELTA, "delta": f"token {number} "} for number in range(198)),
    {"type": "response.completed", "response": _RESPONSE},
]
MESSAGES = [
    json.dumps({**event, "sequence_number": number}, separators=(",", ":"))
    for number, event in enumerate(_EVENTS)
]
END = MESSAGES[-1].encode()
COLUMNS = ("aiohttp", "relay", "record", "record, as it comes", "replay")


class Talk:
    """A client's connection, whose frames are made before."""

    def __init__(self, server: Server, path: str) -> None:
        self._socket = socket.create_connection(server.address, timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = base64.b64encode(os.urandom(16)).decode()
        fields = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
        head = (f"GET {path} HTTP/1.1", "Host: 127.0.0.1", f"Sec-WebSocket-Key: {key}", *fields)
        self._socket.sendall("\r\n".join([*head, "", ""]).encode())
        answer = self._until(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 101 "):
            raise ConnectionError(f"no WebSocket connection: {answer[:200]!r}")

    def ask(self, message: bytes, end: bytes = END) -> None:
        """Send a message, and read up to this end."""
        # A mask of zeros leaves the bytes as they are.
        self._socket.sendall(b"\x81" + bytes([0x80 | len(message)]) + bytes(4) + message)
        self._until(end)

    def _until(self, end: bytes) -> bytes:
        got = b""
        while not got.endswith(end):
            if not (piece := self._socket.recv(1 << 20)):
                raise ConnectionError(f"the server closed after {got[-200:]!r}")
            got += piece
        return got

    def close(self) -> None:
        self._socket.close()


def questions(kind: str = "response.create") -> Iterator[bytes]:
    """Requests of which no two are equal."""
    return (b'{"type":"%b","input":"question %d"}' % (kind.encode(), number) for number in count())


def cost(server: Server, talk: Talk, asked: Iterator[bytes], turns: int = TURNS) -> float:
    """CPU microseconds of a message of the service."""
    before = server.cpu_ns()
    for _ in range(turns):
        talk.ask(next(asked))
    return (server.cpu_ns() - before) / turns / len(MESSAGES) / 1000


def compared(servers: dict[str, Server], path: str) -> dict[str, list[float]]:
    """What each server spends on a message, in turns."""
    costs: dict[str, list[float]] = {name: [] for name in servers}
    kind = "response.create" if path == TURN_PATH else "question"
    asked = {name: questions(kind) for name in servers}
    with ExitStack() as stack:
        talks = {
            name: stack.enter_context(closing(Talk(server, path)))
            for name, server in servers.items()
        }
        for number in range(1 + BLOCKS):
            for name, server in servers.items():
                spent = cost(server, talks[name], asked[name])
                costs[name] += [spent] if number else []
    return costs


def rows(what: str, costs_of: dict[str, list[float]], beside: str) -> dict[str, list[Figure | str]]:
    """What a message costs, and how many times as much as in another column."""
    costs: list[Figure | str] = [
        figure(costs_of[name], 2) if name in costs_of else "" for name in COLUMNS
    ]
    ratios: list[Figure | str] = [
        figure([*map(truediv, costs_of[name], costs_of[beside])], 2) if name in costs_of else ""
        for name in COLUMNS
    ]
    return {f"CPU us a message, {what}": costs, f"of {beside}'s, {what}": ratios}


def memory_kib(server: Server) -> float:
    """KiB that each of many open sessions takes."""
    asked = questions("question")
    with ExitStack() as stack:

        def opened(number: int) -> None:
            for _ in range(number):
                talk = stack.enter_context(closing(Talk(server, HELLO_PATH)))
                talk.ask(next(asked), HELLO.encode())

        opened(SESSIONS // 10)
        before = _resident_kib(server.pid)
        opened(SESSIONS)
        return (_resident_kib(server.pid) - before) / SESSIONS


def _resident_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [row for row in status.splitlines() if row.startswith("VmRSS:")]
    return int(line.split()[1])


@contextmanager
def proxies(root: str, upstream: Server) -> Iterator[dict[str, Server]]:
    """The relay, and tapeway in front of the same server."""
    options = ("--mode", "record", "--upstream", upstream.url)
    stores = {
        "record": (),
        "record, as it comes": ("--delivery", "stream"),
    }
    with ExitStack() as stack:
        relay = started("-m", "bench.websocket", "relay", upstream.url)
        servers = {"relay": stack.enter_context(relay)}
        for name, more in stores.items():
            command = tapeway(f"{root}/{name}", *options, *more)
            servers[name] = stack.enter_context(started(*command))
        yield servers


def measure() -> Table:
    """Turns and sessions beside bare servers."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with ExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory())
        upstream = stack.enter_context(started("-m", "bench.websocket", "serve"))
        recording = stack.enter_context(proxies(root, upstream))
        table = rows("a recorded turn", compared(recording, TURN_PATH), "relay")
        sessions = {name: recording[name] for name in ("relay", "record")}
        table |= rows("a recorded session", compared(sessions, SESSION_PATH), "relay")
        replay = stack.enter_context(
            started(*tapeway(f"{root}/record", "--mode", "replay", "--delivery", "buffer"))
        )
        replayed = {"aiohttp": upstream, "replay": replay}
        table |= rows("a replayed turn", compared(replayed, TURN_PATH), "aiohttp")
    with ExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory())
        upstream = stack.enter_context(started("-m", "bench.websocket", "serve"))
        open_ones = stack.enter_context(proxies(root, upstream))
        sizes = {name: memory_kib(open_ones[name]) for name in ("relay", "record")}
        what = f"KiB each of {SESSIONS:,} open sessions"
        table[what] = [f"{sizes[name]:.1f}" if name in sizes else "" for name in COLUMNS]
    note = f"A turn has {len(MESSAGES)} messages of the service. The relay stores nothing."
    return Table("A WebSocket message beside bare servers", COLUMNS, table, note)


# The servers.


async def _answer(request: web.Request) -> web.WebSocketResponse:
    told = [HELLO] if request.path == HELLO_PATH else MESSAGES
    connection = web.WebSocketResponse(compress=False)
    await connection.prepare(request)
    async for _ in connection:
        for message in told:
            await connection.send_str(message)
    return connection


class _Relay:
    """Passes messages on, and looks at nothing."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._session = ClientSession(connector=TCPConnector(limit=0))

    async def __call__(self, request: web.Request) -> web.WebSocketResponse:
        client = web.WebSocketResponse(compress=False, max_msg_size=0, decode_text=False)
        await client.prepare(request)
        async with (
            self._session.ws_connect(
                self._upstream + request.path_qs, max_msg_size=0, decode_text=False
            ) as upstream,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(_pass_on(client, upstream))
            tasks.create_task(_pass_on(upstream, client))
        return client


async def _pass_on(source: Any, target: Any) -> None:
    while (message := await source.receive()).type in (WSMsgType.TEXT, WSMsgType.BINARY):
        await target.send_frame(message.data, message.type)
    await target.close()


async def serve(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> None:
    """Serve until the process is ended."""
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    sys.stdout.write(json.dumps({"event": "ready", "proxy": f"http://{host}:{port}"}) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


async def _main(kind: str, *more: str) -> None:
    await serve(_answer if kind == "serve" else _Relay(*more))


if __name__ == "__main__":
    if sys.argv[1:]:
        uvloop.run(_main(*sys.argv[1:]))
    else:
        print(text(measure()))
