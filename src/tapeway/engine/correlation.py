"""The look behind the match key: a request that is a recorded one but for names of identifiers.

It is taken only where the exact key misses, and off the event loop where there are many recordings.

What clients call the identifiers of a take, the same for all instances of a shared store.

Each name is a turn of its own, so that conversations do not compete for one.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Ask, Incoming, Replay
from tapeway.core.correlation.index import CorrelatedRecording, CorrelationIndex
from tapeway.core.correlation.unify import IdBindings
from tapeway.core.http.routing import DEFAULT_ROUTE
from tapeway.core.misses.miss import Miss
from tapeway.core.model.control import CursorState, Repeats
from tapeway.core.model.messages import Request
from tapeway.ports import SharedStore

log = logging.getLogger(__name__)

FEW = 100
"""Among so many recordings it is taken on the spot."""
_NAMED = 5

SMALL_BODY = 32 * 1024
"""Larger requests are compared in a thread."""


class Seen(NamedTuple):
    """What a look has found: recordings that may be meant, the best first.

    `carried` are the identifiers that go to the upstream otherwise, each with who issued it.
    """

    matches: Sequence[CorrelatedRecording] = ()
    carried: Mapping[str, int] = {}


class Correlation:
    """Finds the recording that a request means though it calls things by other names."""

    def __init__(self, repeats: Repeats | None) -> None:
        self._repeats = repeats
        # More threads would only take turns, and the event loop would have to wait for each.
        self._turn = asyncio.Lock()
        self._told: dict[str, int] = {}

    async def look(self, cassette: CassetteIndex, incoming: Incoming, plan: Ask | Miss) -> Seen:
        """Look for what is meant; the cassette may change while this is waited for."""
        if not len(cassette) or (isinstance(plan, Ask) and not plan.policy.replays):
            return Seen()
        if (identifiers := cassette.correlation) is None:
            identifiers = CorrelationIndex(cassette.snapshot(), cassette.rules)
            cassette.correlation = identifiers
        request = _request(plan)
        routes = {request.route, DEFAULT_ROUTE} if incoming.route_guessed else {request.route}
        if len(cassette) <= FEW and len(request.body) <= SMALL_BODY:
            return _look(identifiers, plan, routes)
        async with self._turn:
            return await asyncio.to_thread(_look, identifiers, plan, routes)

    def settle(self, cassette: CassetteIndex, plan: Ask | Miss, seen: Seen) -> Replay | Ask | Miss:
        """The replay of the first match whose turn it is, its names then being the client's.

        Otherwise the plan, flagged where identifiers of a recording go to the upstream.
        """
        bindings, asks = cassette.take.bindings, isinstance(plan, Ask)
        for match in seen.matches:
            index = match.interaction.index
            if cassette.get(index) is not match.interaction or not bindings.allows(match.id_map):
                continue
            key = cassette.key_of(index)
            found = cassette.next(
                key, self._repeats, plan.variant, can_ask=asks, asked=_request(plan)
            )
            if found is not None:
                bindings.bind(match.id_map)
                return Replay(cassette, found, plan.target, key, _note(match))
        return self._flagged(plan, seen.carried) if isinstance(plan, Ask) else plan

    def _flagged(self, ask: Ask, carried: Mapping[str, int]) -> Ask:
        now = ask.take.number
        # What was issued in this take, the upstream issued itself.
        borrowed = sorted(each for each, by in carried.items() if ask.cassette.take_of(by) != now)
        if not borrowed:
            return ask
        if self._told.get(ask.cassette.name) != now:
            self._told[ask.cassette.name] = now
            log.warning(
                "a request to cassette '%s' is asked live with identifiers that came from a "
                "recording: if the upstream does not know them, record the whole run anew",
                ask.cassette.name,
            )
        return replace(ask, replayed_ids=tuple(borrowed))


def _look(identifiers: CorrelationIndex, plan: Ask | Miss, routes: Collection[str]) -> Seen:
    request = _request(plan)
    carried = identifiers.issued_in(request) if isinstance(plan, Ask) else {}
    return Seen(identifiers.find(request, routes), carried)


def _note(match: CorrelatedRecording) -> str:
    named = [f"{name} is {sent}" for name, sent in match.id_map.items() if name != sent]
    more = " …" if len(named) > _NAMED else ""
    return f"recognised by identifiers that have other names: {', '.join(named[:_NAMED])}{more}"


def _request(plan: Ask | Miss) -> Request:
    return plan.redacted if isinstance(plan, Ask) else plan.request


async def recall(
    store: SharedStore, cassette: CassetteIndex, seen: Seen
) -> Mapping[bytes, CursorState]:
    """Have the take know what was called how, as far as it matters to what was seen."""
    sought = IdBindings()
    for match in seen.matches:
        sought.bind(match.id_map)
    if not (keys := list(sought.states())):
        return {}
    turns = await store.turns(cassette.name, cassette.take.number, keys)
    cassette.take.bindings = IdBindings.from_states(
        {key: turn.state for key, turn in turns.items()}
    )
    return turns


async def agree(
    store: SharedStore, cassette: CassetteIndex, before: Mapping[bytes, CursorState], index: int
) -> bool:
    """Tell all what the take has learnt by replaying this; False where another was quicker."""
    take = cassette.take
    for key, state in take.bindings.states().items():
        known = before.get(key)
        if known is not None and known.state == state:
            continue
        if not await store.advance(cassette.name, take.number, key, known, state, index):
            return False
    return True
