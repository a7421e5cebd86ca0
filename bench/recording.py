"""What a recording costs beside a bare relay, in one interleaved run.

python -m bench.recording [FOLDER]

Relay and tapeway ask the same upstream for the same requests, no two of which are equal. The relay
appends what came to a file and does not wait for the disk; tapeway answers when the recording is
durable. The folder decides which disk is measured; by default it is the temporary folder's. A row
says how long one small append and its `fdatasync` take there, since every recording waits for that.
Connections stay open from block to block, as those of clients do.

The last rows record in turn to cassettes that have ten recordings and to one that has 100,000, which
were not recorded one by one but saved.
"""

import asyncio
import os
import selectors
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count, islice
from operator import truediv
from pathlib import Path
from urllib.parse import urlsplit

from bench.answers import EVENTS, JSON_BODY, JSON_PATH, STREAM_PATH, request
from bench.figures import Figure, Table, figure, text
from bench.replay import LAST_CHUNK, Server, in_cassette, started, tapeway
from bench.replay import recordings as saved
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.stores.file.store import FileStore

BLOCKS = 9
BLOCK = 320
STREAMS = 32
CONNECTIONS = 32
FEW, MOST = 10, 100_000
MODES = ("record", "auto")


@dataclass
class Measured:
    """What blocks of requests took: CPU microseconds each, waits in ms, and requests a second."""

    cpu: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def add(self, asking: "Asking", sent: Iterator[bytes], end: bytes, n: int) -> None:
        """Send so many requests."""
        server = asking.server
        before, begun = server.cpu_ns(), time.perf_counter()
        self.waits += ask(asking.connections, islice(sent, n), end)
        self.rates.append(n / (time.perf_counter() - begun))
        self.cpu.append((server.cpu_ns() - before) / n / 1000)


class Asking:
    """A server, and so many connections to it."""

    def __init__(self, server: Server, at_once: int) -> None:
        self.server = server
        parts = urlsplit(server.url)
        self.connections = [
            socket.create_connection((parts.hostname, parts.port)) for _ in range(at_once)
        ]
        for each in self.connections:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        for each in self.connections:
            each.close()


def ask(connections: Iterable[socket.socket], sent: Iterator[bytes], end: bytes) -> list[float]:
    """Send requests over connections, each its next when it has its answer; the waits in ms."""
    waits: list[float] = []
    selector = selectors.DefaultSelector()
    for connection in connections:
        _send_next(selector, connection, sent)
    while selector.get_map():
        for key, _ in selector.select():
            connection, begun, got = key.data
            piece = connection.recv(1 << 20)
            if not piece:
                raise ConnectionError(f"the server closed after {bytes(got[:200])!r}")
            got += piece
            if got.endswith(end):
                waits.append((time.perf_counter() - begun) * 1000)
                selector.unregister(connection)
                _send_next(selector, connection, sent)
    return waits


def _send_next(
    selector: selectors.BaseSelector, connection: socket.socket, sent: Iterator[bytes]
) -> None:
    data = next(sent, None)
    if data is None:
        return
    waits = (connection, time.perf_counter(), bytearray())
    selector.register(connection, selectors.EVENT_READ, waits)
    connection.sendall(data)


def requests(path: str, *fields: str, first: int = 0) -> Iterator[bytes]:
    return (request(path, number, *fields) for number in count(first))


def in_turn(servers: dict[str, Server], path: str, at_once: int, n: int) -> dict[str, Measured]:
    """Blocks of requests to each server in turn, after a first one that does not count."""
    end = JSON_BODY if path == JSON_PATH else LAST_CHUNK
    sent = {name: requests(path, first=at_once * 1_000_000) for name in servers}
    found = {name: Measured() for name in servers}
    asking = {name: Asking(server, at_once) for name, server in servers.items()}
    for name, each in asking.items():
        Measured().add(each, sent[name], end, n)
    for _ in range(BLOCKS):
        for name, each in asking.items():
            found[name].add(each, sent[name], end, n)
    for each in asking.values():
        each.close()
    return found


def sync_ms(folder: str) -> float:
    """How long an append of 1.5 KiB and its `fdatasync` take: the median of 100, in ms."""
    taken: list[float] = []
    fd = os.open(Path(folder, "probe"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        for _ in range(100):
            begun = time.perf_counter()
            os.write(fd, b"x" * 1536)
            os.fdatasync(fd)
            taken.append((time.perf_counter() - begun) * 1000)
    finally:
        os.close(fd)
    return statistics.median(taken)


def compare(servers: dict[str, Server]) -> dict[str, list[Figure | str]]:
    """The rows of relay and recordings; the first server is the relay."""
    relay = next(iter(servers))
    many = in_turn(servers, JSON_PATH, CONNECTIONS, BLOCK)
    alone = in_turn(servers, JSON_PATH, 1, BLOCK // 4)
    streams = in_turn(servers, STREAM_PATH, CONNECTIONS, STREAMS)
    ratios = {name: list(map(truediv, each.cpu, many[relay].cpu)) for name, each in many.items()}
    sizes = {name: list(map(truediv, streams[name].cpu, many[name].cpu)) for name in servers}
    return {
        f"CPU us, {CONNECTIONS} connections": [figure(each.cpu, 0) for each in many.values()],
        "of the relay's": [figure(each, 2) for each in ratios.values()],
        f"a second, {CONNECTIONS} connections": [figure(each.rates, 0) for each in many.values()],
        "CPU us, alone": [figure(each.cpu, 0) for each in alone.values()],
        "wait in ms, alone": [figure(each.waits, 2) for each in alone.values()],
        f"CPU us, a stream of {len(EVENTS)} events": [
            figure(each.cpu, 0) for each in streams.values()
        ],
        "of a small answer's": [figure(each, 2) for each in sizes.values()],
    }


async def save(folder: str, cassette: str, recordings: int) -> None:
    """Save a cassette with so many recordings."""
    store = FileStore(Path(folder))
    await store.open()
    try:
        head = CassetteHead("2026-01-01T00:00:00+00:00", "bench")
        await store.save(cassette, StoredCassette(head, saved(recordings)))
    finally:
        await store.close()


def grow(server: Server) -> dict[str, list[Figure | str]]:
    """What a recording costs in cassettes that have ten, beside one that has many."""
    few, many = Measured(), Measured()
    sent = requests(JSON_PATH, in_cassette("most"), first=MOST)
    asking = Asking(server, 1)
    # The first one waits until the cassette is loaded.
    ask(asking.connections, islice(sent, FEW), JSON_BODY)
    for number in range(2 * BLOCKS):
        begun = requests(JSON_PATH, in_cassette(f"few-{number}"))
        ask(asking.connections, islice(begun, FEW), JSON_BODY)
        # In both orders: a block may leave something to be done in the next one.
        blocks = [(few, begun), (many, sent)]
        for measured, following in blocks if number % 2 else reversed(blocks):
            measured.add(asking, following, JSON_BODY, BLOCK // 8)
    asking.close()
    return {
        f"CPU us, the {FEW}th to {FEW + BLOCK // 8}th of a cassette": ["", figure(few.cpu, 0), ""],
        f"CPU us, those after the {MOST:,}th": ["", figure(many.cpu, 0), ""],
    }


def measure(folder: str | None = None) -> Table:
    """Recordings beside a bare relay; `folder` is on the disk that is to be measured."""
    with ExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
        upstream = stack.enter_context(started("-m", "bench.bare", "lowlevel"))
        relay = ("-m", "bench.bare", "relay", upstream.url, f"{root}/relay.jsonl")
        servers = {"relay": stack.enter_context(started(*relay))}
        for mode in MODES:
            options = ("--mode", mode, "--upstream", upstream.url)
            servers[mode] = stack.enter_context(started(*tapeway(f"{root}/{mode}", *options)))
        sync = sync_ms(root)
        rows = compare(servers)
        asyncio.run(save(f"{root}/grown", "most", MOST))
        options = ("--mode", "record", "--upstream", upstream.url)
        rows |= grow(stack.enter_context(started(*tapeway(f"{root}/grown", *options))))
    note = (
        f"Each recording is on the disk before it is answered: one append with fdatasync takes "
        f"{sync:.2f} ms here. The relay writes a line and does not wait for the disk."
    )
    return Table("A recording beside a bare relay", tuple(servers), rows, note)


if __name__ == "__main__":
    print(text(measure(*sys.argv[1:2])))
