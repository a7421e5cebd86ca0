"""What a client waits for a hit and for a recording, by store, in one interleaved run.

    python -m bench.stores [STORE ...]

Each store is served by a process of its own that gets the same requests over one kept-alive
connection in alternating blocks, so that a machine that slows down slows all. A database's own
work counts, so these are times; beside those of a hit stands the processor time of tapeway. Each
store is written as `--store` takes it; without any, a folder, SQLite, and PostgreSQL where it is
installed are compared. Every store begins empty and is filled by recording through the proxy; the
last rows are its hits among so many more.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack

from bench.answers import JSON_BODY, JSON_PATH, request
from bench.figures import Figure, Table, figure, text
from bench.replay import Server, started, tapeway
from tests.stores.postgres_server import find_binaries, running

BLOCKS = 12
HITS = 200
FEW, MANY = 200, 5_000


def timed(
    servers: dict[str, Server], ask: Callable[[Server], None], count: int = 1
) -> tuple[list[Figure], list[Figure]]:
    """The microseconds of one request for each server, and those of its processor time."""
    times: dict[str, list[float]] = {name: [] for name in servers}
    costs: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(BLOCKS):
        for name, server in servers.items():
            before, begun = server.cpu_ns(), time.perf_counter()
            ask(server)
            times[name].append((time.perf_counter() - begun) * 1e6 / count)
            costs[name].append((server.cpu_ns() - before) / 1000 / count)
    return [figure(each, 0) for each in times.values()], [
        figure(each, 0) for each in costs.values()
    ]


def hit(server: Server) -> None:
    """Requests that were recorded first, in turn."""
    for number in range(HITS):
        server.ask(request(JSON_PATH, number % FEW), JSON_BODY)


def measure(*stores: str) -> Table:
    """Hits and recordings of each store; those this machine has without any."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stores = stores or (
            *(f"{folder}/files", f"sqlite:{folder}/cassettes.db"),
            *([stack.enter_context(running()).dsn] if find_binaries() else []),
        )
        bare = stack.enter_context(started("-m", "bench.bare", "lowlevel"))
        names = [store.partition(":")[0] if ":" in store else "folder" for store in stores]
        servers = {
            name: stack.enter_context(
                started(*tapeway(store, "--mode", "auto", "--upstream", bare.url))
            )
            for name, store in zip(names, stores, strict=True)
        }
        numbers = dict.fromkeys(servers.values(), 0)

        def record(server: Server) -> None:
            server.ask(request(JSON_PATH, numbers[server]), JSON_BODY)
            numbers[server] += 1

        for server in servers.values():
            for _ in range(FEW):
                record(server)
        rows: dict[str, list[Figure]] = {}

        def hits(among: int) -> None:
            waits, costs = timed(servers, hit, HITS)
            rows[f"a hit among {among:,}"] = waits
            rows[f"of which tapeway computes, among {among:,}"] = costs

        hits(FEW)
        rows["a recording"], _ = timed(servers, record)
        # Interleaved, or waiting connections would be closed as idle.
        for _ in range(MANY - FEW):
            for server in servers.values():
                record(server)
        hits(MANY)
    return Table("Microseconds that a client waits, by store", tuple(servers), rows)


if __name__ == "__main__":
    print(text(measure(*sys.argv[1:])))
