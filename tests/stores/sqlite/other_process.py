"""Another process of a SQLite store, which carries out commands from standard input: `other_process FILE`.

join | claim KEY | turns COUNT | append NUMBER COUNT | leave
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.recordings import HEAD, recording
from tests.stores.shared_instances import WANTED, advanced, cursors_of, next_state

PROJECT = Path(__file__).parents[3]


class Peer:
    """The process, as its parent sees it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def receive(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def ask(self, line: str) -> str:
        self.send(line)
        return self.receive()


@contextmanager
def peers(file: Path, count: int) -> Iterator[list[Peer]]:
    """`count` processes that have opened the store."""
    command = [sys.executable, "-m", "tests.stores.sqlite.other_process", str(file)]
    processes = [
        subprocess.Popen(
            command, cwd=PROJECT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(count)
    ]
    try:
        made = [Peer(process) for process in processes]
        for peer in made:
            assert peer.receive() == "ready"
        yield made
    finally:
        for process in processes:
            process.kill()
            process.communicate()


async def _serve(file: Path) -> None:
    store = SqliteStore(file)
    await store.open()
    _write_line("ready")
    while line := await asyncio.to_thread(sys.stdin.readline):
        match line.split():
            case ["join"]:
                joined = await store.join(WANTED, lambda now: _write_line(f"applied {now.mode}"))
                _write_line(f"joined {joined.takes}")
            case ["claim", key]:
                lease = await store.claim("x", key.encode())
                _write_line(str(lease.fence) if lease else "none")
            case ["turns", count]:
                _write_line(" ".join([str(await _turn(store)) for _ in range(int(count))]))
            case ["append", first, count]:
                numbers = range(int(first), int(first) + int(count))
                await asyncio.gather(*[_append(store, number) for number in numbers])
                _write_line("done")
            case _:
                break
    await store.close()


async def _turn(store: SqliteStore) -> int:
    while True:
        before = (await cursors_of(store, "x", 1, [b"k"])).get(b"k")
        state = next_state(before.state if before else None)
        if await advanced(store, "x", 1, b"k", before, state, 0):
            return int(state)


async def _append(store: SqliteStore, number: int) -> None:
    await store.append("x", HEAD, recording(number))


def _write_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
