"""Cassettes in a PostgreSQL database, which any number of instances on any machines share.

`pool` runs transactions, `operations` are the work in them, `instance` is what lives from the store's
opening to its end, and `heartbeat` reports over a separate connection that the instance is alive.
"""

import asyncio
import math
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from tapeway.cooperative import BRIEF_S, Yielding
from tapeway.core.http.routing import check_cassette_name
from tapeway.core.misses.neighbours import SoughtRequest
from tapeway.core.model.cassette import (
    CassetteHead,
    CassetteStat,
    Lease,
    LogPage,
    Outline,
    Recording,
    RecordingTitle,
    StoredCassette,
    TakenRecording,
)
from tapeway.core.model.condition import ANY, Condition, Unchanged
from tapeway.core.model.control import Control, CursorMove, CursorState
from tapeway.core.model.interaction import AnyInteraction
from tapeway.core.model.messages import BodyFile
from tapeway.core.text import no_pause
from tapeway.errors import StoreError, closed, out_of_touch
from tapeway.ports import Issuer, MoveDone, StoreFacts
from tapeway.stores.postgres import address
from tapeway.stores.postgres.appends import Alone
from tapeway.stores.postgres.errors import reads_only
from tapeway.stores.postgres.instance import GRACE_S, PostgresInstance
from tapeway.stores.postgres.operations import (
    bodies,
    cassettes,
    coordination,
    cursors,
    log,
    queries,
    recordings,
    rows,
)
from tapeway.stores.postgres.operations.coordination import OUT_OF_TOUCH_S
from tapeway.stores.postgres.operations.last_decoded import LastDecoded
from tapeway.stores.postgres.operations.recordings import IndexTaken
from tapeway.stores.postgres.pool import DriverRow as Row
from tapeway.stores.postgres.pool import Work
from tapeway.stores.support.columns import imported_text, interaction_of, recording_text
from tapeway.stores.support.large_bodies import BodyUpload

_IN_THREAD_BYTES = 256 * 1024
"""Documents of more bytes than this are decoded in a thread."""

_POLL_S = 0.02


class PostgresStore:
    """Cassettes in one schema of a database; each instance opens its own store.

    `lease_s` is how long a lease outlives its instance, `touch_s` how long an instance serves without
    hearing from the database. Both must be the same for all instances.
    """

    def __init__(
        self, url: str, *, lease_s: float | None = None, touch_s: float = OUT_OF_TOUCH_S
    ) -> None:
        self._address = address.read(url)
        self.url = self._address.shown
        self.facts = StoreFacts(durability="primary", paged=True)
        self._opened: PostgresInstance | None = None
        self._last_near = LastDecoded()
        self._with_current_keys = set[str]()
        self._lease_s, self._touch_s = float(lease_s or self._address.lease_s), float(touch_s)

    @property
    def shared(self) -> "PostgresStore | None":
        """The store itself: several processes may use it at once.

        None once it is open and nothing can be written: takes and cursors are those of the process.
        """
        return None if self._reads_only else self

    @property
    def _reads_only(self) -> bool:
        return self._opened is not None and self._opened.pool.reads_only

    def _refuse_to_record(self) -> None:
        if self._reads_only:
            raise reads_only(self.url)

    @property
    def trouble(self) -> StoreError | None:
        if self._reads_only:
            return None
        if self._opened is None or not self._opened.member.in_touch:
            return out_of_touch(
                self.url, "" if self._opened is None else self._opened.heartbeat.trouble
            )
        return None

    async def check_reads(self) -> None:
        await self.stat("default")

    async def check_writes(self, name: str | None = None) -> None:
        """Raise only where nothing can be written: a single failing recording raises by itself."""
        self._refuse_to_record()
        if self._opened is not None and self._opened.heartbeat.is_refused:
            await self._report_alive(self._opened)

    async def open(self) -> None:
        """Connect, and create the tables where there are none. Raises StoreAway, StoreError."""
        if self._opened is not None:
            return
        instance = PostgresInstance(self._address, self._lease_s, self._touch_s)
        await instance.open()
        # `primary`: on the disk of the primary; `server`: no further than its memory.
        self.facts = replace(self.facts, durability=instance.pool.durability)
        self._opened = instance

    async def close(self, within_s: float = math.inf) -> None:
        driver, self._opened = self._opened, None
        if driver is not None:
            await driver.close()

    @property
    def _driver(self) -> PostgresInstance:
        if self._opened is None:
            raise closed(self.url)
        return self._opened

    def _for_cassette(self, name: str) -> PostgresInstance:
        driver = self._driver
        check_cassette_name(name)
        return driver

    # Whole cassettes.

    async def release(self, name: str) -> None:
        """Do nothing: a cassette is always in its final form, and keeps its indexes."""
        self._for_cassette(name)

    async def erase(self) -> Sequence[str]:
        """Remove the large bodies that nothing refers to, and name what only the server can wipe."""
        if not self._driver.removed:
            return []
        while await self._driver.write("remove large bodies", partial(bodies.sweep, GRACE_S)):
            pass
        self._driver.removed = False
        return [
            f"{self.url}: PostgreSQL keeps what was removed in its tables until VACUUM FULL rewrites "
            "them, and in its write-ahead log, replicas and backups until these are gone: see to "
            "them where it must not stay readable"
        ]

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        driver = self._for_cassette(name)
        if writable:
            self._refuse_to_record()
        decode = partial(self._decoded, name)
        make = partial(queries.load, name, self._place(name), decode)
        action = f"load '{name}'"
        return await driver.read(action, make, moment=True, long=True)

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        driver, text = self._for_cassette(name), recording_text(recording)
        try:
            await driver.append(name, recording, text)
        except (Alone, IndexTaken):
            await self._append_alone(name, head, recording)

    async def _append_alone(self, name: str, head: CassetteHead, recording: Recording) -> None:
        driver = self._driver
        while True:
            text = recording_text(recording)
            record = partial(
                recordings.record, name, head, recording, text, driver.shard(), driver.member
            )
            try:
                return await driver.record(name, recording, record)
            except IndexTaken:
                # The response is paid for: if the index is taken, use the next.
                item = replace(recording.interaction, index=await self._reserve(name, 1))
                recording = replace(recording, interaction=item)

    async def extend(self, name: str, head: CassetteHead, items: Sequence[AnyInteraction]) -> None:
        driver = self._for_cassette(name)
        texts = await asyncio.to_thread(recordings.with_texts, items)
        while True:
            first = await self._reserve(name, len(texts))
            added = await asyncio.to_thread(recordings.numbered, texts, first)
            make = partial(recordings.extend, name, head, added, driver.shard())
            try:
                return await driver.write(f"add to '{name}'", make, long=True, patient=True)
            except IndexTaken:
                continue

    async def save(
        self, name: str, cassette: StoredCassette, only: Unchanged | None = None
    ) -> bool:
        """Replace the cassette. Its cursors are reset: they counted other recordings."""
        if only is not None:
            stat = await self.stat(name)
            if only.version != (None if stat is None else stat.version):
                return False
        driver, action, head = self._for_cassette(name), f"save '{name}'", cassette.head
        id_ = await driver.write(action, partial(cassettes.add_nameless, head))
        try:
            start = 0
            while start < len(cassette.interactions):
                items = await asyncio.to_thread(
                    recordings.numbered_batch, cassette.interactions, start
                )
                fill = partial(cassettes.fill, id_, items, head, driver.shard())
                await driver.write(action, fill, long=True)
                start += len(items)
            make = partial(cassettes.put_in_place, name, id_, only)
            done, left = await driver.write(action, make, long=True)
        except BaseException:
            await self._remove_rows(id_)
            raise
        if left is not None:
            await self._remove_rows(left)
        return bool(done)

    async def replace_cassette(self, name: str, by: str) -> None:
        driver = self._for_cassette(name)
        if await self.outline(by) is None or name == by:
            return
        before = await driver.write(
            f"replace '{name}'", partial(cassettes.rename, name, by), long=True
        )
        if before is not None:
            await self._remove_rows(before)

    async def remove(self, name: str, only: Unchanged | None = None) -> bool:
        driver, left = self._for_cassette(name), None
        if await self.outline(name) is not None:
            take_out = partial(cassettes.take_out, name, only)
            left = await driver.write(f"remove '{name}'", take_out, long=True)
        if left is not None:
            await self._remove_rows(left)
        elif only is None:
            await self._forget_cursors(name)
        return left is not None

    async def _forget_cursors(self, name: str) -> None:
        await self._driver.turn(f"remove '{name}'", partial(cursors.forget, name))

    async def _remove_rows(self, cassette_id: int) -> None:
        self._driver.note_removal()
        while await self._driver.write(
            "remove recordings", partial(cassettes.remove_some, cassette_id), long=True
        ):
            pass

    async def names(self) -> Sequence[str]:
        return await self._driver.read("list the cassettes", queries.names)

    async def stat(self, name: str) -> CassetteStat | None:
        make = partial(queries.stat, name)
        return await self._for_cassette(name).read(f"read '{name}'", make)

    async def stats(self, names: Sequence[str]) -> Sequence[CassetteStat | None]:
        return [await self.stat(name) for name in names]

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        driver = self._for_cassette(name)
        self._refuse_to_record()
        draft, action = BodyUpload(pieces), "store a large body"
        try:
            while (block := await asyncio.to_thread(draft.take)) or draft.id is None:
                add = partial(bodies.add_block, draft.id, draft.count, block, draft.size)
                draft.id = await driver.write(action, add)
                draft.count += len(block)
            before = await driver.write(action, partial(bodies.finish, draft.id, draft.digest))
            if before is not None:
                await self._remove_body(before)
        except BaseException:
            if draft.id is not None:
                # Where that fails, as on a full disk, a sweep removes it later.
                with suppress(StoreError):
                    await asyncio.shield(self._remove_body(draft.id))
            raise
        return driver.bodies.with_handle(BodyFile("", draft.size, draft.digest.hex()))

    async def _remove_body(self, body: int) -> None:
        while await self._driver.write("remove a large body", partial(bodies.remove_block, body)):
            pass

    async def check(self) -> Sequence[str]:
        """Whether counts, keys, digests and the pieces of large bodies agree."""
        return await self._driver.read("check", queries.check, long=True)

    # Single recordings.

    async def outline(self, name: str) -> Outline | None:
        make = partial(queries.outline, name, self._place(name))
        outline = await self._for_cassette(name).read(f"read '{name}'", make)
        if outline is not None and name not in self._with_current_keys:
            await self._renew_keys(name, outline.head)
        return outline

    async def _renew_keys(self, name: str, head: CassetteHead) -> None:
        """Compute the keys of a cassette anew that an earlier tapeway computed."""
        # Before the change, which reads the outline too.
        self._with_current_keys.add(name)
        action, make = f"read '{name}'", partial(cassettes.has_old_keys, name)
        if await self._for_cassette(name).read(action, make):
            with suppress(StoreError):
                # Where nothing can be written the recordings answer what has an equal key by chance.
                await self.replace_head(name, head)

    async def documents(self, name: str, indexes: Sequence[int]) -> Sequence[TakenRecording]:
        return await self._recordings(name, partial(queries.documents, name, indexes), held=True)

    async def body(self, name: str, digest: str) -> BodyFile | None:
        driver = self._for_cassette(name)
        size = await driver.read("find a large body", partial(bodies.size_of, name, digest))
        return None if size is None else driver.bodies.with_handle(BodyFile("", size, digest))

    async def page(self, name: str, *, after: int | None, limit: int) -> Sequence[TakenRecording]:
        """Raises CassetteEdited where interaction `after` was removed."""
        make = partial(queries.page, name, after, limit)
        return await self._recordings(name, make, moment=True)

    async def near(self, name: str, method: str, path: str, limit: int) -> Sequence[TakenRecording]:
        driver = self._for_cassette(name)
        make = partial(queries.near, name, method, path, limit)
        action = f"read recordings of '{name}'"
        read = await driver.read(action, make, moment=True)
        return await asyncio.to_thread(self._near, name, read)

    def _near(self, name: str, read: Sequence[Row]) -> Sequence[TakenRecording]:
        """These recordings, without large bodies."""
        documents = [(number, document) for _, number, _, document, _ in read]
        items = self._last_near.items(
            name, documents, lambda text, index: interaction_of(text, index, self._place(name))
        )
        return [
            TakenRecording(item, take, place)
            for item, (place, _, take, _, _) in zip(items, read, strict=True)
        ]

    async def neighbours(self, name: str, asked: SoughtRequest) -> Sequence[TakenRecording]:
        driver = self._for_cassette(name)
        make = partial(queries.neighbours, name, asked)
        action = f"read recordings of '{name}'"
        read = await driver.read(action, make, moment=True)
        step = Yielding(BRIEF_S).step
        return await asyncio.to_thread(self._decoded, name, read, held=True, step=step)

    async def alike(self, name: str, key: bytes) -> Sequence[TakenRecording]:
        return await self._recordings(name, partial(queries.alike, name, key), moment=True)

    async def issuers(self, name: str, keys: Sequence[bytes]) -> Mapping[bytes, Issuer]:
        make = partial(queries.issuers, name, keys)
        action = f"read recordings of '{name}'"
        return await self._for_cassette(name).read(action, make, moment=True)

    async def used(self, name: str, takes: Sequence[int]) -> Collection[int]:
        make = partial(queries.used, name, takes)
        return await self._for_cassette(name).read(f"read cursors of '{name}'", make, long=True)

    async def titles(self, name: str, numbers: Sequence[int]) -> Sequence[RecordingTitle]:
        make = partial(queries.titles, name, numbers)
        return await self._for_cassette(name).read(f"read recordings of '{name}'", make, long=True)

    async def reserve(self, name: str) -> int:
        return await self._for_cassette(name).reserve(name)

    async def _reserve(self, name: str, count: int) -> int:
        action = f"number the recordings of '{name}'"
        # A recording makes its number durable, and a number that is taken is found out.
        reserve = partial(cursors.reserve, name, count)
        return await self._driver.turn(action, reserve, durable=False)

    async def edit(
        self, name: str, index: int, changed: AnyInteraction | None, condition: Condition = ANY
    ) -> bool:
        driver = self._for_cassette(name)
        if await self.outline(name) is None:
            return False
        item = None if changed is None else replace(changed, index=index)
        new = None if item is None else (item, imported_text(item))
        make = partial(recordings.edit, name, index, new, condition, driver.shard())
        done = await driver.write(f"edit '{name}'", make)
        if done:
            driver.note_removal()
        return done

    async def replace_head(self, name: str, head: CassetteHead) -> None:
        driver = self._for_cassette(name)
        action = f"change the rules of '{name}'"
        while True:
            outline = await self.outline(name)
            old = partial(cassettes.has_old_keys, name)
            is_old = await driver.read(action, old)
            if outline is None or (outline.head == head and not is_old):
                return
            begun = await driver.write(action, partial(cassettes.begin_rekey, name, head))
            if begun is None or await self._rekey(action, *begun, head):
                return
            # Another process changes the rules: wait for its result, then compare again.
            while await driver.read(action, partial(cassettes.is_changing, name)):  # noqa: ASYNC110
                await asyncio.sleep(_POLL_S)

    async def _rekey(
        self, action: str, cassette_id: int, generation: int, head: CassetteHead
    ) -> bool:
        """Index the recordings by the head's rules; False if another change came in between."""
        after: int | None = -1
        while after is not None:
            step = partial(cassettes.rekey, cassette_id, generation, head, after)
            after = await self._driver.write(action, step, long=True)
            if after is None:
                return False
            if after < 0:
                break
        while await self._driver.write(action, partial(cassettes.forget_keys, cassette_id)):
            pass
        return True

    async def since(self, name: str, seen: int) -> LogPage | None:
        """The first rows of a cassette's log after a revision, None where there is no cassette."""
        make = partial(log.since, name, seen)
        return await self._for_cassette(name).read(f"follow '{name}'", make)

    # Cursors.

    async def cursors(
        self, name: str, take: int, keys: Sequence[bytes]
    ) -> Mapping[bytes, CursorState]:
        read = partial(cursors.read, name, take, keys)
        return await self._for_cassette(name).read(f"read cursors of '{name}'", read)

    def advance(self, move: CursorMove, done: MoveDone) -> None:
        self._driver.moves.add(move, done)

    # Leases.

    async def claim(self, name: str, key: bytes, *, wait: bool = False) -> Lease | None:
        driver = self._for_cassette(name)
        await self._begin_beating(driver)
        claim = self._claim(driver, Lease(name, key, secrets.randbits(62)))
        lease = await driver.background.run(claim, abandoned=self._give_back_later)
        if lease is None and wait:
            make = partial(coordination.is_held, name, key, driver.member)
            action = f"read a lease of '{name}'"
            await driver.wait_for_end(name, key, lambda: driver.read(action, make))
        return lease

    async def _begin_beating(self, driver: PostgresInstance) -> None:
        if not driver.member.beats:
            await driver.background.run(self._report_alive(driver))

    async def _report_alive(self, driver: PostgresInstance) -> None:
        make = partial(coordination.beat, driver.member)
        await driver.turn("report that this instance is alive", make)
        if not driver.member.beats:
            driver.member.beats = True
            driver.go_on_beating()

    async def _claim(self, driver: PostgresInstance, lease: Lease) -> Lease | None:
        make = partial(coordination.claim, lease.name, lease.key, lease.fence, driver.member)
        try:
            free = await driver.claim(lease)
            if not free and not await driver.turn(
                f"claim a lease of '{lease.name}'", make, once=True
            ):
                return None
        except StoreError:
            # The claim may have been committed, and nobody else knows the fence.
            driver.member.unreleased.append(lease)
            raise
        driver.claimed(lease)
        return lease

    def _give_back_later(self, lease: Lease | None) -> None:
        if lease is not None:
            self._driver.member.unreleased.append(lease)

    async def release_lease(self, lease: Lease) -> None:
        """If the store cannot be written now, release the lease as soon as it can be written."""
        await self._driver.background.run(self._release_lease(self._driver, lease))

    async def _release_lease(self, driver: PostgresInstance, lease: Lease) -> None:
        if driver.has_ended(lease):
            return
        action = f"give back a lease of '{lease.name}'"
        try:
            await driver.turn(action, partial(coordination.give_back, lease, driver.member))
        except StoreError:
            driver.member.unreleased.append(lease)
        driver.ended(lease)

    async def fences(self, name: str) -> frozenset[int]:
        driver = self._for_cassette(name)
        make = partial(coordination.fences, name, driver.member)
        return await driver.read(f"read the leases of '{name}'", make)

    # What is in force.

    async def join(self, wanted: Control, apply: Callable[[Control], None]) -> Control:
        driver = self._driver
        self._refuse_to_record()
        make, asked_at = partial(coordination.join, wanted, driver.member), driver.member.clock()
        text, others = await driver.turn("join the other instances", make, once=True)
        control = coordination.read_back(text)
        driver.member.follow(control, apply, asked_at)
        await self._begin_beating(driver)
        await driver.joined(control, alone=not others)
        return control

    async def confirm(self) -> None:
        await self._driver.confirm()

    async def steer(self, change: Callable[[Control], Control]) -> Control:
        driver, make = self._driver, partial(coordination.steer, change)
        text = await driver.background.run(driver.turn("change what is in force", make, once=True))
        control = coordination.read_back(text)
        driver.steered(control)
        return control

    async def instances(self) -> Sequence[str]:
        driver = self._driver
        return await driver.read("list the instances", partial(coordination.live, driver.member))

    async def _recordings(
        self,
        name: str,
        make: Work[Sequence[Row]],
        *,
        moment: bool = False,
        held: bool = False,
    ) -> Sequence[TakenRecording]:
        action = f"read recordings of '{name}'"
        read = await self._for_cassette(name).read(action, make, moment=moment)
        return await self._found(name, read, held=held)

    async def _found(
        self, name: str, read: Sequence[Row], *, held: bool
    ) -> Sequence[TakenRecording]:
        if sum([len(document) for _, _, _, document, _ in read]) > _IN_THREAD_BYTES:
            return await asyncio.to_thread(self._decoded, name, read, held=held)
        return self._decoded(name, read, held=held)

    def _decoded(
        self,
        name: str,
        read: Sequence[Row],
        *,
        held: bool = False,
        step: Callable[[], None] = no_pause,
    ) -> list[TakenRecording]:
        with_bodies = self._driver.bodies.with_bodies
        return rows.recordings_of(read, self._place(name), with_bodies, held=held, step=step)

    def _place(self, name: str) -> str:
        return f"{self._driver.place}, cassette '{name}'"
