"""How fast a large body is replayed beside a bare aiohttp answer, and how much memory it takes.

python -m bench.bodies

One client reads from each server in turn, then eight at once, one of 1 GiB alone. Memory is what the
server's process had at most, above what it had before.
"""

import shutil
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from operator import truediv
from pathlib import Path

from bench.answers import HUGE_PATH, HUGE_SIZE, LARGE_BODY, LARGE_PATH, request
from bench.figures import Figure, Table, figure, text
from bench.replay import Server, started, tapeway

BLOCKS = 9
SETTLED_S = 3
"""A file that changed only just now is hashed whenever it is sent; this is about all others."""
READERS = 8
HUGE_BLOCKS = 3
_PIECE = 1 << 20
_MIB = 1024 * 1024


def read(server: Server, path: str = LARGE_PATH, length: int = len(LARGE_BODY)) -> float:
    """Ask for the body over a connection of its own; the MiB per second."""
    with socket.create_connection(server.address) as client:
        begun, got, buffer = time.perf_counter(), 0, bytearray(_PIECE)
        client.sendall(request(path))
        while got < length:
            size = client.recv_into(buffer)
            if not size:
                raise ConnectionError(f"the server closed after {got} bytes")
            got += size
        return length / _MIB / (time.perf_counter() - begun)


def read_at_once(server: Server, readers: int) -> float:
    """The MiB per second of all readers together."""
    threads = [threading.Thread(target=read, args=(server,)) for _ in range(readers)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return readers * len(LARGE_BODY) / _MIB / (time.perf_counter() - begun)


def memory_mib(server: Server, name: str) -> float:
    """A size from /proc/PID/status: `VmRSS` now, `VmHWM` at most."""
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise LookupError(name)


@contextmanager
def replaying(path: str, length: int) -> Iterator[dict[str, Server]]:
    """The bare server, and ours with a recording of this answer."""
    with (
        tempfile.TemporaryDirectory() as folder,
        started("-m", "bench.bare", "application") as bare,
    ):
        limit = ("--max-body", str(2 * length))
        with started(
            *tapeway(folder, *limit, "--mode", "record", "--upstream", bare.url)
        ) as recorder:
            read(recorder, path, length)
        with started(*tapeway(folder, *limit, "--mode", "replay")) as ours:
            time.sleep(SETTLED_S)
            read(ours, path, length)
            yield {"application": bare, "tapeway": ours}


def rates(servers: dict[str, Server], path: str, length: int, blocks: int) -> list[Figure]:
    """The MiB per second of one reader at each server, and ours beside the bare one's."""
    speeds: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(blocks):
        for name, server in servers.items():
            speeds[name].append(read(server, path, length))
    ratios = list(map(truediv, speeds["tapeway"], speeds["application"]))
    return [*(figure(of_server, 0) for of_server in speeds.values()), figure(ratios, 2)]


def memory(servers: dict[str, Server]) -> dict[str, float]:
    return {name: memory_mib(server, "VmRSS") for name, server in servers.items()}


def peaks(servers: dict[str, Server], idle: dict[str, float]) -> list[str]:
    """What each server had at most, above what it had before."""
    return [
        *(f"{memory_mib(server, 'VmHWM') - idle[name]:.0f}" for name, server in servers.items()),
        "",
    ]


def measure() -> Table:
    """Throughput and memory of the bare answer and of a replay."""
    rows: dict[str, list[Figure | str]] = {}
    with replaying(LARGE_PATH, len(LARGE_BODY)) as servers:
        idle = memory(servers)
        rows["50 MiB: MiB a second, one reader"] = [
            *rates(servers, LARGE_PATH, len(LARGE_BODY), BLOCKS)
        ]
        together: dict[str, list[float]] = {name: [] for name in servers}
        for _ in range(3):
            for name, server in servers.items():
                together[name].append(read_at_once(server, READERS))
        middle = [statistics.median(speeds) for speeds in together.values()]
        rows[f"50 MiB: MiB a second, {READERS} readers"] = [
            *(figure(speeds, 0) for speeds in together.values()),
            f"{middle[1] / middle[0]:.2f}",
        ]
        rows["50 MiB: MiB of memory at most, above idle"] = [*peaks(servers, idle)]
    note = "The application sends 50 MiB from its memory, and 1 GiB from a file (`FileResponse`)."
    if shutil.disk_usage(tempfile.gettempdir()).free > 4 * HUGE_SIZE:
        with replaying(HUGE_PATH, HUGE_SIZE) as servers:
            idle = memory(servers)
            rows["1 GiB: MiB a second, one reader"] = [
                *rates(servers, HUGE_PATH, HUGE_SIZE, HUGE_BLOCKS)
            ]
            rows["1 GiB: MiB of memory at most, above idle"] = [*peaks(servers, idle)]
    else:
        note = "The disk had no room for a body of 1 GiB."
    return Table("A large body", ("application", "tapeway", "tapeway / application"), rows, note)


if __name__ == "__main__":
    print(text(measure()))
