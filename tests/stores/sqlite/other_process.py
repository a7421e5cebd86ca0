"""Another process that has a SQLite file: `other_process FILE` records into it and waits.

With `lock` it only takes the lock.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tapeway.stores.sqlite.location import StoreLocation
from tapeway.stores.sqlite.lock_file import LockFile
from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.recordings import HEAD, recording

PROJECT = Path(__file__).parents[3]


@contextmanager
def peer(file: Path, *, upgrades: bool = True) -> Iterator["subprocess.Popen[str]"]:
    """The process, which has the file."""
    command = [sys.executable, "-m", "tests.stores.sqlite.other_process", str(file)]
    process = subprocess.Popen(
        [*command, *([] if upgrades else ["lock"])],
        cwd=PROJECT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


async def _record(file: Path) -> None:
    store = SqliteStore(file)
    await store.open()
    await store.append("x", HEAD, recording(0))
    _wait()
    await store.close()


def _wait() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()


if __name__ == "__main__":
    if sys.argv[2:] == ["lock"]:
        lock = LockFile(StoreLocation(Path(sys.argv[1])))
        lock.take()
        _wait()
    else:
        asyncio.run(_record(Path(sys.argv[1])))
