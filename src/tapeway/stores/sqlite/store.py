"""Cassettes in one SQLite file, shared by the processes of a machine.

Each process has one thread that writes, three that read (so that no hit waits for an export), and
one for the shared file with cursors, leases and the mode. A replay waits for no sync, and the event
loop for no disk: where it moves a cursor itself, it waits for nobody (`loop_connection.py`).

A recording is durable before the cursor of its key moves on. A request in between finds the
recording and replays it, as equal requests at the same time do.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

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
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import BodyFile
from tapeway.errors import StoreError, closed, poisoned
from tapeway.paging import batch_from
from tapeway.ports import StoreFacts
from tapeway.stores.shared.columns import imported_text
from tapeway.stores.shared.durable_files import check_writes
from tapeway.stores.shared.serial_executor import result_of
from tapeway.stores.sqlite import bodies, writes
from tapeway.stores.sqlite.coordination import control, cursors, members
from tapeway.stores.sqlite.location import StoreLocation
from tapeway.stores.sqlite.runtime import Runtime
from tapeway.stores.sqlite.transaction import CassetteRow, WriteTransaction

APPLIED_WITHIN_S = 2.0
"""How long a change waits for the other processes to apply it."""

_POLL_S = 0.02
_LEASE_WAIT_S = 1.0
_BATCH = 500


class SqliteStore:
    """A SQLite file. The first write creates it; several stores of one file are fine."""

    durability = "disk"

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is the same for all processes of the machine."""
        self.url = f"sqlite:{path}"
        self.facts = StoreFacts(permanent_indexes=True, paged=True, file=path)
        self._location = StoreLocation(path)
        self._clock = clock
        self._runtime: Runtime | None = None

    @property
    def shared(self) -> "SqliteStore":
        """The store itself: several processes may use it at once."""
        return self

    @property
    def poisoned(self) -> bool:
        """Whether nothing is acknowledged until a cassette is ejected or the store reopened."""
        return self._runtime is not None and self._runtime.writer.poisoned

    async def check_writes(self, name: str | None = None) -> None:
        if self.poisoned:
            raise poisoned(self.url)
        self._location.refuse_read_only()
        await asyncio.to_thread(check_writes, self._location.folder)

    @property
    def in_touch(self) -> bool:
        return self._runtime is not None and self._runtime.heartbeat.in_touch

    @property
    def trouble(self) -> str:
        """Always empty: what fails is in the error of the call that failed."""
        return ""

    async def open(self) -> None:
        if self._runtime is None:
            self._location.refuse_network()
            self._runtime = Runtime(self._location, self._clock)
            try:
                # Fails now for a file that cannot be read.
                await self.names()
            except BaseException:
                await self.close()
                raise

    async def close(self, within_s: float = math.inf) -> None:
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.close()

    # Whole cassettes.

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        runtime = self._for_cassette(name)
        if writable:
            runtime.location.refuse_read_only()
            await runtime.writer.recover()
        return await runtime.read_all(partial(runtime.queries.load, name), None)

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        await self._for_cassette(name).writer.append(name, head, recording)

    async def extend(self, name: str, head: CassetteHead, items: Sequence[AnyInteraction]) -> None:
        runtime = self._for_cassette(name)
        texts = await asyncio.to_thread(_with_texts, items)
        first = await self._reserve(name, len(texts))
        await runtime.write(
            lambda transaction: writes.extend(transaction, name, head, texts, first)
        )

    async def save(self, name: str, cassette: StoredCassette) -> None:
        await self._replace(name, cassette, lambda _: True)

    async def replace_if(
        self, name: str, mark: str | None, cassette: StoredCassette | None
    ) -> bool:
        def unchanged(transaction: WriteTransaction) -> bool:
            return writes.still_marked(transaction, name, mark)

        if cassette is None:
            return await self._remove(name, unchanged)
        return await self._replace(name, cassette, unchanged)

    async def _replace(
        self, name: str, cassette: StoredCassette, may: Callable[[WriteTransaction], bool]
    ) -> bool:
        runtime = self._for_cassette(name)
        row = await runtime.write(lambda transaction: transaction.add_cassette(None, cassette.head))
        try:
            start = 0
            while start < len(cassette.interactions):
                texts = await asyncio.to_thread(_batch_with_texts, cassette, start)
                await runtime.write(
                    partial(
                        writes.add_at_end,
                        cassette=replace(row, next=start),
                        items=texts,
                    )
                )
                start += len(texts)
        except BaseException:
            await self._remove_rows(row.id)
            raise
        done, before = await runtime.write(
            lambda transaction: (
                (True, writes.give_name(transaction, name, row.id))
                if may(transaction)
                else (False, row.id)
            )
        )
        if done:
            await runtime.run_shared(partial(cursors.forget, name))
        if before is not None:
            await self._remove_rows(before)
        return done

    async def replace_cassette(self, name: str, by: str) -> None:
        runtime = self._for_cassette(name)
        absent = await runtime.read(partial(runtime.queries.outline, by), None) is None
        if absent or name == by:
            return
        before = await runtime.write(
            lambda transaction: writes.replace_cassette(transaction, name, by)
        )
        for each in (name, by):
            await runtime.run_shared(partial(cursors.forget, each))
        if before is not None:
            await self._remove_rows(before)

    async def release(self, name: str) -> None:
        """Recordings are always in their final form: this only removes leftovers."""
        runtime = self._for_cassette(name)
        await runtime.writer.recover()
        await runtime.sweep()

    async def remove(self, name: str) -> bool:
        if await self._remove(name, lambda _: True):
            return True
        await self._for_cassette(name).forget_cursors(name)
        return False

    async def _remove(self, name: str, may: Callable[[WriteTransaction], bool]) -> bool:
        runtime = self._for_cassette(name)
        if await runtime.read(partial(runtime.queries.outline, name), None) is None:
            return False
        left = await runtime.write(
            lambda transaction: writes.take_name(transaction, name) if may(transaction) else None
        )
        if left is None:
            return False
        await runtime.run_shared(partial(cursors.forget, name))
        await self._remove_rows(left)
        return True

    async def names(self) -> Sequence[str]:
        runtime = self._opened
        return await runtime.read(runtime.queries.names, [])

    async def stats(self, names: Sequence[str]) -> Sequence[CassetteStat | None]:
        return [await self.stat(each) for each in names]

    async def stat(self, name: str) -> CassetteStat | None:
        runtime = self._for_cassette(name)
        return await runtime.read(partial(runtime.queries.stat, name), None)

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        runtime = self._for_cassette(name)
        runtime.location.refuse_read_only()
        # In its own thread: a body that takes seconds to arrive must not hold up recordings.
        file = await result_of(
            runtime.body_writers.submit(bodies.keep, runtime.writer.run_blocking, pieces)
        )
        return runtime.body_cache.with_handle(file)

    async def erase(self) -> Sequence[str]:
        return await self._opened.wipe()

    async def check(self) -> Sequence[str]:
        runtime = self._opened
        return await runtime.read_all(runtime.queries.check, [])

    # Single recordings.

    async def outline(self, name: str) -> Outline | None:
        runtime = self._for_cassette(name)
        return await runtime.read(partial(runtime.queries.outline, name), None)

    async def find(self, name: str, keys: Sequence[bytes]) -> Sequence[TakenRecording]:
        runtime = self._for_cassette(name)
        return await runtime.read(partial(runtime.queries.find, name, keys), [])

    async def get(self, name: str, index: int) -> TakenRecording | None:
        runtime = self._for_cassette(name)
        return await runtime.read(partial(runtime.queries.get, name, index), None)

    async def body(self, name: str, digest: str) -> BodyFile | None:
        runtime = self._for_cassette(name)
        return await runtime.read(partial(runtime.body_cache.find, name, digest), None)

    async def page(self, name: str, *, after: int | None, limit: int) -> Sequence[TakenRecording]:
        runtime = self._for_cassette(name)
        return await runtime.read_all(partial(runtime.queries.page, name, after, limit), [])

    async def near(self, name: str, method: str, path: str, limit: int) -> Sequence[TakenRecording]:
        runtime = self._for_cassette(name)
        return await runtime.scan(partial(runtime.queries.near, name, method, path, limit), [])

    async def unused(self, name: str, takes: Sequence[int], limit: int) -> Sequence[RecordingTitle]:
        runtime = self._for_cassette(name)
        query = partial(runtime.queries.unused, name, takes, limit)
        return await runtime.read_with_shared(query, [])

    async def unused_count(self, name: str, takes: Sequence[int]) -> int:
        runtime = self._for_cassette(name)
        query = partial(runtime.queries.unused_count, name, takes)
        return await runtime.read_with_shared(query, 0)

    async def duplicates(self, name: str, limit: int) -> Sequence[Sequence[RecordingTitle]]:
        runtime = self._for_cassette(name)
        return await runtime.scan(partial(runtime.queries.duplicates, name, limit), [])

    async def unrouted_prefixes(
        self, name: str, base: str, prefixes: Sequence[str]
    ) -> Sequence[str]:
        runtime = self._for_cassette(name)
        query = partial(runtime.queries.unrouted_prefixes, name, base, prefixes)
        return await runtime.read_all(query, [])

    async def reserve(self, name: str) -> int:
        self._for_cassette(name)
        return await self._reserve(name, 1)

    async def edit(
        self, name: str, index: int, changed: AnyInteraction | None, condition: Condition = ANY
    ) -> bool:
        runtime = self._for_cassette(name)
        if await runtime.read(partial(runtime.queries.outline, name), None) is None:
            return False
        item = None if changed is None else replace(changed, index=index)
        text = "" if item is None else imported_text(item)
        done = await runtime.write(
            lambda transaction: writes.edit(transaction, name, index, item, text, condition)
        )
        if done and not isinstance(item, Interaction):
            await runtime.run_shared(partial(cursors.forget_touched, [(name, index)]))
        return done

    async def replace_head(self, name: str, head: CassetteHead) -> None:
        runtime = self._for_cassette(name)
        while True:
            outline = await runtime.read(partial(runtime.queries.outline, name), None)
            if outline is None or outline.head == head:
                return
            begun = await runtime.write(
                lambda transaction: writes.begin_rekey(transaction, name, head)
            )
            if begun is None or await self._rekey(*begun, head):
                return
            # Another process changes the rules: wait for its result, then compare again.
            while await runtime.read(partial(runtime.queries.is_changing, name), otherwise=False):  # noqa: ASYNC110
                await asyncio.sleep(_POLL_S)

    # Cursors and leases.

    async def turns(
        self, name: str, take: int, keys: Sequence[bytes]
    ) -> Mapping[bytes, CursorState]:
        runtime = self._for_cassette(name)
        return await runtime.run_shared(partial(cursors.read, name, take, keys))

    async def look(
        self, name: str, take: int, keys: Sequence[bytes], digests: Sequence[bytes]
    ) -> tuple[Mapping[bytes, CursorState], Sequence[TakenRecording], str | None]:
        runtime = self._for_cassette(name)
        return await runtime.cursors_and_recordings(name, take, keys, digests)

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
        runtime = self._for_cassette(name)
        return await runtime.make_move(CursorMove(name, take, key, before, state, touched, mark))

    @property
    def can_move(self) -> bool:
        runtime = self._runtime
        return runtime is not None and runtime.reads

    def move(
        self, move: CursorMove, done: Callable[[CursorMove, BaseException | None], None]
    ) -> None:
        self._opened.moves.add(move, done)

    async def claim(self, name: str, key: bytes) -> Lease | None:
        runtime = self._for_cassette(name)
        now = self._clock()
        claimed = await runtime.run_shared(partial(members.claim, runtime.instance, name, key, now))
        runtime.heartbeat.start()
        if claimed is None:
            return None
        lease, taken_over = claimed
        runtime.writer.leases.add(lease)
        if taken_over:
            # From now on its former owner cannot record under it.
            try:
                await runtime.write(
                    lambda transaction: writes.fence(transaction, name, key, lease.fence)
                )
            except StoreError:
                await self.release_lease(lease)
                raise
        return lease

    async def wait_for_lease(self, name: str, key: bytes) -> None:
        runtime = self._for_cassette(name)
        until = self._clock() + _LEASE_WAIT_S
        while self._clock() < until:
            if not await runtime.run_shared(partial(members.is_held, name, key, self._clock())):
                return
            await asyncio.sleep(_POLL_S)

    async def release_lease(self, lease: Lease) -> None:
        """Where it cannot be written now, as on a full disk, it is released once it can."""
        runtime = self._opened
        runtime.writer.leases.discard(lease)
        try:
            await runtime.run_shared(partial(members.release_lease, lease))
        except StoreError:
            runtime.heartbeat.release_later(lease)

    async def fences(self, name: str) -> frozenset[int]:
        return await self._for_cassette(name).run_shared(
            partial(members.fences, name, self._clock())
        )

    # Steering.

    async def join(self, wanted: Control, apply: Callable[[Control], None]) -> Control:
        runtime = self._opened
        takes = await runtime.read(runtime.queries.takes, 0)
        work = partial(control.join, runtime.instance, wanted, takes, self._clock())
        joined = await runtime.run_shared(work)
        runtime.heartbeat.follow(joined, apply)
        await runtime.note_takes(joined.takes)
        return joined

    async def steer(self, change: Callable[[Control], Control]) -> tuple[Control, Sequence[str]]:
        runtime = self._opened
        steered = await runtime.run_shared(partial(control.steer, change))
        runtime.heartbeat.apply(steered)
        await runtime.note_takes(steered.takes)
        until = self._clock() + APPLIED_WITHIN_S
        while True:
            laggards = await self.behind(steered.generation)
            if not laggards or self._clock() >= until:
                break
            await asyncio.sleep(_POLL_S)
        return steered, laggards

    async def behind(self, generation: int) -> Sequence[str]:
        work = partial(control.laggards, generation, self._clock())
        return tuple(await self._opened.run_shared(work))

    @property
    def _opened(self) -> Runtime:
        if self._runtime is None:
            raise closed(self.url)
        return self._runtime

    def _for_cassette(self, name: str) -> Runtime:
        runtime = self._opened
        check_cassette_name(name)
        return runtime

    async def _reserve(self, name: str, count: int) -> int:
        runtime = self._opened
        above = await runtime.read(partial(runtime.queries.next_number, name), 0)
        return await runtime.run_shared(partial(cursors.reserve, name, above, count))

    async def _remove_rows(self, cassette_id: int) -> None:
        await self._opened.writer.until_done(
            lambda transaction: writes.remove_some(transaction, cassette_id)
        )

    async def _rekey(self, row: CassetteRow, generation: int, head: CassetteHead) -> bool:
        """Index the recordings by the head's rules; False if another change came in between."""
        runtime = self._opened
        after = -1
        while True:
            step = partial(
                writes.rekey, cassette_id=row.id, generation=generation, head=head, after=after
            )
            reached = await runtime.write(step)
            if reached is None:
                return False
            if reached < 0:
                break
            after = reached
        await runtime.writer.until_done(lambda transaction: writes.forget_keys(transaction, row.id))
        return True


def _batch_with_texts(cassette: StoredCassette, start: int) -> list[tuple[AnyInteraction, str]]:
    return _with_texts(batch_from(cassette.interactions, start, _BATCH))


def _with_texts(items: Sequence[AnyInteraction]) -> list[tuple[AnyInteraction, str]]:
    return [(item, imported_text(item)) for item in items]
