"""What a recording costs: CPU microseconds per request, beside a bare relay, in one interleaved run.

python -m bench.recording [FOLDER]

Both ask the same upstream for the same requests, no two of which are equal. The relay appends what
came to a file and does not wait for the disk; tapeway answers when the recording is durable. The
folder decides which disk is measured; by default it is the temporary folder's.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from operator import truediv

from bench.answers import EVENTS, JSON_BODY, JSON_PATH, STREAM_PATH, request
from bench.replay import LAST_CHUNK, Server, started, tapeway

BLOCKS = 12
BLOCK = 100
NAMES = ("relay", "tapeway")


def measure(
    servers: dict[str, Server], sent: dict[str, Iterator[bytes]], end: bytes, what: str
) -> None:
    """Print the medians of CPU time and of a client's wait, for the relay and for tapeway."""
    costs: dict[str, list[float]] = {name: [] for name in NAMES}
    waits: dict[str, list[float]] = {name: [] for name in NAMES}
    for _ in range(BLOCKS):
        for name in NAMES:
            before = servers[name].cpu_ns()
            for _ in range(BLOCK):
                begun = time.perf_counter()
                servers[name].ask(next(sent[name]), end)
                waits[name].append((time.perf_counter() - begun) * 1000)
            costs[name].append((servers[name].cpu_ns() - before) / BLOCK / 1000)
    kept = {name: found[1:] for name, found in costs.items()}
    ratio = statistics.median(map(truediv, kept["tapeway"], kept["relay"]))
    cpu = "".join(f"{statistics.median(kept[name]):10.0f}" for name in NAMES)
    wait = "".join(f"{statistics.median(waits[name]):10.2f}" for name in NAMES)
    print(f"{what:32}{cpu}{ratio:8.2f}{wait}", flush=True)


def requests(path: str) -> Iterator[bytes]:
    return (request(path, number) for number in count())


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    print(f"{'':32}{'CPU us per recording':>20}{'ratio':>8}{'wait of a client, ms':>20}")
    print(f"{'':32}{NAMES[0]:>10}{NAMES[1]:>10}{'':8}{NAMES[0]:>10}{NAMES[1]:>10}")
    with ExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory(dir=folder))
        upstream = stack.enter_context(started("-m", "bench.bare", "lowlevel")).url
        for mode in ("record", "auto"):
            options = ("--mode", mode, "--upstream", upstream)
            relay = ("-m", "bench.bare", "relay", upstream, f"{root}/{mode}.jsonl")
            with started(*relay) as bare, started(*tapeway(f"{root}/{mode}", *options)) as ours:
                servers = {"relay": bare, "tapeway": ours}
                small = {name: requests(JSON_PATH) for name in NAMES}
                measure(servers, small, JSON_BODY, f"{mode}: small JSON answer")
                measure(servers, small, JSON_BODY, f"{mode}: the same, {BLOCKS * BLOCK:,} later")
                streams = {name: requests(STREAM_PATH) for name in NAMES}
                measure(servers, streams, LAST_CHUNK, f"{mode}: a stream of {len(EVENTS)} events")


if __name__ == "__main__":
    main()
