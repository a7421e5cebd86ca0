"""The same for a store that many processes use at once: each change is the store's own step."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from tapeway.body_files import pieces
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
from tapeway.engine.editing.large_bodies import KeptBodies, outsourced, placed
from tapeway.engine.editing.lookup import held_already, no_cassette, no_interaction
from tapeway.engine.editing.screening import Secrets, screened
from tapeway.errors import StoreError
from tapeway.formats.native import document
from tapeway.paging import pages_after
from tapeway.ports import SharedStore


class SharedEditor:
    """Changes cassettes of a shared store; `changed` tells all instances to look again."""

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
        self._bodies = KeptBodies()

    async def stored(self, name: str) -> StoredCassette | None:
        """The whole cassette, or None where there is none."""
        return await self._store.load(name, writable=False)

    async def outline(self, name: str) -> Outline | None:
        """What it says of itself, how many interactions it has, and where they came from."""
        return await self._store.outline(name)

    async def walk(self, name: str, after: int | None = None) -> CassetteContents | None:
        """A cassette page by page: what others change meanwhile may show or not.

        Begins behind one of its interactions; CassetteEdited is raised where that is gone.
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
        """Nothing to claim: see that the store can be reached. Raises StoreError."""
        await self._store.outline(name)

    async def release(self, name: str) -> bool:
        """What is kept is in its final form already; bodies nothing refers to are forgotten."""
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
        """Add interactions, durable on return; with a key, once while this process lives.

        One that is asked for `again`, perhaps of another process before, is looked for first.
        """
        receipt = self._receipts.of(name, key, sent)
        async with receipt.door:
            if len(receipt.done) < len(additions):
                await self._append(name, additions, head, receipt, secrets, again=again)
            return Extended(
                receipt.head, tuple([receipt.done[number] for number in range(len(additions))])
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

        The condition is looked at before, and not in one step with it.
        """
        if condition.given:
            condition.check(await self._digest(name))
        items = await self._placed(name, cassette.interactions)
        found = await asyncio.to_thread(
            partial(screened, cassette.head, items, self._known, secrets, meta=True)
        )
        kept = found.items if as_sent else await outsourced(self._store, name, found.items)
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

    async def restate(self, name: str, head: CassetteHead, secrets: Secrets = "refuse") -> Changed:
        """Put another head in force for all instances. Raises AdminError (404)."""
        if await self._store.outline(name) is None:
            raise no_cassette(name)
        found = await asyncio.to_thread(
            partial(screened, head, (), self._known, secrets, meta=True)
        )
        await self._store.restate(name, found.head)
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
        """Put another interaction in the place of one, or remove it; all others keep their index."""
        if (outline := await self._store.outline(name)) is None:
            raise no_cassette(name)
        if (before := await self._store.get(name, index)) is None:
            raise no_interaction(name, index)
        condition.check(document.interaction_digest(before.item))
        instead = None
        if changed is not None:
            items = await self._placed(name, [changed], [before.item])
            found = await asyncio.to_thread(
                partial(screened, outline.head, items, self._known, secrets, meta=False)
            )
            (item,) = await outsourced(self._store, name, found.items)
            instead = replace(item, index=index)
        if not await self._store.edit(name, index, instead):
            raise no_interaction(name, index)
        return None if instead is None else Appended(index, document.interaction_digest(instead))

    async def keep(self, name: str, file: BodyFile) -> None:
        """Bring a large body in that an interaction to come refers to; durable on return."""
        if (keeper := self._store.capabilities.bodies) is None:
            raise StoreError(f"the store {self._store.url} takes no large bodies")
        self._bodies.add(name, await keeper.keep(name, pieces(file)))

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
        born = outline.head if outline is not None else head or self._new_head()
        receipt.head = document.head_digest(born)
        items = await self._placed(name, [each.item for each in additions])
        found = await asyncio.to_thread(
            partial(screened, born, items, self._known, secrets, meta=False)
        )
        steps: list[tuple[int, Recording]] = []
        kept = found.items
        if secrets != "keep":
            kept = await outsourced(self._store, name, found.items)
        if again and not receipt.done:
            receipt.done |= await held_already(self._store, name, born, kept)
        for number, (each, item) in enumerate(zip(additions, kept, strict=True)):
            if number not in receipt.done:
                index = await self._store.reserve(name)
                superseded = [at.index for at in each.supersedes if await self._holds(name, at)]
                steps.append((number, Recording(replace(item, index=index), tuple(superseded))))
        done = await asyncio.gather(
            *[self._record(name, born, step, receipt, number) for number, step in steps],
            return_exceptions=True,
        )
        for failed in done:
            if failed is not None:
                raise failed

    async def _record(
        self, name: str, head: CassetteHead, step: Recording, receipt: Receipt, number: int
    ) -> None:
        await self._store.append(name, head, step)
        item = step.interaction
        receipt.done[number] = Appended(item.index, document.interaction_digest(item))

    async def _holds(self, name: str, wanted: Reference) -> bool:
        found = await self._store.get(name, wanted.index)
        return found is not None and document.interaction_digest(found.item) == wanted.sha256

    async def _placed(
        self, name: str, items: Sequence[AnyInteraction], before: Sequence[AnyInteraction] = ()
    ) -> list[AnyInteraction]:
        found = self._bodies.of(name)
        found |= {file.digest: file for item in before for file in large_bodies(item)}
        missing = {file.digest for item in items for file in large_bodies(item)} - found.keys()
        for digest in missing:
            if (file := await self.body(name, digest)) is not None:
                found[digest] = file
        return [placed(item, found) for item in items]

    async def _digest(self, name: str) -> str | None:
        outline = await self._store.outline(name)
        if outline is None:
            return None
        digests = [
            document.interaction_digest(item) async for item in pages_after(self._store, name, None)
        ]
        return document.cassette_digest(document.head_digest(outline.head), digests)
