"""A store of cassettes in a SQL database: what is the same for all databases.

Each driver brings connections and transactions, the news between instances, and the cursors of
waiting hits.
"""

import asyncio
import math
import secrets
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Generic, Protocol, TypeVar

from tapeway.cooperative import BRIEF_S, Yielding
from tapeway.core.http.routing import check_cassette_name
from tapeway.core.misses.neighbours import SoughtRequest
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
from tapeway.core.model.condition import ANY, Condition, Unchanged
from tapeway.core.model.control import Control, CursorMove
from tapeway.core.model.interaction import AnyInteraction
from tapeway.core.model.messages import BodyFile
from tapeway.core.text import no_pause
from tapeway.errors import StoreError, closed
from tapeway.ports import Found, FoundUnused, Issuer, MoveDone, StoreFacts
from tapeway.stores.sql import bodies, cassettes, coordination, cursors, queries, recordings, rows
from tapeway.stores.sql.coordination import Member
from tapeway.stores.sql.last_decoded import LastDecoded
from tapeway.stores.sql.recordings import IndexTaken
from tapeway.stores.sql.statements import Op, Row
from tapeway.stores.support.background_tasks import BackgroundTasks
from tapeway.stores.support.columns import imported_text, interaction_of, recording_text
from tapeway.stores.support.large_bodies import BodyCache, BodyUpload

T = TypeVar("T")
Make = Callable[[], Op[T]]
"""Makes an operation, anew for each try."""

_IN_THREAD_BYTES = 256 * 1024
"""Documents of more bytes than this are decoded in a thread."""

_APPLIED_WITHIN_S = 2.0
"""How long a change waits for the other instances to apply it."""

_POLL_S = 0.02
_NO_ROWS: Sequence[Row] = ()


class Reach(Enum):
    """How much a query reads: a look-up waits for no scan, and a scan for no export."""

    LOOK = "look"
    SCAN = "scan"
    WHOLE = "whole"


class Moves(Protocol):
    """Makes the steps of cursors, in the order in which they were added."""

    def add(self, move: CursorMove, done: MoveDone) -> None: ...


class Driver(Protocol):
    """Runs operations on one database, between the store's opening and its end."""

    @property
    def place(self) -> str:
        """The database, as errors name it."""

    @property
    def bodies(self) -> BodyCache: ...

    @property
    def background(self) -> BackgroundTasks:
        """Runs what a cancelled caller must not stop."""

    @property
    def moves(self) -> Moves: ...

    def shard(self) -> int:
        """The row of counts that a transaction is to use."""

    async def read(
        self,
        action: str,
        make: Make[T],
        otherwise: T,
        *,
        reach: Reach = Reach.LOOK,
        cursors: bool = False,
        moment: bool = False,
        long: bool = False,
    ) -> T:
        """The result of a query, `otherwise` where there is no database yet.

        It may read `cursors` and what was used too. All its statements see one `moment`. It takes
        `long` where it may read a whole cassette in one statement.
        """

    async def write(
        self, action: str, make: Make[T], *, long: bool = False, patient: bool = False
    ) -> T:
        """The result of a transaction, durable on return, made once however often it is tried.

        The result is JSON. What is paid for is `patient`, what reads or writes a cassette `long`.
        """

    async def record(self, name: str, recording: Recording, make: Make[None]) -> None:
        """Run the transaction of a recording, in the order of the calls. Raises IndexTaken."""

    def use_lease(self, lease: Lease) -> Op[None]:
        """End a lease, in the transaction of its recording. Raises Fenced."""

    async def turn(
        self, action: str, make: Make[T], *, once: bool = False, durable: bool = True
    ) -> T:
        """The result of a transaction on cursors, numbers, leases or instances.

        A transaction may be made twice unless `once` is set; its result is JSON then. Without
        `durable` a crash of the database may undo the transaction.
        """

    async def read_turns(self, action: str, make: Make[T]) -> T:
        """The result of a query on these tables."""

    def note_removal(self) -> None:
        """Something was removed that must not stay readable."""

    async def close(self) -> None: ...

    # What instances share.

    @property
    def member(self) -> Member:
        """This instance."""

    def go_on_beating(self) -> None:
        """Report regularly that this instance is alive. The first report was made."""

    def bury(self) -> Op[None]:
        """Remove the instances that are known to have ended."""

    async def claimed(self, lease: Lease, lost: Sequence[int]) -> None:
        """Note a lease that this instance has claimed, and refuse recordings under the `lost` fences.

        Raises StoreError.
        """

    def has_ended(self, lease: Lease) -> bool:
        """Whether the transaction of a recording ended a lease of this instance, as far as is known."""

    def ended(self, lease: Lease) -> None:
        """Tell waiting instances that a lease of this instance has ended."""

    async def wait_for_end(
        self, name: str, key: bytes, held: Callable[[], Awaitable[bool]]
    ) -> None:
        """Wait until a lease may have ended, at most a second."""

    async def takes(self) -> int:
        """How many takes ever began, 0 if the state in force is what tells it. Raises StoreError."""

    async def joined(self, control: Control, *, alone: bool) -> None:
        """This instance joined the others."""

    async def steered(self, control: Control) -> None:
        """This instance changed what is in force: apply it, and tell the others."""


D = TypeVar("D", bound=Driver)


class SqlStore(Generic[D]):
    """The part of a store that is the same over every driver."""

    def __init__(self, url: str, facts: StoreFacts) -> None:
        self.url = url
        self.facts = facts
        self._opened: D | None = None
        self._last_near = LastDecoded()
        self._with_current_keys = set[str]()

    async def close(self, within_s: float = math.inf) -> None:
        driver, self._opened = self._opened, None
        if driver is not None:
            await driver.close()

    @property
    def _driver(self) -> D:
        if self._opened is None:
            raise closed(self.url)
        return self._opened

    @abstractmethod
    async def _before_writing(self) -> None:
        """Raise StoreError where nothing can be written."""

    def _for_cassette(self, name: str) -> Driver:
        driver = self._driver
        check_cassette_name(name)
        return driver

    # Whole cassettes.

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        driver = self._for_cassette(name)
        if writable:
            await self._before_writing()
        decode = partial(self._decoded, name)
        make = partial(queries.load, name, self._place(name), decode)
        action = f"load '{name}'"
        return await driver.read(action, make, None, reach=Reach.WHOLE, moment=True, long=True)

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        driver = self._for_cassette(name)
        while True:
            try:
                await driver.record(name, recording, partial(self._record, name, head, recording))
                return
            except IndexTaken:
                # The response is paid for: if the index is taken, use the next.
                item = replace(recording.interaction, index=await self._reserve(name, 1))
                recording = replace(recording, interaction=item)

    def _record(self, name: str, head: CassetteHead, recording: Recording) -> Op[None]:
        driver, text = self._driver, recording_text(recording)
        return recordings.record(name, head, recording, text, driver.shard(), driver.use_lease)

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
        return await self._driver.read("list the cassettes", queries.names, [])

    async def stat(self, name: str) -> CassetteStat | None:
        make = partial(queries.stat, name)
        return await self._for_cassette(name).read(f"read '{name}'", make, None)

    async def stats(self, names: Sequence[str]) -> Sequence[CassetteStat | None]:
        return [await self.stat(name) for name in names]

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        driver = self._for_cassette(name)
        await self._before_writing()
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
        return await self._driver.read("check", queries.check, [], reach=Reach.WHOLE, long=True)

    # Single recordings.

    async def outline(self, name: str) -> Outline | None:
        make = partial(queries.outline, name, self._place(name))
        outline = await self._for_cassette(name).read(f"read '{name}'", make, None)
        if outline is not None and name not in self._with_current_keys:
            await self._renew_keys(name, outline.head)
        return outline

    async def _renew_keys(self, name: str, head: CassetteHead) -> None:
        """Compute the keys of a cassette anew that an earlier tapeway computed."""
        # Before the change, which reads the outline too.
        self._with_current_keys.add(name)
        action, make = f"read '{name}'", partial(cassettes.has_old_keys, name)
        if await self._for_cassette(name).read(action, make, otherwise=False):
            with suppress(StoreError):
                # Where nothing can be written the recordings answer what has an equal key by chance.
                await self.replace_head(name, head)

    async def get(self, name: str, index: int) -> TakenRecording | None:
        items = await self._recordings(name, partial(queries.get, name, index))
        return items[0] if items else None

    async def body(self, name: str, digest: str) -> BodyFile | None:
        driver = self._for_cassette(name)
        size = await driver.read("find a large body", partial(bodies.size_of, name, digest), None)
        return None if size is None else driver.bodies.with_handle(BodyFile("", size, digest))

    async def page(self, name: str, *, after: int | None, limit: int) -> Sequence[TakenRecording]:
        """Raises CassetteEdited where interaction `after` was removed."""
        make = partial(queries.page, name, after, limit)
        return await self._recordings(name, make, reach=Reach.WHOLE, moment=True)

    async def near(self, name: str, method: str, path: str, limit: int) -> Sequence[TakenRecording]:
        driver = self._for_cassette(name)
        make = partial(queries.near, name, method, path, limit)
        action = f"read recordings of '{name}'"
        read = await driver.read(action, make, _NO_ROWS, reach=Reach.SCAN, moment=True)
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
        read = await driver.read(action, make, _NO_ROWS, reach=Reach.SCAN, moment=True)
        step = Yielding(BRIEF_S).step
        return await asyncio.to_thread(self._decoded, name, read, held=True, step=step)

    async def alike(self, name: str, key: bytes) -> Sequence[TakenRecording]:
        return await self._recordings(name, partial(queries.alike, name, key), moment=True)

    async def issuers(self, name: str, keys: Sequence[bytes]) -> Mapping[bytes, Issuer]:
        make = partial(queries.issuers, name, keys)
        action = f"read recordings of '{name}'"
        return await self._for_cassette(name).read(action, make, {}, moment=True)

    async def unused(self, name: str, takes: Sequence[int], limit: int) -> FoundUnused:
        make = partial(queries.unused, name, takes, limit)
        return await self._for_cassette(name).read(
            f"read recordings of '{name}'",
            *(make, FoundUnused(0, ())),
            reach=Reach.SCAN,
            cursors=True,
            long=True,
        )

    async def duplicates(self, name: str, limit: int) -> Sequence[Sequence[RecordingTitle]]:
        make = partial(queries.duplicates, name, limit)
        return await self._for_cassette(name).read(
            f"read recordings of '{name}'", make, [], reach=Reach.SCAN, moment=True, long=True
        )

    async def unrouted_prefixes(
        self, name: str, base: str, prefixes: Sequence[str]
    ) -> Sequence[str]:
        make = partial(queries.unrouted_prefixes, name, base, prefixes)
        return await self._for_cassette(name).read(
            f"read recordings of '{name}'", make, [], reach=Reach.WHOLE, long=True
        )

    async def reserve(self, name: str) -> int:
        self._for_cassette(name)
        return await self._reserve(name, 1)

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
            is_old = await driver.read(action, old, otherwise=False)
            if outline is None or (outline.head == head and not is_old):
                return
            begun = await driver.write(action, partial(cassettes.begin_rekey, name, head))
            if begun is None or await self._rekey(action, *begun, head):
                return
            # Another process changes the rules: wait for its result, then compare again.
            while await driver.read(action, partial(cassettes.is_changing, name), otherwise=False):  # noqa: ASYNC110
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

    # Cursors.

    async def look(
        self, name: str, take: int, keys: Sequence[bytes], digests: Sequence[bytes]
    ) -> Found:
        driver = self._for_cassette(name)
        look = partial(queries.look, name, take, keys, digests)
        action = f"read recordings of '{name}'"
        looked_up = await driver.read(action, look, None, cursors=bool(keys))
        if looked_up is None:
            # Cursors may be there before the first recording is.
            make = partial(cursors.read, name, take, keys)
            turns = await driver.read_turns(f"read the cursors of '{name}'", make) if keys else {}
            return Found(turns, [], None)
        turns, read, version = looked_up
        recordings = await self._found(name, read, held=True)
        return Found(turns, recordings, self._version_found(version, digests, read))

    def _version_found(
        self, version: str | None, digests: Sequence[bytes], found: Sequence[Row]
    ) -> str | None:
        """The version of a cassette, as the steps of cursors compare it."""
        return version

    def advance(self, move: CursorMove, done: MoveDone) -> None:
        self._driver.moves.add(move, done)

    # Leases.

    async def claim(self, name: str, key: bytes, *, wait: bool = False) -> Lease | None:
        driver = self._for_cassette(name)
        await self._begin_beating(driver)
        claim = self._claim(driver, Lease(name, key, secrets.randbits(62)))
        lease = await driver.background.run(claim, abandoned=self._give_back_later)
        if lease is None and wait:
            make = partial(coordination.is_held, name, key, driver.member, driver.bury)
            action = f"read a lease of '{name}'"
            await driver.wait_for_end(name, key, lambda: driver.read_turns(action, make))
        return lease

    async def _begin_beating(self, driver: Driver) -> None:
        if not driver.member.beats:
            await driver.background.run(self._report_alive(driver))

    async def _report_alive(self, driver: Driver) -> None:
        make, asked_at = partial(coordination.beat, driver.member), driver.member.clock()
        await driver.turn("report that this instance is alive", make)
        driver.member.beaten(asked_at)
        if not driver.member.beats:
            driver.member.beats = True
            driver.go_on_beating()

    async def _claim(self, driver: Driver, lease: Lease) -> Lease | None:
        at = lease.name, lease.key, lease.fence
        make = partial(coordination.claim, *at, driver.member, driver.bury)
        try:
            lost = await driver.turn(f"claim a lease of '{lease.name}'", make, once=True)
            if lost is None:
                return None
            await driver.claimed(lease, lost)
        except StoreError:
            # The claim may have been committed, and nobody else knows the fence.
            driver.member.unreleased.append(lease)
            raise
        return lease

    def _give_back_later(self, lease: Lease | None) -> None:
        if lease is not None:
            self._driver.member.unreleased.append(lease)

    async def release_lease(self, lease: Lease) -> None:
        """If the store cannot be written now, release the lease as soon as it can be written."""
        await self._driver.background.run(self._release_lease(self._driver, lease))

    async def _release_lease(self, driver: Driver, lease: Lease) -> None:
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
        make = partial(coordination.fences, name, driver.member, driver.bury)
        return await driver.read_turns(f"read the leases of '{name}'", make)

    # What is in force.

    async def join(self, wanted: Control, apply: Callable[[Control], None]) -> Control:
        driver = self._driver
        takes, asked_at = await driver.takes(), driver.member.clock()
        make = partial(coordination.join, wanted, driver.member, takes, driver.bury)
        text, others = await driver.turn("join the other instances", make, once=True)
        control = coordination.read_back(text)
        driver.member.follow(control, apply, asked_at)
        await self._begin_beating(driver)
        await driver.joined(control, alone=not others)
        return control

    async def steer(self, change: Callable[[Control], Control]) -> tuple[Control, Sequence[str]]:
        driver, make = self._driver, partial(coordination.steer, change)
        text = await driver.background.run(driver.turn("change what is in force", make, once=True))
        control = coordination.read_back(text)
        await driver.steered(control)
        until = time.monotonic() + _APPLIED_WITHIN_S
        while laggards := await self.behind(control.generation):
            if time.monotonic() >= until:
                break
            await asyncio.sleep(_POLL_S)
        return control, laggards

    async def behind(self, generation: int) -> Sequence[str]:
        driver = self._driver
        make = partial(coordination.behind, generation, driver.member, driver.bury)
        return tuple(await driver.read_turns("see which instances applied the change", make))

    async def _recordings(
        self,
        name: str,
        make: Make[Sequence[Row]],
        *,
        reach: Reach = Reach.LOOK,
        moment: bool = False,
        held: bool = False,
    ) -> Sequence[TakenRecording]:
        action = f"read recordings of '{name}'"
        read = await self._for_cassette(name).read(
            action, make, _NO_ROWS, reach=reach, moment=moment
        )
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
