"""Cassettes in one SQLite file, which belongs to one process that writes.

The thread of `writer.py` writes, a second thread reads whole cassettes and lists, and documents are
read by whoever replays them: a read waits for no write. Other processes look into the file meanwhile.
"""

import asyncio
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw

from tapeway.core.http.routing import check_cassette_name
from tapeway.core.model.cassette import (
    CassetteHead,
    CassetteStat,
    Outline,
    Recording,
    StoredCassette,
    TakenRecording,
)
from tapeway.core.model.condition import Unchanged
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import BodyFile
from tapeway.errors import CassetteEdited, CassetteLocked, StoreError, closed, poisoned
from tapeway.ports import StoreFacts
from tapeway.stores.sqlite import bodies, recordings, schema
from tapeway.stores.sqlite.check import damage
from tapeway.stores.sqlite.connection import connect, snapshot, store_error
from tapeway.stores.sqlite.location import StoreFileAbsent, StoreLocation
from tapeway.stores.sqlite.lock_file import LockFile
from tapeway.stores.sqlite.recordings import Change, DocumentDecoder
from tapeway.stores.sqlite.resident import Documents, StoredRecordings
from tapeway.stores.sqlite.schema import OlderVersion
from tapeway.stores.sqlite.upgrade import refuse_to_upgrade, upgrade
from tapeway.stores.sqlite.worker_thread import WorkerThread
from tapeway.stores.sqlite.writer import UNSEEN, Writer
from tapeway.stores.support.columns import imported_text, recording_text
from tapeway.stores.support.durable_files import check_writes
from tapeway.stores.support.large_bodies import BodyCache
from tapeway.stores.support.resident_recordings import ResidentRecordings
from tapeway.stores.whole import WholeCassettes

T = TypeVar("T")

WRITTEN_ON_THE_LOOP = 32 * 1024
"""The text of a recording with larger bodies is made in the thread, as that takes milliseconds."""


class SqliteStore(WholeCassettes):
    """A SQLite file, which the first write creates."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:{path}"
        self.facts = StoreFacts(durability="disk", paged=True, file=path)
        self._location = StoreLocation(path)
        self._place = str(path)
        self._resident = ResidentRecordings()
        self._opened: _Opened | None = None

    @property
    def trouble(self) -> StoreError | None:
        """A write failed, and nothing is acknowledged until a cassette is ejected."""
        suspect = self._opened is not None and self._opened.writer.poisoned
        return poisoned(self.url) if suspect else None

    async def check_writes(self, name: str | None = None) -> None:
        if (trouble := self.trouble) is not None:
            raise trouble
        self._location.refuse_read_only()
        await asyncio.to_thread(check_writes, self._location.folder)

    async def open(self) -> None:
        if self._opened is not None:
            return
        self._location.refuse_network()
        opened = self._opened = _Opened(self._location)
        try:
            await opened.prepare()
        except BaseException:
            await self.close()
            raise

    async def close(self, within_s: float = math.inf) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    # Reading.

    async def names(self) -> Sequence[str]:
        return await self._now.read(recordings.names, [])

    async def stat(self, name: str) -> CassetteStat | None:
        return await self._read(name, recordings.stat, None)

    async def stats(self, names: Sequence[str]) -> Sequence[CassetteStat | None]:
        def look(connection: apsw.Connection) -> list[CassetteStat | None]:
            return [recordings.stat(connection, name) for name in names]

        return await self._now.read(look, [None] * len(names))

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        opened = self._for(name)
        if writable:
            await opened.writer.claim(name, opened.seen.pop(name, UNSEEN))

        def loaded(connection: apsw.Connection) -> tuple[StoredCassette | None, str | None]:
            with snapshot(connection):
                filed = StoredRecordings(*opened.documents_of(connection), name, self._resident)
                stat = recordings.stat(connection, name)
                stored = recordings.load(connection, name, self._decoder(name), filed)
                return stored, None if stat is None else stat.version

        nothing: tuple[StoredCassette | None, str | None] = None, None
        stored, version = await opened.read(loaded, nothing)
        if not opened.writer.has(name):
            opened.seen[name] = version
        return stored

    async def outline(self, name: str) -> Outline | None:
        return await self._read(name, partial(recordings.outline, place=self._cassette(name)), None)

    async def page(self, name: str, *, after: int | None, limit: int) -> Sequence[TakenRecording]:
        found = partial(recordings.page, after=after, limit=limit, decoder=self._decoder(name))
        return await self._read(name, found, [])

    async def documents(self, name: str, indexes: Sequence[int]) -> Sequence[TakenRecording]:
        found = partial(recordings.documents, indexes=indexes, decoder=self._decoder(name))
        return await self._read(name, found, [])

    # Writing.

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        opened = self._for(name)
        # Two threads that both compute would take the interpreter from each other all the time.
        text = recording_text(recording) if _is_small(recording.interaction) else None
        await opened.writer.append(name, head, recording, text)

    async def extend(self, name: str, head: CassetteHead, items: Sequence[AnyInteraction]) -> None:
        def extended(change: Change) -> None:
            for item in items:
                change.append(name, head, item, imported_text(item))

        await self._for(name).writer.run(name, extended)

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        opened = self._for(name)
        body = await opened.writer.upload(name, pieces)
        return opened.bodies.with_handle(BodyFile("", body.size, body.digest.hex()))

    async def put(self, name: str, cassette: StoredCassette) -> None:
        replaced = partial(
            Change.replace, name=name, head=cassette.head, items=cassette.interactions
        )
        await self._for(name).writer.run(name, replaced)

    async def save(
        self, name: str, cassette: StoredCassette, only: Unchanged | None = None
    ) -> bool:
        await self._for(name).writer.claim(name)
        return await super().save(name, cassette, only)

    async def replace_head(self, name: str, head: CassetteHead) -> None:
        opened = self._for(name)
        await opened.writer.claim(name)
        present = await self.outline(name)
        if present is not None and present.head != head:
            await opened.writer.run(name, partial(Change.replace_head, name=name, head=head))

    async def release(self, name: str) -> None:
        opened = self._for(name)
        opened.seen.pop(name, None)
        if opened.writer.has(name):
            await opened.writer.release(name)
            opened.forget(name)

    async def remove(self, name: str, only: Unchanged | None = None) -> bool:
        opened = self._for(name)
        if await self.stat(name) is None and not opened.writer.has(name):
            return False
        was_claimed = opened.writer.has(name)
        await opened.writer.claim(name)
        removed = await super().remove(name, only)
        if not removed and not was_claimed:
            await self.release(name)
        return removed

    async def delete(self, name: str) -> bool:
        opened = self._for(name)
        try:
            return await opened.writer.run(name, partial(Change.remove, name=name))
        finally:
            await self.release(name)

    async def check(self) -> Sequence[str]:
        """The damage that SQLite finds in the whole file, then the damage of the content."""
        return await self._now.read(partial(damage, place=self._place), [])

    async def erase(self) -> Sequence[str]:
        if not self._location.writable:
            return []
        if not await self._now.read(recordings.needs_wiping, otherwise=False):
            return []
        try:
            return await self._now.writer.wipe()
        except CassetteLocked:
            # Whoever writes into the file wipes it.
            return []

    @property
    def _now(self) -> "_Opened":
        if self._opened is None:
            raise closed(self.url)
        return self._opened

    def _for(self, name: str) -> "_Opened":
        opened = self._now
        check_cassette_name(name)
        return opened

    async def _read(self, name: str, work: Callable[[apsw.Connection, str], T], otherwise: T) -> T:
        def read(connection: apsw.Connection) -> T:
            with snapshot(connection):
                return work(connection, name)

        return await self._for(name).read(read, otherwise)

    def _cassette(self, name: str) -> str:
        return f"{self._place}, cassette '{name}'"

    def _decoder(self, name: str) -> DocumentDecoder:
        return DocumentDecoder(self._cassette(name), self._now.bodies.with_handle)


class _Opened:
    """The threads and connections from the store's opening to its end."""

    def __init__(self, location: StoreLocation) -> None:
        self._location = location
        self.writer = Writer(location, self._superseded)
        self.seen: dict[str, str | None] = {}
        """The versions of cassettes that were loaded for replay."""
        self.bodies = BodyCache(str(location), self._pieces_of, self._scratch)
        self._reader = WorkerThread(
            str(location), "read the recordings", self._connect, lambda: location.state
        )
        self._documents: tuple[object, Documents, str] | None = None

    async def prepare(self) -> None:
        """Look at the file, and upgrade one of the version before. Raises StoreError."""
        try:
            await self.read(lambda _: None, None)
        except OlderVersion:
            refuse_to_upgrade(self._location)
            await asyncio.to_thread(upgrade, self._location)
            await self.read(lambda _: None, None)

    async def read(self, work: Callable[[apsw.Connection], T], otherwise: T) -> T:
        """The result of reading, `otherwise` where there is no file yet."""
        try:
            return await self._reader.run(work)
        except StoreFileAbsent:
            return otherwise

    def documents_of(self, connection: apsw.Connection) -> tuple[Documents, str]:
        """What reads documents of the file on demand, and the identity of the file."""
        number = self._location.number
        if self._documents is None or self._documents[0] != number:
            file_id = str(connection.execute("SELECT id FROM file").get)

            def connect_again() -> apsw.Connection:
                made = self._connect()
                if self._location.number != number:
                    made.close()
                    raise CassetteEdited(
                        f"{self._location} was replaced since the cassette was loaded: eject the "
                        "cassette, so that it is loaded anew"
                    )
                return made

            documents = Documents(str(self._location), connect_again)
            self._documents = number, documents, file_id
        return self._documents[1:]

    def _superseded(self, name: str, id_: int, text: bytes, digest: bytes) -> None:
        if self._documents is not None:
            self._documents[1].keep(name, id_, text, digest)

    def forget(self, name: str) -> None:
        """Forget what was replaced in a cassette."""
        if self._documents is not None:
            self._documents[1].forget(name)

    async def close(self) -> None:
        if self._documents is not None:
            self._documents[1].close()
        await self._reader.close()
        try:
            await self.writer.close()
        finally:
            self.bodies.close()

    def _connect(self) -> apsw.Connection:
        """A connection to read. Raises StoreError, StoreFileAbsent, OlderVersion."""
        lock, place = LockFile(self._location), str(self._location)
        if not lock.examine().st_size:
            raise StoreFileAbsent

        def check(connection: apsw.Connection) -> bool:
            if schema.check(connection, place):
                return True
            # Perhaps its first process has committed the tables in between.
            if lock.has_number and not schema.check(connection, place):
                lock.refuse_emptied()
            raise StoreFileAbsent

        connection = connect(self._location.path, self._location.role, check)
        try:
            lock.compare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _pieces_of(self, digest: str) -> Iterator[bytes]:
        try:
            with closing(self._connect()) as connection:
                yield from bodies.pieces_of(connection, digest)
        except StoreFileAbsent:
            return
        except apsw.Error as exc:
            raise store_error(exc, str(self._location), "read a large body") from exc

    def _scratch(self) -> str | None:
        """The folder for temporary files: the store's folder, None where this process cannot write."""
        for folder in (self._location.folder, *self._location.folder.parents):
            if folder.is_dir():
                return str(folder) if os.access(folder, os.W_OK) else None
        return None


def _is_small(item: AnyInteraction) -> bool:
    if not isinstance(item, Interaction) or item.request.file or item.response.file:
        return False
    return len(item.request.body) + item.response.size <= WRITTEN_ON_THE_LOOP
