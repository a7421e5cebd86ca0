"""Views of cassettes in a store that many processes use at once.

Each cassette in use has an index in memory, which follows the log of the cassette. A replay moves a
cursor, and the store moves a cursor only while cursor and recordings are as the index knows them.
Where the store refuses, the index reads on, and tapeway decides on the request anew.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from uuid import UUID, uuid5

from tapeway.core.cassette.branches import Layer, with_routes
from tapeway.core.cassette.cursors import Take, write_key
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Incoming, LiveCall, Replay
from tapeway.core.cassette.rerecording import head_checked
from tapeway.core.correlation.index import CorrelationIndex, issued_key
from tapeway.core.correlation.unify import IdBindings
from tapeway.core.http.routing import assign_route, base_paths
from tapeway.core.matching.rules import RuleChange, Rules, adding, rules_of_meta
from tapeway.core.misses.miss import Miss, SearchedCassette
from tapeway.core.misses.nearest import path_of
from tapeway.core.misses.neighbours import Neighbours, SoughtRequest
from tapeway.core.model.cassette import CassetteHead, StoredCassette, TakenRecording
from tapeway.core.model.control import (
    MODE_POLICIES,
    Control,
    CursorMove,
    CursorState,
    Mode,
    with_take,
    without_takes,
)
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.core.model.messages import Request
from tapeway.engine.cassettes.context import (
    CassetteContext,
    CassetteCounts,
    KeyedLocks,
    T,
    head_under_rules,
    holds_nothing,
    not_loaded,
    with_rules,
)
from tapeway.engine.cassettes.followed_index import (
    CassetteDocuments,
    DocumentMemory,
    FollowedIndex,
    advanced,
)
from tapeway.engine.cassettes.source import (
    MOST_TRIES,
    DecideAgain,
    Latest,
    OutOfUse,
    Search,
    Source,
    View,
    incoming_of,
    too_many,
)
from tapeway.engine.correlation import CorrelationMatches, key_of_alike, meant_by
from tapeway.engine.journal import MOST_EMPTY, Tally
from tapeway.engine.report.summary import RecordingsInStore
from tapeway.engine.single_flight import RecordingLeases
from tapeway.errors import (
    CassetteCorrupt,
    DocumentAway,
    StoreError,
    recording_edited,
)
from tapeway.ports import SharedStore
from tapeway.providers.api_call import calls_model

log = logging.getLogger(__name__)
MOST_NEAR = 1000
"""The number of newest recordings of a path that a WebSocket connection may replay."""
_AT_ONCE = 8
"""Refusals of a request's steps after which each further try waits for `_PAUSE_S`."""
_PAUSE_S = 0.02
_NOTHING_ASKED = Incoming(Request("", "", ""))
_RUN_ID_NAMESPACE = UUID("6a3f3d0c-9d0e-4d4c-8a53-7f0f4f4b5d11")


class Followed(Source):
    """The cassettes of a shared store, served by one of several processes."""

    shared = True
    store: SharedStore

    def __init__(self, store: SharedStore, control: Control, context: CassetteContext) -> None:
        super().__init__(store, control, context)
        self._leases = RecordingLeases(store, context.calls)
        self._followed: dict[str, FollowedIndex] = {}
        self._memory = DocumentMemory()
        self._reads: Counter[str] = Counter()
        """By cassette, the number of times that a read of the log began."""
        self._loading = KeyedLocks()
        self._cursor_locks = KeyedLocks()
        """Held while a cursor is moved: only instances should compete, not requests of one instance."""
        self._empty_takes = EmptyTakes(store)
        self._left: dict[tuple[str, int], set[bytes]] = {}
        """By cassette and take, keys with a kept recording beside recordings that are left."""

    async def open(self) -> None:
        await self.store.open()
        try:
            self.control = await self.store.join(self.control, self._apply)
        except BaseException:
            await self.store.close()
            raise

    async def close(self, within_s: float = math.inf) -> None:
        try:
            await self._end_takes(lambda name, number: True)
        except StoreError as exc:
            log.warning("recordings that were not recorded anew are left: %s", exc.message)
        finally:
            await self.store.close(within_s)

    def hits(self, name: str) -> FollowedIndex | None:
        """The index of a cassette; None where the store is to be asked first."""
        followed = self._followed.get(name)
        if followed is None or not followed.token or followed.behind:
            return None
        return None if self._left or self.store.trouble is not None else followed

    async def prepare(self, name: str, mode: Mode | None = None) -> None:
        """Check that it can be read. Raises StoreError."""
        await self._of(name)

    async def unload_edited(self, name: str) -> bool:
        """Have the next decision read the log first."""
        if (followed := self._followed.get(name)) is not None:
            followed.behind = True
        return followed is not None

    # Following.

    async def _of(self, name: str) -> FollowedIndex:
        """The index of a cassette, after reading the log if need be. Raises StoreError."""
        self._context.tallies.setdefault(name, Tally())
        await self._end_takes(self._has_ended)
        followed = self._followed.get(name)
        if followed is None or followed.behind or not followed.token:
            followed = await self._follow(name)
        if not followed.token:
            await self._note_empty(name)
        return followed

    async def _of_readable(self, name: str) -> FollowedIndex:
        """The index, or an empty one for a cassette that cannot be read."""
        try:
            return await self._of(name)
        except CassetteCorrupt:
            return self._index(name, self._new_head(name), "")

    async def _follow(self, name: str) -> FollowedIndex:
        """The index with every row that the log had when this was called. Raises StoreError."""
        begun = self._reads[name]
        async with self._loading.of(name, b""):
            followed = self._followed.get(name)
            if followed is not None and self._reads[name] > begun:
                # A read that began after this call has ended.
                return followed
            for _ in range(MOST_TRIES):
                self._reads[name] += 1
                if followed is None:
                    followed = await self._load(name)
                elif not await self._read_on(followed):
                    self._memory.forget(followed.documents)
                    followed = None
                if followed is not None:
                    self._followed[name] = followed
                    # Another take may have begun meanwhile.
                    self._begin_take(name, followed)
                    return followed
        raise too_many(name)

    async def _load(self, name: str) -> FollowedIndex | None:
        """An index read from the first row on; None if another log began meanwhile."""
        page = await self.store.since(name, 0)
        outline = None if page is None else await self.store.outline(name)
        if page is None or outline is None:
            stored = with_rules(name, StoredCassette(self._new_head(name)), self._context.rules)
            return None if page is not None else await self._layered(name, stored.head, "")
        ruled = with_rules(name, StoredCassette(outline.head), self._context.rules)
        if ruled.head is not outline.head:
            await self.store.replace_head(name, ruled.head)
            return None
        followed = await self._layered(name, outline.head, page.token)
        # From the first row once more: under another token the keys would not be those of the head.
        if not await self._read_on(followed):
            return None
        await asyncio.to_thread(followed.cassette.index_credentials)
        return followed

    async def _read_on(self, followed: FollowedIndex) -> bool:
        """Read the rest of the log into an index; False if another log has begun."""
        followed.behind = False
        try:
            while True:
                page = await self.store.since(followed.cassette.name, followed.revision)
                if page is None:
                    return not followed.token
                if page.token != followed.token:
                    return False
                await followed.apply(page)
                if page.seen == page.revision:
                    return True
        except BaseException:
            followed.behind = True
            raise

    async def _layered(self, name: str, head: CassetteHead, token: str) -> FollowedIndex:
        """An empty index above the recordings of the bases."""
        layers = await self.layers(name, head)
        routed = [with_routes(layer, self._context.routes) for layer in layers]
        return self._index(name, head, token, routed)

    def _index(
        self, name: str, head: CassetteHead, token: str, layers: Sequence[Layer] = ()
    ) -> FollowedIndex:
        take = self.control.take_of(name)
        cassette = CassetteIndex(
            *(name, StoredCassette(head)), take=take, calls_model=calls_model, layers=layers
        )
        return FollowedIndex(
            *(cassette, self.store, self._memory, self._context.routes, token),
            lambda: self.control.generation,
        )

    def _new_head(self, name: str) -> CassetteHead:
        # The head stays until stored, or a placeholder would change with every request.
        if (known := self._followed.get(name)) is not None and not known.token:
            return known.cassette.head
        # Instances that create the cassette simultaneously must use equal placeholders for a secret.
        return replace(self._context.new_head(), run_id=str(uuid5(_RUN_ID_NAMESPACE, name)))

    # Deciding.

    async def begin(self, name: str, incoming: Incoming, mode: Mode) -> Search:
        take = self.control.take_of(name) if incoming.take is None else incoming.take
        planner, searches = self._context.planner, MODE_POLICIES[mode].uses_recordings
        followed = await (self._of(name) if searches else self._of_readable(name))
        cassette = followed.cassette
        incoming = await planner.with_body_digest(cassette.head, cassette.rules, incoming)
        search = Search(name, incoming, mode, take, cassette=cassette)
        if searches:
            if not followed.token:
                self._begun.add(name)
            search.keys = planner.keys(cassette.head, cassette.rules, incoming)
        return search

    def turn(self, search: Search) -> AbstractAsyncContextManager[object]:
        """Held while a request is decided on.

        Only instances should compete for a cursor, not the requests of one.
        """
        return self._cursor_locks.of(search.name, search.keys[0]) if search.keys else nullcontext()

    async def view(self, search: Search) -> View:
        if not search.keys:
            cassette = (await self._of_readable(search.name)).cassette
            return View(cassette, search, generation=cassette.generation)
        followed = self._followed.get(search.name)
        if followed is None or followed.behind:
            followed = await self._follow(search.name)
        cassette = followed.cassette
        if search.cassette is not cassette:
            # Its rules may be others by now.
            search.cassette = cassette
            search.keys = self._context.planner.keys(cassette.head, cassette.rules, search.incoming)
        await self._read_cursors(followed, search)
        return View(cassette, search, generation=cassette.generation)

    async def _read_cursors(self, followed: FollowedIndex, search: Search) -> None:
        """Read the cursors that others may have moved, and the writes that count for a request."""
        take, cassette = search.take, followed.cassette
        writes = self._context.planner.write_keys(cassette.rules, search.incoming, search.mode)
        keys = dict.fromkeys([*search.keys, *search.used])
        stale = [key for key in keys if (take, key) in followed.stale]
        if not stale and not writes:
            return
        found = await self.store.cursors(search.name, take, [*stale, *writes])
        followed.restore(take, [key for key in stale if (take, key) in followed.stale], found)
        running = cassette.running(take)
        for key in writes:
            if key in found:
                running.restore_key(key, found[key].state)

    async def has_news(self, view: View, plan: LiveCall | Miss) -> bool:
        """Whether cassette or cursors have changed: without a replay, no step of a cursor would tell."""
        search, cassette = view.search, view.cassette
        if not MODE_POLICIES[search.mode].replays:
            return False
        followed = await self._follow(search.name)
        if not self.holds(view):
            return True
        left = cassette.left_of_base(cassette.running(search.take))
        asked = [*search.keys, plan.key, *[cassette.key_of(item.index) for item in left]]
        keys = [key for key in dict.fromkeys(asked) if key in cassette]
        return bool(keys) and await self._have_moved(followed, search.take, keys)

    async def _have_moved(self, followed: FollowedIndex, take: int, keys: Sequence[bytes]) -> bool:
        """Read cursors; whether another process has moved any of them."""
        turns = followed.turns
        before = {key: turns.get((take, key)) for key in keys}
        found = await self.store.cursors(followed.cassette.name, take, keys)
        moved = [
            key
            for key, turn in before.items()
            if turns.get((take, key)) == turn != found.get(key) and not isinstance(turn, CursorMove)
        ]
        followed.restore(take, moved, found)
        return bool(moved)

    def holds(self, view: View) -> bool:
        followed = self._followed.get(view.search.name)
        if followed is None or followed.cassette is not view.cassette:
            return not view.search.keys
        return view.cassette.generation == view.generation

    async def reading(self, cassette: CassetteIndex, work: Callable[[], T]) -> T:
        search = Search(cassette.name, _NOTHING_ASKED, "replay", cassette=cassette)
        try:
            for _ in range(MOST_TRIES):
                try:
                    return work()
                except DocumentAway as away:
                    await self._bring(search, cassette, away)
        finally:
            search.decided()
        raise too_many(cassette.name)

    async def bring(self, view: View, away: DocumentAway) -> None:
        search, cassette = view.search, view.cassette
        await self._bring(search, cassette, away)
        for key in search.keys:
            if not cassette.headers_are_known(key):
                # All of them: they need not have room in memory at once.
                await asyncio.to_thread(cassette.compare_headers, key)

    async def _bring(self, search: Search, cassette: CassetteIndex, away: DocumentAway) -> None:
        item = cassette.get(away.index)
        if isinstance(item, LazyInteraction) and isinstance(item.file, CassetteDocuments):
            # The decision may look at more of them than there is room for.
            search.when_decided.append(item.file.pin(away.index))
            await asyncio.to_thread(item.load)

    async def in_memory(
        self, cassette: CassetteIndex, item: Interaction | None
    ) -> Interaction | None:
        return (
            await self.reading(cassette, item.load) if isinstance(item, LazyInteraction) else item
        )

    def whole(self, replay: Replay) -> Replay:
        # In memory: it was looked at when it was counted.
        item = replay.interaction
        return (
            replay._replace(interaction=item.load())
            if isinstance(item, LazyInteraction)
            else replay
        )

    async def use(self, view: View, replay: Replay) -> bool:
        """Move the cursor; False where another instance was quicker, or changed the cassette."""
        search, key = view.search, replay.key
        followed = self._followed.get(search.name)
        if followed is None or followed.cassette is not view.cassette:
            return False
        search.used.add(key)
        asked = search.keys if key in search.keys else ()
        move, saved = followed.step(search.take, key, replay.interaction.index, asked), False
        try:
            saved = await self._save_bindings(view, replay.interaction.index)
        finally:
            if not saved:
                # The index has counted the step, and the store is not given it.
                followed.forget(move)
        if not saved:
            return False
        if await followed.make(move):
            return True
        # Another transaction may hold the cursor for as long as its process is suspended.
        search.refused += 1
        if search.refused > _AT_ONCE:
            await asyncio.sleep(_PAUSE_S)
        return False

    async def _save_bindings(self, view: View, index: int) -> bool:
        """Save the bindings that this replay added; False where another instance was quicker."""
        if (before := view.bindings) is None:
            return True
        name, number = view.cassette.name, view.search.take
        states = view.cassette.running(number).bindings.states()
        for key, state in states.items():
            known = before.get(key)
            if known is None or known.state != state:
                move = CursorMove(name, number, key, known, state, index)
                if not await advanced(self.store, move):
                    return False
        return True

    async def near(self, view: View, asked: Request) -> View:
        search, cassette = view.search, view.cassette
        path = path_of(asked, cassette.rules)
        found = [*await self.store.near(search.name, asked.method, path, MOST_NEAR)]
        indexes = {index for key in search.keys for index in cassette.indexes(key)}
        indexes -= {recording.item.index for recording in found}
        found += await self.store.documents(search.name, sorted(indexes)) if indexes else ()
        turns = await self.store.cursors(search.name, search.take, search.keys)
        return View(self._part(cassette, found, search.take, turns), search)

    def _part(
        self,
        whole: CassetteIndex,
        recordings: Sequence[TakenRecording],
        take: int,
        turns: Mapping[bytes, CursorState],
    ) -> CassetteIndex:
        """A small cassette of some recordings, in order."""
        ordered = sorted(recordings, key=lambda recording: (recording.place, recording.item.index))
        items = [assign_route(recording.item, self._context.routes) for recording in ordered]
        part = CassetteIndex(
            *(whole.name, StoredCassette(whole.head, tuple(items))),
            take=take,
            other_routes=whole.routes,
            places={recording.item.index: recording.place for recording in ordered},
            calls_model=calls_model,
            layers=whole.layers,
        )
        part.set_takes({recording.item.index: recording.take for recording in ordered})
        for key, turn in turns.items():
            part.take.restore_key(key, turn.state)
        return part

    async def alike(self, view: View, asked: Request, *, asks: bool) -> View:
        """The view with the recordings that may differ from a request in identifiers alone.

        The store's index of identifiers tells which answers issued the identifiers.
        """
        cassette, name = view.cassette, view.search.name
        rules, followed = cassette.rules, self._followed.get(name)
        key = await key_of_alike(asked, rules)
        taken = [] if key is None else await self.store.alike(name, key)
        routed = [assign_route(recording.item, self._context.routes) for recording in taken]
        recordings = [interaction for interaction in routed if isinstance(interaction, Interaction)]
        meant, identifiers = await meant_by(asked, recordings, rules, asks=asks)
        keys = {issued_key(identifier): identifier for identifier in identifiers}
        issuers = await self.store.issuers(name, list(keys)) if keys else {}
        held = [cassette.get(interaction.index) for interaction in meant]
        present = [item for item in held if item is not None]
        known = {keys[key]: issuer.index for key, issuer in issuers.items()}
        if followed is not None:
            # Read once more: what was found above may have been edited since.
            lazy = [item.index for item in present if isinstance(item, LazyInteraction)]
            await followed.documents.bring(lazy)
        present += [found.item for found in cassette.inherited.values()]
        return replace(view, identifiers=CorrelationIndex(present, rules, known))

    async def neighbours(
        self, name: str, searched: SearchedCassette, asked: SoughtRequest
    ) -> Sequence[AnyInteraction]:
        followed = self._followed.get(name)
        if followed is not None and followed.has_unrouted:
            # A recording without a route is found by its whole path.
            asked = asked.below(base_paths(self._context.routes))
        recordings = await self.store.neighbours(name, asked)
        near = [assign_route(recording.item, self._context.routes) for recording in recordings]
        if followed is not None and (inherited := followed.cassette.inherited):
            items = [found.item for found in inherited.values()]
            near += Neighbours(items).near(asked, followed.cassette.get)
        return near

    async def matched(self, view: View, seen: CorrelationMatches) -> View:
        if not seen.matches:
            return view
        if (followed := self._followed.get(view.search.name)) is not None:
            await self._read_cursors(followed, view.search)
        bindings = await self.load_bindings(view, seen.binding_keys())
        return replace(view, bindings=bindings)

    async def begin_with(self, view: View, preset: Rules) -> None:
        name = view.search.name
        followed = self._followed.get(name)
        if followed is None or followed.token:
            await self._context.run_to_end(self.change_rules(name, adding(preset)))
        else:
            # The head is written with the first recording.
            followed.cassette.apply_rules(preset)

    # Calling.

    async def note_write(self, live_call: LiveCall) -> None:
        name, take = live_call.cassette.name, live_call.take.number
        key, before = write_key(live_call.redacted.route), None
        while not await advanced(
            self.store, CursorMove(name, take, key, before, _one_more(before))
        ):
            before = (await self.store.cursors(name, take, [key])).get(key)

    async def count_fault(self, name: str, take: int | None, key: bytes, times: int) -> bool:
        number = self.control.take_of(name) if take is None else take
        before: CursorState | None = None
        for _ in range(MOST_TRIES):
            move = CursorMove(name, number, key, before, _one_more(before))
            is_made = await advanced(self.store, move)
            if not is_made:
                before = (await self.store.cursors(name, number, [key])).get(key)
            known, followed = move.after if is_made else before, self._followed.get(name)
            if known is not None and followed is not None:
                followed.cassette.running(number).faults[key] = int(known.state)
            if is_made or (before is not None and int(before.state) >= times):
                return is_made
        raise too_many(name)

    async def let_go(self, live_call: LiveCall) -> None:
        if live_call.lease is not None:
            await self._leases.end(live_call.lease)

    @asynccontextmanager
    async def asking(
        self, live_call: LiveCall, again: DecideAgain
    ) -> AsyncIterator[LiveCall | Replay]:
        """Hold the lease to make a call and record the answer; one instance at a time has the lease.

        Yields the call to make, decided again under the lease, or the replay of another instance's
        new recording. Raises StoreError.
        """
        if not live_call.may_be_joined:
            async with self._numbered(live_call) as numbered:
                yield numbered
            return
        name, key, known = live_call.cassette.name, live_call.flight, None
        at_first = frozenset(live_call.cassette.indexes(live_call.key))
        while (lease := await self.store.claim(name, key, wait=True)) is None:
            known = at_first
            await self.store.confirm()
            # The instance with the lease may have recorded an answer.
            if isinstance(now := await again(live_call, known), Replay):
                yield now
                return
        try:
            await self.store.confirm()
            now = await again(live_call, known)
            if isinstance(now, LiveCall):
                now = now._replace(lease=lease, reserved=await self.store.reserve(name))
            yield now
        finally:
            await self._leases.end(lease)

    async def reserve(self, live_call: LiveCall) -> int:
        return await self.store.reserve(live_call.cassette.name)

    @asynccontextmanager
    async def _numbered(self, live_call: LiveCall) -> AsyncIterator[LiveCall]:
        """Equal requests are recorded separately, and no fence refuses a recording."""
        name = live_call.cassette.name
        index = await self.store.reserve(name)
        async with self._leases.held(name, live_call.key + b"#%d" % index):
            yield live_call._replace(reserved=index)

    def appended(self, live_call: LiveCall, cassette: CassetteIndex, index: int) -> None:
        followed = self._followed.get(cassette.name)
        if followed is None:
            return
        if followed.cassette is cassette and followed.token:
            followed.appended(index, live_call.take.number, live_call.key)
        else:
            followed.behind = True

    @asynccontextmanager
    async def going_on(self, live_call: LiveCall, index: int) -> AsyncIterator[None]:
        async with self._alone(live_call.cassette.name, live_call.key):
            if await self._is_kept(live_call, index):
                raise recording_edited(live_call.cassette.name, index)
            yield

    async def _is_kept(self, live_call: LiveCall, index: int) -> bool:
        """Whether a later take has kept a recording of the take of this call."""
        name, own = live_call.cassette.name, live_call.take.number
        for number in [take for take in self.control.takes_of(name) if take != own]:
            take = Take(number)
            for key, turn in (await self.store.cursors(name, number, [live_call.key])).items():
                take.restore_key(key, turn.state)
            if index in take.kept:
                return True
        return False

    @asynccontextmanager
    async def _alone(self, name: str, key: bytes) -> AsyncIterator[None]:
        """Held while recordings under a key are replaced: no other instance replaces them."""
        async with self._replacing.of(name, key), self._leases.alone(name, b"replace " + key):
            yield

    @asynccontextmanager
    async def replacing(
        self, live_call: LiveCall, interaction: Interaction
    ) -> AsyncIterator[Latest | None]:
        """Held from the comparison of a new answer with earlier ones until the answer is durable.

        Meanwhile no other instance compares with the earlier answers. None where the take has ended:
        nothing is compared then.
        """
        name, key, number = live_call.cassette.name, live_call.key, live_call.take.number
        if self._has_ended(name, number):
            yield None
            return
        cassette, incoming = live_call.cassette, incoming_of(live_call)._replace(take=number)
        mode = incoming.mode or self.control.mode_of(name)
        search = Search(name, incoming, mode, number, cassette=cassette)
        find = partial(cassette.earlier, interaction, key, live_call.take)
        if not await self.reading(cassette, find):

            async def latest() -> View:
                return View(cassette, search)

            yield latest
            return

        async def as_now() -> View:
            followed = await self._follow(name)
            followed.stale.add((number, key))
            now = await self.begin(name, incoming, mode)
            now.used.add(key)
            return await self.view(now)

        async with self._alone(name, key):
            yield as_now

    async def load_bindings(self, view: View, keys: Sequence[bytes]) -> Mapping[bytes, CursorState]:
        if not keys:
            return {}
        cassette, number = view.cassette, view.search.take
        turns = await self.store.cursors(cassette.name, number, keys)
        cassette.running(number).bindings = IdBindings.from_states(
            {key: turn.state for key, turn in turns.items()}
        )
        return turns

    async def bind(self, view: View, take: Take, key: bytes, id_map: Mapping[str, str]) -> None:
        bindings, cassette = IdBindings(), view.cassette
        bindings.bind(id_map)
        index = cassette.indexes(key)[-1]
        for binding, state in bindings.states().items():
            await advanced(
                self.store, CursorMove(cassette.name, take.number, binding, None, state, index)
            )

    async def compared(self, view: View, key: bytes, *, more: bool = False) -> None:
        name = view.cassette.name
        if more:
            self._left.setdefault((name, view.search.take), set()).add(key)
        await self._note_check(name, view.cassette.head)

    def _has_ended(self, name: str, number: int) -> bool:
        """Whether a take is in force neither for its cassette nor for a slot."""
        slots = self.control.slots.values()
        return number != self.control.take_of(name) and all(slot.take != number for slot in slots)

    async def _end_takes(self, which: Callable[[str, int], bool]) -> None:
        """Drop recordings left over from takes before a re-recording that ends."""
        for name, number in [left for left in self._left if which(*left)]:
            if (keys := self._left.pop((name, number), None)) is None:
                continue
            followed = await self._follow(name)
            cassette = followed.cassette
            found = await self.store.cursors(name, number, sorted(keys))
            find = partial(_left_behind, cassette, Take(number), found)
            left = await self.reading(cassette, find)
            for index in left:
                await self.store.edit(name, index, None)
            followed.behind = True

    async def _note_check(self, name: str, head: CassetteHead) -> None:
        """Note today as the day on which recordings were compared with new answers."""
        today = self._context.today()
        if head_checked(head, today) is head:
            return
        outline = await self.store.outline(name)
        if outline is not None and outline.head is not head_checked(outline.head, today):
            await self.store.replace_head(name, head_checked(outline.head, today))
            if (followed := self._followed.get(name)) is not None:
                followed.behind = True

    # Steering.

    async def confirm(self) -> None:
        await self.store.confirm()

    async def steer(self, change: Callable[[Control], Control]) -> None:
        gone = await self._empty_takes.ended(self.control)
        self._apply(await self.store.steer(lambda now: change(without_takes(now, gone))))
        await self._end_takes(self._has_ended)

    async def announce(self) -> None:
        """Have all instances read the cassettes' metadata anew."""
        await self.steer(lambda now: now)

    async def change_rules(self, name: str, change: RuleChange) -> Rules:
        followed = await self._follow(name)
        if not followed.token:
            raise holds_nothing(name)
        held = followed.cassette.head
        if (head := head_under_rules(held, change(rules_of_meta(held.meta)))) is not held:
            await self.store.replace_head(name, head)
            await self.announce()
        return rules_of_meta(head.meta)

    @asynccontextmanager
    async def out_of_use(self, name: str) -> AsyncIterator[OutOfUse]:
        if name not in self._context.tallies and not await self._is_in_use(name):
            raise not_loaded(name)
        await self._leases.ended(name)
        await self._end_takes(lambda left, number: left == name)
        yield OutOfUse(name)

    async def _is_in_use(self, name: str) -> bool:
        """Whether any instance has used the cassette in this take, or records now."""
        return bool(await self._used(name)) or bool(await self.store.fences(name))

    async def settle(self, out: OutOfUse, *, prune: bool) -> None:
        if prune:
            used = await self._used(out.name)
            for index in (await self._follow(out.name)).cassette.unused(used):
                await self.store.edit(out.name, index, None)
        await self.store.release(out.name)

    async def end_take(self, name: str) -> None:
        await self.steer(lambda now: with_take(now, name))
        self._forget(name)

    async def recordings(self, name: str, cassette: CassetteIndex | None) -> RecordingsInStore:
        followed = await self._follow(name)
        return RecordingsInStore(self.store, followed.cassette, self.control.takes_of(name))

    async def counts(self) -> list[CassetteCounts]:
        counts: list[CassetteCounts] = []
        for name in list(self._context.tallies):
            # One that cannot be read keeps no other out of a list.
            with suppress(CassetteCorrupt):
                counts.append(await self._counts_of(name))
        return counts

    async def _counts_of(self, name: str) -> CassetteCounts:
        """How many recordings there are, and how many of them no instance has used."""
        cassette = (await self._follow(name)).cassette
        unused = cassette.unused_count(await self._used(name))
        return CassetteCounts(name, len(cassette), unused)

    async def _used(self, name: str) -> Collection[int]:
        """The recordings that some instance has used in a take in force."""
        return await self.store.used(name, self.control.takes_of(name))

    def _apply(self, control: Control) -> None:
        super()._apply(control)
        for name, followed in self._followed.items():
            # The metadata may be new too.
            followed.behind = True
            self._begin_take(name, followed)

    def _begin_take(self, name: str, followed: FollowedIndex) -> None:
        running = {slot.take for slot in self.control.slots.values()}
        followed.begin_take(self.control.take_of(name), running)

    def _forget(self, name: str) -> None:
        super()._forget(name)
        self._reads.pop(name, None)
        if (followed := self._followed.pop(name, None)) is not None:
            self._memory.forget(followed.documents)

    async def _forget_empty(self, name: str) -> None:
        followed = self._followed.get(name)
        if (followed is None or not followed.token) and not self._is_awaited(name):
            self._forget(name)


class EmptyTakes:
    """Finds the takes in force of names that hold nothing: names can be made up."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._most = MOST_EMPTY

    async def ended(self, control: Control) -> Collection[str]:
        """The names whose takes are to be forgotten: those that began first. Raises StoreError."""
        names = control.names
        if len(names) < self._most:
            return ()
        stored = {*await self._store.names(), control.active}
        oldest = sorted(names, key=lambda name: control.takes_of(name)[-1])[: -MOST_EMPTY // 2]
        absent = [name for name in oldest if name not in stored]
        self._most = max(MOST_EMPTY, 2 * (len(names) - len(absent)))
        return absent


def _left_behind(
    cassette: CassetteIndex, take: Take, turns: Mapping[bytes, CursorState]
) -> list[int]:
    """The recordings that a take should have recorded anew, beside those that it has kept."""
    for key, turn in turns.items():
        take.restore_key(key, turn.state)
    return sorted(cassette.left_behind([take]))


def _one_more(before: CursorState | None) -> bytes:
    return b"%d" % (1 + (0 if before is None else int(before.state)))
