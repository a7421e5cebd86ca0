"""Finds recordings whose requests differ from a request only in identifiers.

The search follows where the exact key misses, in a thread where there are many recordings. A take
binds the names that a client gives to identifiers. Instances of a shared store share the bindings.
Each binding has a separate cursor, so that conversations do not compete.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from tapeway.cooperative import BRIEF_S, Yielding
from tapeway.core.cassette.choice import Why
from tapeway.core.cassette.credential_index import FoundKey
from tapeway.core.cassette.cursors import Take
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Incoming, LiveCall, Replay
from tapeway.core.correlation.index import (
    FEW_LOADED,
    CorrelatedRecording,
    CorrelationIndex,
    alike_key,
    has_references,
    may_carry_ids,
    meant_recordings,
)
from tapeway.core.correlation.unify import IdBindings
from tapeway.core.http.routing import DEFAULT_ROUTE
from tapeway.core.matching.received_request import ReceivedRequest
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.miss import Miss
from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request
from tapeway.core.text import no_pause

log = logging.getLogger(__name__)

FOUND_BY_IDENTIFIERS = "recognised by identifiers that have other names"
_MOST_NAMED = 5

_FEW_ALIKE = 8
SMALL_BODY = 32 * 1024
"""Larger requests are compared in a thread."""


class CorrelationMatches(NamedTuple):
    """Recordings that may be meant, the best first.

    `carried_ids` are the recorded identifiers in the request, each with the index of the recording
    that issued it.
    """

    matches: Sequence[CorrelatedRecording] = ()
    carried_ids: Mapping[str, int] = {}

    def binding_keys(self) -> list[bytes]:
        """The cursors in which instances share how the matched identifiers were renamed."""
        sought = IdBindings()
        for match in self.matches:
            sought.bind(match.id_map)
        return list(sought.states())


class Correlation:
    """Searches a cassette for recordings that differ from a request only in identifiers."""

    def __init__(self, repeats: Repeats | None) -> None:
        self._repeats = repeats
        # More threads would only compete for the interpreter with the event loop.
        self._one_at_a_time = asyncio.Lock()
        self._warned: dict[str, int] = {}

    async def search(
        self,
        cassette: CassetteIndex,
        incoming: Incoming,
        plan: LiveCall | Miss,
        given: CorrelationIndex | None = None,
    ) -> CorrelationMatches:
        """Search in all recordings, or in those `given`; the cassette may change meanwhile."""
        if isinstance(plan, LiveCall) and not plan.policy.replays:
            return CorrelationMatches()
        if not len(cassette) and cassette.correlation is None:
            return CorrelationMatches()
        request = _request(plan)
        if len(request.body) <= SMALL_BODY and not may_carry_ids(request):
            # Most requests: nothing is made of the recordings, of which there may be very many.
            return CorrelationMatches()
        identifiers = _identifiers_of(cassette) if given is None else given
        routes = {request.route, DEFAULT_ROUTE} if incoming.route_guessed else {request.route}
        if _is_quick(identifiers, request):
            return _search(identifiers, plan, routes)
        async with self._one_at_a_time:
            step = Yielding(BRIEF_S).step
            return await asyncio.to_thread(_search, identifiers, plan, routes, step)

    def settle(
        self, cassette: CassetteIndex, take: Take, plan: LiveCall | Miss, seen: CorrelationMatches
    ) -> Replay | LiveCall | Miss:
        """The replay of the first match not used up, with identifiers bound to the client's.

        Otherwise the plan, with a warning where identifiers of a recording go to the upstream.
        """
        bindings = take.bindings
        asked = (
            _received_request(cassette, plan)
            if isinstance(plan, LiveCall) and seen.matches
            else None
        )
        for match in seen.matches:
            index = match.interaction.index
            if cassette.get(index) is not match.interaction or not bindings.allows(match.id_map):
                continue
            key = cassette.key_of(index)
            if not cassette.choice.all_are_for(cassette.held(key), plan.request.headers):
                continue
            interaction = cassette.choose(
                FoundKey(key), take, self._repeats, asked, can_ask=asked is not None
            )
            if not isinstance(interaction, Why):
                bindings.bind(match.id_map)
                return Replay(cassette, interaction, plan.target, key, _note(match))
        return self._with_warning(plan, seen.carried_ids) if isinstance(plan, LiveCall) else plan

    async def search_recorded(
        self, cassette: CassetteIndex, request: Request, given: CorrelationIndex | None = None
    ) -> CorrelationMatches:
        """Search for recordings with requests that differ only in identifiers, as `search` does."""
        if not len(cassette):
            return CorrelationMatches()
        identifiers = _identifiers_of(cassette) if given is None else given
        if _is_quick(identifiers, request):
            return CorrelationMatches(identifiers.find(request, {request.route}))
        async with self._one_at_a_time:
            find, step = identifiers.find, Yielding(BRIEF_S).step
            matches = await asyncio.to_thread(find, request, {request.route}, step)
        return CorrelationMatches(matches)

    def _with_warning(self, live_call: LiveCall, carried_ids: Mapping[str, int]) -> LiveCall:
        if not carried_ids:
            return live_call
        now = live_call.take.number
        # The upstream knows the identifiers issued in this take.
        replayed = sorted(
            identifier
            for identifier, issuer in carried_ids.items()
            if live_call.cassette.take_of(issuer) != now
        )
        if not replayed:
            return live_call
        if self._warned.get(live_call.cassette.name) != now:
            self._warned[live_call.cassette.name] = now
            log.warning(
                "a request to cassette '%s' is asked live with identifiers that came from a "
                "recording: if the upstream does not know them, record the whole run anew",
                live_call.cassette.name,
            )
        return live_call._replace(replayed_ids=tuple(replayed))


def first_of_earlier(
    cassette: CassetteIndex,
    take: Take,
    seen: CorrelationMatches,
    given: CorrelationIndex | None = None,
) -> CorrelatedRecording | None:
    """The first recording of an earlier take whose app itself named the calls otherwise.

    Where an answer issued the recorded identifier, another conversation is meant: an answer of the
    cassette, or an answer that this take replaced.
    """
    if not seen.matches:
        return None
    identifiers = _identifiers_of(cassette) if given is None else given
    issued, bindings = identifiers.issued, take.bindings
    for match in seen.matches:
        index = match.interaction.index
        held = cassette.get(index) is match.interaction and cassette.is_earlier(index, take)
        drawn = all(
            recorded == sent or not (recorded in issued or bindings.has(recorded))
            for recorded, sent in match.id_map.items()
        )
        if held and drawn:
            return match
    return None


async def refers_to_earlier(request: Request, rules: Rules) -> bool:
    """Whether a request refers to anything that an earlier answer could have issued."""
    if len(request.body) <= SMALL_BODY:
        return has_references(request, rules)
    return await asyncio.to_thread(has_references, request, rules)


async def key_of_alike(request: Request, rules: Rules) -> bytes | None:
    """The key of recordings that may differ from a request in identifiers alone; None for none."""
    if len(request.body) <= SMALL_BODY:
        return alike_key(request, rules)
    return await asyncio.to_thread(alike_key, request, rules)


async def meant_by(
    request: Request, recordings: Sequence[Interaction], rules: Rules, *, asks: bool
) -> tuple[list[Interaction], set[str]]:
    """Which of some recordings may be meant by a request, and the identifiers to be looked up."""
    if not recordings and not (asks and may_carry_ids(request)):
        return [], set()
    work = partial(meant_recordings, recordings, request, rules, asks=asks)
    if len(request.body) <= SMALL_BODY and len(recordings) <= _FEW_ALIKE:
        return work()
    return await asyncio.to_thread(work)


def _received_request(cassette: CassetteIndex, live_call: LiveCall) -> ReceivedRequest:
    incoming = live_call.incoming
    large = None if incoming is None else incoming.large_for(cassette.head, cassette.rules)
    return cassette.asked(live_call.request) if large is None else large.asked


def _identifiers_of(cassette: CassetteIndex) -> CorrelationIndex:
    if cassette.correlation is None:
        cassette.correlation = CorrelationIndex(cassette.snapshot(), cassette.rules)
    return cassette.correlation


def _is_quick(identifiers: CorrelationIndex, request: Request) -> bool:
    return identifiers.unread <= FEW_LOADED and len(request.body) <= SMALL_BODY


def _search(
    identifiers: CorrelationIndex,
    plan: LiveCall | Miss,
    routes: Collection[str],
    step: Callable[[], None] = no_pause,
) -> CorrelationMatches:
    request = _request(plan)
    matches = identifiers.find(request, routes, step)
    carried_ids = identifiers.issued_in(request) if isinstance(plan, LiveCall) else {}
    return CorrelationMatches(matches, carried_ids)


def _note(match: CorrelatedRecording) -> str:
    named = [f"{name} is {sent}" for name, sent in match.id_map.items() if name != sent]
    more = " …" if len(named) > _MOST_NAMED else ""
    return f"{FOUND_BY_IDENTIFIERS}: {', '.join(named[:_MOST_NAMED])}{more}"


def _request(plan: LiveCall | Miss) -> Request:
    return plan.redacted if isinstance(plan, LiveCall) else plan.request
