"""A store in memory that waits and fails where a test says so."""

import asyncio
import math

from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.errors import StoreError
from tapeway.stores.memory import MemoryStore


class FakeStore(MemoryStore):
    """`failing` holds the errors of the next calls by method; `gate` shuts a method while clear."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: dict[str, list[StoreError]] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self._came = asyncio.Event()
        self.calls: list[str] = []
        self.claimed: dict[str, bool] = {}

    def shut(self, method: str) -> asyncio.Event:
        """Let no call of a method through until the event is set."""
        self.gates[method] = asyncio.Event()
        return self.gates[method]

    def fail(self, method: str, error: StoreError) -> None:
        """Let the next call of a method fail."""
        self.failing.setdefault(method, []).append(error)

    async def reached(self, call: str, count: int = 1) -> None:
        """Wait until a call such as `append default` has come so many times."""
        async with asyncio.timeout(60):
            while self.calls.count(call) < count:
                self._came.clear()
                await self._came.wait()

    async def open(self) -> None:
        await self._pass("open")

    async def close(self, within_s: float = math.inf) -> None:
        await self._pass("close")

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        await self._pass("load", name)
        self.claimed[name] = writable
        return await super().load(name, writable=writable)

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        await self._pass("append", name)
        await super().append(name, head, recording)

    async def put(self, name: str, cassette: StoredCassette) -> None:
        await self._pass("save", name)
        await super().put(name, cassette)

    async def release(self, name: str) -> None:
        await self._pass("release", name)

    async def _pass(self, method: str, name: str = "") -> None:
        self.calls.append(f"{method} {name}".strip())
        self._came.set()
        if method in self.gates:
            await self.gates[method].wait()
        if self.failing.get(method):
            raise self.failing[method].pop(0)
