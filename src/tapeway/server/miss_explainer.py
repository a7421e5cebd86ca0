"""Explains misses in a thread, one at a time, and equal misses only once."""

import asyncio
import logging
from collections import OrderedDict
from dataclasses import replace
from weakref import WeakKeyDictionary

from tapeway.core.matching.key import RequestRedaction
from tapeway.core.misses.explanation import explain
from tapeway.core.misses.miss import Miss, MissExplanation, SearchedCassette
from tapeway.core.model.messages import Request
from tapeway.errors import describe

log = logging.getLogger(__name__)

MOST_WAITING = 16
"""Different misses in the queue: a further one would wait for about half a second."""

_CACHED = 256

BUSY = MissExplanation(note="too many others were missed at once to look for the nearest recording")
FAILED = MissExplanation(note="looking for the nearest recording failed, the log says where")

_MissKey = tuple[int, bytes, bytes, tuple[int, ...]]
"""Generation, key, variant and used recordings: equal for misses with the same explanation."""


class Explainer:
    """Finds the recordings nearest to a missed request; equal misses share one search."""

    def __init__(self, redaction: RequestRedaction) -> None:
        self._redaction = redaction
        self._lock = asyncio.Lock()
        self._cache: WeakKeyDictionary[SearchedCassette, OrderedDict[_MissKey, MissExplanation]] = (
            WeakKeyDictionary()
        )
        self._running: dict[tuple[int, _MissKey], asyncio.Future[MissExplanation]] = {}

    async def explain(self, miss: Miss) -> Miss:
        """The miss with its explanation, or with a note that too many misses are waiting for theirs."""
        if (cassette := miss.searched) is None:
            return miss
        key = (cassette.generation, miss.key, miss.variant, miss.used_up)
        cached = self._cache.setdefault(cassette, OrderedDict())
        if (found := cached.get(key)) is not None:
            cached.move_to_end(key)
        elif (running := self._running.get((id(cassette), key))) is not None:
            found = await asyncio.shield(running)
        elif len(self._running) >= MOST_WAITING:
            found = BUSY
        else:
            found = await self._explain(cassette, miss, key)
        return replace(miss, explanation=found)

    async def _explain(
        self, cassette: SearchedCassette, miss: Miss, key: _MissKey
    ) -> MissExplanation:
        found = BUSY
        pending: asyncio.Future[MissExplanation] = asyncio.get_running_loop().create_future()
        self._running[id(cassette), key] = pending
        try:
            async with self._lock:
                found = await self._search(cassette, miss)
            if found.note is None:
                self._remember(cassette, key, found)
            return found
        finally:
            del self._running[id(cassette), key]
            pending.set_result(found)

    async def _search(self, cassette: SearchedCassette, miss: Miss) -> MissExplanation:
        salt, snapshot, rules = cassette.head.run_id, cassette.snapshot(), cassette.rules

        def redact(request: Request) -> Request:
            return self._redaction.redact(salt, request, rules).request

        try:
            return await asyncio.to_thread(explain, miss, snapshot, rules, redact)
        except Exception as exc:
            # Whatever failed, the client gets its miss response.
            log.error("a miss could not be explained: %s", describe(exc))
            return FAILED

    def _remember(self, cassette: SearchedCassette, key: _MissKey, found: MissExplanation) -> None:
        cached = self._cache[cassette]
        cached[key] = found
        if len(cached) > _CACHED:
            cached.popitem(last=False)
