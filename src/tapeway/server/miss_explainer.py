"""Explains misses off the event loop: one at a time, and equal ones once."""

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
"""Different misses that wait for their turn: a further one would wait for half a second."""

_REMEMBERED = 256

BUSY = MissExplanation(note="too many others were missed at once to look for the nearest recording")
FAILED = MissExplanation(note="looking for the nearest recording failed, the log says where")

_Kind = tuple[int, bytes, bytes, tuple[int, ...]]
"""What two misses have in common that have the same explanation."""


class Explainer:
    """Finds what explains a miss, or remembers it from an equal one."""

    def __init__(self, redaction: RequestRedaction) -> None:
        self._redaction = redaction
        self._turn = asyncio.Lock()
        self._known: WeakKeyDictionary[SearchedCassette, OrderedDict[_Kind, MissExplanation]] = (
            WeakKeyDictionary()
        )
        self._running: dict[tuple[int, _Kind], asyncio.Future[MissExplanation]] = {}

    async def explain(self, miss: Miss) -> Miss:
        """The miss explained by what was searched; a note says so where too many wait for that."""
        if (cassette := miss.searched) is None:
            return miss
        kind = (cassette.generation, miss.key, miss.variant, miss.used_up)
        known = self._known.setdefault(cassette, OrderedDict())
        if (found := known.get(kind)) is not None:
            known.move_to_end(kind)
        elif (running := self._running.get((id(cassette), kind))) is not None:
            found = await asyncio.shield(running)
        elif len(self._running) >= MOST_WAITING:
            found = BUSY
        else:
            found = await self._first(cassette, miss, kind)
        return replace(miss, explanation=found)

    async def _first(self, cassette: SearchedCassette, miss: Miss, kind: _Kind) -> MissExplanation:
        found = BUSY
        promise: asyncio.Future[MissExplanation] = asyncio.get_running_loop().create_future()
        self._running[id(cassette), kind] = promise
        try:
            async with self._turn:
                found = await self._look(cassette, miss)
            if found.note is None:
                self._remember(cassette, kind, found)
            return found
        finally:
            del self._running[id(cassette), kind]
            promise.set_result(found)

    async def _look(self, cassette: SearchedCassette, miss: Miss) -> MissExplanation:
        salt, held, rules = cassette.head.run_id, cassette.snapshot(), cassette.rules

        def redact(request: Request) -> Request:
            return self._redaction.redact(salt, request, rules).request

        try:
            return await asyncio.to_thread(explain, miss, held, rules, redact)
        except Exception as exc:
            # Whatever broke, the app is told that its request was missed.
            log.error("a miss could not be explained: %s", describe(exc))
            return FAILED

    def _remember(self, cassette: SearchedCassette, kind: _Kind, found: MissExplanation) -> None:
        known = self._known[cassette]
        known[kind] = found
        if len(known) > _REMEMBERED:
            known.popitem(last=False)
