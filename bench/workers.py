"""How much more workers serve: requests per second of one and of several, in one interleaved run.

python -m bench.workers [WORKERS]

Each server replays from its own SQLite file or its own folder of the same content. Client and
servers share the machine's processors: with two of them, two workers cannot reach twice the rate of
one. What a request takes of them tells more.
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
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from urllib.parse import urlsplit

from bench.answers import JSON_BODY, JSON_PATH, request
from bench.figures import Figure, Table, figure, text
from bench.replay import Server
from bench.replay import started as started_bare

CONNECTIONS = 16
DIFFERENT = 200
BLOCK = 1000
BLOCKS = 10


class WorkerServer:
    """The processes that serve one port, and connections to it."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        if process.stdout is None:
            raise RuntimeError("the server was started without a pipe for its ready line")
        self._pid = process.pid
        self._sent = cycle([request(JSON_PATH, number) for number in range(DIFFERENT)])
        self._selector = selectors.DefaultSelector()
        url = urlsplit(json.loads(process.stdout.readline())["proxy"])
        for _ in range(CONNECTIONS):
            made = socket.create_connection((url.hostname, url.port))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(made, selectors.EVENT_READ, (made, bytearray()))

    def rate(self, count: int, outcome: bytes = b"replayed") -> tuple[float, float]:
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
        children = Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split()
        return sum(
            int((task / "schedstat").read_text().split()[0])
            for pid in (str(self._pid), *children)
            for task in Path(f"/proc/{pid}/task").iterdir()
        )


def _answered(made: socket.socket, got: bytearray, outcome: bytes) -> bool:
    piece = made.recv(1 << 16)
    if not piece:
        raise ConnectionError(f"the server closed after {bytes(got[:200])!r}")
    got += piece
    if not got.endswith(JSON_BODY):
        return False
    if b"Tapeway-Outcome: " + outcome not in got:
        raise ConnectionError(f"that is not {outcome!r}: {bytes(got[:200])!r}")
    got.clear()
    return True


@contextmanager
def started(store: str, *options: str) -> Iterator[WorkerServer]:
    code = "import sys; from tapeway.cli.main import main; sys.exit(main())"
    command = [
        *(sys.executable, "-c", code, "serve", "--listen", "127.0.0.1:0", "--log-level", "error"),
        *("--admin-listen", "off", "--store", store, *options),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        yield WorkerServer(process)
    finally:
        process.terminate()
        process.wait()


STORES = {"one SQLite file": "sqlite:{}/all.db", "a folder": "{}"}


def recorded(store: str, folder: Path, upstream: Server) -> Path:
    """Record every request of the benchmark into a store."""
    folder.mkdir()
    with started(store.format(folder), "--mode", "record", "--upstream", upstream.url) as server:
        server.rate(DIFFERENT, b"recorded")
    return folder


def measure(workers: int = 2) -> Table:
    """One process beside several, for each kind of store."""
    rows: dict[str, list[Figure]] = {}
    for what, store in STORES.items():
        rows |= _measure(what, store, workers)
    columns = ("requests a second", "CPU us each", "of one's")
    note = "The client shares the processors with the servers."
    return Table("Workers that replay", columns, rows, note)


def _measure(what: str, store: str, workers: int) -> dict[str, list[Figure]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bare = stack.enter_context(started_bare("-m", "bench.bare", "lowlevel"))
        full = recorded(store, folder / "full", bare)
        servers = {}
        for count in (1, workers):
            own = shutil.copytree(full, folder / str(count))
            options = ("--mode", "replay", "--upstream", bare.url, "--workers", str(count))
            servers[count] = stack.enter_context(started(store.format(own), *options))
        blocks = [{n: each.rate(BLOCK) for n, each in servers.items()} for _ in range(BLOCKS)][1:]
    rows: dict[str, list[Figure]] = {}
    for count in servers:
        rates, costs = zip(*[block[count] for block in blocks], strict=True)
        ratios = [block[count][0] / block[1][0] for block in blocks]
        row = f"--workers {count}, {what}"
        rows[row] = [figure(rates, 0), figure(costs, 0), figure(ratios, 2)]
    return rows


if __name__ == "__main__":
    print(text(measure(*map(int, sys.argv[1:]))))
