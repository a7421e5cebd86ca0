"""An instance of a shared store in a process of its own, told what to do line by line.

`python -m tests.stores.postgres.instance_process URL LEASE_S TOUCH_S`; a line is a JSON list of a verb and
its arguments, and so is each answer.
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
from tests.stores.shared_instances import WANTED, key, moved, stepped

PROJECT = Path(__file__).parents[3]


class InstanceProcess:
    """The other end of it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, *what: object) -> object:
        self.tell(*what)
        return await self.hear()

    def tell(self, *what: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")

    async def hear(self) -> object:
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
    """One that has opened the store."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, url, str(lease_s), str(touch_s)),
        cwd=PROJECT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        other = InstanceProcess(process)
        assert await other.hear() == "open"
        yield other
    finally:
        if process.returncode is None:
            process.kill()
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


class _Teller:
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
                    made = stepped(made, 1, lease=self._lease)
                return await self._record(made.interaction.index, made)
            case "record-many":
                first, count = numbers
                made_all = [recording(number) for number in range(first, first + count)]
                async with asyncio.TaskGroup() as tasks:
                    for made in made_all:
                        tasks.create_task(self._told(made.interaction.index, made))
                return "done"
            case "turns":
                return await self._turns(*numbers)
            case "join":
                self._modes.append((await self._store.join(WANTED, self._apply)).mode)
                return self._modes[-1]
            case "stand":
                # In this order: what it knows by then must be no older.
                return [self._store.in_touch, self._modes[-1]]
        raise ValueError(verb)

    def _apply(self, control: Control) -> None:
        self._modes.append(control.mode)

    async def _told(self, index: int, made: Recording) -> None:
        _say(await self._record(index, made))

    async def _record(self, index: int, made: Recording) -> object:
        try:
            await self._store.append("x", HEAD, made)
        except StoreError as exc:
            return [type(exc).__name__, index]
        return ["kept", index]

    async def _turns(self, count: int) -> list[int]:
        given: list[int] = []
        while len(given) < count:
            before = (await self._store.turns("x", 1, [key(0)])).get(key(0))
            state = moved(before.state if before else None)
            if await self._store.advance("x", 1, key(0), before, state, 0):
                given.append(int(state))
        return given


def _say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def _main(url: str, lease_s: str, touch_s: str) -> None:
    store = PostgresStore(url, lease_s=float(lease_s), touch_s=float(touch_s))
    await store.open()
    _say("open")
    teller = _Teller(store)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        _say(await teller.do(*json.loads(line)))
    await store.close()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
