"""Cassettes in a PostgreSQL database, which any number of instances on any machines share.

`pool` keeps connections and runs transactions; `coordination.instance` knows of the other instances,
and `coordination.heartbeat` reports over its own connection that this one is alive. The other
modules hold the statements.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from tapeway.core.http.routing import check_cassette_name
from tapeway.core.model.cassette import (
    CassetteHead,
    CassetteStat,
    Lease,
    Outline,
    Recording,
    RecordingTitle,
    StoredCassette,
    TakenRecording,
)
from tapeway.core.model.condition import ANY, Condition
from tapeway.core.model.control import Control, CursorMove, CursorState
from tapeway.core.model.interaction import AnyInteraction
from tapeway.core.model.messages import BodyFile
from tapeway.errors import closed
from tapeway.ports import StoreFacts
from tapeway.stores.postgres import address, bodies, cassettes, pool, queries, rows, writes
from tapeway.stores.postgres.bodies import Bodies
from tapeway.stores.postgres.coordination import cursors, leases
from tapeway.stores.postgres.coordination.control import OUT_OF_TOUCH_S
from tapeway.stores.postgres.coordination.instance import PostgresInstance
from tapeway.stores.postgres.coordination.sequences import Sequences
from tapeway.stores.postgres.pool import DONE, PATIENCE_S, YES_OR_NO, DriverRow, Session, Work
from tapeway.stores.shared import columns
from tapeway.stores.shared.cursor_moves import made
from tapeway.stores.shared.last_decoded import LastDecoded

T = TypeVar("T")

_IN_THREAD_BYTES = 256 * 1024
"""Documents of more bytes than this are decoded in a thread."""


class PostgresStore:
    """Cassettes in one schema of a database; each instance opens its own store.

    `lease_s` is how long a lease outlives its instance, `touch_s` how long an instance serves without
    hearing from the database. Both must be the same for all instances.
    """

    def __init__(
        self, url: str, *, lease_s: float | None = None, touch_s: float = OUT_OF_TOUCH_S
    ) -> None:
        self.facts = StoreFacts(permanent_indexes=True, paged=True)
        self._address = address.read(url)
        self._lease_s, self._touch_s = float(lease_s or self._address.lease_s), float(touch_s)
        self._opened: PostgresInstance | None = None
        self._durability = "primary"
        self._removed = False
        self._last_near: LastDecoded[bytes] = LastDecoded()

    @property
    def shared(self) -> "PostgresStore":
        """The store itself: several processes may use it at once."""
        return self

    @property
    def url(self) -> str:
        return self._address.shown

    @property
    def durability(self) -> str:
        """`primary`: on the disk of the primary; `server`: no further than its memory."""
        return self._durability

    @property
    def poisoned(self) -> bool:
        """False: a connection that fails is made anew."""
        return False

    async def check_writes(self, name: str | None = None) -> None:
        """Nothing is asked: a recording that cannot be stored says so itself."""

    async def open(self) -> None:
        """Connect, and create or upgrade the tables. Raises StoreAway, StoreError."""
        if self._opened is not None:
            return
        instance = PostgresInstance(self._address, self._lease_s, self._touch_s)
        await instance.open()
        self._durability = instance.pool.durability
        self._sequences, self._bodies = Sequences(instance.pool), Bodies(instance.pool)
        self._opened = instance

    async def close(self, within_s: float = math.inf) -> None:
        instance, self._opened = self._opened, None
        if instance is not None:
            await instance.close()

    # Whole cassettes.

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        """The whole cassette, as of one moment. `writable` changes nothing, as instances record
        concurrently.
        """

        async def whole(session: Session) -> tuple[Outline | None, Sequence[DriverRow]]:
            outline = await cassettes.outline(session, name, self._where(name))
            return outline, [] if outline is None else await queries.load(session, name)

        outline, read = await self._read_moment(name, "load", whole, limit=pool.LONG_S)
        if outline is None:
            return None
        found = await self._found(name, read)
        return StoredCassette(outline.head, tuple([each.item for each in found]))

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        """Concurrent recordings keep the order of their calls. Raises Fenced too."""
        instance = self._for_cassette(name)
        text, lease = columns.recording_text(recording), recording.lease
        await instance.background.run(self._append(instance, name, head, recording, text))
        if lease is not None:
            instance.announce_end(lease)

    async def _append(
        self,
        instance: PostgresInstance,
        name: str,
        head: CassetteHead,
        recording: Recording,
        text: str,
    ) -> None:
        until = time.monotonic() + PATIENCE_S
        await self._sequences.take(name, recording.interaction.index, until)

        patience = until - time.monotonic()
        await instance.pool.write_once(
            f"record into '{name}'",
            lambda session: writes.record(
                *(session, name, head, recording, text), instance=instance.id
            ),
            DONE,
            patience=patience,
        )

    async def save(self, name: str, cassette: StoredCassette) -> None:
        """Replace the cassette. Its cursors are reset: they counted other recordings."""
        await self._change(
            name, "save", lambda session: writes.save(session, name, cassette), limit=pool.LONG_S
        )

    async def release(self, name: str) -> None:
        """Do nothing: a cassette is always in its final form, and keeps its indexes."""
        self._for_cassette(name)

    async def remove(self, name: str) -> bool:
        return await self._change(
            name, "remove", lambda session: cassettes.remove(session, name), limit=pool.LONG_S
        )

    async def replace_cassette(self, name: str, by: str) -> None:
        self._for_cassette(by)
        await self._change(
            name,
            "replace",
            lambda session: cassettes.replace_cassette(session, name, by),
            limit=pool.LONG_S,
        )

    async def names(self) -> Sequence[str]:
        return await self._instance().pool.read("list the cassettes", cassettes.names)

    async def stats(self, names: Sequence[str]) -> Sequence[CassetteStat | None]:
        return [await self.stat(each) for each in names]

    async def stat(self, name: str) -> CassetteStat | None:
        return await self._read(name, "read", lambda session: cassettes.stat(session, name))

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        """In pieces of 256 KiB. What no recording refers to for an hour is removed."""
        self._for_cassette(name)
        return await self._bodies.keep(pieces)

    # Single recordings.

    async def outline(self, name: str) -> Outline | None:
        return await self._read(
            name, "read", lambda session: cassettes.outline(session, name, self._where(name))
        )

    async def find(self, name: str, keys: Sequence[bytes]) -> Sequence[TakenRecording]:
        """Large bodies of requests are not read: the caller has the request."""
        return await self._recordings(
            name, lambda session: queries.find(session, name, keys), requests=False
        )

    async def get(self, name: str, index: int) -> TakenRecording | None:
        found = await self._recordings(name, lambda session: queries.get(session, name, index))
        return found[0] if found else None

    async def body(self, name: str, digest: str) -> BodyFile | None:
        self._for_cassette(name)
        return await self._bodies.find(name, digest, f"{self.url}, cassette '{name}'")

    async def page(self, name: str, *, after: int | None, limit: int) -> Sequence[TakenRecording]:
        """Raises CassetteEdited where interaction `after` was removed."""
        read = await self._read_moment(
            name,
            "read recordings of",
            lambda session: queries.page(session, name, after, limit),
        )
        return await self._found(name, read)

    async def near(self, name: str, method: str, path: str, limit: int) -> Sequence[TakenRecording]:
        wanted = columns.column_text(method), columns.column_text(path)
        read = await self._read_moment(
            name,
            "read recordings of",
            lambda session: queries.near(session, name, *wanted, limit),
        )
        return await asyncio.to_thread(self._near, name, read)

    def _near(self, name: str, read: Sequence[DriverRow]) -> Sequence[TakenRecording]:
        """These recordings, none of which has a large body."""
        by_index = {row["number"]: row for row in read}

        def decode(_: bytes, index: int) -> AnyInteraction:
            (found,) = rows.recordings_of([by_index[index]], self._where(name))
            return found.item

        documents = [(row["number"], row["document"]) for row in read]
        items = self._last_near.items(name, documents, decode)
        return [
            TakenRecording(item, row["take"], row["place"])
            for item, row in zip(items, read, strict=True)
        ]

    async def unused(self, name: str, takes: Sequence[int], limit: int) -> Sequence[RecordingTitle]:
        return await self._read(
            name, "read recordings of", lambda session: queries.unused(session, name, takes, limit)
        )

    async def unused_count(self, name: str, takes: Sequence[int]) -> int:
        return await self._read(
            name,
            "read recordings of",
            lambda session: queries.unused_count(session, name, takes),
            limit=pool.LONG_S,
        )

    async def duplicates(self, name: str, limit: int) -> Sequence[Sequence[RecordingTitle]]:
        return await self._read_moment(
            name,
            "read recordings of",
            lambda session: queries.duplicates(session, name, limit),
            limit=pool.LONG_S,
        )

    async def unrouted_prefixes(
        self, name: str, base: str, prefixes: Sequence[str]
    ) -> Sequence[str]:
        return await self._read(
            name,
            "read recordings of",
            lambda session: queries.unrouted_prefixes(session, name, base, prefixes),
            limit=pool.LONG_S,
        )

    async def reserve(self, name: str) -> int:
        self._for_cassette(name)
        return await self._sequences.reserve(name)

    async def replace_head(self, name: str, head: CassetteHead) -> None:
        """Reads the whole cassette where the rules change; recordings wait meanwhile."""
        instance = self._for_cassette(name)
        work = instance.pool.write_once(
            f"change the rules of '{name}'",
            lambda session: writes.replace_head(session, name, head, self._where(name)),
            DONE,
            limit=pool.LONG_S,
        )
        await instance.background.run(work)

    async def edit(
        self, name: str, index: int, changed: AnyInteraction | None, condition: Condition = ANY
    ) -> bool:
        where = self._where(name)
        return await self._change(
            name,
            "edit",
            lambda session: writes.edit(session, name, index, changed, condition, where),
        )

    async def replace_if(
        self, name: str, mark: str | None, cassette: StoredCassette | None
    ) -> bool:
        return await self._change(
            name,
            "replace",
            lambda session: writes.replace_if(session, name, mark, cassette),
            limit=pool.LONG_S,
        )

    async def extend(self, name: str, head: CassetteHead, items: Sequence[AnyInteraction]) -> None:
        instance = self._for_cassette(name)
        texts = await asyncio.to_thread(writes.brought_in, items)
        index = await self._sequences.block(name, len(items))
        numbered = writes.numbered(texts, index)
        work = instance.pool.write_once(
            f"add to '{name}'",
            lambda session: writes.extend(session, name, head, numbered),
            DONE,
            patience=PATIENCE_S,
            limit=pool.LONG_S,
        )
        await instance.background.run(work)

    async def check(self) -> Sequence[str]:
        """Whether counts, keys, digests and the pieces of large bodies agree."""
        return await self._instance().pool.read("check", queries.check, limit=pool.LONG_S)

    async def erase(self) -> Sequence[str]:
        """Remove the large bodies that nothing refers to, and name what only the server can wipe."""
        if not self._removed:
            return []
        await self._instance().pool.write("remove large bodies", bodies.sweep, durable=False)
        self._removed = False
        return [
            f"{self.url}: PostgreSQL keeps what was removed in its tables until VACUUM FULL rewrites "
            "them, and in its write-ahead log, replicas and backups until these are gone: see to "
            "them where it must not stay readable"
        ]

    # Cursors.

    async def turns(
        self, name: str, take: int, keys: Sequence[bytes]
    ) -> Mapping[bytes, CursorState]:
        return await self._read(
            name, "read the cursors of", lambda session: cursors.read(session, name, take, keys)
        )

    async def look(
        self, name: str, take: int, keys: Sequence[bytes], digests: Sequence[bytes]
    ) -> tuple[Mapping[bytes, CursorState], Sequence[TakenRecording], str | None]:
        async def look(
            session: Session,
        ) -> tuple[Mapping[bytes, CursorState], Sequence[DriverRow], str | None]:
            mark = await cassettes.mark(session, name)
            stored = await cursors.read(session, name, take, keys)
            return stored, await queries.find(session, name, digests), mark

        stored, read, mark = await self._read(name, "read recordings of", look)
        return stored, await self._found(name, read, requests=False), mark

    async def advance(
        self,
        name: str,
        take: int,
        key: bytes,
        before: CursorState | None,
        state: bytes,
        touched: int | None,
        mark: str | None = None,
    ) -> CursorState | None:
        instance = self._for_cassette(name)
        move = CursorMove(name, take, key, before, state, touched, mark)
        return await made(instance.moves.add, move)

    @property
    def can_move(self) -> bool:
        return self._opened is not None

    def move(
        self, move: CursorMove, done: Callable[[CursorMove, BaseException | None], None]
    ) -> None:
        self._instance().moves.add(move, done)

    # Leases and control.

    async def claim(self, name: str, key: bytes) -> Lease | None:
        return await self._for_cassette(name).claim(name, key)

    async def wait_for_lease(self, name: str, key: bytes) -> None:
        await self._for_cassette(name).wait_for_lease(name, key)

    async def release_lease(self, lease: Lease) -> None:
        await self._instance().release_lease(lease)

    async def fences(self, name: str) -> frozenset[int]:
        return await self._read(
            name, "read the leases of", lambda session: leases.fences(session, name)
        )

    async def join(self, wanted: Control, apply: Callable[[Control], None]) -> Control:
        return await self._instance().join(wanted, apply)

    async def steer(self, change: Callable[[Control], Control]) -> tuple[Control, Sequence[str]]:
        return await self._instance().steer(change)

    async def behind(self, generation: int) -> Sequence[str]:
        return await self._instance().behind(generation)

    @property
    def in_touch(self) -> bool:
        return self._opened is not None and self._opened.in_touch

    @property
    def trouble(self) -> str:
        return "" if self._opened is None else self._opened.trouble

    def _instance(self) -> PostgresInstance:
        if self._opened is None:
            raise closed(self.url)
        return self._opened

    def _for_cassette(self, name: str) -> PostgresInstance:
        instance = self._instance()
        check_cassette_name(name)
        return instance

    def _where(self, name: str) -> str:
        return f"cassette '{name}' in {self.url}"

    async def _read(
        self, name: str, action: str, work: "Work[T]", *, limit: float = pool.COMMAND_S
    ) -> T:
        return await self._for_cassette(name).pool.read(f"{action} '{name}'", work, limit=limit)

    async def _read_moment(
        self, name: str, action: str, work: "Work[T]", *, limit: float = pool.COMMAND_S
    ) -> T:
        """The same for several queries, all as of one moment."""
        return await self._for_cassette(name).pool.snapshot(f"{action} '{name}'", work, limit=limit)

    async def _change(
        self, name: str, action: str, work: "Work[bool]", *, limit: float = pool.COMMAND_S
    ) -> bool:
        """Make a change once; whether it removed or replaced recordings."""
        instance = self._for_cassette(name)
        removed = await instance.background.run(
            instance.pool.write_once(f"{action} '{name}'", work, YES_OR_NO, limit=limit)
        )
        self._removed = self._removed or removed
        return removed

    async def _recordings(
        self, name: str, query: Work[Sequence[DriverRow]], *, requests: bool = True
    ) -> Sequence[TakenRecording]:
        read = await self._read(name, "read recordings of", query)
        return await self._found(name, read, requests=requests)

    async def _found(
        self, name: str, read: Sequence[DriverRow], *, requests: bool = True
    ) -> Sequence[TakenRecording]:
        if not read:
            return []
        where = self._where(name)
        if sum([len(row["document"]) for row in read]) > _IN_THREAD_BYTES:
            found = await asyncio.to_thread(rows.recordings_of, read, where)
        else:
            found = rows.recordings_of(read, where)
        return await self._bodies.with_bodies(found, where, requests=requests)
