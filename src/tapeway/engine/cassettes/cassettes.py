"""Decides over views of a cassette: how a request is answered, what a new answer replaces.

The way is the same for all stores. A source gives the view, and takes note of the used recording.
Where another process was quicker, the request is decided on anew.
"""

import logging
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial

from tapeway.core.cassette.cursors import Take
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Incoming, LiveCall, Plan, Replay, in_its_base
from tapeway.core.cassette.rerecording import (
    Replacement,
    earlier_under,
    first_earlier,
    is_unchanged,
    random_words,
    reissued_ids,
    with_earlier_ids,
)
from tapeway.core.correlation.unify import IdBindings
from tapeway.core.matching.key import request_key
from tapeway.core.misses.miss import Miss
from tapeway.core.misses.nearest import path_of
from tapeway.core.misses.neighbours import sought
from tapeway.core.model.control import MODE_POLICIES, Mode
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.engine.cassettes.context import CassetteContext
from tapeway.engine.cassettes.source import (
    MOST_TRIES,
    Search,
    Source,
    View,
    incoming_of,
    too_many,
)
from tapeway.engine.correlation import CorrelationMatches, first_of_earlier, refers_to_earlier
from tapeway.engine.decision import BodyUnread, is_large
from tapeway.engine.renamed_calls import for_this_client
from tapeway.errors import DocumentAway

log = logging.getLogger(__name__)

ASKED_AGAIN = (
    "cassette '%s': %s %s is asked again although it is recorded: nobody can know whether the answer "
    "is still true, so in mode auto only answers of models, and requests that a rule reuse names, "
    "answer again in the same take. A new take begins with POST /api/v1/rewind or a new start"
)


class Cassettes:
    """The cassettes of a store, served and recorded by this process."""

    def __init__(self, source: Source, context: CassetteContext) -> None:
        self.source = source
        self._context = context
        self._planner = context.planner
        self._loaded = source.loaded
        self._told: set[str] = set()
        """Cassettes of which the log has said that requests are asked again."""

    async def decide(self, name: str, incoming: Incoming, mode: Mode) -> Plan:
        """What is to be done with a request. Raises NoRoute, StoreError."""
        plan = await self._decide(name, incoming, mode)
        return _as_in_its_base(plan) if isinstance(plan, Replay) else plan

    async def _decide(self, name: str, incoming: Incoming, mode: Mode) -> Plan:
        cassette = self._loaded.get(name)
        if cassette is not None and not is_large(incoming.request):
            # Most requests: a cassette in memory is decided on without waiting.
            plan = self._planner.plan(cassette, incoming, mode)
            if isinstance(plan, Replay) or not MODE_POLICIES[mode].uses_recordings:
                return plan
            if (
                isinstance(plan, LiveCall)
                and not plan.policy.replays
                and not self.source.has_begun(name)
            ):
                return plan
            search = Search(name, incoming, mode)
            view = View(cassette, search, generation=cassette.generation)
        else:
            view, plan = await self._find(await self.source.begin(name, incoming, mode))
            if isinstance(plan, Replay) or not MODE_POLICIES[mode].uses_recordings:
                return plan
        try:
            return self._told_of(await self._reconsider(view, plan))
        finally:
            view.search.decided()

    def _told_of(self, plan: Plan) -> Plan:
        """The plan; the log says once per cassette why a recorded request is asked again."""
        if isinstance(plan, LiveCall) and plan.asked_again is not None:
            name = plan.cassette.name
            if name not in self._told:
                self._told.add(name)
                log.info(ASKED_AGAIN, name, plan.request.method, plan.target)
        return plan

    async def _find(self, search: Search) -> tuple[View, Plan]:
        """What may answer, and the plan; of a replay the recording is counted as used."""
        try:
            return await self._found(search)
        finally:
            search.decided()

    async def _found(self, search: Search) -> tuple[View, Plan]:
        source = self.source
        async with source.turn(search):
            for _ in range(MOST_TRIES):
                view = await source.view(search)
                try:
                    if is_large(search.incoming.request):
                        search.incoming = await self._planner.prepared(
                            view.cassette, search.incoming, search.mode
                        )
                    if not source.holds(view):
                        continue
                    plan = self._plan(view)
                except DocumentAway as away:
                    await source.bring(view, away)
                    continue
                except BodyUnread:
                    search.incoming = await self._planner.with_stored_digests(
                        view.cassette, search.incoming
                    )
                    continue
                if not isinstance(plan, Replay):
                    if not await source.has_news(view, plan):
                        return view, plan
                elif await self._use(view, plan := source.whole(plan)):
                    return view, plan
        raise too_many(search.name)

    async def _use(self, view: View, replay: Replay) -> bool:
        """Count a recording as used, unless somebody only looks."""
        return view.search.incoming.only_looks or await self.source.use(view, replay)

    def _plan(self, view: View) -> Plan:
        search = view.search
        if not self.source.shared:
            return self._planner.plan(view.cassette, search.incoming, search.mode)
        incoming = search.incoming._replace(take=search.take)
        plan = self._planner.plan(view.cassette, incoming, search.mode)
        if isinstance(plan, LiveCall):
            return plan._replace(shared=True, incoming=search.incoming)
        return plan

    async def _reconsider(self, view: View, plan: LiveCall | Miss) -> Plan:
        """The plan, or the replay of a recording that differs only in identifiers.

        A cassette that begins gets the preset of the client first.
        """
        source, search = self.source, view.search
        name, incoming = search.name, search.incoming
        if source.has_begun(name) and (
            preset := self._context.preset_for(name, view.cassette.rules, incoming, search.mode)
        ):
            await source.begin_with(view, preset)
            return await self._decide(name, incoming, search.mode)
        if isinstance(plan, LiveCall) and not plan.policy.replays:
            return plan
        if isinstance(plan, LiveCall) and plan.may_be_joined:
            # What an equal call records while this one is compared answers it too.
            known = frozenset(plan.cassette.indexes(plan.key))
            search.incoming = incoming._replace(known=known)
        request = plan.redacted if isinstance(plan, LiveCall) else plan.request
        view = await source.alike(view, request, asks=isinstance(plan, LiveCall))
        correlation = self._context.correlation
        seen = await correlation.search(view.cassette, incoming, plan, view.identifiers)
        for _ in range(MOST_TRIES):
            if not source.holds(view):
                view, again = await self._find(search)
                if isinstance(again, Replay):
                    return again
                plan = again
            both = await source.matched(view, seen)
            if not source.holds(both):
                continue
            try:
                settled = self._settled(both, plan, seen)
            except DocumentAway as away:
                await source.bring(both, away)
                continue
            if not isinstance(settled, Replay):
                return settled
            if await self._use(both, settled := source.whole(settled)):
                return settled
            view = both
        raise too_many(name)

    def _settled(self, view: View, plan: LiveCall | Miss, seen: CorrelationMatches) -> Plan:
        search, cassette = view.search, view.cassette
        take = cassette.running(search.take or search.incoming.take)
        if search.incoming.only_looks:
            take = take.copy()
        if isinstance(plan, LiveCall) and plan.cassette is not cassette:
            plan = plan._replace(cassette=cassette)
        elif isinstance(plan, Miss) and plan.searched is not cassette:
            plan = replace(plan, searched=cassette)
        return self._context.correlation.settle(cassette, take, plan, seen)

    async def at_path(self, name: str, incoming: Incoming) -> CassetteIndex:
        """A cassette with the newest recordings of a path, if not with all. Raises StoreError."""
        view = await self.source.view(await self.source.begin(name, incoming, "replay"))
        return (await self.source.near(view, incoming.request)).cassette

    async def neighbours(self, miss: Miss) -> Sequence[AnyInteraction]:
        """A few recordings that may be nearest to a missed request. Raises StoreError."""
        if (searched := miss.searched) is None:
            return ()
        asked = sought(miss.request, path_of(miss.request, searched.rules))
        return await self.source.neighbours(miss.cassette, searched, asked)

    # Calling.

    def asking(self, live_call: LiveCall) -> AbstractAsyncContextManager[LiveCall | Replay] | None:
        """Hold the right to ask for this and to record the answer; None where it is held already.

        Raises StoreError.
        """
        return self.source.asking(live_call, self._decide_again)

    async def _decide_again(
        self, live_call: LiveCall, known: Collection[int] | None
    ) -> LiveCall | Replay:
        """A new decision; recordings beside those `known` come from the awaited call."""
        name, incoming = live_call.cassette.name, incoming_of(live_call)._replace(known=known)
        for _ in range(MOST_TRIES):
            mode = incoming.mode or self.source.control.mode_of(name)
            _, plan = await self._find(await self.source.begin(name, incoming, mode))
            if isinstance(plan, LiveCall):
                return plan._replace(replayed_ids=live_call.replayed_ids)
            if isinstance(plan, Replay):
                return (await for_this_client(_as_in_its_base(plan), incoming.request))[0]
        raise too_many(name)

    def replacing(
        self, live_call: LiveCall, interaction: Interaction
    ) -> AbstractAsyncContextManager[Replacement] | None:
        """Find and hold the recordings that a new answer replaces, until the answer is durable.

        None where the new answer replaces nothing. After a block without an error, the identifiers
        of the new answer stand for the replaced identifiers.
        """
        return (
            self._replacing(live_call, interaction)
            if self.source.replaces(live_call, interaction)
            else None
        )

    @asynccontextmanager
    async def _replacing(
        self, live_call: LiveCall, interaction: Interaction
    ) -> AsyncIterator[Replacement]:
        source, key = self.source, live_call.key
        async with source.replacing(live_call, interaction) as latest:
            if latest is None:
                yield Replacement(live_call.cassette)
                return
            for _ in range(MOST_TRIES):
                view = await latest()
                cassette = view.cassette
                take = cassette.take_now(live_call.take)
                find = partial(_replaced, cassette, interaction, key, take)
                own, earlier, unchanged = await source.reading(cassette, find)
                earlier = await source.in_memory(cassette, earlier)
                if earlier is None or not unchanged:
                    break
                cassette.keep(earlier.index, take)
                if await source.use(view, Replay(cassette, earlier, live_call.target, key)):
                    left = bool(cassette.earlier(interaction, key, take))
                    await source.compared(view, key, more=left)
                    yield Replacement(cassette, unchanged=earlier)
                    return
            else:
                raise too_many(cassette.name)
            instead: tuple[int, ...] = ()
            id_map: Mapping[str, str] = {}
            answering = partial(_answering, cassette, live_call, interaction)
            if not own and (instead := await source.reading(cassette, answering)):
                earlier = first_earlier(cassette, instead)
            elif not own:
                instead, earlier, id_map = await self._under_other_ids(view, take, interaction)
            earlier = await source.in_memory(cassette, earlier)
            yield Replacement(cassette, instead)
            if earlier is not None:
                issued = reissued_ids(earlier.response, interaction.response)
                await source.bind(view, take, key, {**id_map, **issued})
                await source.compared(view, key)

    async def _under_other_ids(
        self, view: View, take: Take, interaction: Interaction
    ) -> tuple[tuple[int, ...], Interaction | None, Mapping[str, str]]:
        """The recordings replaced by an answer to a request recorded with other identifiers.

        Returns also the first of the recordings, and the client's names for identifiers.
        """
        source, rules = self.source, view.cassette.rules
        nothing: tuple[tuple[int, ...], None, Mapping[str, str]] = (), None, {}
        if not len(view.cassette):
            return nothing
        if source.shared:
            words = random_words(interaction.request)
            await source.load_bindings(view, [*IdBindings.keys_of(words)])
            take = view.cassette.take_now(take)
        asked = with_earlier_ids(interaction.request, take.bindings)
        if asked != interaction.request:
            cassette = view.cassette
            under = partial(earlier_under, cassette, interaction, asked, cassette.take_now(take))
            if instead := await source.reading(cassette, under):
                return instead, first_earlier(cassette, instead), {}
        if not await refers_to_earlier(asked, rules):
            return nothing
        alike = await source.alike(view, asked, asks=False)
        cassette, identifiers = alike.cassette, alike.identifiers
        seen = await self._context.correlation.search_recorded(cassette, asked, identifiers)
        await source.load_bindings(alike, seen.binding_keys())
        match = first_of_earlier(cassette, cassette.take_now(take), seen, identifiers)
        if match is None:
            return nothing
        index = match.interaction.index
        if cassette.get(index) is None or not cassette.is_earlier(index, cassette.take_now(take)):
            return nothing
        return (index,), match.interaction, match.id_map


def _as_in_its_base(replay: Replay) -> Replay:
    """The replay; a recording of a base has its index there."""
    base, interaction = in_its_base(replay.cassette, replay.interaction)
    return replay._replace(interaction=interaction, base=base) if base else replay


def _replaced(
    cassette: CassetteIndex, interaction: Interaction, key: bytes, take: Take
) -> tuple[tuple[int, ...], Interaction | None, bool]:
    """The recordings that a new answer replaces, the first, and whether the answer equals the first."""
    own = cassette.earlier(interaction, key, take)
    earlier = first_earlier(cassette, own)
    return own, earlier, earlier is not None and is_unchanged(earlier, interaction)


def _answering(
    cassette: CassetteIndex, live_call: LiveCall, interaction: Interaction
) -> tuple[int, ...]:
    """The recordings of earlier takes that would answer, with fewer of the request's secrets known."""
    if not live_call.shows_secrets:
        return ()
    take, keys = cassette.take_now(live_call.take), _keys_of_others(cassette, live_call)
    return next(filter(None, (cassette.earlier(interaction, key, take) for key in keys)), ())


def _keys_of_others(cassette: CassetteIndex, live_call: LiveCall) -> Iterator[bytes]:
    """The match keys of a request as it may have been recorded with fewer of its secrets known."""
    digests, request = live_call.digests, live_call.request
    if digests is not None:
        request = digests.as_sent(request)
    found = cassette.find(cassette.asked(request), (request.route,))
    if found is not None and found.own:
        yield found.key
    for file in () if digests is None else digests.others:
        yield request_key(replace(live_call.redacted, file=file), cassette.rules)
