"""Edits cassettes of a store that many processes use: each change is one step of the store."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from tapeway.body_files import body_pieces
from tapeway.core.model.cassette import CassetteHead, Outline, Recording, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, large_bodies
from tapeway.core.model.messages import BodyFile
from tapeway.core.redaction.known_values import KnownValues
from tapeway.engine.editing.changes import (
    ANY,
    Addition,
    Appended,
    CassetteContents,
    Changed,
    Condition,
    Extended,
    IdempotencyReceipts,
    Receipt,
    Reference,
)
from tapeway.engine.editing.large_bodies import UploadedBodies, moved_to_files, with_stored_bodies
from tapeway.engine.editing.lookup import find_identical, no_cassette, no_interaction
from tapeway.engine.editing.screening import Secrets, screen
from tapeway.errors import StoreError
from tapeway.formats.native import document
from tapeway.paging import pages_after
from tapeway.ports import SharedStore


class SharedEditor:
    """Edits cassettes of a shared store; `changed` has all instances read the metadata anew."""

    def __init__(
        self,
        store: SharedStore,
        known: KnownValues,
        new_head: Callable[[], CassetteHead],
        changed: Callable[[], Awaitable[object]],
    ) -> None:
        self._store = store
        self._known = known
        self._new_head = new_head
        self._changed = changed
        self._receipts = IdempotencyReceipts()
        self._bodies = UploadedBodies()

    async def stored(self, name: str) -> StoredCassette | None:
        """The whole cassette, or None where there is none."""
        return await self._store.load(name, writable=False)

    async def outline(self, name: str) -> Outline | None:
        """A cassette's metadata, its number of interactions, and their routes and upstreams."""
        return await self._store.outline(name)

    async def walk(self, name: str, after: int | None = None) -> CassetteContents | None:
        """A cassette page by page, after an index or whole; changes of others may show or not.

        Raises CassetteEdited where the interaction of that index is gone.
        """
        outline = await self._store.outline(name)
        return (
            None
            if outline is None
            else CassetteContents(outline.head, pages_after(self._store, name, after))
        )

    async def body(self, name: str, digest: str) -> BodyFile | None:
        """A large body of a cassette, or None where it has none such."""
        if (finder := self._store.capabilities.body_finder) is not None:
            return await finder.body(name, digest)
        async for item in pages_after(self._store, name, None):
            for file in large_bodies(item):
                if file.digest == digest:
                    return file
        return None

    async def claim(self, name: str) -> None:
        """Check that the store can be reached; there is nothing to claim. Raises StoreError."""
        await self._store.outline(name)

    async def release(self, name: str) -> bool:
        """Forget uploaded bodies that nothing refers to; a database has no final form to write."""
        self._bodies.forget(name)
        await self._store.release(name)
        return True

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
        """Append interactions, durable on return; with a key, once while this process lives.

        Where the call is repeated (`again`), perhaps after another process, identical interactions
        are searched first.
        """
        receipt = self._receipts.of(name, key, sent)
        async with receipt.lock:
            if len(receipt.appended) < len(additions):
                await self._append(name, additions, head, receipt, secrets, again=again)
            return Extended(
                receipt.head, tuple([receipt.appended[number] for number in range(len(additions))])
            )

    async def put(
        self,
        name: str,
        cassette: StoredCassette,
        condition: Condition = ANY,
        secrets: Secrets = "refuse",
        *,
        as_sent: bool = False,
    ) -> Changed:
        """Replace a whole cassette for all instances.

        The condition is checked before, not in one step with the change.
        """
        if condition.given:
            condition.check(await self._digest(name))
        items = await self._stored_body(name, cassette.interactions)
        found = await asyncio.to_thread(
            partial(screen, cassette.head, items, self._known, secrets, meta=True)
        )
        kept = found.items if as_sent else await moved_to_files(self._store, name, found.items)
        after = StoredCassette(found.head, kept)
        await self._store.save(name, after)
        await self._store.release(name)
        self._bodies.forget(name)
        await self._changed()
        digests = await asyncio.to_thread(
            lambda: [document.interaction_digest(each) for each in after.interactions]
        )
        return Changed(
            document.cassette_digest(document.head_digest(after.head), digests), found.replaced
        )

    async def replace_head(
        self, name: str, head: CassetteHead, secrets: Secrets = "refuse"
    ) -> Changed:
        """Replace a cassette's metadata for all instances. Raises AdminError (404)."""
        if await self._store.outline(name) is None:
            raise no_cassette(name)
        found = await asyncio.to_thread(partial(screen, head, (), self._known, secrets, meta=True))
        await self._store.replace_head(name, found.head)
        await self._changed()
        return Changed(document.head_digest(found.head), found.replaced)

    async def remove(self, name: str, condition: Condition = ANY) -> None:
        """Delete a cassette for all instances. Raises AdminError (404)."""
        if condition.given:
            if (digest := await self._digest(name)) is None:
                raise no_cassette(name)
            condition.check(digest)
        if not await self._store.remove(name):
            raise no_cassette(name)
        self._bodies.forget(name)
        self._receipts.forget(name)
        await self._changed()

    async def edit(
        self,
        name: str,
        index: int,
        changed: AnyInteraction | None,
        condition: Condition = ANY,
        secrets: Secrets = "refuse",
    ) -> Appended | None:
        """Replace or remove one interaction; all others keep their index."""
        if (outline := await self._store.outline(name)) is None:
            raise no_cassette(name)
        if (before := await self._store.get(name, index)) is None:
            raise no_interaction(name, index)
        condition.check(document.interaction_digest(before.item))
        replacement = None
        if changed is not None:
            items = await self._stored_body(name, [changed], [before.item])
            found = await asyncio.to_thread(
                partial(screen, outline.head, items, self._known, secrets, meta=False)
            )
            (item,) = await moved_to_files(self._store, name, found.items)
            replacement = replace(item, index=index)
        if not await self._store.edit(name, index, replacement):
            raise no_interaction(name, index)
        return (
            None
            if replacement is None
            else Appended(index, document.interaction_digest(replacement))
        )

    async def keep(self, name: str, file: BodyFile) -> None:
        """Store a large body that an interaction to come refers to; durable on return."""
        if (keeper := self._store.capabilities.bodies) is None:
            raise StoreError(f"the store {self._store.url} takes no large bodies")
        self._bodies.add(name, await keeper.keep(name, body_pieces(file)))

    async def _append(
        self,
        name: str,
        additions: Sequence[Addition],
        head: CassetteHead | None,
        receipt: Receipt,
        secrets: Secrets,
        *,
        again: bool,
    ) -> None:
        outline = await self._store.outline(name)
        metadata = outline.head if outline is not None else head or self._new_head()
        receipt.head = document.head_digest(metadata)
        items = await self._stored_body(name, [each.item for each in additions])
        found = await asyncio.to_thread(
            partial(screen, metadata, items, self._known, secrets, meta=False)
        )
        steps: list[tuple[int, Recording]] = []
        kept = found.items
        if secrets != "keep":
            kept = await moved_to_files(self._store, name, found.items)
        if again and not receipt.appended:
            receipt.appended |= await find_identical(self._store, name, metadata, kept)
        for number, (each, item) in enumerate(zip(additions, kept, strict=True)):
            if number not in receipt.appended:
                index = await self._store.reserve(name)
                superseded = [at.index for at in each.supersedes if await self._holds(name, at)]
                steps.append((number, Recording(replace(item, index=index), tuple(superseded))))
        appended = await asyncio.gather(
            *[self._record(name, metadata, step, receipt, number) for number, step in steps],
            return_exceptions=True,
        )
        for failed in appended:
            if failed is not None:
                raise failed

    async def _record(
        self, name: str, head: CassetteHead, step: Recording, receipt: Receipt, number: int
    ) -> None:
        await self._store.append(name, head, step)
        item = step.interaction
        receipt.appended[number] = Appended(item.index, document.interaction_digest(item))

    async def _holds(self, name: str, wanted: Reference) -> bool:
        found = await self._store.get(name, wanted.index)
        return found is not None and document.interaction_digest(found.item) == wanted.sha256

    async def _stored_body(
        self, name: str, items: Sequence[AnyInteraction], before: Sequence[AnyInteraction] = ()
    ) -> list[AnyInteraction]:
        found = self._bodies.of(name)
        found |= {file.digest: file for item in before for file in large_bodies(item)}
        missing = {file.digest for item in items for file in large_bodies(item)} - found.keys()
        for digest in missing:
            if (file := await self.body(name, digest)) is not None:
                found[digest] = file
        return [with_stored_bodies(item, found) for item in items]

    async def _digest(self, name: str) -> str | None:
        outline = await self._store.outline(name)
        if outline is None:
            return None
        digests = [
            document.interaction_digest(item) async for item in pages_after(self._store, name, None)
        ]
        return document.cassette_digest(document.head_digest(outline.head), digests)
