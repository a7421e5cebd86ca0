"""Edits cassettes of a store that many processes use: each change is one step of the store."""

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import replace

from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.core.model.condition import Condition, changed_meanwhile
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import BodyFile
from tapeway.core.redaction.known_values import KnownValues
from tapeway.engine.cassettes.context import KeyedLocks, T
from tapeway.engine.cassettes.followed import Followed
from tapeway.engine.editing.changes import (
    Appended,
    CassetteContents,
    Reference,
    no_cassette,
    no_interaction,
)
from tapeway.engine.editing.editor import Append, AppendCall, Editor, MakeChanged
from tapeway.errors import CassetteEdited
from tapeway.formats.native import document
from tapeway.paging import pages_after
from tapeway.ports import SharedStore


class SharedEditor(Editor):
    """Reads and changes cassettes of a shared store."""

    def __init__(
        self,
        source: Followed,
        known: KnownValues,
        new_head: Callable[[], CassetteHead],
    ) -> None:
        super().__init__(source, source.store, known)
        self._shared = source.store
        self._locks = KeyedLocks()
        self._new_head = new_head
        self._changed = source.announce

    async def walk(self, name: str, after: int | None = None) -> CassetteContents | None:
        """A cassette page by page; changes of others may show or not."""
        if (outline := await self._shared.outline(name)) is None:
            return None
        return CassetteContents(outline.head, pages_after(self._shared, name, after))

    async def body(self, name: str, digest: str) -> BodyFile | None:
        return await self._shared.body(name, digest)

    async def _bodies_of(self, name: str, digests: Set[str]) -> Mapping[str, BodyFile]:
        files = {digest: await self._shared.body(name, digest) for digest in digests}
        return {digest: file for digest, file in files.items() if file is not None}

    async def _settled(self, name: str) -> bool:
        """Have what nothing refers to removed; a database has no final form to write."""
        await self._shared.release(name)
        return True

    async def _change(self, name: str, work: Callable[[bool], Awaitable[T]]) -> T:
        """Change a cassette in one step, and tell all instances."""
        result = await work(False)
        await self._changed()
        return result

    async def _state(self, name: str, *, with_digest: bool) -> tuple[str | None, str | None]:
        # Read before the digest: a change in between makes the version outdated.
        if (stat := await self._shared.stat(name)) is None:
            return None, None
        try:
            return await self._digest(name) if with_digest else "", stat.version
        except CassetteEdited:
            raise changed_meanwhile() from None

    async def _edit(
        self, name: str, index: int, condition: Condition, make: MakeChanged
    ) -> Appended | None:
        """Change one interaction; all others keep their index."""
        if (outline := await self._shared.outline(name)) is None:
            raise no_cassette(name)
        if not (before := await self._shared.documents(name, [index])):
            raise no_interaction(name, index)
        made = await make(outline.head, before[0].item)
        changed = None if made is None else replace(made, index=index)
        if not await self._shared.edit(name, index, changed, condition):
            raise no_interaction(name, index)
        return None if changed is None else Appended(index, document.interaction_digest(changed))

    async def _append_to(self, name: str, head: CassetteHead | None, work: Append) -> None:
        """Append to a cassette; further processes may append too."""
        # The number of interactions holds for one append after the other.
        async with self._locks.of(name, b""):
            outline = await self._shared.outline(name)
            own = outline.head if outline is not None else head or self._new_head()
            count = 0 if outline is None else outline.count
            await work(_SharedTarget(self._shared, name, own, count))

    async def _digest(self, name: str) -> str | None:
        outline = await self._shared.outline(name)
        if outline is None:
            return None
        digests = [
            document.interaction_digest(item)
            async for item in pages_after(self._shared, name, None)
        ]
        return document.cassette_digest(document.head_digest(outline.head), digests)


class _SharedTarget:
    """A cassette of a shared store while something is appended to it."""

    def __init__(self, store: SharedStore, name: str, head: CassetteHead, count: int) -> None:
        self.name, self.head, self.count = name, head, count
        self._store = store

    async def note_repeated(self, call: AppendCall, items: Sequence[AnyInteraction]) -> None:
        """Note in the receipt interactions that an earlier process has stored."""
        if call.with_key and not call.receipt.appended and await self._is_changed(call):
            call.receipt.appended |= await _find_identical(self._store, self.name, items)

    async def _is_changed(self, call: AppendCall) -> bool:
        """Whether the cassette is not as the call expects: a repeated call has changed it itself."""
        if call.expected is None:
            return False
        references = [reference for addition in call.additions for reference in addition.supersedes]
        held = [await self._holds(reference) for reference in references]
        return call.expected != self.count or not all(held)

    async def index(self, wanted: int | None) -> int:
        """A new index."""
        return await self._store.reserve(self.name)

    async def superseded(self, wanted: Sequence[Reference]) -> tuple[int, ...]:
        """The indexes of wanted interactions that still exist."""
        return tuple([reference.index for reference in wanted if await self._holds(reference)])

    def added(self, recording: Recording) -> None:
        self.count += 1 - len(recording.supersedes)

    async def _holds(self, wanted: Reference) -> bool:
        found = await self._store.documents(self.name, [wanted.index])
        return any(document.interaction_digest(held.item) == wanted.sha256 for held in found)


async def _find_identical(
    store: SharedStore, name: str, items: Sequence[AnyInteraction]
) -> dict[int, Appended]:
    """The items that the cassette holds already, identical to the last byte, by number."""
    wanted: dict[str, list[int]] = {}
    for number, item in enumerate(items):
        if isinstance(item, Interaction):
            wanted.setdefault(document.interaction_digest(item), []).append(number)
    appended: dict[int, Appended] = {}
    async for held in pages_after(store, name, None):
        digest = document.interaction_digest(held)
        if numbers := wanted.get(digest):
            appended[numbers.pop(0)] = Appended(held.index, digest)
    return appended
