"""How fast a body of 50 MiB is replayed beside a bare aiohttp answer, and how much memory it takes.

python -m bench.bodies

One client reads from each server in turn, then eight at once. Memory is what the server's process
had at most, above what it had before.
"""

import socket
import statistics
import tempfile
import threading
import time
from contextlib import ExitStack
from operator import truediv
from pathlib import Path

from bench.answers import LARGE_BODY, LARGE_PATH, request
from bench.figures import Table, figure, text
from bench.replay import Server, started, tapeway

BLOCKS = 9
SETTLED_S = 3
"""A file that changed only just now is hashed whenever it is sent; this is about all others."""
READERS = 8
_PIECE = 1 << 20
_MIB = 1024 * 1024


def read(server: Server) -> float:
    """Ask for the body over a connection of its own; the MiB per second."""
    with socket.create_connection(server.address) as client:
        begun, got, buffer = time.perf_counter(), 0, bytearray(_PIECE)
        client.sendall(request(LARGE_PATH))
        while got < len(LARGE_BODY):
            size = client.recv_into(buffer)
            if not size:
                raise ConnectionError(f"the server closed after {got} bytes")
            got += size
        return len(LARGE_BODY) / _MIB / (time.perf_counter() - begun)


def read_at_once(server: Server, readers: int) -> float:
    """The MiB per second of all readers together."""
    threads = [threading.Thread(target=read, args=(server,)) for _ in range(readers)]
    begun = time.perf_counter()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return readers * len(LARGE_BODY) / _MIB / (time.perf_counter() - begun)


def memory_mib(server: Server, name: str) -> float:
    """A size from /proc/PID/status: `VmRSS` now, `VmHWM` at most."""
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise LookupError(name)


def measure() -> Table:
    """Throughput and memory of the bare answer and of a replay."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        bare = stack.enter_context(started("-m", "bench.bare", "application"))
        with started(*tapeway(folder, "--mode", "record", "--upstream", bare.url)) as recorder:
            read(recorder)
        ours = stack.enter_context(started(*tapeway(folder, "--mode", "replay")))
        servers = {"application": bare, "tapeway": ours}
        time.sleep(SETTLED_S)
        read(ours)
        idle = {name: memory_mib(server, "VmRSS") for name, server in servers.items()}
        rates: dict[str, list[float]] = {name: [] for name in servers}
        together: dict[str, list[float]] = {name: [] for name in servers}
        for _ in range(BLOCKS):
            for name, server in servers.items():
                rates[name].append(read(server))
        for _ in range(3):
            for name, server in servers.items():
                together[name].append(read_at_once(server, READERS))
        peaks = {name: memory_mib(server, "VmHWM") - idle[name] for name, server in servers.items()}
    bare_rates = rates["application"]
    return Table(
        "A body of 50 MiB",
        (*servers, "tapeway / application"),
        {
            "MiB a second, one reader": [
                *(figure(each, 0) for each in rates.values()),
                figure(list(map(truediv, rates["tapeway"], bare_rates)), 2),
            ],
            f"MiB a second, {READERS} readers": [
                *(figure(each, 0) for each in together.values()),
                f"{statistics.median(together['tapeway']) / statistics.median(together['application']):.2f}",
            ],
            "MiB of memory at most, above idle": [
                *(f"{each:.0f}" for each in peaks.values()),
                "",
            ],
        },
    )


if __name__ == "__main__":
    print(text(measure()))
