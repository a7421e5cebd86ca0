"""Views of cassettes in a store that many processes use at once.

Each request looks up the few recordings that may answer, and the cursors of the match keys. The
moved cursor is written back with compare-and-set. If another instance was quicker, the request is
decided on anew.
"""

import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace

from tapeway.core.cassette.cursors import Take, write_key
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Incoming, LiveCall, Replay
from tapeway.core.cassette.rerecording import head_checked
from tapeway.core.correlation.index import CorrelationIndex, issued_key
from tapeway.core.correlation.unify import IdBindings
from tapeway.core.http.routing import assign_route, base_paths
from tapeway.core.matching.rules import Rules, rules_of_meta
from tapeway.core.misses.miss import SearchedCassette
from tapeway.core.misses.nearest import path_of
from tapeway.core.misses.neighbours import SoughtRequest
from tapeway.core.model.cassette import TakenRecording
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
from tapeway.core.model.messages import Request
from tapeway.engine.cassettes.context import (
    CassetteContext,
    CassetteCounts,
    KeyedLocks,
    head_with_rules,
    holds_nothing,
    not_loaded,
)
from tapeway.engine.cassettes.remembered import Remembered, RememberedViews, advanced
from tapeway.engine.cassettes.source import (
    CassetteInfo,
    DecideAgain,
    Latest,
    OutOfUse,
    Search,
    Source,
    View,
    incoming_of,
)
from tapeway.engine.cassettes.views import (
    CassetteInfos,
    CassetteViews,
    EmptyTakes,
    info_of,
    items,
    merged_view,
)
from tapeway.engine.correlation import CorrelationMatches, key_of_alike, meant_by
from tapeway.engine.decision import is_large
from tapeway.engine.journal import Tally
from tapeway.engine.report.summary import MOST_LISTED, RecordingsInStore
from tapeway.engine.single_flight import RecordingLeases
from tapeway.errors import CassetteCorrupt, StoreError, recording_edited
from tapeway.ports import SharedStore

log = logging.getLogger(__name__)
MOST_NEAR = 1000
"""The number of newest recordings of a path that a WebSocket connection may replay."""
_NOTHING_ASKED = Incoming(Request("", "", ""))


class LookedUp(Source):
    """The cassettes of a shared store, served by one of several processes."""

    shared = True
    store: SharedStore

    def __init__(self, store: SharedStore, control: Control, context: CassetteContext) -> None:
        super().__init__(store, control, context)
        self._leases = RecordingLeases(store, context.calls)
        self._infos = CassetteInfos(store, context)
        self._views = CassetteViews(store, context)
        self._remembered = RememberedViews(store, lambda: self.control.generation)
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

    def hits(self, name: str) -> Remembered | None:
        """What is remembered of a cassette; None where the store is to be asked first."""
        info = self._infos.known.get(name)
        if info is None or self._left or self.store.trouble is not None:
            return None
        return self._remembered.of(info, self.control.take_of(name), name)

    async def prepare(self, name: str, mode: Mode | None = None) -> None:
        """Check that it can be read. Raises StoreError."""
        await self._info(name)

    # Deciding.

    async def begin(self, name: str, incoming: Incoming, mode: Mode) -> Search:
        take = self.control.take_of(name) if incoming.take is None else incoming.take
        planner, searches = self._context.planner, MODE_POLICIES[mode].uses_recordings
        info = await (self._info(name) if searches else self._info_if_readable(name))
        incoming = await planner.with_body_digest(info.head, info.rules, incoming)
        search = Search(name, incoming, mode, take, info=info)
        if searches:
            if not info.stored_already:
                self._begun.add(name)
            search.keys = planner.keys(info.head, info.rules, incoming)
        return search

    async def _info_if_readable(self, name: str) -> CassetteInfo:
        try:
            return await self._info(name)
        except CassetteCorrupt:
            return self._infos.empty(name)

    def turn(self, search: Search) -> AbstractAsyncContextManager[object]:
        """Held while a request is decided on.

        Only instances should compete for a cursor, not the requests of one.
        """
        return self._cursor_locks.of(search.name, search.keys[0]) if search.keys else nullcontext()

    def at_hand(self, search: Search) -> View | None:
        if not MODE_POLICIES[search.mode].replays or is_large(search.incoming.request):
            return None
        if not search.keys or search.info is None:
            return None
        return self._remembered.find(search)

    async def view(self, search: Search) -> View:
        if not search.keys:
            return await self._views.of(search, ())
        rules = info_of(search).rules
        writes = self._context.planner.write_keys(rules, search.incoming, search.mode)
        return await self._views.look_up(search, writes=writes)

    async def wider(self, view: View) -> View:
        search, planner = view.search, self._context.planner
        replays = MODE_POLICIES[search.mode].replays
        if not search.keys or (replays and any(key in view.cassette for key in search.keys)):
            return view
        # Other digests find recordings with credentials or aliases; their cursors are not known yet.
        info, incoming = info_of(search), search.incoming
        more = planner.credential_digests(info.head, info.rules, incoming)
        if replays and info.has_unrouted:
            more += planner.aliases(info.head, info.rules, incoming, info.origins)
        if not more:
            return view
        recordings = (await self.store.look(search.name, search.take, (), more)).recordings
        if not recordings:
            return view
        others = (await self._views.of(search, recordings)).cassette
        wide = replace(search)
        wide.keys = [
            *search.keys,
            *[others.key_of(recording.item.index) for recording in recordings],
        ]
        writes = planner.write_keys(info.rules, incoming, search.mode)
        return await self._views.look_up(wide, more, writes)

    async def use(self, view: View, replay: Replay) -> bool:
        """Move the cursor; False where another instance was quicker, or changed the cassette."""
        cassette, key, index = view.cassette, replay.key, replay.interaction.index
        if not await self._save_bindings(view, index):
            return False
        if view.move is not None:
            return await view.move(key, index)
        state, take = cassette.cursor_state(key), cassette.take.number
        move = CursorMove(cassette.name, take, key, view.turns.get(key), state, index)
        turn = await advanced(self.store, move)
        # The version of the cassette does not tell of writes, which end such recordings.
        planner, search = self._context.planner, view.search
        if turn is not None and not planner.write_keys(
            cassette.rules, search.incoming, search.mode
        ):
            self._remembered.add(view, key, turn)
        return turn is not None

    async def _save_bindings(self, view: View, index: int) -> bool:
        """Save the bindings that this replay added; False where another instance was quicker."""
        if (before := view.bindings) is None:
            return True
        name, take = view.cassette.name, view.cassette.take
        for key, state in take.bindings.states().items():
            known = before.get(key)
            if known is None or known.state != state:
                move = CursorMove(name, take.number, key, known, state, index)
                if not await advanced(self.store, move):
                    return False
        return True

    async def near(self, view: View, asked: Request) -> View:
        search, path = view.search, path_of(asked, view.cassette.rules)
        near = await self.store.near(search.name, asked.method, path, MOST_NEAR)
        return await self._with_more(view, near)

    async def alike(self, view: View, asked: Request, *, asks: bool) -> View:
        """The view with the recordings that may differ from a request in identifiers alone.

        The store's index of identifiers tells which answers issued the identifiers.
        """
        rules, name = view.cassette.rules, view.search.name
        key = await key_of_alike(asked, rules)
        taken = [] if key is None else await self.store.alike(name, key)
        routed = [assign_route(recording.item, self._context.routes) for recording in taken]
        recordings = [interaction for interaction in routed if isinstance(interaction, Interaction)]
        meant, identifiers = await meant_by(asked, recordings, rules, asks=asks)
        if not identifiers:
            return view
        keys = {issued_key(identifier): identifier for identifier in identifiers}
        issuers = await self.store.issuers(name, list(keys))
        chosen = {interaction.index for interaction in meant}
        wide = await self._with_more(
            view, [recording for recording in taken if recording.item.index in chosen]
        )
        cassette = wide.cassette
        cassette.set_takes({issuer.index: issuer.take for issuer in issuers.values()})
        known = {keys[key]: issuer.index for key, issuer in issuers.items()}
        cassette.correlation = CorrelationIndex(cassette.snapshot(), rules, known)
        return wide

    async def _with_more(
        self,
        view: View,
        more: Sequence[TakenRecording],
        turns: Mapping[bytes, CursorState] | None = None,
    ) -> View:
        known = view.turns if turns is None else turns
        wide = await self._views.of(view.search, merged_view(view, more), known)
        wide.cassette.whole_version = view.cassette.whole_version
        return wide

    async def neighbours(
        self, name: str, searched: SearchedCassette, asked: SoughtRequest
    ) -> Sequence[AnyInteraction]:
        info = self._infos.known.get(name)
        if info is not None and info.has_unrouted:
            # A recording without a route is found by its whole path.
            asked = asked.below(base_paths(self._context.routes))
        recordings = await self.store.neighbours(name, asked)
        return [assign_route(recording.item, self._context.routes) for recording in recordings]

    async def under(self, view: View, keys: Sequence[bytes]) -> View:
        return await self._views.under(view.search, keys)

    async def matched(self, view: View, seen: CorrelationMatches) -> View:
        if not seen.matches:
            return view
        keys = {view.cassette.key_of(match.interaction.index) for match in seen.matches}
        other = await self._views.under(view.search, sorted(keys))
        both = await self._with_more(view, items(other), other.turns)
        both.bindings = await self.load_bindings(both, seen.binding_keys())
        return both

    async def begin_with(self, view: View, preset: Rules) -> None:
        info, name = info_of(view.search), view.search.name
        if info.stored_already:
            await self._context.run_to_end(self.add_rules(name, preset))
            return
        # The head is written with the first recording.
        head = head_with_rules(info.head, preset)
        self._infos.known[name] = replace(info, head=head, rules=rules_of_meta(head.meta))

    # Calling.

    async def note_write(self, live_call: LiveCall) -> None:
        name, take = live_call.cassette.name, live_call.take.number
        key, before = write_key(live_call.redacted.route), None
        while not await advanced(
            self.store, CursorMove(name, take, key, before, _one_more(before))
        ):
            before = (await self.store.look(name, take, [key], ())).turns.get(key)

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
                now.cassette.set_next_index(await self.store.reserve(name))
                now = now._replace(lease=lease)
            yield now
        finally:
            await self._leases.end(lease)

    async def reserve(self, live_call: LiveCall) -> int:
        return await self.store.reserve(live_call.cassette.name)

    @asynccontextmanager
    async def _numbered(self, live_call: LiveCall) -> AsyncIterator[LiveCall]:
        """Equal requests are recorded separately, and no fence refuses a recording."""
        name = live_call.cassette.name
        number = await self.store.reserve(name)
        live_call.cassette.set_next_index(number)
        async with self._leases.held(name, live_call.key + b"#%d" % number):
            yield live_call

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
            turns = (await self.store.look(name, number, [live_call.key], ())).turns
            take = Take(number)
            for key, turn in turns.items():
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
        if self._has_ended(live_call.cassette.name, live_call.take.number):
            yield None
            return
        name, key, incoming = live_call.cassette.name, live_call.key, incoming_of(live_call)
        mode = incoming.mode or self.control.mode_of(name)
        if not live_call.cassette.earlier(interaction, key, live_call.take):
            search = Search(
                name, incoming, mode, live_call.take.number, info=await self._info(name)
            )
            view = View(live_call.cassette, search)

            async def latest() -> View:
                return view

            yield latest
            return

        async def as_now() -> View:
            return await self.wider(await self.view(await self.begin(name, incoming, mode)))

        async with self._alone(name, key):
            yield as_now

    async def load_bindings(self, view: View, keys: Sequence[bytes]) -> Mapping[bytes, CursorState]:
        if not keys:
            return {}
        name, take = view.cassette.name, view.cassette.take
        turns = (await self.store.look(name, take.number, keys, ())).turns
        take.bindings = IdBindings.from_states({key: turn.state for key, turn in turns.items()})
        return turns

    async def bind(self, view: View, take: Take, key: bytes, id_map: Mapping[str, str]) -> None:
        bindings, cassette = IdBindings(), view.cassette
        bindings.bind(id_map)
        index = cassette.indexes(key)[-1]
        for binding, state in bindings.states().items():
            move = CursorMove(cassette.name, take.number, binding, None, state, index)
            await advanced(self.store, move)

    async def compared(self, view: View, key: bytes, *, more: bool = False) -> None:
        name = view.cassette.name
        if more:
            self._left.setdefault((name, view.cassette.take.number), set()).add(key)
        await self._note_check(name, await self._infos.of(name))

    def _has_ended(self, name: str, number: int) -> bool:
        """Whether a take is in force neither for its cassette nor for a slot."""
        slots = self.control.slots.values()
        return number != self.control.take_of(name) and all(slot.take != number for slot in slots)

    async def _end_takes(self, which: Callable[[str, int], bool]) -> None:
        """Drop recordings left over from takes before a re-recording that ends."""
        for name, number in [left for left in self._left if which(*left)]:
            if (keys := self._left.pop((name, number), None)) is None:
                continue
            info = await self._infos.read(name)
            search = Search(name, _NOTHING_ASKED, "record", number, info=info)
            cassette = (await self._views.under(search, list(keys))).cassette
            for index in cassette.drop_left_behind():
                await self.store.edit(name, index, None)

    async def _note_check(self, name: str, info: CassetteInfo) -> None:
        """Note today as the day on which recordings were compared with new answers."""
        today = self._context.today()
        if (head := head_checked(info.head, today)) is info.head:
            return
        outline = await self.store.outline(name)
        if outline is not None and outline.head is not head_checked(outline.head, today):
            await self.store.replace_head(name, head_checked(outline.head, today))
        self._infos.known[name] = replace(info, head=head)

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

    async def add_rules(self, name: str, rules: Rules) -> Rules:
        info = await self._info(name)
        if not info.stored_already:
            raise holds_nothing(name)
        if (head := head_with_rules(info.head, rules)) is not info.head:
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
        counts = await self._counts_of(name)
        return counts.unused < counts.interactions or bool(await self.store.fences(name))

    async def settle(self, out: OutOfUse, *, prune: bool) -> None:
        takes = self.control.takes_of(out.name)
        while prune and (unused := (await self.store.unused(out.name, takes, MOST_LISTED)).first):
            for title in unused:
                await self.store.edit(out.name, title.index, None)
        await self.store.release(out.name)

    async def end_take(self, name: str) -> None:
        await self.steer(lambda now: with_take(now, name))
        self._forget(name)

    def recordings(self, name: str, cassette: CassetteIndex | None) -> RecordingsInStore:
        return RecordingsInStore(self.store, name, self.control.takes_of(name))

    async def counts(self) -> list[CassetteCounts]:
        return [await self._counts_of(name) for name in list(self._context.tallies)]

    async def _counts_of(self, name: str) -> CassetteCounts:
        """How many recordings there are, and how many of them no instance has used."""
        if (outline := await self.store.outline(name)) is None:
            return CassetteCounts(name, 0, 0)
        unused = await self.store.unused(name, self.control.takes_of(name), 0)
        return CassetteCounts(name, outline.count, unused.total)

    # What is known.

    def _apply(self, control: Control) -> None:
        super()._apply(control)
        self._infos.known.clear()
        self._remembered.clear()

    async def _info(self, name: str) -> CassetteInfo:
        self._context.tallies.setdefault(name, Tally())
        await self._end_takes(self._has_ended)
        info = await self._infos.of(name)
        if not info.stored_already:
            await self._note_empty(name)
        return info

    async def _forget_empty(self, name: str) -> None:
        info = self._infos.known.get(name)
        if (info is None or not info.stored_already) and not self._is_awaited(name):
            self._infos.known.pop(name, None)
            self._forget(name)


def _one_more(before: CursorState | None) -> bytes:
    return b"%d" % (1 + (0 if before is None else int(before.state)))
