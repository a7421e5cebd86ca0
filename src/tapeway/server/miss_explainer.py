"""Explains misses in a thread, one at a time, and equal misses only once."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from tapeway.cooperative import BRIEF_S, Yielding
from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.miss import Miss, MissExplanation, NearestRecording, SearchedCassette
from tapeway.core.misses.near_names import near_names
from tapeway.core.model.interaction import AnyInteraction
from tapeway.core.model.messages import Headers, Request
from tapeway.errors import describe
from tapeway.ports import CassetteStore

log = logging.getLogger(__name__)

MOST_WAITING = 16
"""Different misses in the queue: a further one would wait for about half a second."""

CACHED = 256

BUSY = MissExplanation(note="too many others were missed at once to look for the nearest recording")
FAILED = MissExplanation(note="looking for the nearest recording failed, the log says where")

_MissKey = tuple[str, object, bytes, tuple[int, ...], Headers]
"""Cassette, version, key, used recordings and headers: equal for misses with the same explanation."""

Neighbours = Callable[[Miss], Awaitable[Sequence[AnyInteraction]]]
"""Yields candidates for the nearest recordings of a missed request, a few for each call."""


class Explainer:
    """Finds the recordings nearest to a missed request; equal misses share one search."""

    def __init__(
        self, redaction: RequestRedaction, store: CassetteStore, neighbours: Neighbours
    ) -> None:
        self._redaction = redaction
        self._store = store
        self._neighbours = neighbours
        self._lock = asyncio.Lock()
        self._cached: OrderedDict[_MissKey, MissExplanation] = OrderedDict()
        self._running: dict[_MissKey, asyncio.Future[MissExplanation]] = {}

    async def explain(self, miss: Miss) -> Miss:
        """The miss with an explanation, or with a note that too many misses are waiting."""
        if (cassette := miss.searched) is None:
            return miss
        key = (miss.cassette, cassette.version, miss.key, miss.used_up, miss.request.headers)
        if (explanation := self._cached.get(key)) is not None:
            self._cached.move_to_end(key)
        elif (running := self._running.get(key)) is not None:
            explanation = await asyncio.shield(running)
        elif len(self._running) >= MOST_WAITING:
            explanation = BUSY
        else:
            explanation = await self._explain(cassette, miss, key)
        return replace(miss, explanation=explanation)

    async def _explain(
        self, cassette: SearchedCassette, miss: Miss, key: _MissKey
    ) -> MissExplanation:
        explanation = BUSY
        pending: asyncio.Future[MissExplanation] = asyncio.get_running_loop().create_future()
        self._running[key] = pending
        try:
            async with self._lock:
                explanation = await self._search(cassette, miss)
            if explanation not in (BUSY, FAILED):
                self._remember(key, explanation)
            return explanation
        finally:
            del self._running[key]
            pending.set_result(explanation)

    async def _search(self, cassette: SearchedCassette, miss: Miss) -> MissExplanation:
        salt, rules = cassette.head.run_id, cassette.rules

        def redact(request: Request) -> Request:
            return self._redaction.redact(salt, request, rules)

        try:
            recorded = () if miss.used_up else await self._neighbours(miss)
            is_empty = not (recorded or miss.used_up or len(cassette))
            if is_empty and (names := await self._similar_names(miss.cassette)) is not None:
                return MissExplanation(absent=names)
            explanation = await asyncio.to_thread(explain, miss, recorded, rules, redact)
            nearest = [_in_its_base(found, cassette) for found in explanation.nearest]
            return replace(explanation, nearest=tuple(nearest))
        except Exception as exc:
            # Whatever failed, the client gets a miss.
            log.error("a miss could not be explained: %s", describe(exc))
            return FAILED

    async def _similar_names(self, name: str) -> tuple[str, ...] | None:
        """Cassettes with similar names, if none has the given name."""
        if await self._store.stat(name) is not None:
            return None
        return await asyncio.to_thread(near_names, name, await self._store.names())

    def _remember(self, key: _MissKey, explanation: MissExplanation) -> None:
        self._cached[key] = explanation
        if len(self._cached) > CACHED:
            self._cached.popitem(last=False)


def _in_its_base(nearest: NearestRecording, cassette: SearchedCassette) -> NearestRecording:
    if (found := cassette.in_base(nearest.index)) is None:
        return nearest
    base, index = found
    return replace(nearest, index=index, base=base)


def explain(
    miss: Miss,
    recorded: Sequence[AnyInteraction],
    rules: Rules,
    redact: Callable[[Request], Request],
) -> MissExplanation:
    """The explanation of `core.misses`. Imported here, in a thread: most servers never need it."""
    from tapeway.core.misses import explanation

    return explanation.explain(miss, recorded, rules, redact, Yielding(BRIEF_S).step)
