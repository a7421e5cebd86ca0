"""Cassettes in one SQLite file, shared by the processes of a machine.

Every process has one thread that writes, some that read (so that no hit waits for an export), and
one for what processes tell each other. Who replays waits for no sync, and the event loop for no disk.

A recording is durable before its key's turn moves on. Whoever looks in between sees an answer that
somebody is being given at this moment, and replays it: what equal requests at the same time get.
"""

import asyncio
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
    StoredCassette,
    TakenRecording,
    Titled,
)
from tapeway.core.model.control import Control, CursorState
from tapeway.core.model.interaction import AnyInteraction
from tapeway.core.model.messages import BodyFile
from tapeway.errors import StoreError, StoreFull, closed
from tapeway.ports import Capabilities
from tapeway.stores.shared.columns import brought_in
from tapeway.stores.shared.serial_executor import outcome
from tapeway.stores.sqlite import bodies, writes
from tapeway.stores.sqlite.coordination import control, cursors, members
from tapeway.stores.sqlite.location import StoreLocation
from tapeway.stores.sqlite.runtime import Runtime
from tapeway.stores.sqlite.transaction import CassetteRow, WriteTransaction

APPLIED_WITHIN_S = 2.0
"""How long a change waits for the other processes to apply it."""

_LOOK_S = 0.02
_LAPSED_S = 1.0
_MANY = 500


class SqliteStore:
    """A SQLite file. It is made by the first write; several stores of one file are fine."""

    durability = "disk"

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is one that all processes of the machine share."""
        self.url = f"sqlite:{path}"
        self.capabilities = Capabilities(
            write_health=self,
            bodies=self,
            body_finder=self,
            paged=self,
            head_editor=self,
            cassette_editor=self,
            batch_writer=self,
            replacer=self,
            checker=self,
            shared=self,
        )
        self._place = StoreLocation(path)
        self._clock = clock
        self._house: Runtime | None = None

    @property
    def poisoned(self) -> bool:
        """Whether nothing is acknowledged until a cassette is ejected or the store reopened."""
        return self._house is not None and self._house.writer.poisoned

    @property
    def scratch(self) -> str | None:
        return self._open.scratch()

    @property
    def in_touch(self) -> bool:
        return self._house is not None and self._house.watch.in_touch

    async def open(self) -> None:
        if self._house is None:
            self._place.refuse_network()
            self._house = Runtime(self._place, self._clock)
            try:
                # What cannot be read says so now.
                await self.names()
            except BaseException:
                await self.close()
                raise

    async def close(self) -> None:
        house, self._house = self._house, None
        if house is not None:
            await house.close()

    # Whole cassettes.

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        house = self._named(name)
        if writable:
            house.place.refuse_read_only()
            await house.writer.mend()
        return await house.go_through(partial(house.reading.load, name), None)

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        await self._named(name).writer.append(name, head, recording)

    async def extend(self, name: str, head: CassetteHead, items: Sequence[AnyInteraction]) -> None:
        house = self._named(name)
        made = await asyncio.to_thread(_texts, items)
        first = await self._reserve(name, len(made))
        await house.write(lambda pen: writes.extend(pen, name, head, made, first))

    async def save(self, name: str, cassette: StoredCassette) -> None:
        house = self._named(name)
        shelf = await house.write(lambda pen: pen.new_shelf(None, cassette.head))
        try:
            for start in range(0, len(cassette.interactions), _MANY):
                some = cassette.interactions[start : start + _MANY]
                made = await asyncio.to_thread(_texts, some)
                await house.write(partial(_fill, shelf, made, start))
        except BaseException:
            await self._clear(shelf.id)
            raise
        before = await house.write(lambda pen: writes.show(pen, name, shelf.id))
        await house.tell(partial(cursors.forget, name))
        if before is not None:
            await self._clear(before)

    async def supplant(self, name: str, by: str) -> None:
        house = self._named(name)
        if await house.read(partial(house.reading.outline, by), None) is None:
            return
        before = await house.write(lambda pen: writes.supplant(pen, name, by))
        for each in (name, by):
            await house.tell(partial(cursors.forget, each))
        if before is not None:
            await self._clear(before)

    async def release(self, name: str) -> None:
        """Nothing is to be brought into a final form: what is recorded is in it."""
        house = self._named(name)
        await house.writer.mend()
        await house.tidy_up()

    async def remove(self, name: str) -> bool:
        house = self._named(name)
        if await house.read(partial(house.reading.outline, name), None) is None:
            return False
        left = await house.write(lambda pen: writes.hide(pen, name))
        if left is None:
            return False
        await house.tell(partial(cursors.forget, name))
        await self._clear(left)
        return True

    async def names(self) -> Sequence[str]:
        house = self._open
        return await house.read(house.reading.names, [])

    async def stat(self, name: str) -> CassetteStat | None:
        house = self._named(name)
        return await house.read(partial(house.reading.stat, name), None)

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        house = self._named(name)
        house.place.refuse_read_only()
        # Beside the writer's thread: what takes seconds does not hold up recordings.
        file = await outcome(house.keepers.submit(bodies.keep, house.writer.now, pieces))
        return replace(file, hold=bodies.SqliteBodyFile(house.library, file.digest))

    async def check(self) -> Sequence[str]:
        house = self._open
        return await house.go_through(house.reading.check, [])

    # Single recordings.

    async def outline(self, name: str) -> Outline | None:
        house = self._named(name)
        return await house.read(partial(house.reading.outline, name), None)

    async def find(self, name: str, keys: Sequence[bytes]) -> Sequence[TakenRecording]:
        house = self._named(name)
        return await house.read(partial(house.reading.find, name, keys), [])

    async def get(self, name: str, index: int) -> TakenRecording | None:
        house = self._named(name)
        return await house.read(partial(house.reading.get, name, index), None)

    async def body(self, name: str, digest: str) -> BodyFile | None:
        house = self._named(name)
        return await house.read(partial(house.library.find, name, digest), None)

    async def page(self, name: str, *, after: int | None, limit: int) -> Sequence[TakenRecording]:
        house = self._named(name)
        return await house.go_through(partial(house.reading.page, name, after, limit), [])

    async def near(self, name: str, method: str, path: str, limit: int) -> Sequence[TakenRecording]:
        house = self._named(name)
        return await house.look_through(partial(house.reading.near, name, method, path, limit), [])

    async def unused(self, name: str, take: int, limit: int) -> Sequence[Titled]:
        house = self._named(name)
        look = partial(house.reading.unused, name, take, limit)
        found: Sequence[Titled] = await house.compare(look, [])
        used = house.overflow.used_in(name, take)
        return [each for each in found if each.index not in used]

    async def unused_count(self, name: str, take: int) -> int:
        house = self._named(name)
        count = await house.compare(partial(house.reading.unused_count, name, take), 0)
        return count - len(house.overflow.used_in(name, take))

    async def duplicates(self, name: str, limit: int) -> Sequence[Sequence[Titled]]:
        house = self._named(name)
        return await house.look_through(partial(house.reading.duplicates, name, limit), [])

    async def reserve(self, name: str) -> int:
        self._named(name)
        return await self._reserve(name, 1)

    async def edit(self, name: str, index: int, changed: AnyInteraction | None) -> bool:
        house = self._named(name)
        if await house.read(partial(house.reading.outline, name), None) is None:
            return False
        item = None if changed is None else replace(changed, index=index)
        text = "" if item is None else brought_in(item)
        return await house.write(lambda pen: writes.edit(pen, name, index, item, text))

    async def restate(self, name: str, head: CassetteHead) -> None:
        house = self._named(name)
        while True:
            outline = await house.read(partial(house.reading.outline, name), None)
            if outline is None or outline.head == head:
                return
            begun = await house.write(lambda pen: writes.announce(pen, name, head))
            if begun is None or await self._rekey(*begun, head):
                return
            # Another process does the same, or something else: what came out of it is looked at.
            while await house.read(partial(house.reading.is_changing, name), otherwise=False):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)

    # Turns and leases.

    async def turns(
        self, name: str, take: int, keys: Sequence[bytes]
    ) -> Mapping[bytes, CursorState]:
        house = self._named(name)
        found = await house.tell(partial(cursors.read, name, take, keys))
        return house.overflow.over(name, take, keys, found)

    async def look(
        self, name: str, take: int, keys: Sequence[bytes], digests: Sequence[bytes]
    ) -> tuple[Mapping[bytes, CursorState], Sequence[TakenRecording]]:
        house = self._named(name)
        stand, found = await house.look(name, take, keys, digests)
        return house.overflow.over(name, take, keys, stand), found

    async def advance(
        self,
        name: str,
        take: int,
        key: bytes,
        before: CursorState | None,
        state: bytes,
        touched: int,
    ) -> bool:
        """Where the shared file is full, only this process knows until there is room."""
        house, place = self._named(name), (name, take, key)
        overflow = house.overflow
        if overflow.knows_better(place, before):
            return False
        stored = overflow.stored(place, before)
        try:
            work = partial(cursors.advance, name, take, key, stored, state, touched)
            done = await house.tell(work)
        except StoreFull as full:
            if (await self.turns(name, take, [key])).get(key) != before:
                return False
            overflow.keep(place, stored, state, touched, full)
            return True
        overflow.drop(place)
        return done

    async def claim(self, name: str, key: bytes) -> Lease | None:
        house = self._named(name)
        now = self._clock()
        claimed = await house.tell(partial(members.claim, house.instance, name, key, now))
        house.watch.start()
        if claimed is None:
            return None
        lease, taken_over = claimed
        if taken_over:
            # From now on its owner before can record nothing, should it still be about to.
            try:
                await house.write(lambda pen: writes.fence(pen, name, key, lease.fence))
            except StoreError:
                await self.give_back(lease)
                raise
        return lease

    async def lapsed(self, name: str, key: bytes) -> None:
        house = self._named(name)
        until = self._clock() + _LAPSED_S
        while self._clock() < until:
            if not await house.tell(partial(members.is_held, name, key, self._clock())):
                return
            await asyncio.sleep(_LOOK_S)

    async def give_back(self, lease: Lease) -> None:
        await self._open.tell(partial(members.give_back, lease))

    async def fences(self, name: str) -> frozenset[int]:
        return await self._named(name).tell(partial(members.fences, name, self._clock()))

    # Steering.

    async def join(self, wanted: Control, apply: Callable[[Control], None]) -> Control:
        house = self._open
        takes = await house.read(house.reading.takes, 0)
        work = partial(control.join, house.instance, wanted, takes, self._clock())
        joined = await house.tell(work)
        house.watch.follow(joined, apply)
        await house.note_takes(joined.takes)
        return joined

    async def steer(self, change: Callable[[Control], Control]) -> tuple[Control, Sequence[str]]:
        house = self._open
        steered = await house.tell(partial(control.steer, change))
        house.watch.take(steered)
        await house.note_takes(steered.takes)
        until = self._clock() + APPLIED_WITHIN_S
        while True:
            work = partial(control.laggards, steered.generation, self._clock())
            laggards = await house.tell(work)
            if not laggards or self._clock() >= until:
                return steered, tuple(laggards)
            await asyncio.sleep(_LOOK_S)

    # How it does it.

    @property
    def _open(self) -> Runtime:
        if self._house is None:
            raise closed(self.url)
        return self._house

    def _named(self, name: str) -> Runtime:
        house = self._open
        check_cassette_name(name)
        return house

    async def _reserve(self, name: str, count: int) -> int:
        house = self._open
        above = await house.read(partial(house.reading.next_number, name), 0)
        return await house.tell(partial(cursors.reserve, name, above, count))

    async def _clear(self, shelf_id: int) -> None:
        await self._open.writer.until_done(lambda pen: writes.clear(pen, shelf_id))

    async def _rekey(self, shelf: CassetteRow, generation: int, head: CassetteHead) -> bool:
        """False where another change of the rules came in between."""
        house = self._open
        after = -1
        while True:
            reached = await house.write(partial(_rekey, shelf.id, generation, head, after))
            if reached is None:
                return False
            if reached < 0:
                break
            after = reached
        await house.writer.until_done(lambda pen: writes.forget_keys(pen, shelf.id))
        return True


def _texts(items: Sequence[AnyInteraction]) -> list[tuple[AnyInteraction, str]]:
    return [(item, brought_in(item)) for item in items]


def _fill(
    shelf: CassetteRow,
    items: Sequence[tuple[AnyInteraction, str]],
    first: int,
    pen: WriteTransaction,
) -> None:
    writes.fill(pen, replace(shelf, next=first, last_place=first), items)


def _rekey(
    shelf_id: int, generation: int, head: CassetteHead, after: int, pen: WriteTransaction
) -> int | None:
    return writes.rekey(pen, shelf_id, generation, head, after)
