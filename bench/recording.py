"""What a recording costs beside a bare relay, in one interleaved run.

python -m bench.recording [FOLDER]

Relay and tapeway ask the same upstream for the same requests, no two of which are equal. The relay
appends what came to a file and does not wait for the disk; tapeway answers when the recording is
durable. The folder decides which disk is measured; by default it is the temporary folder's. A row
says how long one small append and its `fdatasync` take there, since every recording waits for that.
Connections stay open from block to block, as those of clients do.

A stream is asked for twice. First an aiohttp application writes its events one by one: it is slower
than whoever reads, who then is woken for nearly each of them. Then they are written at once, so that
what tapeway does with them is what is measured. A proxy that only collects an answer and sends it on
(`hold`) says what waking, reading and sending take; `direct` is the upstream itself, without a proxy.

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
STREAMS = 96
CONNECTIONS = 32
FEW, MOST = 10, 100_000
MODES = ("record", "auto")


@dataclass
class Measured:
    """What blocks of requests took: CPU microseconds each, waits in ms, and requests a second."""

    cpu: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def add(self, connected: "ConnectedServer", sent: Iterator[bytes], end: bytes, n: int) -> None:
        """Send so many requests."""
        server = connected.server
        before, begun = server.cpu_ns(), time.perf_counter()
        self.waits += ask(connected.connections, islice(sent, n), end)
        self.rates.append(n / (time.perf_counter() - begun))
        self.cpu.append((server.cpu_ns() - before) / n / 1000)


class ConnectedServer:
    """A server with some open connections."""

    def __init__(self, server: Server, at_once: int) -> None:
        self.server = server
        parts = urlsplit(server.url)
        self.connections = [
            socket.create_connection((parts.hostname, parts.port)) for _ in range(at_once)
        ]
        for connection in self.connections:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


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


def in_turn(
    servers: dict[str, Server], blocks: dict[str, int], at_once: int, first: int
) -> dict[str, dict[str, Measured]]:
    """By path, so many requests for it to each server in turn, after a round that does not count.

    They have numbers from `first` on, of which none was asked for before.
    """
    sent = {(name, path): requests(path, first=first) for name in servers for path in blocks}
    measured_of = {path: {name: Measured() for name in servers} for path in blocks}
    connected = {name: ConnectedServer(server, at_once) for name, server in servers.items()}
    for number in range(1 + BLOCKS):
        for name, connection in connected.items():
            for path, size in blocks.items():
                measured = measured_of[path][name] if number else Measured()
                end = JSON_BODY if path == JSON_PATH else LAST_CHUNK
                measured.add(connection, sent[name, path], end, size)
    for connection in connected.values():
        connection.close()
    return measured_of


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


def compared(stack: ExitStack, root: str, upstream: Server) -> dict[str, Server]:
    """An upstream, and the proxies in front of it."""
    Path(root).mkdir()
    commands: dict[str, tuple[str, ...]] = {
        "hold": ("-m", "bench.bare", "hold", upstream.url),
        "relay": ("-m", "bench.bare", "relay", upstream.url, f"{root}/relay.jsonl"),
    }
    for mode in MODES:
        commands[mode] = tapeway(f"{root}/{mode}", "--mode", mode, "--upstream", upstream.url)
    proxies = {name: stack.enter_context(started(*command)) for name, command in commands.items()}
    return {"direct": upstream, **proxies}


def compare(servers: dict[str, Server]) -> dict[str, list[Figure | str]]:
    """The rows of small answers."""
    many = in_turn(servers, {JSON_PATH: BLOCK}, CONNECTIONS, MOST)[JSON_PATH]
    alone = in_turn(servers, {JSON_PATH: BLOCK // 4}, 1, 2 * MOST)[JSON_PATH]
    ratios = [map(truediv, measured.cpu, many["relay"].cpu) for measured in many.values()]
    return {
        f"CPU us, {CONNECTIONS} connections": [
            figure(measured.cpu, 0) for measured in many.values()
        ],
        "of the relay's": [figure([*ratio], 2) for ratio in ratios],
        f"a second, {CONNECTIONS} connections": [
            figure(measured.rates, 0) for measured in many.values()
        ],
        "CPU us, alone": [figure(measured.cpu, 0) for measured in alone.values()],
        "wait in ms, alone": [figure(measured.waits, 2) for measured in alone.values()],
    }


def streams(servers: dict[str, Server], written: str) -> dict[str, list[Figure | str]]:
    """The rows of streams that are written so."""
    measured = in_turn(servers, {JSON_PATH: BLOCK, STREAM_PATH: STREAMS}, CONNECTIONS, 3 * MOST)
    small, large = measured[JSON_PATH].values(), measured[STREAM_PATH].values()
    sizes = [map(truediv, one.cpu, other.cpu) for one, other in zip(large, small, strict=True)]
    return {
        f"CPU us, {len(EVENTS)} events, written {written}": [figure(x.cpu, 0) for x in large],
        f"of a small answer's, {written}": [figure([*size], 2) for size in sizes],
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
    connected = ConnectedServer(server, 1)
    # The first one waits until the cassette is loaded.
    ask(connected.connections, islice(sent, FEW), JSON_BODY)
    for number in range(2 * BLOCKS):
        begun = requests(JSON_PATH, in_cassette(f"few-{number}"))
        ask(connected.connections, islice(begun, FEW), JSON_BODY)
        # In both orders: a block may leave something to be done in the next one.
        blocks = [(few, begun), (many, sent)]
        for measured, following in blocks if number % 2 else reversed(blocks):
            measured.add(connected, following, JSON_BODY, BLOCK // 8)
    connected.close()
    return {
        f"CPU us, the {FEW}th to {FEW + BLOCK // 8}th of a cassette": _of_record(few),
        f"CPU us, those after the {MOST:,}th": _of_record(many),
    }


def _of_record(measured: Measured) -> list[Figure | str]:
    """A row with one figure, in the column of mode record."""
    return ["", "", "", figure(measured.cpu, 0), ""]


def measure(folder: str | None = None) -> Table:
    """Recordings beside a bare relay; `folder` is on the disk that is to be measured."""
    with ExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
        upstream = stack.enter_context(started("-m", "bench.bare", "lowlevel"))
        servers = compared(stack, f"{root}/one-by-one", upstream)
        sync = sync_ms(root)
        rows = compare(servers) | streams(servers, "one by one")
        at_once = stack.enter_context(started("-m", "bench.bare", "protocol"))
        rows |= streams(compared(stack, f"{root}/at-once", at_once), "at once")
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
