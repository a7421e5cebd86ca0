"""Cassettes of a store that many processes use at once; nothing of them is kept in memory.

For each request the store is asked for the few recordings that may answer it, and for the cursors of
their keys. The decision is the same as on a whole cassette. Then the moved cursor is written back
with compare-and-set; if another instance was quicker, all of this is done again.
"""

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from tapeway.core.cassette.freshness import write_keys
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Ask, Incoming, Plan, Replay
from tapeway.core.cassette.recording_keys import recording_key
from tapeway.core.cassette.rerecording import (
    Replacement,
    earlier_under,
    first_earlier,
    head_checked,
    is_unchanged,
    reissued_ids,
    with_earlier_ids,
)
from tapeway.core.correlation.unify import IdBindings
from tapeway.core.matching.key import key_digest
from tapeway.core.matching.rules import Rules, merged_rules, rules_of_meta
from tapeway.core.misses.miss import Miss
from tapeway.core.misses.nearest import path_of
from tapeway.core.model.cassette import StoredCassette, TakenRecording
from tapeway.core.model.control import (
    MODE_POLICIES,
    Control,
    CursorState,
    Mode,
    with_take,
    without_takes,
)
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import Request
from tapeway.engine.cassette_context import (
    CassetteContext,
    CassetteCounts,
    KeyedLocks,
    holds_nothing,
    not_loaded,
    with_rules,
)
from tapeway.engine.correlation import (
    load_bindings,
    load_reissued,
    refers_to_earlier,
    save_bindings,
)
from tapeway.engine.decision import is_large
from tapeway.engine.journal import EmptyNames, Tally
from tapeway.engine.report.summary import MOST_LISTED, CassetteReport, report_of_store
from tapeway.engine.shared.hits import RememberedHits
from tapeway.engine.shared.remembered import RememberedViews
from tapeway.engine.shared.views import (
    CassetteInfo,
    CassetteInfos,
    CassetteViews,
    EmptyTakes,
    View,
    counts_of,
    is_in_use,
    items,
    merged_view,
    out_of_touch,
    until_in_touch,
)
from tapeway.engine.single_flight import RecordingLeases
from tapeway.errors import CassetteCorrupt, StoreAway, StoreError
from tapeway.ports import SharedStore

log = logging.getLogger(__name__)
MOST_NEAR = 1000
"""So many of the newest recordings of a path are compared with a request that has no match."""
_MOST_TRIES = 1000


class SharedCassettes:
    """The cassettes of a shared store, as one of its processes serves them."""

    def __init__(self, store: SharedStore, control: Control, context: CassetteContext) -> None:
        self.control = control
        self.store = store
        self._context = context
        self._mover = store.capabilities.cursor_mover
        self._leases = RecordingLeases(store, context.calls)
        self._infos = CassetteInfos(store, context)
        self._views = CassetteViews(store, context)
        self._remembered = RememberedViews()
        self._begun: set[str] = set()
        """Cassettes that held nothing when this instance first asked for them."""
        self._empty = EmptyNames()
        self._cursor_locks = KeyedLocks()
        """Held while one is moved: only instances should compete for it, not the requests of one."""
        self._replacing = KeyedLocks()
        self._empty_takes = EmptyTakes(store)
        self._left: dict[tuple[str, int], set[bytes]] = {}
        """By cassette and take, the keys of which it kept a recording while others are left."""

    async def open(self) -> None:
        await self.store.open()
        try:
            self.control = await self.store.join(self.control, self._apply)
        except BaseException:
            await self.store.close()
            raise

    async def close(self) -> None:
        try:
            for name, number in list(self._left):
                await self._end_take(name, number)
        except StoreError as exc:
            log.warning("recordings that were not recorded anew are left: %s", exc.message)
        finally:
            await self.store.close()

    def get(self, name: str) -> None:
        """None: no cassette is in memory."""

    def hits(self, name: str, preset: str | None) -> RememberedHits | None:
        """Hits among what is remembered of a cassette; None where the store is to be asked first."""
        mover, info = self._mover, self._infos.known.get(name)
        if info is None or mover is None or self._left or not self.store.in_touch:
            return None
        begun = name in self._begun and self._context.presets
        if begun and preset not in (None, *info.rules.presets):
            return None
        known = self._remembered.of(info, self.control.take_of(name), name)
        return RememberedHits(known, mover) if known is not None and mover.can_move else None

    async def prepare(self, name: str) -> None:
        """Check that it can be read. Raises StoreError."""
        await self._info(name)

    # Deciding.

    async def decide(self, name: str, incoming: Incoming, mode: Mode) -> Plan:
        """What is to be done. Raises NoRoute, StoreError."""
        if not MODE_POLICIES[mode].uses_recordings:
            return await self._plan_without_recordings(name, incoming, mode)
        info = await self._with_preset(name, await self._info(name), incoming, mode)
        planner = self._context.planner
        incoming = await planner.with_body_digest(info.head, info.rules, incoming)
        keys = planner.keys(info.head, info.rules, incoming)
        async with self._cursor_locks.of(name, keys[0]):
            if (replay := await self._replay_again(name, info, keys, incoming, mode)) is not None:
                return replay
            for _ in range(_MOST_TRIES):
                view, plan = await self._find_and_plan(name, info, keys, incoming, mode)
                if not isinstance(plan, Replay):
                    break
                if (turn := await self._advance(view, plan)) is not None:
                    if not (planner.read_keys(info.head, incoming, mode) and view.may_be_ended):
                        self._remembered.add(info, view, keys, plan.key, turn)
                    return plan
            else:
                raise _too_many(name)
        return await self._reconsider(name, info, view, incoming, plan)

    async def _replay_again(
        self, name: str, info: CassetteInfo, keys: Sequence[bytes], incoming: Incoming, mode: Mode
    ) -> Replay | None:
        """The replay of what was found before, if that and its cursor are unchanged: in one visit."""
        take = self._take(name, incoming.take)
        view = self._remembered.find(info, take, name, keys)
        if view is None or not MODE_POLICIES[mode].replays or is_large(incoming.request):
            return None
        plan = self._plan(view, incoming, mode)
        if not isinstance(plan, Replay):
            return None
        used = self._remembered.use(view, plan.key)
        if (turn := await self._advance(used, plan, view.mark)) is None:
            return None
        self._remembered.moved(view, plan.key, turn)
        return plan

    async def _plan_without_recordings(self, name: str, incoming: Incoming, mode: Mode) -> Plan:
        try:
            info = await self._info(name)
        except CassetteCorrupt:
            info = self._infos.empty(name)
        incoming = await self._context.planner.with_body_digest(info.head, info.rules, incoming)
        view = await self._view_of(name, info, (), {}, incoming.take)
        incoming = await self._context.planner.prepared(view.cassette, incoming, mode)
        return self._plan(view, incoming, mode)

    async def _with_preset(
        self, name: str, info: CassetteInfo, incoming: Incoming, mode: Mode
    ) -> CassetteInfo:
        """The same, with the preset of the client if this instance saw the cassette begin."""
        if not info.stored_already:
            self._begun.add(name)
        if name not in self._begun:
            return info
        preset = self._context.preset_for(name, info.rules, incoming, mode)
        if preset is None:
            return info
        if info.stored_already:
            await self.add_rules(name, preset)
            return await self._info(name)
        # The head is written with the first recording.
        head = with_rules(name, StoredCassette(info.head), preset).head
        info = replace(info, head=head, rules=rules_of_meta(head.meta))
        self._infos.known[name] = info
        return info

    def _plan(self, view: View, incoming: Incoming, mode: Mode) -> Plan:
        plan = self._context.planner.plan(view.cassette, incoming, mode)
        return plan._replace(shared=True) if isinstance(plan, Ask) else plan

    async def _find_and_plan(
        self, name: str, info: CassetteInfo, keys: Sequence[bytes], incoming: Incoming, mode: Mode
    ) -> tuple[View, Plan]:
        writes = self._context.planner.read_keys(info.head, incoming, mode)
        view = await self._look_up(name, info, keys, incoming, writes=writes)
        incoming = await self._context.planner.prepared(view.cassette, incoming, mode)
        plan = self._plan(view, incoming, mode)
        replays = MODE_POLICIES[mode].replays
        if replays and any(key in view.cassette for key in keys):
            return view, plan
        # Recordings that hold credentials, and those with aliases, are found by other digests; their
        # cursors are not known yet.
        planner, store = self._context.planner, self.store
        more = planner.credential_digests(info.head, info.rules, incoming)
        if replays and info.has_unrouted:
            more += planner.aliases(info.head, info.rules, incoming, info.origins)
        if found := await store.find(name, more):
            others = (await self._view_of(name, info, found, {}, incoming.take)).cassette
            keys = [*keys, *[others.key_of(each.item.index) for each in found]]
            view = await self._look_up(name, info, keys, incoming, more, writes=writes)
            plan = self._plan(view, incoming, mode)
        return view, plan

    async def _reconsider(
        self, name: str, info: CassetteInfo, view: View, incoming: Incoming, plan: Ask | Miss
    ) -> Plan:
        """The plan, or the replay of a recording that differs only in identifiers."""
        asked = plan.redacted if isinstance(plan, Ask) else plan.request
        if isinstance(plan, Ask) and not (
            plan.policy.replays and await refers_to_earlier(asked, info.rules)
        ):
            return plan
        near = await self._nearby(name, asked, info.rules)
        take = incoming.take
        wide = await self._view_of(name, info, merged_view(view, near), view.turns, take)
        plan = plan._replace(cassette=wide.cassette) if isinstance(plan, Ask) else plan
        seen = await self._context.correlation.search(wide.cassette, incoming, plan)
        keys = {wide.cassette.key_of(match.interaction.index) for match in seen.matches}
        for _ in range(_MOST_TRIES):
            both = wide
            if keys:
                other = await self._look_up(name, info, sorted(keys), take=take)
                merged = merged_view(wide, items(other))
                both = await self._view_of(name, info, merged, other.turns, take)
            named = await load_bindings(self.store, both.cassette, seen)
            settled = self._context.correlation.settle(both.cassette, plan, seen)
            if not isinstance(settled, Replay):
                if isinstance(settled, Miss):
                    return replace(settled, searched=both.cassette)
                return settled
            index = settled.interaction.index
            agreed = await save_bindings(self.store, both.cassette, named, index)
            if agreed and await self._advance(both, settled):
                return settled
        raise _too_many(name)

    # Calling.

    async def note_write(self, ask: Ask) -> None:
        """Have all instances know that a write succeeded. Raises StoreError."""
        name, take, keys = ask.cassette.name, ask.take.number, write_keys(ask.redacted.url)
        turns = await self.store.turns(name, take, keys)
        for key in keys:
            before = turns.get(key)
            while not await self.store.advance(name, take, key, before, _one_more(before), None):
                before = (await self.store.turns(name, take, [key])).get(key)

    async def let_go(self, ask: Ask) -> None:
        """Have others ask for the same while this call goes on."""
        if ask.lease is not None:
            await self._leases.end(ask.lease)

    @asynccontextmanager
    async def asking(self, ask: Ask) -> AsyncIterator[Ask | Replay]:
        """Hold the lease to ask for this and record it; one instance has it at a time.

        Yields what to ask, decided again under the lease, or the replay of what another instance
        recorded meanwhile. Raises StoreError.
        """
        if not ask.policy.replays:
            async with self._numbered(ask) as numbered:
                yield numbered
            return
        name, key, known = ask.cassette.name, ask.flight, None
        while (lease := await self.store.claim(name, key)) is None:
            if known is None:
                known = frozenset(ask.cassette.indexes(ask.key))
            await self.store.wait_for_lease(name, key)
            # The instance that had the lease may have recorded it.
            if isinstance(again := await self._decide_again(ask, known), Replay):
                yield again
                return
        try:
            again = await self._decide_again(ask, known)
            if isinstance(again, Ask):
                again.cassette.set_next_index(await self.store.reserve(name))
                again = again._replace(lease=lease)
            yield again
        finally:
            await self._leases.end(lease)

    @asynccontextmanager
    async def _numbered(self, ask: Ask) -> AsyncIterator[Ask]:
        """Mode record: every equal request is recorded on its own, so nothing fences it out."""
        name = ask.cassette.name
        number = await self.store.reserve(name)
        ask.cassette.set_next_index(number)
        async with self._leases.held(name, ask.key + b"#%d" % number):
            yield ask

    @asynccontextmanager
    async def replacing(self, ask: Ask, interaction: Interaction) -> AsyncIterator[Replacement]:
        """Find out what a new answer replaces, and keep it while the answer is made durable.

        Left without an error, the answer's identifiers stand for those of what it replaced, on every
        instance.
        """
        name, key, take = ask.cassette.name, ask.key, ask.take
        if not self._goes_on(name, take.number):
            yield Replacement(ask.cassette)
            return
        if not ask.cassette.earlier(interaction, key, take):
            replacement, earlier, id_map = await self._under_other_ids(ask, interaction)
            yield replacement
            await self._replaced(replacement.cassette, key, earlier, interaction, id_map)
            return
        async with self._replacing.of(name, key), self._leases.alone(name, b"replace " + key):
            cassette, unchanged = await self._compare(ask, interaction)
            left = cassette.earlier(interaction, key, cassette.take)
            earlier = first_earlier(cassette, left)
            if unchanged is not None and left:
                self._left.setdefault((name, take.number), set()).add(key)
            yield Replacement(cassette, unchanged=unchanged)
            if unchanged is None:
                await self._replaced(cassette, key, earlier, interaction, {})

    async def _compare(
        self, ask: Ask, interaction: Interaction
    ) -> tuple[CassetteIndex, Interaction | None]:
        """The cassette as it is now, and the recording that has the new answer already.

        That one counts as used by the request.
        """
        if ask.incoming is None:
            raise ValueError("an ask of a shared store says what came")
        name, mode = ask.cassette.name, ask.incoming.mode or self.control.mode_of(ask.cassette.name)
        info = await self._info(name)
        keys = self._context.planner.keys(info.head, info.rules, ask.incoming)
        for _ in range(_MOST_TRIES):
            view, _plan = await self._find_and_plan(name, info, keys, ask.incoming, mode)
            cassette = view.cassette
            earlier = first_earlier(cassette, cassette.earlier(interaction, ask.key, cassette.take))
            if earlier is None or not is_unchanged(earlier, interaction):
                return cassette, None
            cassette.keep(earlier.index, cassette.take)
            if await self._advance(view, Replay(cassette, earlier, ask.target, ask.key)):
                await self._note_check(name, info)
                return cassette, earlier
        raise _too_many(name)

    def _goes_on(self, name: str, number: int) -> bool:
        """Whether a take is a cassette's own or that of a slot."""
        slots = self.control.slots.values()
        return number == self.control.take_of(name) or any(each.take == number for each in slots)

    async def _end_take(self, name: str, number: int) -> None:
        """Drop what a take that recorded anew has left of earlier ones."""
        if (keys := self._left.pop((name, number), None)) is None:
            return
        info = await self._infos.read(name)
        digests = list(map(key_digest, keys))
        turns, found, _ = await self.store.look(name, number, list(keys), digests)
        cassette = (await self._view_of(name, info, found, turns, number)).cassette
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

    async def _under_other_ids(
        self, ask: Ask, interaction: Interaction
    ) -> tuple[Replacement, Interaction | None, Mapping[str, str]]:
        """What an answer replaces whose request was recorded with other identifiers.

        Also the first of these recordings, and how the client named identifiers of its own.
        """
        name, take, nothing = ask.cassette.name, ask.take.number, Replacement(ask.cassette)
        info = await self._info(name)
        if not info.stored_already:
            return nothing, None, {}
        await load_reissued(self.store, ask.cassette, interaction.request)
        asked = with_earlier_ids(interaction.request, ask.cassette.take.bindings)
        if asked != interaction.request:
            key = recording_key(replace(interaction, request=asked), info.rules)
            view = (await self._look_up(name, info, [key], take=take)).cassette
            if instead := earlier_under(view, interaction, asked, view.take):
                return Replacement(ask.cassette, instead), first_earlier(view, instead), {}
        if not await refers_to_earlier(asked, info.rules):
            return nothing, None, {}
        found = await self._nearby(name, asked, info.rules)
        near = (await self._view_of(name, info, found, {}, take)).cassette
        match = await self._context.correlation.find_earlier(near, asked, near.take, self.store)
        if match is None:
            return nothing, None, {}
        index = match.interaction.index
        view = (await self._look_up(name, info, [near.key_of(index)], take=take)).cassette
        if view.get(index) is None or not view.is_earlier(index, view.take):
            return nothing, None, {}
        return Replacement(ask.cassette, (index,)), match.interaction, match.id_map

    async def _replaced(
        self,
        cassette: CassetteIndex,
        key: bytes,
        earlier: Interaction | None,
        interaction: Interaction,
        id_map: Mapping[str, str],
    ) -> None:
        """Have all instances know the day, and which identifiers stand for those of the earlier one."""
        if earlier is None:
            return
        take, bindings = cassette.take, IdBindings()
        bindings.bind({**id_map, **reissued_ids(earlier.response, interaction.response)})
        index = cassette.indexes(key)[-1]
        for each, state in bindings.states().items():
            await self.store.advance(cassette.name, take.number, each, None, state, index)
        await self._note_check(cassette.name, await self._infos.of(cassette.name))

    async def _decide_again(self, ask: Ask, known: Collection[int] | None) -> Ask | Replay:
        """What to do now; the recordings made since those `known` are of the call that was waited for."""
        if ask.incoming is None:
            raise ValueError("an ask of a shared store says what came")
        incoming = ask.incoming._replace(known=known)
        name, mode = ask.cassette.name, ask.incoming.mode or self.control.mode_of(ask.cassette.name)
        await until_in_touch(self.store)
        info = await self._info(name)
        keys = self._context.planner.keys(info.head, info.rules, incoming)
        async with self._cursor_locks.of(name, keys[0]):
            for _ in range(_MOST_TRIES):
                view, plan = await self._find_and_plan(name, info, keys, incoming, mode)
                if isinstance(plan, Ask):
                    return plan._replace(replayed_ids=ask.replayed_ids)
                if isinstance(plan, Replay) and await self._advance(view, plan):
                    return plan
        raise _too_many(name)

    # Steering.

    async def steer(self, change: Callable[[Control], Control]) -> Sequence[str]:
        """Change mode, active cassette or takes for all instances; returns those that lag behind."""
        gone = await self._empty_takes.ended(self.control)
        control, laggards = await self.store.steer(lambda now: change(without_takes(now, gone)))
        self._apply(control)
        await self._end_takes()
        return laggards

    async def _end_takes(self) -> None:
        for name, number in list(self._left):
            if not self._goes_on(name, number):
                await self._end_take(name, number)

    async def announce(self) -> Sequence[str]:
        """Have all instances read the cassettes' metadata anew."""
        return await self.steer(lambda now: now)

    async def eject(self, name: str, *, prune: bool) -> CassetteReport:
        """Wait for the recordings in flight on all instances, report, begin a new take for all."""
        return await self._context.run_to_end(self._eject(name, prune=prune))

    async def add_rules(self, name: str, rules: Rules) -> Rules:
        """Add rules to a cassette, for all instances; returns all that are in force."""
        return await self._context.run_to_end(self._add_rules(name, rules))

    async def reports(self) -> list[CassetteReport]:
        """A report for every cassette this instance was asked for something in."""
        return [await self._report(name) for name in list(self._context.tallies)]

    async def counts(self) -> list[CassetteCounts]:
        return [
            await counts_of(self.store, self.control, name) for name in list(self._context.tallies)
        ]

    async def read(self, name: str) -> StoredCassette | None:
        """What a cassette holds."""
        return await self.store.load(name, writable=False)

    async def interaction(self, name: str, index: int) -> AnyInteraction | None:
        """One interaction."""
        found = await self.store.get(name, index)
        return None if found is None else found.item

    async def _eject(self, name: str, *, prune: bool) -> CassetteReport:
        if name not in self._context.tallies and not await is_in_use(
            self.store, self.control, name
        ):
            raise not_loaded(name)
        await self._leases.ended(name)
        for left, number in list(self._left):
            if left == name:
                await self._end_take(name, number)
        report = await self._report(name)
        if prune:
            takes = self.control.takes_of(name)
            while unused := await self.store.unused(name, takes, MOST_LISTED):
                for each in unused:
                    await self.store.edit(name, each.index, None)
        await self.store.release(name)
        laggards = await self.steer(lambda now: with_take(now, name))
        self._context.tallies.pop(name, None)
        self._begun.discard(name)
        return replace(report, laggards=tuple(laggards))

    async def _add_rules(self, name: str, rules: Rules) -> Rules:
        info = await self._info(name)
        if not info.stored_already:
            raise holds_nothing(name)
        both = merged_rules(info.rules, rules)
        if both != info.rules:
            head = with_rules(name, StoredCassette(info.head), both).head
            await self.store.replace_head(name, head)
            await self.announce()
        return both

    async def _report(self, name: str) -> CassetteReport:
        tally = self._context.tallies.get(name, Tally())
        context = self._context
        return await report_of_store(
            *(self.store, self.control, name, tally, context.standards, context.today())
        )

    # What is known.

    def _apply(self, control: Control) -> None:
        self.control = control
        self._infos.known.clear()
        self._remembered.clear()
        self._context.calls.streams.end_takes(control)

    async def _info(self, name: str) -> CassetteInfo:
        if not self.store.in_touch:
            raise out_of_touch(self.store)
        self._context.tallies.setdefault(name, Tally())
        await self._end_takes()
        info = await self._infos.of(name)
        if not info.stored_already:
            for each in self._empty.add(name):
                self._forget_empty(each)
        return info

    def _forget_empty(self, name: str) -> None:
        """Forget what was asked for long ago and held nothing."""
        info = self._infos.known.get(name)
        held = info is not None and info.stored_already
        if not held and name != self.control.active and name not in self._context.calls:
            self._infos.known.pop(name, None)
            self._context.tallies.pop(name, None)
            self._context.calls.streams.forget(name)
            self._begun.discard(name)

    async def _look_up(
        self,
        name: str,
        info: CassetteInfo,
        keys: Sequence[bytes],
        incoming: Incoming | None = None,
        names: Sequence[bytes] = (),
        *,
        writes: Sequence[bytes] = (),
        take: int | None = None,
    ) -> View:
        number = self._take(name, take if incoming is None else incoming.take)
        return await self._views.look_up(name, info, keys, number, incoming, names, writes)

    async def _view_of(
        self,
        name: str,
        info: CassetteInfo,
        found: Iterable[TakenRecording],
        turns: Mapping[bytes, CursorState],
        take: int | None,
    ) -> View:
        return await self._views.of(name, info, found, turns, self._take(name, take))

    def _take(self, name: str, take: int | None) -> int:
        """That of a slot, or else the cassette's own."""
        return self.control.take_of(name) if take is None else take

    async def _nearby(self, name: str, asked: Request, rules: Rules) -> Sequence[TakenRecording]:
        return await self.store.near(name, asked.method, path_of(asked, rules), MOST_NEAR)

    async def _advance(
        self, view: View, plan: Replay, mark: str | None = None
    ) -> CursorState | None:
        cassette, key, index = view.cassette, plan.key, plan.interaction.index
        before, state, take = view.turns.get(key), cassette.cursor_state(key), cassette.take.number
        return await self.store.advance(cassette.name, take, key, before, state, index, mark)


def _one_more(before: CursorState | None) -> bytes:
    return b"%d" % (1 + (0 if before is None else int(before.state)))


def _too_many(name: str) -> StoreError:
    return StoreAway(f"too many ask cassette '{name}' for the same at once: ask again")
