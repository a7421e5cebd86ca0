"""Appends to cassettes, edits, replaces and removes them while they are served.

Every change is durable when it is answered, and the cassette in memory agrees with the store.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from weakref import WeakKeyDictionary, WeakSet

from tapeway.body_files import check_body_file
from tapeway.core.cassette import cursors
from tapeway.core.cassette.cursors import Take
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.http.routing import RouteTable, assign_routes
from tapeway.core.matching import rules
from tapeway.core.matching.key import request_key
from tapeway.core.model.cassette import (
    CassetteHead,
    Outline,
    Recording,
    StoredCassette,
    sources_of,
)
from tapeway.core.model.condition import ANY, Condition, changed_meanwhile
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction
from tapeway.core.model.messages import BodyFile
from tapeway.core.redaction.known_values import KnownValues
from tapeway.engine.cassettes.context import T
from tapeway.engine.cassettes.loaded import Change, Loaded
from tapeway.engine.editing.changes import (
    Appended,
    CassetteContents,
    Changed,
    digest_of,
)
from tapeway.engine.editing.editor import AppendCall, Editor, finish_all
from tapeway.engine.editing.large_bodies import (
    UploadedBodies,
    by_digest,
)
from tapeway.engine.editing.lookup import (
    after_index,
    find_superseded,
    identical_at,
    no_cassette,
    position_of,
)
from tapeway.engine.editing.screening import Secrets
from tapeway.errors import CassetteEdited, StoreError
from tapeway.formats.native import document
from tapeway.paging import each_of
from tapeway.ports import CassetteStore


class Numbering:
    """Chooses the index of an appended interaction that comes with one.

    A tapeway that records here from afar numbers its recordings itself, and they may arrive in
    another order: an index that was skipped can still be taken.
    """

    def __init__(self) -> None:
        self._gaps: WeakKeyDictionary[CassetteIndex, list[range]] = WeakKeyDictionary()

    def index(self, cassette: CassetteIndex, wanted: int | None) -> int:
        """The wanted index if it was never used, otherwise a new one."""
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
                gaps[place : place + 1] = [each for each in rest if each]
                return True
        return False


class MemoryEditor(Editor[CassetteStore]):
    """Changes cassettes of a store that one process uses at a time."""

    def __init__(
        self,
        cassettes: Loaded,
        store: CassetteStore,
        known: KnownValues,
        routes: RouteTable,
    ) -> None:
        super().__init__(store, known)
        self._cassettes = cassettes
        self._routes = routes
        self._seen = UploadedBodies()
        self._numbering = Numbering()
        self._loaded_for_editing: WeakSet[CassetteIndex] = WeakSet()
        self._heads: WeakKeyDictionary[CassetteIndex, CassetteHead] = WeakKeyDictionary()

    async def stored(self, name: str) -> StoredCassette | None:
        """A cassette as stored now, or None where there is none."""
        return await self._cassettes.as_stored(name)

    async def outline(self, name: str) -> Outline | None:
        """A cassette's metadata, its number of interactions, and their routes and upstreams.

        Costs the same however many there are while somebody appends to it from elsewhere.
        """
        cassette = self._cassettes.get(name)
        if cassette is not None and (head := self._heads.get(cassette)) is not None:
            held: Sequence[AnyInteraction] = cassette.snapshot()
        elif (stored := await self.stored(name)) is None:
            return None
        else:
            head, held = stored.head, stored.interactions
            if cassette is not None and cassette in self._loaded_for_editing:
                # It is claimed, so that what is in memory says the same as the store.
                self._heads[cassette] = head
        return Outline(head, len(held), sources_of(held))

    async def walk(self, name: str, after: int | None = None) -> CassetteContents | None:
        """Its metadata and interactions, those after an index or all, to be iterated once.

        Raises CassetteEdited where that one is gone.
        """
        if (stored := await self.stored(name)) is None:
            return None
        self._seen.forget(name)
        for file in by_digest(stored.interactions).values():
            self._seen.add(name, file)
        items = stored.interactions
        return CassetteContents(
            stored.head, each_of(items if after is None else after_index(name, items, after))
        )

    async def body(self, name: str, digest: str) -> BodyFile | None:
        """A large body of a cassette, or None where it has none such."""
        if (file := self._seen.of(name).get(digest)) is not None:
            try:
                await asyncio.to_thread(check_body_file, file)
            except StoreError:
                pass
            else:
                return file
        await self.walk(name)
        return self._seen.of(name).get(digest)

    async def claim(self, name: str) -> None:
        """Load a cassette for appending. Raises StoreError, CassetteLocked."""
        await self._cassettes.while_claimed(name, self._claimed)

    async def release(self, name: str) -> bool:
        """Write a cassette's final form and unload it, unless it is served or recorded to here too."""
        cassette = self._cassettes.get(name)
        if cassette is None or cassette not in self._loaded_for_editing or _is_used(cassette):
            return False
        self._bodies.forget(name)
        await self._cassettes.eject(name, prune=False)
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
        """Replace a whole cassette. A loaded one is unloaded; its next request loads it anew.

        Large bodies go where the store keeps such, unless it is kept `as_sent`.
        """

        async def work(loaded: CassetteIndex | None) -> tuple[Changed, None]:
            before = None
            if condition.given:
                before = await self._store.load(name, writable=True)
                condition.check(await digest_of(before))
            with _condition_at_save(condition):
                after, replaced = await self._save(
                    name,
                    cassette,
                    secrets,
                    before.interactions if before is not None else (),
                    as_sent=as_sent,
                )
            return Changed(await digest_of(after) or "", replaced), None

        return await self._cassettes.change(name, partial(self._released_on_error, name, work))

    async def replace_head(
        self, name: str, head: CassetteHead, secrets: Secrets = "refuse"
    ) -> Changed:
        """Replace a cassette's metadata; a loaded cassette is unloaded. Raises AdminError (404)."""

        async def work(loaded: CassetteIndex | None) -> tuple[Changed, None]:
            before = await self._store.load(name, writable=True)
            if before is None:
                raise no_cassette(name)
            found = await self._prepare(name, head, (), secrets, meta=True)
            await self._store.save(name, replace(before, head=found.head))
            await self._store.release(name)
            return Changed(document.head_digest(found.head), found.replaced), None

        return await self._cassettes.change(name, partial(self._released_on_error, name, work))

    async def remove(self, name: str, condition: Condition = ANY) -> None:
        """Delete a cassette. Raises AdminError (404), CassetteLocked."""

        async def work(loaded: CassetteIndex | None) -> tuple[None, None]:
            if condition.given:
                condition.check(await digest_of(await self._store.load(name, writable=True)))
                mark = None if (stat := await self._store.stat(name)) is None else stat.mark
                with _condition_at_save(condition):
                    if not await self._store.replace_if(name, mark, None):
                        raise changed_meanwhile()
                removed = mark is not None
            else:
                removed = await self._store.remove(name)
            if not removed and loaded is None:
                raise no_cassette(name)
            self._bodies.forget(name)
            self._receipts.forget(name)
            return None, None

        await self._cassettes.change(name, partial(self._released_on_error, name, work))

    async def edit(
        self,
        name: str,
        index: int,
        changed: AnyInteraction | None,
        condition: Condition = ANY,
        secrets: Secrets = "refuse",
    ) -> Appended | None:
        """Put another interaction in the place of one, or remove it; tells where it is now.

        The cassette is written anew, and its interactions numbered by their position. The condition
        is about this one interaction. Raises AdminError (404, 412).
        """

        async def work(
            loaded: CassetteIndex | None,
        ) -> tuple[Appended | None, CassetteIndex | None]:
            before = await self._store.load(name, writable=True)
            if before is None:
                raise no_cassette(name)
            place = position_of(name, before.interactions, index)
            condition.check(document.interaction_digest(before.interactions[place]))
            replacement: tuple[AnyInteraction, ...] = ()
            if changed is not None:
                found = await self._prepare(
                    name, before.head, [changed], secrets, before.interactions
                )
                replacement = found.items
            kept: tuple[AnyInteraction, ...] = (
                *before.interactions[:place],
                *replacement,
                *before.interactions[place + 1 :],
            )
            with _condition_at_save(condition):
                await self._store.save(name, replace(before, interactions=kept))
            appended_at = None
            if replacement:
                appended_at = Appended(place, document.interaction_digest(replacement[0]))
            if loaded is None:
                await self._store.release(name)
                return appended_at, None
            return appended_at, self._rebuilt(loaded, before, kept, place, removed=not replacement)

        return await self._cassettes.change(name, partial(self._released_on_error, name, work))

    async def keep(self, name: str, file: BodyFile) -> None:
        """Store a large body in a cassette that is claimed for it."""
        keep = super().keep

        async def work(cassette: CassetteIndex) -> None:
            await keep(name, file)

        await self.claim(name)
        await self._cassettes.while_claimed(name, work)

    async def _claimed(self, cassette: CassetteIndex) -> None:
        if not _is_used(cassette) and cassette.name != self._cassettes.control.active:
            self._loaded_for_editing.add(cassette)

    async def _append(self, name: str, call: AppendCall) -> None:
        await self._cassettes.while_claimed(name, partial(self._append_claimed, call))

    async def _append_claimed(self, call: AppendCall, cassette: CassetteIndex) -> None:
        await self._claimed(cassette)
        await self._begin(cassette, call.head)
        kept = await self._prepare_append(cassette.name, cassette.head, call)
        steps: list[tuple[int, Recording]] = []
        for number, addition, item in call.missing(kept):
            if call.with_key and (held := identical_at(cassette, addition.index, item)) is not None:
                # It came before the process was started anew.
                call.receipt.appended[number] = held
                continue
            index = self._numbering.index(cassette, addition.index)
            superseded = await find_superseded(cassette, addition.supersedes)
            recording = Recording(replace(item, index=index), superseded)
            steps.append((number, recording))
        await finish_all([self._record(cassette, call, *step) for step in steps])

    async def _record(
        self, cassette: CassetteIndex, call: AppendCall, number: int, recording: Recording
    ) -> None:
        await self._store.append(cassette.name, cassette.head, recording)
        item = recording.interaction
        call.stored(number, item)
        if isinstance(item, ForeignInteraction):
            cassette.add_foreign(item, recording.supersedes)
            return
        alone = StoredCassette(cassette.head, (item,))
        (adopted,) = assign_routes(alone, self._routes).interactions
        recording = replace(recording, interaction=adopted)
        # As if it had been there before: it was not replayed in this take.
        key = request_key(recording.exchange.request, cassette.rules)
        cassette.add(recording, key, Take(0))

    async def _begin(self, cassette: CassetteIndex, head: CassetteHead | None) -> None:
        """Give a cassette that has no interactions yet the metadata that came with the first ones."""
        if head is None or len(cassette) or await self._store.stat(cassette.name) is not None:
            return
        meta = rules.meta_with_rules(
            head.meta, rules.merged_rules(rules.rules_of_meta(head.meta), cassette.rules)
        )
        cassette.head = replace(head, meta=meta if cassette.rules != rules.NO_RULES else head.meta)
        cassette.rules = rules.rules_of_meta(cassette.head.meta)
        cassette.repeats = cursors.repeats_of_meta(cassette.head.meta)

    async def _find_bodies(self, name: str, digests: Set[str]) -> Mapping[str, BodyFile]:
        stored = await self._store.load(name, writable=True)
        found = by_digest(stored.interactions if stored is not None else ())
        return {digest: found[digest] for digest in digests & found.keys()}

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
            each.index: at - (removed and at > place)
            for at, each in enumerate(before.interactions)
            if not (removed and at == place)
        }
        items = tuple([replace(each, index=at) for at, each in enumerate(kept)])
        stored = assign_routes(StoredCassette(loaded.head, items), self._routes)
        rebuilt = CassetteIndex(loaded.name, stored, take=loaded.take.number)
        rebuilt.set_takes({at: loaded.take_of(index) for index, at in moved.items()})
        rebuilt.take.touch([moved[each] for each in loaded.take.touched if each in moved])
        # What was used up stays so, as when rules change.
        rebuilt.apply_rules(rules.NO_RULES)
        return rebuilt

    async def _released_on_error(
        self, name: str, work: Change[T], loaded: CassetteIndex | None
    ) -> tuple[T, CassetteIndex | None]:
        try:
            return await work(loaded)
        except BaseException:
            if loaded is None:
                # It was claimed for this change alone.
                with suppress(StoreError):
                    await self._store.release(name)
            raise


@contextmanager
def _condition_at_save(condition: Condition) -> Iterator[None]:
    """Where somebody else changes the same cassette from elsewhere, the store notices as it saves."""
    try:
        yield
    except CassetteEdited as exc:
        if not condition.given:
            raise
        raise changed_meanwhile() from exc


def _is_used(cassette: CassetteIndex) -> bool:
    return bool(cassette.take.touched or cassette.take.cursors)
