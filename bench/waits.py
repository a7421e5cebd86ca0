"""How long one client with one connection waits for a replay, beside bare servers.

python -m bench.waits

The servers are asked in turns, a block of requests each, so that all have the same machine. Client and
servers share one processor, which therefore never sleeps: to wake another one takes longer than a
replay, so that a wait would tell whether the system had put that to sleep. All that a server does
between two requests is in its wait then.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from operator import truediv

from bench.answers import JSON_BODY, STREAM_PATH, request
from bench.figures import Figure, Table, figure, text
from bench.replay import BASELINES, LAST_CHUNK, MANY, OURS, Server, asked, replaying

ROUNDS = 4_000
_BLOCK = 200
_WARM = 400
_FLOORS = ("parser", "protocol")


def waits(
    servers: dict[str, Server], sent: list[bytes], end: bytes
) -> dict[str, tuple[list[float], list[float]]]:
    """Microseconds up to the first byte, and up to the end, of each request to each server."""
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in servers}
    requests = cycle(sent)
    for _ in range(ROUNDS // _BLOCK):
        block = list(islice(requests, _BLOCK))
        for name, server in servers.items():
            for asked_bytes in block:
                first, whole = server.timed(asked_bytes, end)
                times[name][0].append(first * 1e6)
                times[name][1].append(whole * 1e6)
    return {name: (first[_WARM:], whole[_WARM:]) for name, (first, whole) in times.items()}


@contextmanager
def one_processor(servers: Iterable[Server]) -> Iterator[None]:
    """Keep this process and the servers on one processor, where the system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    for pid in (0, *(server.pid for server in servers)):
        os.sched_setaffinity(pid, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _row(times_of: dict[str, tuple[list[float], list[float]]], which: int) -> list[Figure]:
    kept = {name: times[which] for name, times in times_of.items()}
    ratios = [list(map(truediv, kept[OURS], kept[name])) for name in _FLOORS]
    return [*(figure(times, 0) for times in kept.values()), *(figure(ratio, 2) for ratio in ratios)]


def measure() -> Table:
    """Waits for small answers and for a stream."""
    with ExitStack() as stack:
        _, servers = replaying(stack)
        stack.enter_context(one_processor(servers.values()))
        same, many = asked("many", 1), asked("many", MANY)
        rows: dict[str, list[Figure]] = {}
        for what, sent in (
            ("the same request", same),
            ("different requests, each for the first time", many),
        ):
            rows[what] = _row(waits(servers, sent, JSON_BODY), 1)
        rows["the first byte of a small answer"] = _row(waits(servers, same, JSON_BODY), 0)
        stream = waits(servers, [request(STREAM_PATH)], LAST_CHUNK)
        rows["the first byte of a stream of 200 events"] = _row(stream, 0)
        rows["that stream to its end"] = _row(stream, 1)
    columns = (*BASELINES, OURS, *(f"{OURS} / {name}" for name in _FLOORS))
    note = "Client and servers share one processor, which never sleeps so."
    return Table("Microseconds that one client waits for a replay", columns, rows, note)


if __name__ == "__main__":
    print(text(measure()))
