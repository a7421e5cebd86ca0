"""Edits cassettes in the memory of this process.

A cassette is taken out of use while it is changed, and what is in memory agrees with the store again
when the change is answered.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from weakref import WeakKeyDictionary, WeakSet

from tapeway.body_files import check_body_file
from tapeway.core.cassette.cursors import Take
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.http.routing import RouteTable, assign_routes
from tapeway.core.matching import rules
from tapeway.core.matching.key import request_key
from tapeway.core.model.cassette import (
    CassetteHead,
    Recording,
    StoredCassette,
    items_after,
)
from tapeway.core.model.condition import Condition
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction
from tapeway.core.model.messages import BodyFile
from tapeway.core.redaction.known_values import KnownValues
from tapeway.engine.cassettes.context import T
from tapeway.engine.cassettes.loaded import EditedRecording, Loaded, indexed
from tapeway.engine.cassettes.source import OutOfUse
from tapeway.engine.editing.changes import (
    Appended,
    CassetteContents,
    Reference,
    digest_of,
    no_cassette,
    no_interaction,
)
from tapeway.engine.editing.editor import Append, AppendCall, Editor, MakeChanged
from tapeway.engine.editing.large_bodies import UploadedBodies, by_digest
from tapeway.errors import StoreError
from tapeway.formats.native import document
from tapeway.paging import each_of
from tapeway.ports import CassetteStore


def _position_of(name: str, items: Sequence[AnyInteraction], index: int) -> int:
    """The position of the interaction with this index. Raises AdminError (404)."""
    for place, item in enumerate(items):
        if item.index == index:
            return place
    raise no_interaction(name, index)


def _identical_at(
    cassette: CassetteIndex, index: int | None, item: AnyInteraction
) -> Appended | None:
    """The interaction of an index if identical to `item`."""
    held = None if index is None else cassette.get(index)
    if held is None or (digest := document.interaction_digest(held)) != document.interaction_digest(
        item
    ):
        return None
    return Appended(held.index, digest)


async def _find_superseded(cassette: CassetteIndex, wanted: Sequence[Reference]) -> tuple[int, ...]:
    """The present indexes of wanted interactions that still exist."""
    indexes: list[int] = []
    moved: list[str] = []
    for reference in wanted:
        held = cassette.get(reference.index)
        if held is not None and reference.sha256 == document.interaction_digest(held):
            indexes.append(reference.index)
        else:
            moved.append(reference.sha256)
    if moved:
        held_now = sorted(cassette.snapshot(), key=lambda held: held.index)
        indexes += await asyncio.to_thread(_find_moved, held_now, moved, frozenset(indexes))
    return tuple(indexes)


def _find_moved(
    held: Sequence[AnyInteraction], digests: list[str], used: frozenset[int]
) -> list[int]:
    indexes: list[int] = []
    for interaction in held:
        if (
            interaction.index not in used
            and (digest := document.interaction_digest(interaction)) in digests
        ):
            digests.remove(digest)
            indexes.append(interaction.index)
            if not digests:
                break
    return indexes


class Numbering:
    """Chooses the index of an appended interaction that names an index.

    A remote tapeway numbers recordings, which may arrive in a different order. A skipped index
    can still be taken.
    """

    def __init__(self) -> None:
        self._gaps: WeakKeyDictionary[CassetteIndex, list[range]] = WeakKeyDictionary()

    def index(self, cassette: CassetteIndex, wanted: int | None) -> int:
        """The wanted index if never used, otherwise a new index."""
        if wanted is not None and self._take(cassette, wanted):
            return wanted
        following = cassette.reserve()
        if wanted is None or wanted <= following:
            return following
        self._gaps.setdefault(cassette, []).append(range(following, wanted))
        cassette.set_next_index(wanted + 1)
        return wanted

    def _take(self, cassette: CassetteIndex, wanted: int) -> bool:
        gaps = self._gaps.get(cassette, [])
        for place, gap in enumerate(gaps):
            if wanted in gap:
                rest = range(gap.start, wanted), range(wanted + 1, gap.stop)
                gaps[place : place + 1] = [half for half in rest if half]
                return True
        return False


class LoadedEditor(Editor):
    """Reads and changes the cassettes of a store that one process uses at a time."""

    def __init__(
        self, source: Loaded, store: CassetteStore, known: KnownValues, routes: RouteTable
    ) -> None:
        super().__init__(source, store, known)
        self._loaded = source
        self._routes = routes
        self._seen = UploadedBodies()
        self._numbering = Numbering()
        self._loaded_for_editing: WeakSet[CassetteIndex] = WeakSet()

    async def walk(self, name: str, after: int | None = None) -> CassetteContents | None:
        if (stored := await self.stored(name)) is None:
            return None
        self._seen.forget(name)
        for file in by_digest(stored.interactions).values():
            self._seen.add(name, file)
        items = items_after(name, stored.interactions, after)
        return CassetteContents(stored.head, each_of(items))

    async def body(self, name: str, digest: str) -> BodyFile | None:
        if (file := self._seen.of(name).get(digest)) is not None:
            try:
                await asyncio.to_thread(check_body_file, file)
            except StoreError:
                pass
            else:
                return file
        await self.walk(name)
        return self._seen.of(name).get(digest)

    async def _bodies_of(self, name: str, digests: Set[str]) -> Mapping[str, BodyFile]:
        """The large bodies of the cassette with these digests; the cassette is read once."""
        stored = await self._store.load(name, writable=True)
        stored_bodies = by_digest(stored.interactions if stored is not None else ())
        return {digest: stored_bodies[digest] for digest in digests & stored_bodies.keys()}

    async def _settled(self, name: str) -> bool:
        """Write a cassette's final form and unload the cassette, unless requests use it."""
        cassette = self._loaded.loaded.get(name)
        if cassette is None or cassette not in self._loaded_for_editing or _is_used(cassette):
            return False
        await self._loaded.change(name, partial(self._loaded.settle, prune=False))
        return True

    async def _change(self, name: str, work: Callable[[bool], Awaitable[T]]) -> T:
        """Change a cassette that is in use nowhere meanwhile; its next request loads it anew."""

        async def unloading(out: OutOfUse) -> T:
            result = await work(out.cassette is not None)
            out.cassette = None
            return result

        return await self._loaded.change(name, unloading)

    async def _state(self, name: str, *, with_digest: bool) -> tuple[str | None, str | None]:
        digest = await digest_of(await self._store.load(name, writable=True))
        # Read after the claim, which may change the cassette.
        stat = await self._store.stat(name)
        return digest, None if stat is None else stat.version

    async def _edit(
        self, name: str, index: int, condition: Condition, make: MakeChanged
    ) -> Appended | None:
        """Change one interaction; the cassette is written anew, and numbered by position."""

        async def work(edited: EditedRecording, out: OutOfUse) -> Appended | None:
            before = await self._store.load(name, writable=True)
            if before is None:
                raise no_cassette(name)
            place = _position_of(name, before.interactions, edited.index)
            made = await make(before.head, before.interactions[place])
            kept = list(before.interactions)
            kept[place : place + 1] = [] if made is None else [made]
            await self._store.save(name, replace(before, interactions=tuple(kept)))
            if (loaded := out.cassette) is not None:
                rebuild = partial(self._rebuilt, loaded, before, kept, place)
                out.cassette = await indexed(len(kept), partial(rebuild, removed=made is None))
            return None if made is None else Appended(place, document.interaction_digest(made))

        with self._loaded.edited(name, index) as edited:
            await self._close(edited, condition, make)
            # Live calls end first, which may store more of their recordings under other indexes.
            return await self._loaded.change(name, partial(work, edited))

    async def _close(
        self, edited: EditedRecording, condition: Condition, make: MakeChanged
    ) -> None:
        """Let no more of a recording be stored, unless the edit is refused."""
        cassette, wanted = self._loaded.loaded.get(edited.name), condition.match
        held = None if cassette is None else cassette.get(edited.index)
        if cassette is None or held is None:
            return
        if wanted is None or document.interaction_digest(held) in wanted:
            await make(cassette.head, held)
            edited.closed = True

    async def _append_to(self, name: str, head: CassetteHead | None, work: Append) -> None:
        """Append to a loaded and claimed cassette."""

        async def claimed(cassette: CassetteIndex) -> None:
            await self._claimed(cassette)
            await self._begin(cassette, head)
            await work(_LoadedTarget(cassette, self._numbering, self._routes))

        await self._loaded.while_claimed(name, claimed)

    async def _claimed(self, cassette: CassetteIndex) -> None:
        if not _is_used(cassette) and cassette.name != self._loaded.control.active:
            self._loaded_for_editing.add(cassette)

    async def _begin(self, cassette: CassetteIndex, head: CassetteHead | None) -> None:
        """Give an empty cassette the metadata that came with the first interactions."""
        if head is None or len(cassette) or await self._store.stat(cassette.name) is not None:
            return
        meta = rules.meta_with_rules(
            head.meta, rules.merged_rules(rules.rules_of_meta(head.meta), cassette.rules)
        )
        cassette.begin(replace(head, meta=meta if cassette.rules != rules.NO_RULES else head.meta))

    def _rebuilt(
        self,
        loaded: CassetteIndex,
        before: StoredCassette,
        kept: Sequence[AnyInteraction],
        place: int,
        *,
        removed: bool,
    ) -> CassetteIndex:
        """The cassette as saved: numbered by position, with the cursors of its take."""
        moved = {
            interaction.index: at - (removed and at > place)
            for at, interaction in enumerate(before.interactions)
            if not (removed and at == place)
        }
        moved.update({index: index for index in loaded.inherited})
        items = tuple([replace(interaction, index=at) for at, interaction in enumerate(kept)])
        stored = assign_routes(StoredCassette(loaded.head, items), self._routes)
        rebuilt = CassetteIndex(
            *(loaded.name, stored),
            take=loaded.take.number,
            calls_model=loaded.calls_model,
            layers=loaded.layers,
        )
        rebuilt.set_takes({at: loaded.take_of(index) for index, at in moved.items()})
        rebuilt.take.touch([moved[used] for used in loaded.take.touched if used in moved])
        # Used-up recordings stay used up, as when rules change.
        rebuilt.apply_rules(rules.NO_RULES)
        return rebuilt


class _LoadedTarget:
    """A cassette in memory while something is appended to it."""

    def __init__(self, cassette: CassetteIndex, numbering: Numbering, routes: RouteTable) -> None:
        self.name, self.head = cassette.name, cassette.head
        self._cassette = cassette
        self._numbering = numbering
        self._routes = routes

    @property
    def count(self) -> int:
        return len(self._cassette)

    async def note_repeated(self, call: AppendCall, items: Sequence[AnyInteraction]) -> None:
        """Note in the receipt what came before the process was started anew."""
        for number, addition, item in list(call.missing(items)) if call.with_key else ():
            if (held := _identical_at(self._cassette, addition.index, item)) is not None:
                call.receipt.appended[number] = held

    async def index(self, wanted: int | None) -> int:
        """The wanted index if free, otherwise a new index."""
        return self._numbering.index(self._cassette, wanted)

    async def superseded(self, wanted: Sequence[Reference]) -> tuple[int, ...]:
        """The present indexes of wanted interactions that still exist."""
        return await _find_superseded(self._cassette, wanted)

    def added(self, recording: Recording) -> None:
        """Have what is durable in memory too."""
        cassette, item = self._cassette, recording.interaction
        if isinstance(item, ForeignInteraction):
            cassette.add_foreign(item, recording.supersedes)
            return
        alone = StoredCassette(cassette.head, (item,))
        (adopted,) = assign_routes(alone, self._routes).interactions
        recording = replace(recording, interaction=adopted)
        # As if it had been there before: it was not replayed in this take.
        key = request_key(recording.exchange.request, cassette.rules)
        cassette.add(recording, key, Take(0))


def _is_used(cassette: CassetteIndex) -> bool:
    return bool(cassette.take.touched or cassette.take.cursors)
