"""The mode and takes in force for all instances, and which instance applied them."""

import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from uuid import UUID

from tapeway.core.model.control import Control
from tapeway.errors import CassetteCorrupt, describe
from tapeway.stores.postgres.pool import DriverRow, Session
from tapeway.stores.support.control_document import decode_control, encode_control

log = logging.getLogger(__name__)

OUT_OF_TOUCH_S = 5.0
"""After this many seconds without the database, an instance no longer knows the state in force."""

_GRACE = 1.2
"""An instance silent for this multiple of OUT_OF_TOUCH_S is not waited for: it refuses requests."""

# CLOCK_BOOTTIME also counts the time that the machine sleeps.
clock = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

_READ = "SELECT generation, document FROM @control"
_WRITE = "UPDATE @control SET generation = $1, document = $2"
_ALIVE = "SELECT 1 FROM @instance WHERE id <> $1 AND seen > clock_timestamp() - $2 * interval '1 s'"
_BEAT = """
INSERT INTO @instance AS instance (id, name, generation, seen) VALUES ($1, $2, $3, clock_timestamp())
ON CONFLICT (id) DO UPDATE SET generation = excluded.generation, seen = excluded.seen
"""
_BEHIND = """
SELECT name FROM @instance
WHERE generation < $1 AND seen > clock_timestamp() - $2 * interval '1 s' ORDER BY name
"""


def written(control: Control) -> str:
    """What a change of the state in force came to, as text."""
    return f"{control.generation} {encode_control(control).decode()}"


def read_back(text: str) -> Control:
    generation, _, document = text.partition(" ")
    return decode_control(document, int(generation))


class Member:
    """One instance: the change it applied last, and when it last read what is in force."""

    def __init__(self, instance: UUID, apply: Callable[[Control], None], touch_s: float) -> None:
        self._id = instance
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._apply = apply
        self._touch_s = touch_s
        self.found_others = False
        """Whether another instance was alive when this one joined."""
        self._applied = 0
        self._last_heard = -inf

    @property
    def in_touch(self) -> bool:
        return clock() - self._last_heard < self._touch_s

    async def join(self, session: Session, wanted: Control) -> str:
        """Join the instances; the state in force, or `wanted` if no other one is alive, as text."""
        asked_at, row = clock(), await _locked(session)
        now = _read(row)
        self.found_others = await self._others(session)
        if now is None or not self.found_others:
            takes = (0 if now is None else now.takes) + 1
            generation = row["generation"] + 1
            now = replace(
                wanted, takes=takes, since=takes, cassette_takes={}, generation=generation
            )
            await session.run(_WRITE, generation, encode_control(now))
        await session.run(_BEAT, self._id, self._name, now.generation)
        self._applied, self._last_heard = now.generation, asked_at
        return written(now)

    async def beat(self, session: Session) -> bool:
        """Report that this instance is alive, and apply a pending change; False if there was one."""
        asked_at = clock()
        await session.run(_BEAT, self._id, self._name, self._applied)
        now = await in_force(session)
        if now is None or now.generation <= self._applied:
            self._last_heard = asked_at
            return True
        if not self.apply(now):
            return True
        self._last_heard = asked_at
        return False

    def apply(self, control: Control) -> bool:
        """Apply a change, unless it or a later one was; False where applying it failed."""
        if control.generation > self._applied:
            try:
                self._apply(control)
            except Exception as exc:
                log.error(
                    "a change of mode, cassette or take could not be applied: %s", describe(exc)
                )
                return False
            self._applied = control.generation
        return True

    async def leave(self, session: Session) -> None:
        self._last_heard = -inf
        await session.run("DELETE FROM @instance WHERE id = $1", self._id)

    async def _others(self, session: Session) -> bool:
        return await session.row(_ALIVE, self._id, self._touch_s * _GRACE) is not None


async def change_control(session: Session, change: Callable[[Control], Control]) -> str:
    """Change the state in force; what it is now, as text."""
    row = await _locked(session)
    now = _read(row)
    if now is None:
        raise CassetteCorrupt("nothing is in force: no instance has joined the store")
    after = replace(change(now), generation=now.generation + 1)
    await session.run(_WRITE, after.generation, encode_control(after))
    return written(after)


async def instances_behind(session: Session, generation: int, touch_s: float) -> Sequence[str]:
    """The names of live instances that have not applied a change."""
    found = await session.rows(_BEHIND, generation, touch_s * _GRACE)
    return tuple([row["name"] for row in found])


async def in_force(session: Session) -> Control | None:
    found = await session.row(_READ)
    return None if found is None else _read(found)


async def _locked(session: Session) -> DriverRow:
    row = await session.row(f"{_READ} FOR UPDATE")
    if row is None:
        raise CassetteCorrupt("the table 'control' is empty: restore its row")
    return row


def _read(row: DriverRow) -> Control | None:
    if row["document"] is None:
        return None
    try:
        return decode_control(row["document"], row["generation"])
    except ValueError as exc:
        raise CassetteCorrupt(f"the table 'control' cannot be read: {exc}") from exc
