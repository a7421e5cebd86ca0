"""The store `objects://HOST:PORT/BUCKET` of a package outside of tapeway.

A cassette is a log of objects, which one writer at a time continues (`log.py`).
"""

import asyncio
import math
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from uuid import uuid4

from tapeway.core.http.routing import check_cassette_name
from tapeway.core.model.cassette import CassetteHead, CassetteStat, Recording, StoredCassette
from tapeway.core.model.interaction import AnyInteraction
from tapeway.core.model.messages import BodyFile
from tapeway.errors import CassetteEdited, CassetteLocked, ConfigError, StoreError, closed
from tapeway.ports import StoreFacts
from tapeway.stores.opening import StoreAddress
from tapeway.stores.support.large_bodies import write_temporary
from tapeway.stores.whole import WholeCassettes

from .bucket import Bucket
from .contents import REMOVED, content_of, whole_content
from .log import CassetteLog, LostError

PORT_VERSION = 1


def open_objects(address: StoreAddress) -> "ObjectStore":
    """The store of an address, which tapeway finds by the entry point."""
    if not (place := re.fullmatch(r"//([\w.-]+(?::\d+)?)/([\w.-]+)/?", address.rest)):
        # The message does not repeat the address: the address may hold a password.
        raise ConfigError("use objects://HOST:PORT/BUCKET for a store of objects, and no password")
    return ObjectStore(Bucket(place[1], place[2]))


class ObjectStore(WholeCassettes):
    """Cassettes in a bucket, each for one writer at a time."""

    def __init__(self, bucket: Bucket) -> None:
        self.url = f"objects://{bucket.host}/{bucket.name}"
        self.facts = StoreFacts(durability="disk", may_go_away=True)
        self._bucket = bucket
        self._writer = uuid4().hex.encode()
        self._logs: dict[str, CassetteLog] = {}
        """Of the cassettes into which this store writes."""
        self._left_over: dict[str, str] = {}
        self._is_open = False

    async def open(self) -> None:
        await asyncio.to_thread(self._bucket.find, "log/!")
        self._is_open = True

    async def close(self, within_s: float = math.inf) -> None:
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(None if within_s == math.inf else within_s):
                for name in list(self._logs):
                    await self.release(name)
        self._logs.clear()
        self._is_open = False

    async def check_writes(self, name: str | None = None) -> None:
        if name in self._logs and self._logs[name].is_lost:
            raise CassetteLocked(self._lost(name))
        await asyncio.to_thread(self._bucket.find, "log/!")

    async def erase(self) -> Sequence[str]:
        return list(self._left_over.values())

    async def names(self) -> Sequence[str]:
        self._check("default")
        objects = await asyncio.to_thread(self._bucket.find, "log/")
        last = {found.key[4:].partition("!")[0]: found.size for found in objects}
        return sorted(name for name, size in last.items() if size)

    async def stat(self, name: str) -> CassetteStat | None:
        self._check(name)
        objects = await asyncio.to_thread(self._bucket.find, f"log/{name}!")
        if not objects or not objects[-1].size:
            return None
        size, last = sum(found.size for found in objects), objects[-1]
        return CassetteStat(size, last.at, str(last.number))

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        if not writable:
            self._check(name)
            log = CassetteLog(self._bucket, name, self._writer)
            return await asyncio.to_thread(log.read)
        async with self._turn(name, CassetteLocked) as log:
            return await asyncio.to_thread(log.claim)

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        await self._add(name, head, [recording])

    async def extend(self, name: str, head: CassetteHead, items: Sequence[AnyInteraction]) -> None:
        await self._add(name, head, [Recording(item) for item in items])

    async def _add(self, name: str, head: CassetteHead, recordings: Sequence[Recording]) -> None:
        content = content_of(self._writer, head, recordings)
        async with self._turn(name, CassetteLocked) as log:
            await asyncio.to_thread(log.commit, content)
            log.appended = True

    async def put(self, name: str, cassette: StoredCassette) -> None:
        content = await asyncio.to_thread(whole_content, self._writer, cassette)
        async with self._turn(name, CassetteEdited) as log:
            await self._replace(log, content)

    async def delete(self, name: str) -> bool:
        async with self._turn(name, CassetteLocked) as log:
            if existed := await self.stat(name) is not None:
                await self._replace(log, REMOVED)
            del self._logs[name]
        return existed

    async def release(self, name: str) -> None:
        self._check(name)
        if name not in self._logs:
            return
        # If another writer has continued the log, the other writer makes the final form.
        with suppress(CassetteEdited):
            async with self._turn(name, CassetteEdited) as log:
                if log.appended and (stored := await asyncio.to_thread(log.read)):
                    content = await asyncio.to_thread(whole_content, self._writer, stored)
                    await self._replace(log, content)
        self._logs.pop(name, None)

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        self._check(name)
        content = await asyncio.to_thread(b"".join, pieces)
        file, _ = await asyncio.to_thread(write_temporary, [content])
        async with self._turn(name, CassetteLocked) as log:
            await asyncio.to_thread(log.put_body, file.digest, content)
        return file

    def _check(self, name: str) -> None:
        check_cassette_name(name)
        if not self._is_open:
            raise closed(self.url)

    @asynccontextmanager
    async def _turn(self, name: str, refusal: type[StoreError]) -> AsyncIterator[CassetteLog]:
        """The log of a cassette. Calls have the log one after the other, in order."""
        while True:
            self._check(name)
            new = CassetteLog(self._bucket, name, self._writer)
            log = self._logs.setdefault(name, new)
            async with log.lock:
                # Another call may have released the cassette meanwhile.
                if self._logs.get(name) is log:
                    try:
                        yield log
                    except LostError:
                        raise refusal(self._lost(name)) from None
                    return

    async def _replace(self, log: CassetteLog, content: bytes) -> None:
        left_over = await asyncio.to_thread(log.replace, content)
        self._left_over.pop(log.name, None)
        if left_over is not None:
            self._left_over[log.name] = left_over

    def _lost(self, name: str) -> str:
        return (
            f"another process writes into cassette '{name}' of {self.url}, and has it now: eject it "
            "here, so that it is loaded anew"
        )
