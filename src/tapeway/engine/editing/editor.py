"""What editing has in common for every store: receipts, screening for secrets, large bodies."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

from tapeway.body_files import body_pieces
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, large_bodies
from tapeway.core.model.messages import BodyFile
from tapeway.core.redaction.known_values import KnownValues
from tapeway.engine.editing.changes import (
    Addition,
    Appended,
    Extended,
    IdempotencyReceipts,
    Receipt,
)
from tapeway.engine.editing.large_bodies import (
    UploadedBodies,
    by_digest,
    moved_to_files,
    with_stored_bodies,
)
from tapeway.engine.editing.screening import ScreenedItems, Secrets, screen
from tapeway.engine.editing.spooled import SpooledInteractions
from tapeway.formats.native import document
from tapeway.ports import CassetteStore

Store = TypeVar("Store", bound=CassetteStore)


@dataclass(frozen=True, slots=True)
class AppendCall:
    """A call that appends interactions, and how far it has come."""

    additions: Sequence[Addition]
    head: CassetteHead | None
    """The metadata of a cassette that this call creates."""
    secrets: Secrets
    receipt: Receipt
    with_key: bool
    """Whether it has an idempotency key."""
    again: bool
    """Whether the client says that it repeats the call."""

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


class Editor(ABC, Generic[Store]):
    """The steps that every editor takes; a subclass says what is peculiar to its kind of store."""

    def __init__(self, store: Store, known: KnownValues) -> None:
        self._store = store
        self._known = known
        self._receipts = IdempotencyReceipts()
        self._bodies = UploadedBodies()

    async def append(
        self,
        name: str,
        additions: Sequence[Addition],
        *,
        head: CassetteHead | None = None,
        key: str | None = None,
        sent: str = "",
        secrets: Secrets = "refuse",
        again: bool = False,
    ) -> Extended:
        """Add interactions, durable on return; with a key, once however often it is asked.

        `head` is the metadata of a cassette that this call creates, `sent` the digest of the call's
        body; `again` says that the call is repeated, perhaps to another process than before.
        Nothing is kept where an AdminError is raised; where a StoreError is, asking again with the
        same key goes on from there.
        """
        receipt = self._receipts.of(name, key, sent, len(additions))
        async with receipt.lock:
            if len(receipt.appended) < len(additions):
                call = AppendCall(additions, head, secrets, receipt, key is not None, again)
                await self._append(name, call)
            return Extended(
                receipt.head, tuple([receipt.appended[number] for number in range(len(additions))])
            )

    @abstractmethod
    async def _append(self, name: str, call: AppendCall) -> None:
        """Append what is missing, and fill in the receipt."""

    @abstractmethod
    async def _find_bodies(self, name: str, digests: Set[str]) -> Mapping[str, BodyFile]:
        """The large bodies with these digests that the cassette's interactions have."""

    async def _prepare_append(
        self, name: str, head: CassetteHead, call: AppendCall
    ) -> tuple[AnyInteraction, ...]:
        """The items as they may be stored. `head` is the cassette's metadata."""
        call.receipt.head = document.head_digest(head)
        given = [each.item for each in call.additions]
        found = await self._prepare(name, head, given, call.secrets, move=call.secrets != "keep")
        return found.items

    async def _save(
        self,
        name: str,
        cassette: StoredCassette,
        secrets: Secrets,
        before: Sequence[AnyInteraction] = (),
        *,
        as_sent: bool,
        save: Callable[[StoredCassette], Awaitable[None]] | None = None,
    ) -> tuple[StoredCassette, int]:
        """Replace a whole cassette: what was stored, and how many secrets were replaced in it.

        `save` stores it otherwise than the store's own does. Spooled interactions are prepared.
        """
        spooled = cassette.interactions
        given = () if isinstance(spooled, SpooledInteractions) else spooled
        found = await self._prepare(
            name,
            cassette.head,
            given,
            secrets,
            before,
            meta=True,
            move=not as_sent,
        )
        after = StoredCassette(found.head, found.items)
        if isinstance(spooled, SpooledInteractions):
            after = replace(after, interactions=spooled)
            found = replace(found, replaced=found.replaced + spooled.replaced)
        await (self._store.save(name, after) if save is None else save(after))
        await self._store.release(name)
        self._bodies.forget(name)
        return after, found.replaced

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

        Large bodies are looked for among those uploaded and those of `before`. `meta` says whether
        the metadata is stored too, `move` whether the store is to hold large bodies apart.
        """
        if any(map(large_bodies, items)):
            found = {**self._bodies.of(name), **by_digest(before)}
            if missing := by_digest(items).keys() - found.keys():
                found |= await self._find_bodies(name, missing)
            items = [with_stored_bodies(item, found) for item in items]
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
        """Add interactions of a cassette that is put once all of it is spooled.

        Raises AdminError (422) for secrets that are refused and large bodies that are not there.
        """
        found = self._bodies.of(name)
        for digest in by_digest(items).keys() - found.keys():
            if (file := await self.body(name, digest)) is not None:
                found[digest] = file
        items = [with_stored_bodies(item, found) for item in items]
        screened = await self._prepare(
            name, head, items, secrets, items, move=False, first=len(spooled)
        )
        spooled.replaced += screened.replaced
        await asyncio.to_thread(spooled.add, screened.items)

    @abstractmethod
    async def body(self, name: str, digest: str) -> BodyFile | None:
        """A large body of a cassette, or None where it has none such."""

    async def keep(self, name: str, file: BodyFile) -> None:
        """Store a large body that an interaction to come refers to; durable on return.

        Its digest is checked while it is written. Raises StoreError.
        """
        self._bodies.add(name, await self._store.keep(name, body_pieces(file)))


async def finish_all(appends: Sequence[Coroutine[None, None, None]]) -> None:
    """Run appends together, all to their end; then the first error is raised."""
    for failed in await asyncio.gather(*appends, return_exceptions=True):
        if failed is not None:
            try:
                raise failed
            finally:
                # Each would keep the other.
                del failed
