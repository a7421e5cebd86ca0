"""What a client waits for a hit and for a recording, by store, in one interleaved run.

    python -m bench.stores [STORE ...]

Each store is served by a process of its own that gets the same requests over one kept-alive
connection in alternating blocks, so that a machine that slows down slows all. A database's own
work counts, so these are times and not processor time. Each store is written as `--store` takes
it; without any, a folder and SQLite are compared. Every store begins empty and is filled by
recording through the proxy; the last line of a store is its hits among so many more.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack

from bench.answers import JSON_BODY, JSON_PATH, request
from bench.replay import Server, started, tapeway

BLOCKS = 12
HITS = 200
FEW, MANY = 200, 5_000


def measure(
    servers: dict[str, Server], what: str, ask: Callable[[Server], None], count: int = 1
) -> None:
    """Print the median time of one request for each server, and its ratio to the first one's."""
    times: dict[str, list[float]] = {name: [] for name in servers}
    for _ in range(BLOCKS):
        for name, server in servers.items():
            begun = time.perf_counter()
            ask(server)
            times[name].append((time.perf_counter() - begun) * 1e6 / count)
    first = times[next(iter(servers))]
    for name, spent in times.items():
        ratio = statistics.median(a / b for a, b in zip(spent, first, strict=True))
        print(f"{what:28} {name:34} {statistics.median(spent):9,.0f} {ratio:7.2f}")


def main() -> None:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stores = sys.argv[1:] or [f"{folder}/files", f"sqlite:{folder}/cassettes.db"]
        bare = stack.enter_context(started("-m", "bench.bare"))
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

        def hit(server: Server) -> None:
            for number in range(HITS):
                server.ask(request(JSON_PATH, number % FEW), JSON_BODY)

        print(f"{'microseconds a client waits':28} {'store':34} {'median':>9} {'ratio':>7}")
        for server in servers.values():
            for _ in range(FEW):
                record(server)
        measure(servers, f"a hit among {FEW}", hit, HITS)
        measure(servers, "a recording", record)
        # Interleaved, or waiting connections would be closed as idle.
        for _ in range(MANY - FEW):
            for server in servers.values():
                record(server)
        measure(servers, f"a hit among {MANY:,}", hit, HITS)


if __name__ == "__main__":
    main()
