"""How much more workers serve: requests per second of one and of several, in one interleaved run.

python -m bench.workers [WORKERS]

Each server replays from its own SQLite file of the same content. One worker shares
a processor with a client; of several workers each has a processor and a client more. So everything
that a machine with more processors has more of is there as many times, and the rates say what that
gives. Two processes of a bare protocol on one port do not reach twice the rate of one either.
"""

import json
import multiprocessing
import os
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from itertools import cycle
from multiprocessing.connection import Connection
from operator import truediv
from pathlib import Path
from urllib.parse import urlsplit

from bench.answers import JSON_BODY, JSON_PATH, request
from bench.figures import Figure, Table, figure, text
from bench.replay import Server
from bench.replay import started as started_bare

CONNECTIONS = 32
REPLAYED, RECORDED = b"Tapeway-Outcome: replayed", b"Tapeway-Outcome: recorded"
DIFFERENT = 200
BLOCK = 10_000
BLOCKS = 10


class WorkerServer:
    """The processes that serve one port, with all their children."""

    def __init__(self, *processes: "subprocess.Popen[bytes]") -> None:
        ready = [json.loads(process.stdout.readline()) for process in processes if process.stdout]
        self._pids = [process.pid for process in processes]
        self.url: str = ready[0]["proxy"]

    def keep_on(self, processors: set[int]) -> None:
        """Have all of them run on these processors alone."""
        for task in self._tasks():
            keep_on(processors, int(task.name))

    def cpu_ns(self) -> int:
        """The nanoseconds that all of them computed so far."""
        return sum(int((task / "schedstat").read_text().split()[0]) for task in self._tasks())

    def _tasks(self) -> list[Path]:
        children = [Path(f"/proc/{pid}/task/{pid}/children").read_text() for pid in self._pids]
        pids = (*map(str, self._pids), *" ".join(children).split())
        return [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]


class Client:
    """Connections to a server, over each of which one request after the other is asked."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._sent = cycle([request(JSON_PATH, number) for number in range(DIFFERENT)])
        self._selector = selectors.DefaultSelector()
        for _ in range(CONNECTIONS):
            made = socket.create_connection((parts.hostname, parts.port))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(made, selectors.EVENT_READ, (made, bytearray()))

    def ask(self, count: int, outcome: bytes) -> None:
        """Ask so many requests, each of which has to have this outcome."""
        asked = answered = 0
        for key in self._selector.get_map().values():
            key.data[0].sendall(next(self._sent))
            asked += 1
        while answered < asked:
            for key, _ in self._selector.select():
                made, got = key.data
                if not _answered(made, got, outcome):
                    continue
                answered += 1
                if asked < count:
                    asked += 1
                    made.sendall(next(self._sent))

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            key.data[0].close()


class Clients:
    """So many clients of one server, each in a process of its own, on the server's processors."""

    def __init__(self, server: WorkerServer, count: int, outcome: bytes) -> None:
        processors = first_processors(count)
        server.keep_on(processors)
        self._server = server
        self._pipes: list[Connection] = []
        spawn = multiprocessing.get_context("spawn")
        for _ in range(count):
            ours, theirs = spawn.Pipe()
            target = (server.url, processors, outcome, theirs)
            spawn.Process(target=_ask_when_told, args=target, daemon=True).start()
            # Otherwise whoever waits for a client that failed would wait for ever.
            theirs.close()
            self._pipes.append(ours)

    def rate(self, count: int) -> tuple[float, float]:
        """Requests per second, so many by each, and the server's CPU microseconds of one."""
        before, begun = self._server.cpu_ns(), time.perf_counter()
        for pipe in self._pipes:
            pipe.send(count)
        for pipe in self._pipes:
            pipe.recv()
        total = count * len(self._pipes)
        seconds = time.perf_counter() - begun
        return total / seconds, (self._server.cpu_ns() - before) / total / 1000

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(0)


def _ask_when_told(url: str, processors: set[int], outcome: bytes, pipe: Connection) -> None:
    keep_on(processors, 0)
    client = Client(url)
    while count := pipe.recv():
        client.ask(count, outcome)
        pipe.send(count)


def first_processors(count: int) -> set[int]:
    """So many of those that this process may run on."""
    return set(sorted(os.sched_getaffinity(0))[:count])


def keep_on(processors: set[int], pid: int) -> None:
    """Have a process or thread, 0 for this one, run on these alone."""
    os.sched_setaffinity(pid, processors)


def _answered(made: socket.socket, got: bytearray, outcome: bytes) -> bool:
    piece = made.recv(1 << 16)
    if not piece:
        raise ConnectionError(f"the server closed after {bytes(got[:200])!r}")
    got += piece
    if not got.endswith(JSON_BODY):
        return False
    if outcome not in got:
        raise ConnectionError(f"that is not {outcome!r}: {bytes(got[:200])!r}")
    got.clear()
    return True


@contextmanager
def running(*commands: tuple[str, ...]) -> Iterator[WorkerServer]:
    """Processes of Python that serve one port."""
    processes = [
        subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE) for command in commands
    ]
    try:
        yield WorkerServer(*processes)
    finally:
        for process in processes:
            process.terminate()
            process.wait()


def started(store: str, *options: str) -> AbstractContextManager[WorkerServer]:
    code = "import sys; from tapeway.cli.main import main; sys.exit(main())"
    listen = ("--listen", "127.0.0.1:0", "--admin-listen", "off", "--log-level", "error")
    return running(("-c", code, "serve", *listen, "--store", store, *options))


def bare(processes: int) -> AbstractContextManager[WorkerServer]:
    """So many processes of the bare protocol."""
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as listener:
        port = str(listener.getsockname()[1])
    return running(*[("-m", "bench.bare", "protocol", port)] * processes)


STORES = {"one SQLite file": "sqlite:{}/all.db"}


def recorded(store: str, folder: Path, upstream: Server) -> Path:
    """Record every request of the benchmark into a store."""
    folder.mkdir()
    recording = started(store.format(folder), "--mode", "record", "--upstream", upstream.url)
    with recording as server, closing(Client(server.url)) as client:
        client.ask(DIFFERENT, RECORDED)
    return folder


def measure(workers: int = 2) -> Table:
    """One process beside several: of a bare protocol, and for each kind of store."""
    with ExitStack() as stack:
        servers = {count: stack.enter_context(bare(count)) for count in (1, workers)}
        rows = _compare("bare protocol, {} processes", servers, b"200 OK")
    for what, store in STORES.items():
        with ExitStack() as stack:
            servers = dict(_replaying(stack, store, workers))
            rows |= _compare(f"--workers {{}}, {what}", servers, REPLAYED)
    columns = ("requests a second", "CPU us each", "of one's")
    note = f"A worker and a client share one processor, {workers} workers and {workers} clients {workers}."
    return Table("Workers that replay", columns, rows, note)


def _replaying(stack: ExitStack, store: str, workers: int) -> Iterator[tuple[int, WorkerServer]]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    upstream = stack.enter_context(started_bare("-m", "bench.bare", "lowlevel"))
    full = recorded(store, folder / "full", upstream)
    for count in (1, workers):
        own = shutil.copytree(full, folder / str(count))
        options = ("--mode", "replay", "--upstream", upstream.url, "--workers", str(count))
        yield count, stack.enter_context(started(store.format(own), *options))


def _compare(
    what: str, servers: dict[int, WorkerServer], outcome: bytes
) -> dict[str, list[Figure]]:
    with ExitStack() as stack:
        clients = {
            count: stack.enter_context(closing(Clients(server, count, outcome)))
            for count, server in servers.items()
        }
        blocks = [
            {count: client.rate(BLOCK) for count, client in clients.items()} for _ in range(BLOCKS)
        ][1:]
    rows: dict[str, list[Figure]] = {}
    for count in servers:
        rates, costs = zip(*[block[count] for block in blocks], strict=True)
        ratios = [*map(truediv, rates, [block[1][0] for block in blocks])]
        rows[what.format(count)] = [figure(rates, 0), figure(costs, 0), figure(ratios, 2)]
    return rows


if __name__ == "__main__":
    print(text(measure(*map(int, sys.argv[1:]))))
