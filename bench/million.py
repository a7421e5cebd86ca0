"""What it costs to load a cassette of a million recordings and to find one, beside cassettes of a
hundred and of a hundred thousand.

python -m bench.million [FOLDER] [COUNT]

A separate process opens each cassette, so that its memory can be measured.
"""

import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.figures import Table, text
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.matching.key import request_key
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.stores.sqlite.store import SqliteStore

FEW, SOME, MANY = 100, 100_000, 1_000_000
BATCH = 2_000
SAMPLES = 200
HEAD = CassetteHead("2026-01-01T00:00:00", "bench")
JSON = ((b"Content-Type", b"application/json"),)
BODY = b'{"choices":[{"message":{"role":"assistant","content":"%b"}}]}' % (b"word " * 100)


def interaction(number: int) -> Interaction:
    """One of many similar recordings: a chat request and its answer."""
    asked = b'{"model":"m","messages":[{"role":"user","content":"question %d"}]}' % number
    request = Request("openai", "POST", "/v1/chat/completions", JSON, asked, "https://h")
    response = Response(ResponseHead(200, "OK", JSON), BODY, 1.0)
    return Interaction(number, request, response)


async def build(file: Path, count: int) -> None:
    """Write a cassette of this many recordings."""
    store = SqliteStore(file)
    await store.open()
    for start in range(0, count, BATCH):
        some = [interaction(number) for number in range(start, min(start + BATCH, count))]
        await store.extend("bench", HEAD, some)
    await store.close()


async def look(file: Path, count: int) -> None:
    """Open this file, and print the times and memory that it took, as JSON."""
    started = time.perf_counter()
    store = SqliteStore(file)
    await store.open()
    stored = await store.load("bench", writable=False)
    assert stored is not None
    cassette = CassetteIndex("bench", stored, take=1)
    opened = time.perf_counter() - started
    assert len(cassette) == count

    def found(number: int) -> float:
        key = request_key(interaction(number).request)
        started = time.perf_counter()
        (recording,) = cassette.recordings(key)
        assert recording.response.body == BODY
        return time.perf_counter() - started

    cold = found(count // 2)
    times = [found(sample * 7919 % count) for sample in range(SAMPLES)]
    await store.close()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    results = {"open": opened, "cold": cold, "hit": statistics.median(times), "memory": memory}
    print(json.dumps(results))


def measure(place: Path | None = None, many: int = MANY) -> Table:
    """Build the cassettes, and what each costs."""
    rows: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory(dir=place) as folder:
        for count in sorted({FEW, min(SOME, many), many}):
            file = Path(folder, f"{count}.db")
            asyncio.run(build(file, count))
            command = [sys.executable, "-m", "bench.million", str(file), str(count), "look"]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            results = json.loads(done.stdout)
            rows[f"{count:,} recordings, {file.stat().st_size / 1e6:,.1f} MB"] = [
                f"{results['open'] * 1e3:.0f}",
                f"{results['cold'] * 1e3:.2f}",
                f"{results['hit'] * 1e6:.0f}",
                f"{results['memory'] / 1024:.0f}",
            ]
    columns = ("loaded in ms", "first read, ms", "then, us", "memory, MiB")
    return Table("A cassette in an SQLite file", columns, rows)


def main() -> None:
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    many = int(sys.argv[2]) if len(sys.argv) > 2 else MANY
    if sys.argv[3:] == ["look"] and place is not None:
        asyncio.run(look(place, many))
        return
    print(text(measure(place, many)))


if __name__ == "__main__":
    main()
