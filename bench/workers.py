"""How much more workers serve: requests per second of one and of several, in one interleaved run.

python -m bench.workers [WORKERS]

Each server replays from its own SQLite file or its own folder of the same content. Client and
servers share the machine's processors: with two of them, two workers cannot reach twice the rate of
one, and neither do two processes of a bare protocol on one port, which the table shows beside them.
What a request takes of the processors tells more: so many times as much as one could several serve,
each with a processor of its own.
"""

import json
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import cycle
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
    """The processes that serve one port with all their children, and connections to it."""

    def __init__(self, *processes: "subprocess.Popen[bytes]") -> None:
        ready = [json.loads(each.stdout.readline()) for each in processes if each.stdout]
        self._pids = [each.pid for each in processes]
        self._sent = cycle([request(JSON_PATH, number) for number in range(DIFFERENT)])
        self._selector = selectors.DefaultSelector()
        url = urlsplit(ready[0]["proxy"])
        for _ in range(CONNECTIONS):
            made = socket.create_connection((url.hostname, url.port))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(made, selectors.EVENT_READ, (made, bytearray()))

    def rate(self, count: int, outcome: bytes = REPLAYED) -> tuple[float, float]:
        """Requests per second, and CPU microseconds of all processes per request."""
        before, begun = self._cpu_ns(), time.perf_counter()
        asked = 0
        for key in self._selector.get_map().values():
            key.data[0].sendall(next(self._sent))
            asked += 1
        answered = 0
        while answered < asked:
            for key, _ in self._selector.select():
                made, got = key.data
                if not _answered(made, got, outcome):
                    continue
                answered += 1
                if asked < count:
                    asked += 1
                    made.sendall(next(self._sent))
        seconds = time.perf_counter() - begun
        return count / seconds, (self._cpu_ns() - before) / count / 1000

    def _cpu_ns(self) -> int:
        children = [Path(f"/proc/{pid}/task/{pid}/children").read_text() for pid in self._pids]
        return sum(
            int((task / "schedstat").read_text().split()[0])
            for pid in (*map(str, self._pids), *" ".join(children).split())
            for task in Path(f"/proc/{pid}/task").iterdir()
        )


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
        subprocess.Popen([sys.executable, *each], stdout=subprocess.PIPE) for each in commands
    ]
    try:
        yield WorkerServer(*processes)
    finally:
        for each in processes:
            each.terminate()
            each.wait()


def started(store: str, *options: str) -> AbstractContextManager[WorkerServer]:
    code = "import sys; from tapeway.cli.main import main; sys.exit(main())"
    listen = ("--listen", "127.0.0.1:0", "--admin-listen", "off", "--log-level", "error")
    return running(("-c", code, "serve", *listen, "--store", store, *options))


def bare(processes: int) -> AbstractContextManager[WorkerServer]:
    """So many processes of the bare protocol."""
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as found:
        port = str(found.getsockname()[1])
    return running(*[("-m", "bench.bare", "protocol", port)] * processes)


STORES = {"one SQLite file": "sqlite:{}/all.db", "a folder": "{}"}


def recorded(store: str, folder: Path, upstream: Server) -> Path:
    """Record every request of the benchmark into a store."""
    folder.mkdir()
    with started(store.format(folder), "--mode", "record", "--upstream", upstream.url) as server:
        server.rate(DIFFERENT, RECORDED)
    return folder


def measure(workers: int = 2) -> Table:
    """One process beside several: of a bare protocol, and for each kind of store."""
    with ExitStack() as stack:
        servers = {each: stack.enter_context(bare(each)) for each in (1, workers)}
        rows = _compare("bare protocol, {} processes", servers, b"200 OK")
    for what, store in STORES.items():
        with ExitStack() as stack:
            servers = dict(_replaying(stack, store, workers))
            rows |= _compare(f"--workers {{}}, {what}", servers, REPLAYED)
    columns = ("requests a second", "CPU us each", "of one's", "of one's, by CPU")
    note = (
        "The client shares the processors with the servers. The last column is what several would "
        "serve with a processor each, by what a request takes of it."
    )
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
    blocks = [
        {count: each.rate(BLOCK, outcome) for count, each in servers.items()} for _ in range(BLOCKS)
    ][1:]
    rows: dict[str, list[Figure]] = {}
    for count in servers:
        rates, costs = zip(*[block[count] for block in blocks], strict=True)
        ratios = [block[count][0] / block[1][0] for block in blocks]
        capacity = [count * block[1][1] / block[count][1] for block in blocks]
        rows[what.format(count)] = [
            figure(rates, 0),
            figure(costs, 0),
            figure(ratios, 2),
            figure(capacity, 2),
        ]
    return rows


if __name__ == "__main__":
    print(text(measure(*map(int, sys.argv[1:]))))
