"""Processes that record as fast as they can and say what was acknowledged, to be stopped at any moment.

`recording_process STORE NAME START` is one of them: numbers from START on go into that cassette.
With `careless` behind it, a SQLite store syncs nothing.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from tapeway.stores.opening import open_store
from tapeway.stores.sqlite import connection
from tests.stores.recordings import HEAD, recording

PROJECT = Path(__file__).parents[3]
AT_ONCE = 8


class Writer:
    """One such process, from the outside."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self._process = process
        self._lines = process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    def ready(self) -> None:
        """Return when it has the cassette and begins."""
        assert self._lines.readline() == "ready\n"

    def acknowledged(self, count: int) -> list[int]:
        """So many more numbers that it recorded."""
        return [int(self._lines.readline()) for _ in range(count)]

    def kill(self) -> None:
        self._process.kill()

    def rest(self) -> list[int]:
        """What else it recorded until it was killed."""
        # A last line may be cut where the process was.
        return [int(line) for line in self._lines.read().rpartition("\n")[0].split()]


@contextmanager
def writers(url: str, starts: Sequence[int], *options: str) -> Iterator[list[Writer]]:
    """A process for each of these numbers, ready; killed afterwards."""
    command = [sys.executable, "-m", "tests.stores.crashes.recording_process", url, "x"]
    with ExitStack() as stack:
        made = []
        for start in starts:
            process = subprocess.Popen(
                [*command, str(start), *options],
                cwd=PROJECT,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL if options else None,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            made.append(Writer(process))
        for writer in made:
            writer.ready()
        yield made


async def _record(url: str, name: str, start: int) -> None:
    store = open_store(url)
    await store.open()
    await store.load(name, writable=True)
    numbers = count(start)

    async def keep_recording() -> None:
        while True:
            number = next(numbers)
            await store.append(name, HEAD, recording(number))
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()

    sys.stdout.write("ready\n")
    sys.stdout.flush()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(keep_recording())


if __name__ == "__main__":
    if sys.argv[4:] == ["careless"]:
        connection.FULL = 0
    asyncio.run(_record(sys.argv[1], sys.argv[2], int(sys.argv[3])))
