"""Edits cassettes of a store that many processes use: each change is one step of the store."""

from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import replace

from tapeway.core.model.cassette import CassetteHead, Outline, Recording, StoredCassette
from tapeway.core.model.condition import ANY, Condition, changed_meanwhile
from tapeway.core.model.interaction import AnyInteraction
from tapeway.core.model.messages import BodyFile
from tapeway.core.redaction.known_values import KnownValues
from tapeway.engine.editing.changes import (
    Appended,
    CassetteContents,
    Changed,
    Reference,
    digest_of,
)
from tapeway.engine.editing.editor import AppendCall, Editor, finish_all
from tapeway.engine.editing.lookup import find_identical, no_cassette, no_interaction
from tapeway.engine.editing.screening import Secrets
from tapeway.errors import CassetteEdited
from tapeway.formats.native import document
from tapeway.paging import pages_after
from tapeway.ports import SharedStore


class SharedEditor(Editor[SharedStore]):
    """Edits cassettes of a shared store; `changed` has all instances read the metadata anew."""

    def __init__(
        self,
        store: SharedStore,
        known: KnownValues,
        new_head: Callable[[], CassetteHead],
        changed: Callable[[], Awaitable[object]],
    ) -> None:
        super().__init__(store, known)
        self._new_head = new_head
        self._changed = changed

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
        return await self._store.body(name, digest)

    async def claim(self, name: str) -> None:
        """Check that the store can be reached; there is nothing to claim. Raises StoreError."""
        await self._store.outline(name)

    async def release(self, name: str) -> bool:
        """Forget uploaded bodies that nothing refers to; a database has no final form to write."""
        self._bodies.forget(name)
        await self._store.release(name)
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
        """Replace a whole cassette for all instances, if the condition holds in that moment."""
        mark = await self._checked_mark(name, condition)

        async def save(after: StoredCassette) -> None:
            await self._replace(name, mark, after, condition)

        after, replaced = await self._save(name, cassette, secrets, as_sent=as_sent, save=save)
        await self._changed()
        return Changed(await digest_of(after) or "", replaced)

    async def replace_head(
        self, name: str, head: CassetteHead, secrets: Secrets = "refuse"
    ) -> Changed:
        """Replace a cassette's metadata for all instances. Raises AdminError (404)."""
        if await self._store.outline(name) is None:
            raise no_cassette(name)
        found = await self._prepare(name, head, (), secrets, meta=True)
        await self._store.replace_head(name, found.head)
        await self._changed()
        return Changed(document.head_digest(found.head), found.replaced)

    async def remove(self, name: str, condition: Condition = ANY) -> None:
        """Delete a cassette for all instances, if the condition holds in that moment.

        Raises AdminError (404, 412).
        """
        if condition.given and await self._store.stat(name) is not None:
            mark = await self._checked_mark(name, condition)
            await self._replace(name, mark, None, condition)
        elif not await self._store.remove(name):
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
            found = await self._prepare(name, outline.head, [changed], secrets, [before.item])
            replacement = replace(found.items[0], index=index)
        if not await self._store.edit(name, index, replacement, condition):
            raise no_interaction(name, index)
        return (
            None
            if replacement is None
            else Appended(index, document.interaction_digest(replacement))
        )

    async def _append(self, name: str, call: AppendCall) -> None:
        outline = await self._store.outline(name)
        head = outline.head if outline is not None else call.head or self._new_head()
        kept = await self._prepare_append(name, head, call)
        if call.again and not call.receipt.appended:
            call.receipt.appended |= await find_identical(self._store, name, head, kept)
        steps: list[tuple[int, Recording]] = []
        for number, addition, item in call.missing(kept):
            index = await self._store.reserve(name)
            superseded = [at.index for at in addition.supersedes if await self._holds(name, at)]
            recording = Recording(replace(item, index=index), tuple(superseded))
            steps.append((number, recording))
        await finish_all([self._record(name, head, call, *step) for step in steps])

    async def _record(
        self, name: str, head: CassetteHead, call: AppendCall, number: int, recording: Recording
    ) -> None:
        await self._store.append(name, head, recording)
        call.stored(number, recording.interaction)

    async def _holds(self, name: str, wanted: Reference) -> bool:
        found = await self._store.get(name, wanted.index)
        return found is not None and document.interaction_digest(found.item) == wanted.sha256

    async def _find_bodies(self, name: str, digests: Set[str]) -> Mapping[str, BodyFile]:
        found = {digest: await self.body(name, digest) for digest in digests}
        return {digest: file for digest, file in found.items() if file is not None}

    async def _replace(
        self, name: str, mark: str | None, after: StoredCassette | None, condition: Condition
    ) -> None:
        if not condition.given and after is not None:
            await self._store.save(name, after)
            return
        while not await self._store.replace_if(name, mark, after):
            # Perhaps only its times, or there and back: the digest decides.
            mark = await self._checked_mark(name, condition)

    async def _checked_mark(self, name: str, condition: Condition) -> str | None:
        """The mark of a cassette that fulfils a condition. Raises AdminError (412).

        Read before the digest: a change in between makes the mark outdated.
        """
        if not condition.given or (stat := await self._store.stat(name)) is None:
            condition.check(None)
            return None
        try:
            digest = "" if condition.match is None else await self._digest(name)
        except CassetteEdited:
            raise changed_meanwhile() from None
        condition.check(digest)
        return stat.mark

    async def _digest(self, name: str) -> str | None:
        outline = await self._store.outline(name)
        if outline is None:
            return None
        digests = [
            document.interaction_digest(item) async for item in pages_after(self._store, name, None)
        ]
        return document.cassette_digest(document.head_digest(outline.head), digests)
