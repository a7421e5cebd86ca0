"""Cassettes of a remote store as they come from there: whole, or bit by bit.

Who goes through one bit by bit reads from one answer as long as that lasts, and goes on behind what
came where it broke off: the far side looks through its cassette once.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from tapeway.core.model.cassette import TakenRecording
from tapeway.core.model.interaction import AnyInteraction
from tapeway.errors import StoreAway, StoreError
from tapeway.formats import jsonl
from tapeway.formats.errors import FormatFault
from tapeway.stores.remote.bodies import RemoteBodies
from tapeway.stores.remote.client import RemoteClient, path_of
from tapeway.stores.remote.errors import RemoteRefused

_IDLE_S = 60.0
"""What nobody has read on from for so long tells of another time."""


class Copies:
    """Those of one store."""

    def __init__(self, caller: RemoteClient, bodies: RemoteBodies) -> None:
        self._caller = caller
        self._bodies = bodies
        self._open: dict[str, _Way] = {}

    async def close(self) -> None:
        for name in list(self._open):
            await self.forget(name)

    async def forget(self, name: str) -> None:
        """Whoever went through this cassette has ended."""
        if (way := self._open.pop(name, None)) is not None:
            await way.close()

    async def whole(self, name: str) -> tuple[jsonl.CopyEnd, list[AnyInteraction]] | None:
        """All of it, or None where there is none. Raises StoreError."""

        async def attempt() -> tuple[jsonl.CopyEnd, list[AnyInteraction]]:
            reader, items = jsonl.CopyReader(remember=True), list[AnyInteraction]()
            async with self._caller.pieces(f"{path_of(name)}/copy") as pieces:
                async for piece in pieces:
                    items += await asyncio.to_thread(reader.feed, piece)
            return _ended(reader, self._caller.shown, name), items

        try:
            end, items = await self._caller.again(attempt)
        except RemoteRefused as exc:
            if exc.said == "no_cassette":
                return None
            raise
        except FormatFault as exc:
            raise self._unreadable(name, exc) from exc
        return end, [self._bodies.lend(name, item) for item in items]

    async def page(self, name: str, after: int | None, limit: int) -> list[TakenRecording]:
        """Some in order, behind one or from the first on. Raises CassetteEdited, StoreError."""
        way = self._open.pop(name, None)
        if way is not None and (way.after != after or way.stale):
            await way.close()
            way = None

        async def attempt() -> list[AnyInteraction]:
            nonlocal way
            if way is None:
                way = _Way(self._caller, name, after)
            try:
                return await way.take(limit)
            except BaseException:
                await way.close()
                way = None
                raise

        try:
            items = await self._caller.again(attempt)
        except RemoteRefused as exc:
            if exc.said == "no_cassette":
                return []
            raise
        except FormatFault as exc:
            raise self._unreadable(name, exc) from exc
        if way is not None:
            if items:
                self._open[name] = way
            else:
                await way.close()
        return [TakenRecording(self._bodies.lend(name, item)) for item in items]

    def _unreadable(self, name: str, exc: FormatFault) -> StoreError:
        return StoreError(f"{self._caller.shown}: cassette '{name}' cannot be read: {exc}")


class _Way:
    """A way through one cassette; `after` is the index it has come to."""

    def __init__(self, caller: RemoteClient, name: str, after: int | None) -> None:
        self.after = after
        self._caller = caller
        self._name = name
        self._stack = AsyncExitStack()
        self._reader = jsonl.CopyReader()
        self._pieces: AsyncIterator[bytes] | None = None
        self._waiting: deque[AnyInteraction] = deque()
        self._ended = False
        self._used_at = 0.0

    @property
    def stale(self) -> bool:
        return asyncio.get_running_loop().time() - self._used_at > _IDLE_S

    async def close(self) -> None:
        await self._stack.aclose()

    async def take(self, limit: int) -> list[AnyInteraction]:
        if self._pieces is None:
            query = {} if self.after is None else {"after": str(self.after)}
            path = f"{path_of(self._name)}/copy"
            self._pieces = await self._stack.enter_async_context(self._caller.pieces(path, query))
        while len(self._waiting) < limit and not self._ended:
            piece = await anext(self._pieces, b"")
            if piece:
                self._waiting += await asyncio.to_thread(self._reader.feed, piece)
            else:
                _ended(self._reader, self._caller.shown, self._name)
                self._ended = True
        taken = [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]
        if taken:
            self.after = taken[-1].index
        self._used_at = asyncio.get_running_loop().time()
        return taken


def _ended(reader: jsonl.CopyReader, shown: str, name: str) -> jsonl.CopyEnd:
    try:
        return reader.finish()
    except jsonl.IncompleteCopy as exc:
        raise StoreAway(f"{shown}: cassette '{name}' came cut ({exc})") from exc
