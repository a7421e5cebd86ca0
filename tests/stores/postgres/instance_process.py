"""An instance of a PostgreSQL store in its own process, which carries out commands from standard input.

`python -m tests.stores.postgres.instance_process URL LEASE_S TOUCH_S`. A command is a line with a JSON
list: a verb and its arguments. Each answer is a line of JSON.
"""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tapeway.core.model.cassette import Lease, Recording
from tapeway.core.model.control import Control
from tapeway.errors import StoreError
from tapeway.stores.postgres.store import PostgresStore
from tests.stores.recordings import HEAD, recording
from tests.stores.shared_instances import WANTED, key, with_step

PROJECT = Path(__file__).parents[3]


class InstanceProcess:
    """The process, as its parent sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, *command: object) -> object:
        self.send(*command)
        return await self.receive()

    def send(self, *command: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")

    async def receive(self) -> object:
        """The next answer. Raises EOFError when there are no more."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return json.loads(line)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)


@asynccontextmanager
async def instance_process(
    url: str, *, lease_s: float = 15, touch_s: float = 5
) -> AsyncIterator[InstanceProcess]:
    """A process that has opened the store."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, url, str(lease_s), str(touch_s)),
        cwd=PROJECT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        other = InstanceProcess(process)
        assert await other.receive() == "open"
        yield other
    finally:
        if process.returncode is None:
            process.kill()
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


class _Commands:
    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._lease: Lease | None = None
        self._modes: list[str] = []

    async def do(self, verb: str, *numbers: int) -> object:
        match verb:
            case "claim":
                self._lease = await self._store.claim("x", key(*numbers))
                return self._lease is not None
            case "record":
                made = recording(*numbers)
                if self._lease is not None:
                    made = with_step(made, 1, lease=self._lease)
                return await self._record(made.interaction.index, made)
            case "join":
                self._modes.append((await self._store.join(WANTED, self._apply)).mode)
                return self._modes[-1]
            case "in-force":
                await self._store.confirm()
                return [self._store.trouble is None, self._modes[-1]]
        raise ValueError(verb)

    def _apply(self, control: Control) -> None:
        self._modes.append(control.mode)

    async def _record(self, index: int, made: Recording) -> object:
        try:
            await self._store.append("x", HEAD, made)
        except StoreError as exc:
            return [type(exc).__name__, index]
        return ["recorded", index]


def _write_line(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def _main(url: str, lease_s: str, touch_s: str) -> None:
    store = PostgresStore(url, lease_s=float(lease_s), touch_s=float(touch_s))
    await store.open()
    _write_line("open")
    commands = _Commands(store)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        _write_line(await commands.do(*json.loads(line)))
    await store.close()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
