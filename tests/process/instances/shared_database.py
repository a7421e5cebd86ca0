"""Several `tapeway serve` processes on one database, each with a folder of its own."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from time import monotonic

from tests.process.serving import DEADLINE_S, Tapeway, eventually, request
from tests.support.raw_client import Answer, RawClient

COUNT = 4


@asynccontextmanager
async def instances(
    folder: Path, url: str, *options: str, count: int = COUNT
) -> AsyncIterator[list[Tapeway]]:
    """So many, started at the same time. Each must end cleanly, and write no secret of its own."""
    async with AsyncExitStack() as stack:
        members = []
        for number in range(count):
            own = folder / f"instance-{number}"
            own.mkdir()
            members.append(Tapeway(own, "--store", url, *options))
            # Of equal recordings those made with the same key come first.
            members[-1].key = members[0].key
            stack.push_async_exit(members[-1])
        await asyncio.gather(*[member.start() for member in members])
        yield members


async def at_once(members: Sequence[Tapeway], targets: Sequence[str]) -> list[Answer]:
    """The answers to GETs that are sent to all of them in turn, all at the same time."""
    async with asyncio.TaskGroup() as tasks:
        asked = [
            tasks.create_task(member.ask(target))
            for member, target in zip(itertools.cycle(members), targets, strict=False)
        ]
    return [task.result() for task in asked]


async def in_rows(member: Tapeway, target: str, connections: int, count: int) -> list[Answer]:
    """The answers to equal GETs, so many on each connection and none waiting for another's answer."""

    async def row() -> list[Answer]:
        async with asyncio.timeout(DEADLINE_S), RawClient(member.proxy) as client:
            return await client.converse(*[request(target)] * count, answers=count)

    rows = await asyncio.gather(*[row() for _ in range(connections)])
    return [answer for one in rows for answer in one]


async def done(member: Tapeway, method: str, path: str, body: object = None) -> dict[str, object]:
    """What an admin call answers that must go well on all instances."""
    code, document = await member.admin(method, f"/api/v1/{path}", body)
    assert code == 200, document
    assert isinstance(document, dict)
    return document


@dataclass(frozen=True, slots=True)
class Served:
    """One request of the traffic: where and when it was asked, and what came of it."""

    at: int
    target: str
    began: float
    ended: float
    answer: Answer


@dataclass(slots=True)
class Traffic:
    """Clients of all instances that ask without a pause for what nobody asked before."""

    members: Sequence[Tapeway]
    clients: int = 2
    served: list[Served] = field(default_factory=list)
    broken: int = 0
    """Requests whose connection broke before an answer came."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the block runs; at its end every request is let end."""
        over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for at in range(len(self.members)):
                for client in range(self.clients):
                    tasks.create_task(self._client(at, client, over))
            try:
                yield
            finally:
                over.set()

    async def reaches(self, count: int) -> None:
        """Return when each of them has answered so many requests that began from now on."""
        now = monotonic()

        def done() -> bool:
            found = Counter(served.at for served in self.between(now, inf))
            return all(found[at] >= count for at in range(len(self.members)))

        await eventually(done)

    def between(self, began: float, ended: float) -> list[Served]:
        """Those that began and ended between two moments."""
        return [served for served in self.served if began < served.began and served.ended < ended]

    async def _client(self, at: int, client: int, over: asyncio.Event) -> None:
        for number in itertools.count():
            if over.is_set():
                return
            target, began = f"/{at}/{client}/{number}", monotonic()
            try:
                answer = await self.members[at].ask(target)
            except (ConnectionError, asyncio.IncompleteReadError):
                self.broken += 1
            else:
                self.served.append(Served(at, target, began, monotonic(), answer))
                if answer.status == 200:
                    continue
            await asyncio.sleep(0.05)
