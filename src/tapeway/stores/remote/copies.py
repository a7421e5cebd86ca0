"""Cassettes as the remote tapeway sends them: whole, or page by page.

All pages of a cassette come from one open response, so that the remote tapeway goes through it
once. A response that breaks off is asked for again from the last interaction that came.
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
"""A response that nobody has read from for so long may be out of date: it is asked for anew."""


class CassetteCopies:
    """The copies of one store's cassettes."""

    def __init__(self, client: RemoteClient, bodies: RemoteBodies) -> None:
        self._client = client
        self._bodies = bodies
        self._open: dict[str, _OpenCopy] = {}

    async def close(self) -> None:
        for name in list(self._open):
            await self.forget(name)

    async def forget(self, name: str) -> None:
        """End the response that pages of this cassette come from."""
        if (copy := self._open.pop(name, None)) is not None:
            await copy.close()

    async def whole(self, name: str) -> tuple[jsonl.CopyEnd, list[AnyInteraction]] | None:
        """All of it, or None where there is none. Raises StoreError."""

        async def attempt() -> tuple[jsonl.CopyEnd, list[AnyInteraction]]:
            reader, items = jsonl.CopyReader(remember=True), list[AnyInteraction]()
            async with self._client.pieces(f"{path_of(name)}/copy") as pieces:
                async for piece in pieces:
                    items += await asyncio.to_thread(reader.feed, piece)
            return _checked_end(reader, self._client.shown, name), items

        try:
            end, items = await self._client.again(attempt)
        except RemoteRefused as exc:
            if exc.remote_code == "no_cassette":
                return None
            raise
        except FormatFault as exc:
            raise self._unreadable(name, exc) from exc
        return end, [self._bodies.with_bodies(name, item) for item in items]

    async def page(self, name: str, after: int | None, limit: int) -> list[TakenRecording]:
        """Recordings in order, behind one or from the first on. Raises CassetteEdited, StoreError."""
        copy = self._open.pop(name, None)
        if copy is not None and (copy.after != after or copy.stale):
            await copy.close()
            copy = None

        async def attempt() -> list[AnyInteraction]:
            nonlocal copy
            if copy is None:
                copy = _OpenCopy(self._client, name, after)
            try:
                return await copy.read(limit)
            except BaseException:
                await copy.close()
                copy = None
                raise

        try:
            items = await self._client.again(attempt)
        except RemoteRefused as exc:
            if exc.remote_code == "no_cassette":
                return []
            raise
        except FormatFault as exc:
            raise self._unreadable(name, exc) from exc
        if copy is not None:
            if items:
                self._open[name] = copy
            else:
                await copy.close()
        return [TakenRecording(self._bodies.with_bodies(name, item)) for item in items]

    def _unreadable(self, name: str, exc: FormatFault) -> StoreError:
        return StoreError(f"{self._client.shown}: cassette '{name}' cannot be read: {exc}")


class _OpenCopy:
    """A response with the copy of a cassette; `after` is the index of the last one read."""

    def __init__(self, client: RemoteClient, name: str, after: int | None) -> None:
        self.after = after
        self._client = client
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

    async def read(self, limit: int) -> list[AnyInteraction]:
        if self._pieces is None:
            query = {} if self.after is None else {"after": str(self.after)}
            path = f"{path_of(self._name)}/copy"
            self._pieces = await self._stack.enter_async_context(self._client.pieces(path, query))
        while len(self._waiting) < limit and not self._ended:
            piece = await anext(self._pieces, b"")
            if piece:
                self._waiting += await asyncio.to_thread(self._reader.feed, piece)
            else:
                _checked_end(self._reader, self._client.shown, self._name)
                self._ended = True
        page = [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]
        if page:
            self.after = page[-1].index
        self._used_at = asyncio.get_running_loop().time()
        return page


def _checked_end(reader: jsonl.CopyReader, shown: str, name: str) -> jsonl.CopyEnd:
    try:
        return reader.finish()
    except jsonl.IncompleteCopy as exc:
        raise StoreAway(f"{shown}: cassette '{name}' came cut ({exc})") from exc
