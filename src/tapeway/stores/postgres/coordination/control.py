"""What is in force for all instances, and which of them have applied it."""

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
from tapeway.stores.shared.control_document import decode_control, encode_control

log = logging.getLogger(__name__)

OUT_OF_TOUCH_S = 5.0
"""Without a word from the database for so long, an instance no longer knows what is in force."""

_GONE = 1.2
"""Nobody waits for one that was not heard of for longer than that by so much: it refuses by then."""

# It goes on while the machine sleeps, where there is one that does.
clock = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

_READ = "SELECT generation, attempt, document FROM @control"
_WRITE = "UPDATE @control SET generation = $1, attempt = $2, document = $3"
_ALIVE = "SELECT 1 FROM @instance WHERE id <> $1 AND seen > clock_timestamp() - $2 * interval '1 s'"
_BEAT = """
INSERT INTO @instance AS instance (id, name, generation, seen) VALUES ($1, $2, $3, clock_timestamp())
ON CONFLICT (id) DO UPDATE SET generation = excluded.generation, seen = excluded.seen
"""
_BEHIND = """
SELECT name FROM @instance
WHERE generation < $1 AND seen > clock_timestamp() - $2 * interval '1 s' ORDER BY name
"""


class Member:
    """One instance: what it applied, and when it last heard what is in force."""

    def __init__(self, number: UUID, apply: Callable[[Control], None], touch_s: float) -> None:
        self._id = number
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._apply = apply
        self._touch_s = touch_s
        self._applied = 0
        self._heard = -inf

    @property
    def in_touch(self) -> bool:
        return clock() - self._heard < self._touch_s

    async def join(self, session: Session, wanted: Control, attempt: UUID) -> Control:
        """What is in force, which is `wanted` where no other instance is alive."""
        asked_at, line = clock(), await _locked(session)
        now = _read(line)
        if now is None or (line["attempt"] != attempt and not await self._others(session)):
            takes = (0 if now is None else now.takes) + 1
            generation = line["generation"] + 1
            now = replace(
                wanted, takes=takes, since=takes, cassette_takes={}, generation=generation
            )
            await session.run(_WRITE, generation, attempt, encode_control(now))
        await session.run(_BEAT, self._id, self._name, now.generation)
        self._applied, self._heard = now.generation, asked_at
        return now

    async def beat(self, session: Session) -> bool:
        """Say that it is alive, and hear what is in force; False where that was news to it."""
        asked_at = clock()
        await session.run(_BEAT, self._id, self._name, self._applied)
        now = await in_force(session)
        if now is None or now.generation <= self._applied:
            self._heard = asked_at
            return True
        if not self.apply(now):
            return True
        self._heard = asked_at
        return False

    def apply(self, control: Control) -> bool:
        """Put a control in force here, unless a later one is; False where it cannot be."""
        if control.generation > self._applied:
            try:
                self._apply(control)
            except Exception as exc:
                log.error("what is in force could not be applied: %s", describe(exc))
                return False
            self._applied = control.generation
        return True

    async def leave(self, session: Session) -> None:
        self._heard = -inf
        await session.run("DELETE FROM @instance WHERE id = $1", self._id)

    async def _others(self, session: Session) -> bool:
        return await session.row(_ALIVE, self._id, self._touch_s * _GONE) is not None


async def change_control(
    session: Session, change: Callable[[Control], Control], attempt: UUID
) -> Control:
    """Change what is in force, once however often this is tried."""
    line = await _locked(session)
    now = _read(line)
    if now is None:
        raise CassetteCorrupt("nothing is in force: no instance has joined the store")
    if line["attempt"] == attempt:
        return now
    after = replace(change(now), generation=now.generation + 1)
    await session.run(_WRITE, after.generation, attempt, encode_control(after))
    return after


async def instances_behind(session: Session, generation: int, touch_s: float) -> Sequence[str]:
    """The live instances that have not applied it."""
    found = await session.rows(_BEHIND, generation, touch_s * _GONE)
    return tuple([line["name"] for line in found])


async def in_force(session: Session) -> Control | None:
    found = await session.row(_READ)
    return None if found is None else _read(found)


async def _locked(session: Session) -> DriverRow:
    line = await session.row(f"{_READ} FOR UPDATE")
    if line is None:
        raise CassetteCorrupt("the table 'control' is empty: restore its row")
    return line


def _read(line: DriverRow) -> Control | None:
    if line["document"] is None:
        return None
    try:
        return decode_control(line["document"], line["generation"])
    except ValueError as exc:
        raise CassetteCorrupt(f"the table 'control' cannot be read: {exc}") from exc
