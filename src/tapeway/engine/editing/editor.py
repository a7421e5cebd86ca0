"""Changes cassettes while they are served: appends, edits, replaces and removes.

Every change is durable when it is answered. `LoadedAccess` takes a cassette in memory out of use while
it is changed. `SharedAccess` changes a cassette in one step of the shared store.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tapeway.body_files import body_pieces
from tapeway.core.model.cassette import CassetteHead, Outline, Recording, StoredCassette
from tapeway.core.model.condition import ANY, Condition, changed_meanwhile
from tapeway.core.model.interaction import AnyInteraction, large_bodies
from tapeway.core.model.messages import BodyFile
from tapeway.core.redaction.known_values import KnownValues
from tapeway.engine.editing.access import AppendCall, AppendTarget
from tapeway.engine.editing.changes import (
    Addition,
    Appended,
    CassetteContents,
    Changed,
    Extended,
    IdempotencyReceipts,
    digest_of,
)
from tapeway.engine.editing.large_bodies import (
    UploadedBodies,
    by_digest,
    moved_to_files,
    with_stored_bodies,
)
from tapeway.engine.editing.lookup import no_cassette
from tapeway.engine.editing.screening import ScreenedItems, Secrets, screen
from tapeway.engine.editing.spooled import SpooledInteractions
from tapeway.errors import CassetteEdited
from tapeway.formats.native import document
from tapeway.ports import CassetteStore

if TYPE_CHECKING:
    from tapeway.engine.editing.loaded_access import LoadedAccess
    from tapeway.engine.editing.shared_access import SharedAccess


class Editor:
    """Changes the cassettes of a store."""

    def __init__(
        self, store: CassetteStore, access: "LoadedAccess | SharedAccess", known: KnownValues
    ) -> None:
        self._store = store
        self._access = access
        self._known = known
        self._receipts = IdempotencyReceipts()
        self._bodies = UploadedBodies()

    async def stored(self, name: str) -> StoredCassette | None:
        """A cassette as stored now, or None where there is none."""
        return await self._access.stored(name)

    async def outline(self, name: str) -> Outline | None:
        """A cassette's metadata, its number of interactions, and their routes and upstreams."""
        return await self._access.outline(name)

    async def walk(self, name: str, after: int | None = None) -> CassetteContents | None:
        """Its metadata and interactions, those after an index or all, to be iterated once.

        Raises CassetteEdited where that one is gone.
        """
        return await self._access.walk(name, after)

    async def body(self, name: str, digest: str) -> BodyFile | None:
        """A large body of a cassette, or None where it has none such."""
        return await self._access.body(name, digest)

    async def claim(self, name: str) -> None:
        """Make a cassette ready to be appended to. Raises StoreError, CassetteLocked."""
        await self._access.claim(name)

    async def release(self, name: str) -> bool:
        """Write a cassette's final form and let go of it, unless it is used here too."""
        if not await self._access.release(name):
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
            only = await self._access.unchanged(name, condition)
            spooled = cassette.interactions
            given = () if isinstance(spooled, SpooledInteractions) else spooled
            found = await self._prepare(
                name, cassette.head, given, secrets, meta=True, move=not as_sent
            )
            after, replaced = StoredCassette(found.head, found.items), found.replaced
            if isinstance(spooled, SpooledInteractions):
                # Spooled interactions are prepared already.
                after, replaced = replace(after, interactions=spooled), replaced + spooled.replaced
            with _condition_at_save(condition):
                while not await self._store.save(name, after, only):
                    # Perhaps only its times, or there and back: the digest decides.
                    only = await self._access.unchanged(name, condition)
            await self._store.release(name)
            self._bodies.forget(name)
            return Changed(await digest_of(after) or "", replaced)

        return await self._access.change(name, work)

    async def replace_head(
        self, name: str, head: CassetteHead, secrets: Secrets = "refuse"
    ) -> Changed:
        """Replace a cassette's metadata; a cassette in use is loaded anew. Raises AdminError (404)."""

        async def work(loaded: bool) -> Changed:
            if await self._store.stat(name) is None:
                raise no_cassette(name)
            found = await self._prepare(name, head, (), secrets, meta=True)
            await self._store.replace_head(name, found.head)
            await self._store.release(name)
            return Changed(document.head_digest(found.head), found.replaced)

        return await self._access.change(name, work)

    async def remove(self, name: str, condition: Condition = ANY) -> None:
        """Delete a cassette, if the condition holds in that moment.

        Raises AdminError (404, 412), CassetteLocked.
        """

        async def work(loaded: bool) -> None:
            if condition.given and not loaded and await self._store.stat(name) is None:
                raise no_cassette(name)
            with _condition_at_save(condition):
                only = await self._access.unchanged(name, condition)
                while not (removed := await self._store.remove(name, only)):
                    if only is None or only.mark is None:
                        break
                    only = await self._access.unchanged(name, condition)
            if not removed and not loaded:
                raise no_cassette(name)
            self._bodies.forget(name)
            self._receipts.forget(name)

        await self._access.change(name, work)

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
            return await self._access.edit(name, index, condition, make)

    async def keep(self, name: str, file: BodyFile) -> None:
        """Store a large body for a later interaction; durable on return.

        Its digest is checked while it is written. Raises StoreError.
        """

        async def work(target: AppendTarget) -> None:
            self._bodies.add(name, await self._store.keep(name, body_pieces(file)))

        await self._access.append(name, None, work)

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
                await self._access.append(name, call.head, partial(self._append, call))
            return Extended(
                receipt.head, tuple([receipt.appended[number] for number in range(len(additions))])
            )

    async def _append(self, call: AppendCall, target: AppendTarget) -> None:
        """Append what is missing, and fill in the receipt."""
        name, head = target.name, target.head
        call.receipt.head = document.head_digest(head)
        given = [each.item for each in call.additions]
        kept = await self._prepare(name, head, given, call.secrets, move=call.secrets != "keep")
        await target.note_repeated(call, kept.items)
        steps: list[tuple[int, Recording]] = []
        for number, addition, item in call.missing(kept.items):
            index = await target.index(addition.index)
            superseded = await target.superseded(addition.supersedes)
            steps.append((number, Recording(replace(item, index=index), superseded)))

        async def record(number: int, recording: Recording) -> None:
            await self._store.append(name, head, recording)
            call.stored(number, recording.interaction)
            target.added(recording)

        await finish_all([record(*step) for step in steps])

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
                found |= await self._access.bodies(name, missing)
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


async def finish_all(appends: Sequence[Coroutine[None, None, None]]) -> None:
    """Run appends together, all to their end; then the first error is raised."""
    for failed in await asyncio.gather(*appends, return_exceptions=True):
        if failed is not None:
            try:
                raise failed
            finally:
                # Each would keep the other.
                del failed


@contextmanager
def _condition_at_save(condition: Condition) -> Iterator[None]:
    """Turn a change from elsewhere, which the store notices as it saves, into an AdminError (412)."""
    try:
        yield
    except CassetteEdited as exc:
        if not condition.given:
            raise
        raise changed_meanwhile() from exc
