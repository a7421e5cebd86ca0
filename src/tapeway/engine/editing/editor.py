"""Changes cassettes while they are served: appends, edits, replaces and removes.

Every change is durable when it is answered. `LoadedEditor` takes a cassette in memory out of use
while it is changed. `SharedEditor` changes a cassette in one step of the shared store.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from tapeway.body_files import body_pieces
from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.core.model.condition import ANY, Condition, Unchanged, changed_meanwhile
from tapeway.core.model.interaction import AnyInteraction, large_bodies
from tapeway.core.model.messages import BodyFile
from tapeway.core.redaction.known_values import KnownValues
from tapeway.engine.cassettes.context import T
from tapeway.engine.cassettes.source import Source
from tapeway.engine.editing.changes import (
    Addition,
    Appended,
    CassetteContents,
    Changed,
    Extended,
    IdempotencyReceipts,
    Receipt,
    Reference,
    SpooledInteractions,
    digest_of,
    no_cassette,
)
from tapeway.engine.editing.large_bodies import (
    UploadedBodies,
    by_digest,
    moved_to_files,
    with_stored_bodies,
)
from tapeway.engine.editing.screening import ScreenedItems, Secrets, screen
from tapeway.errors import CassetteEdited, CassetteLocked, recording_edited
from tapeway.formats.native import document
from tapeway.ports import CassetteStore


@dataclass(frozen=True, slots=True)
class AppendCall:
    """A call to append interactions, with the progress."""

    additions: Sequence[Addition]
    head: CassetteHead | None
    """The metadata of a cassette created by this call."""
    secrets: Secrets
    receipt: Receipt
    with_key: bool
    """Whether it has an idempotency key."""
    expected: int | None = None
    """How many interactions the cassette must have."""

    def missing(
        self, items: Sequence[AnyInteraction]
    ) -> Iterator[tuple[int, Addition, AnyInteraction]]:
        """The additions that are not stored yet: number, addition, and the item to be stored."""
        for number, (addition, item) in enumerate(zip(self.additions, items, strict=True)):
            if number not in self.receipt.appended:
                yield number, addition, item

    def stored(self, number: int, item: AnyInteraction) -> None:
        """Note that an addition is durable."""
        self.receipt.appended[number] = Appended(item.index, document.interaction_digest(item))


class AppendTarget(Protocol):
    """A cassette while something is appended to it."""

    name: str
    head: CassetteHead

    @property
    def count(self) -> int:
        """How many interactions the cassette has."""

    async def note_repeated(self, call: AppendCall, items: Sequence[AnyInteraction]) -> None:
        """Note in the receipt interactions that came before, perhaps to another process."""

    async def index(self, wanted: int | None) -> int:
        """The index of the next interaction, which may ask for an index."""

    async def superseded(self, wanted: Sequence[Reference]) -> tuple[int, ...]:
        """The indexes of wanted interactions that still exist."""

    def added(self, recording: Recording) -> None:
        """Note that a recording is durable."""


Append = Callable[[AppendTarget], Awaitable[None]]
"""Appends to a cassette, which is ready to be appended to."""

MakeChanged = Callable[[CassetteHead, AnyInteraction], Awaitable[AnyInteraction | None]]
"""Makes the replacement of an interaction, None to remove it. Raises AdminError (412, 422)."""


class Editor(ABC):
    """Changes the cassettes of a store."""

    def __init__(self, source: Source, store: CassetteStore, known: KnownValues) -> None:
        self._source = source
        self._store = store
        self._known = known
        self._receipts = IdempotencyReceipts()
        self._bodies = UploadedBodies()

    async def stored(self, name: str) -> StoredCassette | None:
        """A cassette as stored now, or None where there is none."""
        return await self._source.read(name, as_stored=True)

    @abstractmethod
    async def walk(self, name: str, after: int | None = None) -> CassetteContents | None:
        """Metadata and interactions, from behind an index or all, to be iterated once.

        Raises CassetteEdited where no interaction has the index any more.
        """

    @abstractmethod
    async def body(self, name: str, digest: str) -> BodyFile | None:
        """A large body of a cassette, or None for an unknown digest."""

    @abstractmethod
    async def _settled(self, name: str) -> bool:
        """Write a cassette's final form and let go; False where this process uses the cassette."""

    @abstractmethod
    async def _bodies_of(self, name: str, digests: Set[str]) -> Mapping[str, BodyFile]:
        """The large bodies of the cassette with these digests."""

    @abstractmethod
    async def _change(self, name: str, work: Callable[[bool], Awaitable[T]]) -> T:
        """Change a cassette for all instances; `work` hears whether it was loaded here."""

    async def _unchanged(self, name: str, condition: Condition) -> Unchanged | None:
        """The version of a cassette that fulfils a condition; None without a condition.

        Raises AdminError (412).
        """
        if not condition.given:
            return None
        digest, version = await self._state(name, with_digest=condition.match is not None)
        condition.check(digest)
        return Unchanged(version)

    @abstractmethod
    async def _state(self, name: str, *, with_digest: bool) -> tuple[str | None, str | None]:
        """The digest and the version of a cassette, None for no cassette.

        Without `with_digest` any text stands for the digest. Raises AdminError (412) for a change
        in between.
        """

    @abstractmethod
    async def _edit(
        self, name: str, index: int, condition: Condition, make: MakeChanged
    ) -> Appended | None:
        """Change one interaction. Raises AdminError (404)."""

    @abstractmethod
    async def _append_to(self, name: str, head: CassetteHead | None, work: Append) -> None:
        """Append to a cassette; the call may create the cassette with a head."""

    async def release(self, name: str) -> bool:
        """Write a cassette's final form and let go, unless this process uses the cassette."""
        if not await self._settled(name):
            return False
        self._bodies.forget(name)
        return True

    async def put(
        self,
        name: str,
        cassette: StoredCassette,
        condition: Condition = ANY,
        secrets: Secrets = "refuse",
        *,
        as_sent: bool = False,
    ) -> Changed:
        """Replace a whole cassette for all instances, if the condition holds in that moment.

        A cassette in use is loaded anew. Large bodies go where the store keeps such, unless the
        cassette is kept `as_sent`. Raises AdminError (412, 422).
        """

        async def work(loaded: bool) -> Changed:
            only = await self._unchanged(name, condition)
            spooled = cassette.interactions
            given = () if isinstance(spooled, SpooledInteractions) else spooled
            prepared = await self._prepare(
                name, cassette.head, given, secrets, meta=True, move=not as_sent
            )
            after, replaced = StoredCassette(prepared.head, prepared.items), prepared.replaced
            if isinstance(spooled, SpooledInteractions):
                # Spooled interactions are prepared already.
                after, replaced = replace(after, interactions=spooled), replaced + spooled.replaced
            with _condition_at_save(condition):
                while not await self._store.save(name, after, only):
                    # Perhaps only its times, or there and back: the digest decides.
                    only = await self._unchanged(name, condition)
            await self._store.release(name)
            self._bodies.forget(name)
            return Changed(await digest_of(after) or "", replaced)

        return await self._change(name, work)

    async def remove(self, name: str, condition: Condition = ANY) -> None:
        """Delete a cassette, if the condition holds in that moment.

        Raises AdminError (404, 412), CassetteLocked.
        """

        async def work(loaded: bool) -> None:
            if condition.given and not loaded and await self._store.stat(name) is None:
                raise no_cassette(name)
            with _condition_at_save(condition):
                only = await self._unchanged(name, condition)
                while not (removed := await self._store.remove(name, only)):
                    if only is None or only.version is None:
                        break
                    only = await self._unchanged(name, condition)
            if not removed and not loaded:
                raise no_cassette(name)
            self._bodies.forget(name)
            self._receipts.forget(name)

        await self._change(name, work)

    async def edit(
        self,
        name: str,
        index: int,
        changed: AnyInteraction | None,
        condition: Condition = ANY,
        secrets: Secrets = "refuse",
    ) -> Appended | None:
        """Replace one interaction, or remove it; returns where the new interaction is now.

        The condition is about this one interaction. Raises AdminError (404, 412).
        """

        async def make(head: CassetteHead, before: AnyInteraction) -> AnyInteraction | None:
            condition.check(document.interaction_digest(before))
            if changed is None:
                return None
            return (await self._prepare(name, head, [changed], secrets, [before])).items[0]

        with _condition_at_save(condition):
            return await self._edit(name, index, condition, make)

    async def keep(self, name: str, file: BodyFile) -> None:
        """Store a large body for a later interaction; durable on return.

        The digest is checked during the write. Raises StoreError.
        """

        async def work(target: AppendTarget) -> None:
            self._bodies.add(name, await self._store.keep(name, body_pieces(file)))

        await self._append_to(name, None, work)

    async def append(
        self,
        name: str,
        additions: Sequence[Addition],
        *,
        head: CassetteHead | None = None,
        key: str | None = None,
        sent: str = "",
        secrets: Secrets = "refuse",
        expected: int | None = None,
    ) -> Extended:
        """Add interactions, durable on return; with a key, once however often it is asked.

        `head` is the metadata of a cassette that this call creates, `sent` the digest of the call's
        body. With `expected`, CassetteLocked where the cassette has another number of interactions.
        Nothing is kept where an AdminError is raised; where a StoreError is, asking again with the
        same key goes on from there.
        """
        receipt = self._receipts.of(name, key, sent, len(additions))
        async with receipt.lock:
            if len(receipt.appended) < len(additions):
                if head is not None:
                    head = (await self._prepare(name, head, (), secrets, meta=True)).head
                call = AppendCall(additions, head, secrets, receipt, key is not None, expected)
                await self._append_to(name, call.head, partial(self._append, call))
            return Extended(
                *(receipt.head, receipt.count),
                tuple([receipt.appended[number] for number in range(len(additions))]),
            )

    async def _append(self, call: AppendCall, target: AppendTarget) -> None:
        """Append what is missing, and fill in the receipt."""
        name, head = target.name, target.head
        call.receipt.head = document.head_digest(head)
        given = [addition.item for addition in call.additions]
        kept = await self._prepare(name, head, given, call.secrets, move=call.secrets != "keep")
        await target.note_repeated(call, kept.items)
        if call.expected is not None and not call.receipt.appended:
            _check_count(name, call.expected, target.count)
        steps: list[tuple[int, Recording]] = []
        for number, addition, item in call.missing(kept.items):
            index = await target.index(addition.index)
            superseded = await target.superseded(addition.supersedes)
            required = [reference for reference in addition.supersedes if reference.required]
            if required and len(superseded) < len(addition.supersedes):
                raise recording_edited(name, required[0].index)
            steps.append((number, Recording(replace(item, index=index), superseded)))

        async def record(number: int, recording: Recording) -> None:
            await self._store.append(name, head, recording)
            call.stored(number, recording.interaction)
            target.added(recording)

        await finish_all([record(*step) for step in steps])
        call.receipt.count = target.count

    async def _prepare(
        self,
        name: str,
        head: CassetteHead,
        items: Sequence[AnyInteraction],
        secrets: Secrets,
        before: Sequence[AnyInteraction] = (),
        *,
        meta: bool = False,
        move: bool = True,
        first: int = 0,
    ) -> ScreenedItems:
        """What may be stored: with large bodies found, without secrets.

        Large bodies are looked for among uploaded bodies and in `before`. `meta` says whether
        the metadata is stored too, `move` whether the store is to hold large bodies apart.
        """
        if any(map(large_bodies, items)):
            bodies = {**self._bodies.of(name), **by_digest(before)}
            if missing := by_digest(items).keys() - bodies.keys():
                bodies |= await self._bodies_of(name, missing)
            items = [with_stored_bodies(item, bodies) for item in items]
        screened = await asyncio.to_thread(
            partial(screen, head, items, self._known, secrets, meta=meta, first=first)
        )
        if not move:
            return screened
        moved = await moved_to_files(self._store, name, screened.items)
        return replace(screened, items=moved)

    async def spool(
        self,
        name: str,
        head: CassetteHead,
        items: Sequence[AnyInteraction],
        secrets: Secrets,
        spooled: SpooledInteractions,
    ) -> None:
        """Add interactions of a cassette that is put once all are spooled.

        Raises AdminError (422) for secrets that are refused and large bodies that are not there.
        """
        bodies = self._bodies.of(name)
        for digest in by_digest(items).keys() - bodies.keys():
            if (file := await self.body(name, digest)) is not None:
                bodies[digest] = file
        items = [with_stored_bodies(item, bodies) for item in items]
        screened = await self._prepare(
            name, head, items, secrets, items, move=False, first=len(spooled)
        )
        spooled.replaced += screened.replaced
        await asyncio.to_thread(spooled.add, screened.items)


async def finish_all(appends: Sequence[Coroutine[None, None, None]]) -> None:
    """Run appends together, all to their end; then the first error is raised."""
    for failed in await asyncio.gather(*appends, return_exceptions=True):
        if failed is not None:
            try:
                raise failed
            finally:
                # Each would keep the other.
                del failed


def _check_count(name: str, expected: int, count: int) -> None:
    if expected != count:
        raise CassetteLocked(
            f"cassette '{name}' has {count} recordings, and the process that records into it knows "
            f"{expected}: another process records into it or changed it. Let one process record; "
            "eject the cassette in the other, so that it is loaded anew"
        )


@contextmanager
def _condition_at_save(condition: Condition) -> Iterator[None]:
    """Turn a change from elsewhere, which the store notices as it saves, into an AdminError (412)."""
    try:
        yield
    except CassetteEdited as exc:
        if not condition.given:
            raise
        raise changed_meanwhile() from exc
