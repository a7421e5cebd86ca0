"""What a client waits for a hit and for a recording, by store, in one interleaved run.

    python -m bench.stores [STORE ...]

Each store is served by a process of its own that gets the same requests over one kept-alive
connection in alternating blocks, so that a machine that slows down slows all. A database's own
work counts, so these are times; beside those of a hit stands the processor time of tapeway. Each
store is written as `--store` takes it; without any, a folder, SQLite, and PostgreSQL where it is
installed are compared. Every store begins empty and is filled by recording through the proxy, and
then served anew in mode `replay`.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

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
    return [figure(spent, 0) for spent in times.values()], [
        figure(cost, 0) for cost in costs.values()
    ]


def hit(server: Server) -> None:
    """Requests that were recorded first, in turn."""
    for number in range(HITS):
        server.ask(request(JSON_PATH, number % FEW), JSON_BODY)


def measure(*stores: str) -> Table:
    """Hits and recordings of each store; those this machine has without any."""
    rows: dict[str, list[Figure]] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stores = stores or (
            *(f"{folder}/files", f"sqlite:{folder}/cassettes.db"),
            *([stack.enter_context(running()).dsn] if find_binaries() else []),
        )
        places = {store.partition(":")[0] if ":" in store else "folder": store for store in stores}
        bare = stack.enter_context(started("-m", "bench.bare", "lowlevel"))
        with serving(places, "--mode", "auto", "--upstream", bare.url) as servers:
            _record(servers, rows)
        # Alone over a shared store, they say what is in force.
        with serving(places, "--mode", "replay") as servers:
            for server in servers.values():
                hit(server)
            _time_hits(servers, f"replay, a hit among {MANY:,}", rows)
    return Table("Microseconds that a client waits, by store", tuple(places), rows)


@contextmanager
def serving(places: dict[str, str], *options: str) -> Iterator[dict[str, Server]]:
    """A server for each store."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(started(*tapeway(store, *options)))
            for name, store in places.items()
        }


def _record(servers: dict[str, Server], rows: dict[str, list[Figure]]) -> None:
    """Fill the stores, and time recordings and hits of what this take recorded."""
    numbers = dict.fromkeys(servers.values(), 0)

    def record(server: Server) -> None:
        server.ask(request(JSON_PATH, numbers[server]), JSON_BODY)
        numbers[server] += 1

    for server in servers.values():
        for _ in range(FEW):
            record(server)
    _time_hits(servers, f"auto, a hit among {FEW}, just recorded", rows)
    rows["auto, a recording"], _ = timed(servers, record)
    # Interleaved, or waiting connections would be closed as idle.
    for _ in range(MANY - FEW):
        for server in servers.values():
            record(server)
    _time_hits(servers, f"auto, a hit among {MANY:,}, just recorded", rows)


def _time_hits(servers: dict[str, Server], what: str, rows: dict[str, list[Figure]]) -> None:
    rows[what], costs = timed(servers, hit, HITS)
    rows[f"{what}: of which tapeway computes"] = costs


if __name__ == "__main__":
    print(text(measure(*sys.argv[1:])))
