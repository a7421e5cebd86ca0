"""Edits cassettes of a store that many processes use: each change is one step of the store."""

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import replace

from tapeway.core.model.cassette import CassetteHead, Outline, Recording, StoredCassette
from tapeway.core.model.condition import Condition, Unchanged, changed_meanwhile
from tapeway.core.model.interaction import AnyInteraction
from tapeway.core.model.messages import BodyFile
from tapeway.engine.cassettes.context import T
from tapeway.engine.editing.access import Append, AppendCall, MakeChanged
from tapeway.engine.editing.changes import Appended, CassetteContents, Reference
from tapeway.engine.editing.lookup import find_identical, no_cassette, no_interaction
from tapeway.errors import CassetteEdited
from tapeway.formats.native import document
from tapeway.paging import pages_after
from tapeway.ports import SharedStore


class SharedAccess:
    """Reads and changes cassettes of a shared store.

    `changed` has all instances read the metadata anew.
    """

    def __init__(
        self,
        store: SharedStore,
        new_head: Callable[[], CassetteHead],
        changed: Callable[[], Awaitable[object]],
    ) -> None:
        self._store = store
        self._new_head = new_head
        self._changed = changed

    async def stored(self, name: str) -> StoredCassette | None:
        """The whole cassette, or None where there is none."""
        return await self._store.load(name, writable=False)

    async def outline(self, name: str) -> Outline | None:
        """A cassette's metadata, its number of interactions, and their routes and upstreams."""
        return await self._store.outline(name)

    async def walk(self, name: str, after: int | None = None) -> CassetteContents | None:
        """A cassette page by page; changes of others may show or not."""
        if (outline := await self._store.outline(name)) is None:
            return None
        return CassetteContents(outline.head, pages_after(self._store, name, after))

    async def body(self, name: str, digest: str) -> BodyFile | None:
        """A large body of a cassette, or None where it has none such."""
        return await self._store.body(name, digest)

    async def bodies(self, name: str, digests: Set[str]) -> Mapping[str, BodyFile]:
        """The large bodies of the cassette with these digests."""
        found = {digest: await self._store.body(name, digest) for digest in digests}
        return {digest: file for digest, file in found.items() if file is not None}

    async def claim(self, name: str) -> None:
        """Check that the store can be reached; there is nothing to claim. Raises StoreError."""
        await self._store.outline(name)

    async def release(self, name: str) -> bool:
        """Have what nothing refers to removed; a database has no final form to write."""
        await self._store.release(name)
        return True

    async def change(self, name: str, work: Callable[[bool], Awaitable[T]]) -> T:
        """Change a cassette in one step, and tell all instances."""
        result = await work(False)
        await self._changed()
        return result

    async def unchanged(self, name: str, condition: Condition) -> Unchanged | None:
        """The mark of a cassette that fulfils a condition; None without a condition.

        Read before the digest: a change in between makes the mark outdated. Raises AdminError (412).
        """
        if not condition.given:
            return None
        if (stat := await self._store.stat(name)) is None:
            condition.check(None)
            return Unchanged(None)
        try:
            digest = "" if condition.match is None else await self._digest(name)
        except CassetteEdited:
            raise changed_meanwhile() from None
        condition.check(digest)
        return Unchanged(stat.mark)

    async def edit(
        self, name: str, index: int, condition: Condition, make: MakeChanged
    ) -> Appended | None:
        """Change one interaction; all others keep their index."""
        if (outline := await self._store.outline(name)) is None:
            raise no_cassette(name)
        if (before := await self._store.get(name, index)) is None:
            raise no_interaction(name, index)
        made = await make(outline.head, before.item)
        changed = None if made is None else replace(made, index=index)
        if not await self._store.edit(name, index, changed, condition):
            raise no_interaction(name, index)
        return None if changed is None else Appended(index, document.interaction_digest(changed))

    async def append(self, name: str, head: CassetteHead | None, work: Append) -> None:
        """Append to a cassette that others append to as well."""
        outline = await self._store.outline(name)
        own = outline.head if outline is not None else head or self._new_head()
        await work(_SharedTarget(self._store, name, own))

    async def _digest(self, name: str) -> str | None:
        outline = await self._store.outline(name)
        if outline is None:
            return None
        digests = [
            document.interaction_digest(item) async for item in pages_after(self._store, name, None)
        ]
        return document.cassette_digest(document.head_digest(outline.head), digests)


class _SharedTarget:
    """A cassette of a shared store while something is appended to it."""

    def __init__(self, store: SharedStore, name: str, head: CassetteHead) -> None:
        self.name, self.head = name, head
        self._store = store

    async def note_repeated(self, call: AppendCall, items: Sequence[AnyInteraction]) -> None:
        """Note in the receipt what another process was asked for before."""
        if call.again and not call.receipt.appended:
            call.receipt.appended |= await find_identical(self._store, self.name, self.head, items)

    async def index(self, wanted: int | None) -> int:
        """A new index."""
        return await self._store.reserve(self.name)

    async def superseded(self, wanted: Sequence[Reference]) -> tuple[int, ...]:
        """The indexes of wanted interactions that still exist."""
        return tuple([each.index for each in wanted if await self._holds(each)])

    def added(self, recording: Recording) -> None:
        """Nothing is in memory."""

    async def _holds(self, wanted: Reference) -> bool:
        found = await self._store.get(self.name, wanted.index)
        return found is not None and document.interaction_digest(found.item) == wanted.sha256
