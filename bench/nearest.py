"""What a miss costs among many recordings, and how long hits wait beside clients that only miss.

    python -m bench.nearest [COUNT] [STORE]

A cassette of conversations is written to the store (a folder by default) and served in mode `replay`.
A miss asks for a recorded conversation with one word changed, and must name this recording as the
nearest. The CPU time is that of the server's process. After that one client asks for what is recorded,
alone and beside clients that only miss, in alternating blocks.
"""

import argparse
import asyncio
import http.client
import json
import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import cycle, islice
from multiprocessing.synchronize import Event

from bench.figures import Figure, Table, figure, text
from bench.replay import Server, started, tapeway
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.errors import TapewayError
from tapeway.stores.opening import open_store

PATH = "/v1/chat/completions"
BATCH = 2_000
WARM, MISSES = 40, 200
BLOCKS, HITS, MISSING = 20, 200, 4
HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer sk-bench-0123456789"}
JSON = ((b"Content-Type", b"application/json"),)
ANSWER = b'{"choices":[{"message":{"role":"assistant","content":"%b"}}]}' % (b"word " * 40)
WORDS = [
    f"{first}{second}" for first in "bcdfghjklmnprst" for second in ("ato", "ine", "oul", "ura")
]


def asked(number: int, changed: bool = False) -> bytes:
    """The conversation of a recording: instructions, three messages, and a question of 40 words."""
    chosen = random.Random(number)
    words = [chosen.choice(WORDS) for _ in range(200)]
    if changed:
        words[-20] = "changed"
    turns = [" ".join(words[at : at + 40]) for at in range(0, 200, 40)]
    roles = ("system", "user", "assistant", "user", "user")
    messages = [{"role": role, "content": turn} for role, turn in zip(roles, turns, strict=True)]
    return json.dumps({"model": "m", "messages": messages}).encode()


def interaction(number: int) -> Interaction:
    made = Request("openai", "POST", PATH, JSON, asked(number), "https://h")
    return Interaction(number, made, Response(ResponseHead(200, "OK", JSON), ANSWER, 1.0))


async def build(place: str, count: int) -> None:
    """Write the cassette of this many recordings."""
    store = open_store(place)
    await store.open()
    head = CassetteHead("2026-01-01T00:00:00+00:00", "bench")
    for start in range(0, count, BATCH):
        some = [interaction(number) for number in range(start, min(start + BATCH, count))]
        await store.extend("many", head, some)
    await store.close()


class Client:
    """One connection to a server of the cassette."""

    def __init__(self, server: Server) -> None:
        self._connection = http.client.HTTPConnection(*server.address, timeout=60)

    def ask(self, number: int, changed: bool = False) -> float:
        """Seconds for the recorded conversation, or for its miss, which must name it as the nearest."""
        body = asked(number, changed)
        begun = time.perf_counter()
        self._connection.request("POST", "/@many" + PATH, body, HEADERS)
        response = self._connection.getresponse()
        answer = response.read()
        taken = time.perf_counter() - begun
        if not changed:
            assert response.status == 200, answer
            return taken
        nearest = json.loads(answer)["tapeway"]["nearest"]
        assert nearest[0]["index"] == number, (number, nearest)
        return taken

    def close(self) -> None:
        self._connection.close()


def misses(server: Server, numbers: Iterator[int]) -> list[float]:
    """CPU milliseconds of each of some misses."""
    costs: list[float] = []
    with closing(Client(server)) as client:
        for at in range(WARM + MISSES):
            before = server.cpu_ns()
            client.ask(next(numbers), changed=True)
            if at >= WARM:
                costs.append((server.cpu_ns() - before) / 1e6)
    return costs


def hits(server: Server, numbers: Iterator[int]) -> list[float]:
    """Milliseconds that one client waits for each of some hits."""
    with closing(Client(server)) as client:
        return [client.ask(next(numbers)) * 1000 for _ in range(HITS)]


@contextmanager
def missing(server: Server, numbers: Iterator[int]) -> Iterator[None]:
    """Some clients that only miss, one request after the other, each in a process of its own."""
    ended = multiprocessing.Event()
    clients = [
        multiprocessing.Process(
            target=keep_missing, args=(server, list(islice(numbers, 500)), ended)
        )
        for _ in range(MISSING)
    ]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        ended.set()
        for client in clients:
            client.join()


def keep_missing(server: Server, numbers: list[int], ended: Event) -> None:
    with closing(Client(server)) as client:
        for number in cycle(numbers):
            if ended.is_set():
                return
            client.ask(number, changed=True)


def measure(place: str, count: int) -> Table:
    """Misses of a store of so many recordings, and hits beside them."""
    asyncio.run(build(place, count))
    chosen = random.Random(count)
    numbers = iter(lambda: chosen.randrange(count), None)
    alone: list[float] = []
    beside: list[float] = []
    with started(*tapeway(place, "--mode", "replay")) as server:
        cost = misses(server, numbers)
        for _ in range(BLOCKS):
            alone += hits(server, numbers)
            with missing(server, numbers):
                beside += hits(server, numbers)
    p99 = [f"{statistics.quantiles(times, n=100)[98]:.2f}" for times in (alone, beside)]
    row: list[Figure | str] = [
        figure(cost, 2),
        f"{max(cost):.2f}",
        figure(alone, 2),
        figure(beside, 2),
        *p99,
    ]
    columns = ("a miss, CPU ms", "at most", "a hit, ms", "beside misses", "p99 alone", "p99 beside")
    return Table("Misses, and hits beside them", columns, {f"{count:,} recordings": row})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.nearest")
    parser.add_argument("count", metavar="COUNT", nargs="?", type=int, default=10_000)
    parser.add_argument("store", metavar="STORE", nargs="?")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            print(text(measure(given.store or folder, given.count)))
        except TapewayError as exc:
            parser.exit(2, f"{parser.prog}: {exc}\n")


if __name__ == "__main__":
    main()
