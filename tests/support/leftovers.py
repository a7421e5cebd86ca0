"""What is left of work that has ended: objects that keep each other, and files without a name."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


@contextmanager
def no_collector() -> Iterator[Callable[[], set[str]]]:
    """Within it, nothing in a cycle is freed; yields what names tapeway's objects in such ones.

    The collector frees them in the end, unless it looked at them while they were in use: what is left
    of a full collection is exempt from the next ones.
    """
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield _of_tapeway
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def unnamed_files() -> set[str]:
    """The files without a name that this process holds open."""
    found = set[str]()
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return {text for text in found if text.endswith(" (deleted)")}


def _of_tapeway() -> set[str]:
    gc.collect()
    return {type(value).__qualname__ for value in gc.garbage if _is_own(value)}


def _is_own(thing: object) -> bool:
    return type(thing).__module__.partition(".")[0] == "tapeway"
