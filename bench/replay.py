"""What a replay costs: CPU microseconds per request, beside bare servers, in one interleaved run.

All servers are separate processes that get the same requests over 32 kept-alive connections, in
alternating blocks, so that a machine that slows down slows all. With one connection alone, a server's
processor sleeps between requests, and to wake it may cost more than a replay. The kernel counts their
CPU time in nanoseconds (/proc/PID/task/*/schedstat, Linux).
"""

import asyncio
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from hashlib import sha256
from itertools import cycle
from operator import truediv
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from bench.answers import (
    CLIENTS,
    EVENTS,
    JSON_BODY,
    JSON_PATH,
    STREAM_PATH,
    call_answer,
    chat,
    follow_up,
    request,
    request_of,
    respelled,
)
from bench.figures import Figure, Table, figure, text
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead
from tapeway.stores.file.store import FileStore
from tapeway.stores.sqlite.store import SqliteStore

BLOCKS, BLOCK = 24, 512
CONNECTIONS = 32
FEW, MANY, MOST = 200, 10_000, 100_000
OURS = "tapeway"
BASELINES = ("application", "lowlevel", "parser", "protocol")
RECORDED_KEY, OTHER_KEY = "sk-bench-0123456789abcdef0123", "sk-bench-fedcba98765432109876"
DATABASE = ".bench.db"
ORDINARY = "Max-Forwards: 10"
"""A field that no plain head has, so that the front leaves the request to the ordinary way."""
_LENGTH = re.compile(rb"\r\nContent-Length: *(\d+)", re.IGNORECASE)
LAST_CHUNK = b"\r\n0\r\n\r\n"


class Server:
    """A server process and one connection to it."""

    def __init__(self, url: str, pid: int, admin: str | None = None) -> None:
        parts = urlsplit(url)
        self.url = url
        self.admin = admin
        self.pid = pid
        self.address = (parts.hostname or "", parts.port or 0)
        self._many: list[socket.socket] = []
        self.connect()

    @classmethod
    def of(cls, process: "subprocess.Popen[bytes]") -> Self:
        """The server of a process that prints a ready line."""
        if process.stdout is None:
            raise RuntimeError("the server was started without a pipe for its ready line")
        ready = json.loads(process.stdout.readline())
        return cls(ready["proxy"], process.pid, ready.get("admin"))

    def close(self) -> None:
        """Close all connections to it."""
        for connection in (self._socket, *self._many):
            connection.close()

    def connect(self) -> None:
        """Have a new connection: some servers close one that asked nothing for seconds."""
        self._socket = self._connected()

    def _connected(self) -> socket.socket:
        made = socket.create_connection(self.address, timeout=60)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def ask(self, sent: bytes, end: bytes = b"") -> bytes:
        """The response to a request: up to this end, or as long as its Content-Length says."""
        self._socket.sendall(sent)
        return self._receive(self._socket, b"", end)

    def timed(self, sent: bytes, end: bytes) -> tuple[float, float]:
        """Seconds from a request to the first byte of its response, and to this end."""
        begun = time.perf_counter()
        self._socket.sendall(sent)
        got = self._socket.recv(1 << 20)
        first = time.perf_counter()
        self._receive(self._socket, got, end)
        return first - begun, time.perf_counter() - begun

    def _receive(self, connection: socket.socket, got: bytes, end: bytes) -> bytes:
        while not (got.endswith(end) if end else _is_whole(got)):
            piece = connection.recv(1 << 20)
            if not piece:
                raise ConnectionError(f"the server closed after {got[:200]!r}")
            got += piece
        return got

    def cost(self, requests: "cycle[bytes]", end: bytes, count: int) -> float:
        """CPU microseconds of one of so many requests, or as many as CONNECTIONS divides."""
        rounds = count // CONNECTIONS
        while len(self._many) < CONNECTIONS:
            self._many.append(self._connected())
        before = self.cpu_ns()
        for _ in range(rounds):
            for connection in self._many:
                connection.sendall(next(requests))
            for connection in self._many:
                self._receive(connection, b"", end)
        return (self.cpu_ns() - before) / (rounds * CONNECTIONS) / 1000

    def cpu_ns(self) -> int:
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def _is_whole(got: bytes) -> bool:
    head, end, body = got.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    if end and (length is None or not head.startswith(b"HTTP/1.1 200 ")):
        raise ConnectionError(f"that is no replay: {got[:200]!r}")
    return length is not None and len(body) == int(length[1])


@contextmanager
def started(*command: str) -> Iterator[Server]:
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE) as process:
        try:
            with closing(Server.of(process)) as server:
                yield server
        finally:
            process.terminate()


def tapeway(folder: str, *options: str) -> tuple[str, ...]:
    listen = ("--listen", "127.0.0.1:0", "--admin-listen", "off")
    code = "import sys; from tapeway.cli.main import main; sys.exit(main())"
    return ("-c", code, "serve", *listen, "--store", folder, "--log-level", "error", *options)


def record(folder: str, upstream: str) -> None:
    """Record live what needs more than an equal request to be found, and the stream."""
    with started(*tapeway(folder, "--mode", "record", "--upstream", upstream)) as proxy:
        proxy.ask(request(STREAM_PATH), LAST_CHUNK)
        for number in range(FEW):
            proxy.ask(request(JSON_PATH, number, in_cassette("keys"), key=RECORDED_KEY), JSON_BODY)
            for beta in ("one", "two"):
                fields = (in_cassette("headers"), f"OpenAI-Beta: {beta}")
                proxy.ask(request(JSON_PATH, number, *fields), JSON_BODY)


async def save(folder: str) -> None:
    """Save cassettes with as many recordings as the other rows need."""
    store, database = FileStore(Path(folder)), SqliteStore(Path(folder, DATABASE))
    await store.open()
    await database.open()
    try:
        head = CassetteHead("2026-01-01T00:00:00+00:00", "bench")
        await database.save("many", StoredCassette(head, recordings(MANY)))
        rules: dict[str, Json] = {"rules": {"ignore": ["body.temperature"]}}
        await store.save("many", StoredCassette(head, recordings(MANY)))
        await store.save("most", StoredCassette(head, recordings(MOST)))
        await store.save("rules", StoredCassette(replace(head, meta=rules), recordings(MANY)))
        await store.save("calls", StoredCassette(head, calls()))
    finally:
        await store.close()
        await database.close()


def recordings(count: int) -> tuple[Interaction, ...]:
    """So many different requests, all with the same answer."""
    return recorded((json.dumps(chat(number)), JSON_BODY) for number in range(count))


def calls() -> tuple[Interaction, ...]:
    """Requests that got the call of a tool, each with the one that sends the result."""
    return recorded(
        said
        for number in range(FEW)
        for said in (
            (json.dumps(chat(number)), call_answer(call_id("recorded", number))),
            (follow_up(number, call_id("recorded", number)), JSON_BODY),
        )
    )


def call_id(whose: str, number: int) -> str:
    return f"call_{sha256(f'{whose} {number}'.encode()).hexdigest()[:24]}"


def recorded(exchanges: Iterable[tuple[str, bytes]]) -> tuple[Interaction, ...]:
    typed: Headers = ((b"Content-Type", b"application/json"),)
    fields = (*typed, *((b"X-Recorded-%d" % number, b"value") for number in range(8)))
    return tuple(
        Interaction(
            number,
            Request("default", "POST", JSON_PATH, typed, body.encode()),
            Response(ResponseHead(200, "OK", fields, length=len(answer)), answer),
        )
        for number, (body, answer) in enumerate(exchanges)
    )


def in_cassette(name: str) -> str:
    return f"Tapeway-Cassette: {name}"


def compare(
    servers: dict[str, Server], sent: list[bytes], end: bytes, count: int
) -> tuple[Figure, ...]:
    """What each server spends on a request, and what ours spends beside each other one."""
    requests = {name: cycle(sent) for name in servers}
    costs: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(BLOCKS):
        for name, server in servers.items():
            costs[name].append(server.cost(requests[name], end, count))
    kept = {name: figures[2:] for name, figures in costs.items()}
    ratios = [list(map(truediv, kept[OURS], kept[name])) for name in BASELINES]
    return (
        *(figure(kept[name]) for name in (*BASELINES, OURS)),
        *(figure(ratio, 2) for ratio in ratios),
    )


def asked(
    cassette: str,
    count: int,
    *fields: str,
    key: str = "",
    body: Callable[[int], str] = lambda number: "",
) -> list[bytes]:
    """So many different requests to a cassette, with further header fields or bodies of their own."""
    return [
        request(JSON_PATH, number, in_cassette(cassette), *fields, key=key, body=body(number))
        for number in range(count)
    ]


def traced(number: int, *fields: str) -> bytes:
    """A request with a header field of its own."""
    trace = sha256(b"%d" % number).hexdigest()
    own = f"traceparent: 00-{trace[:32]}-{trace[32:48]}-01"
    return request(JSON_PATH, number % MANY, in_cassette("many"), own, *fields)


def replaying(stack: ExitStack) -> tuple[str, dict[str, Server]]:
    """The bare servers, ours in front of a folder of cassettes, and that folder."""
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    servers = {name: stack.enter_context(started("-m", "bench.bare", name)) for name in BASELINES}
    record(folder, servers["lowlevel"].url)
    asyncio.run(save(folder))
    servers[OURS] = stack.enter_context(started(*tapeway(folder, "--mode", "replay")))
    return folder, servers


def measure() -> Table:
    """Replays from a folder, and from SQLite, beside the bare servers."""
    figures: dict[str, tuple[Figure, ...]] = {}
    with ExitStack() as stack:
        folder, servers = replaying(stack)
        rows: dict[str, list[bytes]] = {
            "the same request": asked("many", 1),
            f"{MANY:,} different requests in turn": asked("many", MANY),
            f"{MOST:,} different requests in turn": asked("most", MOST),
            "a rule: a field is ignored": asked("rules", MANY),
            **{
                f"the head of {client}": [
                    request_of(client, number, in_cassette("many")) for number in range(MANY)
                ]
                for client in CLIENTS
            },
            "the ordinary way: what the front does not take": asked("many", MANY, ORDINARY),
            "another credential in the body": asked("keys", FEW, key=OTHER_KEY),
            "recordings that headers tell apart": [
                sent_bytes
                for beta in ("one", "two")
                for sent_bytes in asked("headers", FEW, f"OpenAI-Beta: {beta}")
            ],
            "another identifier of a call": asked(
                *("calls", FEW), body=lambda number: follow_up(number, call_id("other", number))
            ),
        }
        for what, sent in rows.items():
            for asked_bytes in sent:
                servers[OURS].ask(asked_bytes, JSON_BODY)
            figures[what] = compare(servers, sent, JSON_BODY, BLOCK)
        # None twice.
        for what, more in (
            ("a header that differs in every request", ()),
            ("the ordinary way, and such a header", (ORDINARY,)),
        ):
            sent = [traced(number, *more) for number in range(BLOCKS * BLOCK)]
            figures[what] = compare(servers, sent, JSON_BODY, BLOCK)
        # Not asked before, and none twice: what is known of a body's bytes is of no use.
        sent = asked("most", BLOCKS * BLOCK, body=respelled)
        figures["another spelling of the body, each new"] = compare(servers, sent, JSON_BODY, BLOCK)
        sent = asked("many", MANY)
        options = (f"sqlite:{folder}/{DATABASE}", "--mode", "replay")
        shared = stack.enter_context(started(*tapeway(*options)))
        for asked_bytes in sent:
            shared.ask(asked_bytes, JSON_BODY)
        what = f"{MANY:,} different requests, from SQLite"
        figures[what] = compare({**servers, OURS: shared}, sent, JSON_BODY, BLOCK)
        what = f"a stream of {len(EVENTS)} events, each a chunk"
        figures[what] = compare(servers, [request(STREAM_PATH)], LAST_CHUNK, CONNECTIONS)
    ratios = tuple(f"{OURS} / {name}" for name in BASELINES)
    return Table("CPU microseconds of the server per replay", (*BASELINES, OURS, *ratios), figures)


if __name__ == "__main__":
    print(text(measure()))
