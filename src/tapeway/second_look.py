"""The look behind the match key: a request that is a recorded one but for names of identifiers.

It is taken only where the exact key misses. Reading a cassette for its identifiers takes about a
tenth of a millisecond a recording, once, and off the event loop where there are many.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from tapeway.core.cassette import Cassette
from tapeway.core.identifiers import Identifiers, Match
from tapeway.core.miss import Miss
from tapeway.core.model import Interaction, Request
from tapeway.core.modes import Repeats
from tapeway.core.plan import Ask, Incoming, Replay
from tapeway.core.routing import DEFAULT

log = logging.getLogger(__name__)

FEW = 100
"""So many recordings are read on the spot."""

_NAMED = 5

SMALL_BODY = 32 * 1024
"""Larger requests are compared in a thread."""


class SecondLook:
    """Finds the recording that a request means though it calls things by other names."""

    def __init__(self, repeats: Repeats) -> None:
        self._repeats = repeats
        self._readers: dict[str, asyncio.Lock] = {}
        self._told: dict[str, int] = {}

    async def matches(
        self, cassette: Cassette, incoming: Incoming, plan: Ask | Miss
    ) -> list[Match]:
        """What may be meant, the best first; the cassette may change while this is waited for."""
        if not len(cassette) or (isinstance(plan, Ask) and not plan.rules.replays):
            return []
        identifiers = await self._identifiers(cassette)
        request = _request(plan)
        routes = {request.route, DEFAULT} if incoming.guessed else {request.route}
        if len(request.body) <= SMALL_BODY:
            return identifiers.look(request, routes)
        return await asyncio.to_thread(identifiers.look, request, routes)

    def settle(
        self, cassette: Cassette, plan: Ask | Miss, matches: Sequence[Match]
    ) -> Replay | Ask | Miss:
        """The replay of the first match whose turn it is, its names then being the client's.

        Otherwise the plan, flagged where identifiers of a recording go to the upstream.
        """
        bindings, asks = cassette.take.bindings, isinstance(plan, Ask)
        for match in matches:
            index = match.interaction.index
            if cassette.get(index) is not match.interaction or not bindings.allow(match.names):
                continue
            key = cassette.key_of(index)
            found = cassette.next(
                key, self._repeats, plan.mark, could_ask=asks, asked=_request(plan)
            )
            if found is not None:
                bindings.learn(match.names)
                return Replay(cassette, found, plan.target, key, _note(match))
        return self._flagged(plan) if isinstance(plan, Ask) else plan

    def _flagged(self, ask: Ask) -> Ask:
        identifiers = ask.cassette.identifiers
        if identifiers is None or not ask.rules.replays:
            return ask
        # What was issued in this take, the upstream issued itself.
        carried, now = identifiers.carried(ask.redacted).items(), ask.take.number
        borrowed = sorted(each for each, by in carried if ask.cassette.recorded_in(by) != now)
        if not borrowed:
            return ask
        if self._told.get(ask.cassette.name) != now:
            self._told[ask.cassette.name] = now
            log.warning(
                "a request to cassette '%s' is asked live with identifiers that came from a "
                "recording: if the upstream does not know them, record the whole run anew",
                ask.cassette.name,
            )
        return replace(ask, borrowed=tuple(borrowed))

    async def _identifiers(self, cassette: Cassette) -> Identifiers:
        async with self._readers.setdefault(cassette.name, asyncio.Lock()):
            while (found := cassette.identifiers) is None:
                rules, held = cassette.rules, cassette.snapshot()
                if len(held) <= FEW:
                    made = Identifiers(held, rules)
                else:
                    made = await asyncio.to_thread(Identifiers, held, rules)
                if cassette.rules is rules:
                    for each in cassette.snapshot():
                        if isinstance(each, Interaction) and each.index not in made:
                            made.add(each)
                    cassette.identifiers = made
            return found


def _note(match: Match) -> str:
    named = [f"{name} is {sent}" for name, sent in match.names.items() if name != sent]
    more = " …" if len(named) > _NAMED else ""
    return f"recognised by identifiers that have other names: {', '.join(named[:_NAMED])}{more}"


def _request(plan: Ask | Miss) -> Request:
    return plan.redacted if isinstance(plan, Ask) else plan.request
