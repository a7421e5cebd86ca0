"""How much memory some work takes, and how many values of a class are left."""

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Memory:
    """Bytes that Python allocated during the work: still held at its end, and at most."""

    held: int = 0
    peak: int = 0


@contextmanager
def measured_memory() -> Iterator[Memory]:
    """Measures the work of a `with` block; read the result behind the block."""
    memory = Memory()
    tracemalloc.start()
    try:
        yield memory
        memory.held, memory.peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


def living(kind: type) -> int:
    """How many values of exactly this class somebody still refers to."""
    # A server in this process may have exempted objects, and have each collection exempt the rest.
    gc.unfreeze()
    gc.collect()
    gc.unfreeze()
    return sum([type(live_object) is kind for live_object in gc.get_objects()])
