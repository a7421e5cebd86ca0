"""What it costs to load a cassette's file, beside orjson parsing the same bytes.

python -m bench.loading

Loading is reading, checking and decoding the file, and building the index that finds recordings by
their match key. What a recording takes in memory is counted beside its match key and its bodies,
which stay in the file. A process of its own opens each file, since what is loaded stays.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from operator import truediv
from pathlib import Path

import orjson

from bench.answers import JSON_BODY, chat
from bench.figures import Figure, Table, figure, text
from bench.replay import recorded
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.stores.file.store import FileStore

SIZES = {"small": (10_000, 0), "of 10 KB": (2_000, 10_000)}
"""How many recordings a cassette has, and how many more bytes the answer of each."""

RUNS = 9
_NAME = "bench"


def recordings(count: int, more: int) -> tuple[Interaction, ...]:
    """So many recordings whose answers differ."""
    return recorded(
        (json.dumps(chat(number)), JSON_BODY[:-1] + b', "more": "%b"}' % _words(number, more))
        for number in range(count)
    )


def _words(number: int, size: int) -> bytes:
    return (b"answer %d, " % number * (size // 8 + 1))[: size + 8]


async def save(folder: Path) -> None:
    """Write the cassettes."""
    for name, (count, more) in SIZES.items():
        store = FileStore(folder / name)
        await store.open()
        head = CassetteHead("2026-01-01T00:00:00+00:00", "bench")
        await store.save(_NAME, StoredCassette(head, recordings(count, more)))
        await store.close()


async def load(folder: Path) -> CassetteIndex:
    """The cassette as a server that replays it has it."""
    store = FileStore(folder)
    await store.open()
    stored = await store.load(_NAME, writable=False)
    assert stored is not None
    index = CassetteIndex(_NAME, stored, take=0)
    await store.close()
    return index


def look(folder: Path) -> None:
    """Load a cassette some times, and print what it took, as JSON."""
    file = (folder / _NAME).with_suffix(".json")
    # What is imported and remembered once for all cassettes.
    asyncio.run(load(folder))
    tracemalloc.start()
    index = asyncio.run(load(folder))
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    bodies, keys = _bodies(index), _keys(index)
    sizes: dict[str, object] = {
        "bodies": bodies / len(index),
        "keys": keys / len(index),
        "beside": (taken - bodies - keys) / len(index),
    }
    del index
    parsed, loaded = list[float](), list[float]()
    # In turns, so that their ratio is of one time.
    for _ in range(RUNS):
        parsed.append(_seconds(lambda: orjson.loads(file.read_bytes())))
        loaded.append(_seconds(lambda: asyncio.run(load(folder))))
    print(json.dumps(sizes | {"parsed": parsed, "loaded": loaded}))


def _bodies(index: CassetteIndex) -> int:
    """The bytes of the bodies that are in memory."""
    kept = {
        id(data): sys.getsizeof(data)
        for interaction in index
        if isinstance(interaction, Interaction) and not isinstance(interaction, LazyInteraction)
        for data in (interaction.request.body, interaction.response.body)
    }
    return sum(kept.values())


def _keys(index: CassetteIndex) -> int:
    return sum([sys.getsizeof(index.key_of(interaction.index)) for interaction in index])


def _seconds(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def measure() -> Table:
    """Loading by the size of recordings."""
    rows: dict[str, list[Figure | str]] = {}
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(save(Path(place)))
        for name, (count, _) in SIZES.items():
            command = [sys.executable, "-m", "bench.loading", str(Path(place, name))]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            child = json.loads(done.stdout)
            megabytes = Path(place, name, f"{_NAME}.json").stat().st_size / 1e6
            rows[f"{count:,} {name} recordings, {megabytes:.1f} MB"] = [
                figure([seconds * 1000 for seconds in child["parsed"]], 0),
                figure([seconds * 1000 for seconds in child["loaded"]], 0),
                figure(list(map(truediv, child["loaded"], child["parsed"])), 2),
                f"{child['bodies']:,.0f}",
                f"{child['keys']:,.0f}",
                f"{child['beside']:,.0f}",
            ]
    columns = (
        *("orjson.loads, ms", "tapeway, ms", "tapeway / orjson"),
        *("bodies", "its key", "bytes beside"),
    )
    note = "The last columns: bytes of memory for a recording once it is loaded."
    return Table("Loading a cassette's file", columns, rows, note)


if __name__ == "__main__":
    if sys.argv[1:]:
        look(Path(sys.argv[1]))
    else:
        print(text(measure()))
