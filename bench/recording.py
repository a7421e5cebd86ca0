"""How long a single recording takes after many earlier ones.

python -m bench.recording [FOLDER]

The folder decides which disk is measured; by default it is the temporary folder's. Measured is
everything between receiving an answer and sending it: redaction, the search for credentials in what
will be written, and the write itself.
"""

import asyncio
import gc
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.answers import EVENTS
from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseChunk, ResponseHead
from tapeway.core.redaction.credentials import Secret
from tapeway.stores.file.store import FileStore

MARKS = (10, 1_000, 20_000)
SAMPLES = 41
TOGETHER = 64
BODY = b'{"choices":[{"message":{"role":"assistant","content":"%b"}}]}' % (b"word " * 400)
HEAD = CassetteHead("2026-01-01T00:00:00", "bench")
REDACTION = RequestRedaction([Secret(f"KEY_{n}", b"process-credential-%04d" % n) for n in range(8)])
JSON = ((b"Content-Type", b"application/json"),)
SSE = ((b"Content-Type", b"text/event-stream"),)
WHOLE = Response(ResponseHead(200, "OK", JSON), (ResponseChunk(BODY, 1.0),))
STREAM = Response(
    ResponseHead(200, "OK", SSE, "chunked"), tuple([ResponseChunk(each, 1.0) for each in EVENTS])
)


def recording(index: int, answer: Response = WHOLE) -> Recording:
    """The recording of an answer, made in the same way as for a live call."""
    fields = (*JSON, (b"Authorization", b"Bearer sk-bench-0123456789abcdef"))
    request = Request("openai", "POST", "/v1/x", fields, b'{"n":%d}' % index, "https://h")
    seen = REDACTION.redact(HEAD.run_id, request)
    redactor = REDACTION.redactor(HEAD.run_id, request)
    kept = Interaction(index, seen, redactor.response(answer))
    return Recording(kept, check=REDACTION.guard(HEAD.run_id, request).check)


async def timed(store: FileStore, index: int, answer: Response) -> str:
    """The times of some recordings of an answer, one after the other."""
    # Garbage of earlier work would slow down what is measured next.
    gc.collect()
    times: list[float] = []
    for each in range(index, index + SAMPLES):
        started = time.perf_counter()
        await store.append("bench", HEAD, recording(each, answer))
        times.append((time.perf_counter() - started) * 1e6)
    return f"best {min(times):>6,.0f} us, median {statistics.median(times):>6,.0f} us"


async def measure(root: Path) -> None:
    """Print the time of the 10th, 1,000th and 20,000th recording, then of the final form."""
    store = FileStore(root)
    await store.open()
    await store.load("bench", writable=True)
    index = 0
    print(f"one recording of {len(BODY)} bytes, alone, on the disk of {root}")
    for mark in MARKS:
        # Concurrently, for speed: those that wait at the same time share one sync.
        while index < mark - SAMPLES // 2:
            batch = range(index, min(index + TOGETHER, mark - SAMPLES // 2))
            await asyncio.gather(*[store.append("bench", HEAD, recording(each)) for each in batch])
            index = batch.stop
        print(f"  around the {mark:>6,}th: {await timed(store, index, WHOLE)}")
        index += SAMPLES
    print(f"  a stream of {len(EVENTS)} events: {await timed(store, index, STREAM)}")
    index += SAMPLES
    started = time.perf_counter()
    await store.close()
    taken = time.perf_counter() - started
    size = (root / "bench.json").stat().st_size / 1e6
    print(f"  final form of all {index:,} ({size:.0f} MB): {taken:.1f} s")


def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=folder) as root:
        asyncio.run(measure(Path(root)))


if __name__ == "__main__":
    main()
