"""What the instances of a store share besides recordings: leases, heartbeats, mode and takes.

A lease lives as long as the instance reports that it is alive, and for `lease_s` after the claim.
The fence tells a lease from every other lease. So a recording under a lost lease is refused. All
times are of the server's clock.
"""

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from math import inf

from tapeway.core.json_text import Json, dump, parse
from tapeway.core.model.cassette import Lease
from tapeway.core.model.control import MODE_POLICIES, Control, Mode, Slot
from tapeway.core.model.faults import faults_document, parse_faults
from tapeway.errors import CassetteCorrupt, StoreError, describe
from tapeway.stores.postgres.operations.rows import hexes, indexable, numbers
from tapeway.stores.postgres.pool import Session

log = logging.getLogger(__name__)

OUT_OF_TOUCH_S = 5.0
"""After this many seconds without the store, an instance no longer knows the state in force."""

BEAT_S = 1.0
"""How often an instance reports itself alive."""

SWEEP_S = 24.0
"""A sweep removes the cursors of takes that had ended at the sweep before. So cursors are gone within a
minute, and a request of an ended take has this long to end.
"""

BATCH = 2000
"""How many cursors of ended takes one transaction removes, in some milliseconds."""

# CLOCK_BOOTTIME also counts the time that the machine sleeps.
boot_clock = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

_CLAIM = """
INSERT INTO @lease (name, key, fence, instance, since) VALUES ($1, $2, $3, $4, :now)
ON CONFLICT (name, key) DO NOTHING
"""
# The statement after this lock sees every instance that reported before the lock was taken.
_LOCKED_LEASE = "SELECT fence FROM @lease WHERE name = $1 AND key = $2 FOR UPDATE"
_ALIVE = """
(lease.since > :now - {0} OR EXISTS (
  SELECT 1 FROM @instance i WHERE i.id = lease.instance AND i.seen > :now - {0}))
"""
_HELD = f"""
SELECT 1 FROM @lease AS lease WHERE name = $1 AND key = $2 AND {_ALIVE.format("$3")}
"""  # noqa: S608
_FENCES = f"SELECT fence FROM @lease AS lease WHERE name = $1 AND {_ALIVE.format('$2')}"  # noqa: S608
_TAKE_OVER = """
UPDATE @lease SET fence = $3, instance = $4, since = :now WHERE name = $1 AND key = $2
"""
_GIVE_BACK = """
DELETE FROM @lease WHERE name = $1 AND key = $2 AND fence = $3 AND instance = $4
"""

# A beat that was under way during a join or a change never sets an instance back.
_BEAT = """
INSERT INTO @instance AS instance (id, name, seen, joined) VALUES ($1, $2, :now, $3)
ON CONFLICT (id) DO UPDATE SET seen = excluded.seen, joined = instance.joined OR excluded.joined
"""
_OTHERS = "SELECT 1 FROM @instance WHERE joined AND id <> $1 AND seen > :now - $2 LIMIT 1"
_LIVE = "SELECT name FROM @instance WHERE joined AND seen > :now - $1 ORDER BY name"
_EXPIRED = (
    "DELETE FROM @instance WHERE seen < :now - $1",
    "DELETE FROM @lease WHERE since < :now - $1 AND NOT EXISTS ("
    "SELECT 1 FROM @instance i WHERE i.id = instance)",
)

_CONTROL = "SELECT generation, document FROM @control"
_NEWER = "SELECT generation, document FROM @control WHERE generation > $1"
_PUT_CONTROL = "UPDATE @control SET generation = $1, document = $2"

# Each name by one look into the index: DISTINCT would read all rows.
_NAMES = """
WITH RECURSIVE found (name) AS (
  SELECT min(name) FROM @{0}
  UNION ALL
  SELECT (SELECT min(t.name) FROM @{0} t WHERE t.name > found.name) FROM found
  WHERE found.name IS NOT NULL)
SELECT name FROM found WHERE name IS NOT NULL
"""
_ENDED_TURNS = """
SELECT take, key FROM @turn WHERE name = $1 AND take < $2 ORDER BY take, key LIMIT $3
"""
_FORGET_TURNS = "DELETE FROM @turn WHERE name = $1 AND take = $2 AND key = ANY(ARRAY(SELECT decode(unnest($3::text[]), 'hex')))"
_ENDED_TOUCHED = """
SELECT number FROM @touched WHERE name = $1 AND take < $2 ORDER BY take LIMIT $3
"""
_FORGET_TOUCHED = (
    "DELETE FROM @touched WHERE name = $1 AND number = ANY($2::text[]::bigint[]) AND take < $3"
)


class Member:
    """One instance: last applied state, last contact with the store, and outstanding work."""

    def __init__(
        self,
        name: str,
        clock: Callable[[], float],
        *,
        lease_s: float,
        silent_s: float,
        touch_s: float,
    ) -> None:
        """`name` is for people. Others take over the leases of an instance that is silent for
        `lease_s`, and start a take of their own where all are silent for `silent_s`. An instance that
        hears nothing for `touch_s` is not ready.
        """
        self.id = secrets.token_hex(16)
        self.name = name
        self.clock = clock
        self.lease_s = lease_s
        self.silent_s = silent_s
        self.unreleased: deque[Lease] = deque()
        """Leases to give back as soon as the store can be written."""
        self.beats = False
        """Whether this instance sends heartbeats."""
        self.joined = False
        self.applied = 0
        self._touch_s = touch_s
        self._apply: Callable[[Control], None] = lambda _: None
        self._last_heard = -inf

    @property
    def in_touch(self) -> bool:
        """Whether this instance knows the state in force."""
        return self.joined and self.clock() - self._last_heard < self._touch_s

    def follow(self, joined: Control, apply: Callable[[Control], None], asked_at: float) -> None:
        """Apply every change after `joined`, which the store was asked for at `asked_at`."""
        self._apply, self.applied, self.joined = apply, joined.generation, True
        self._last_heard = asked_at

    def is_behind(self, control: Control | None) -> bool:
        """Whether this instance still has to apply what is in force, None where nothing is."""
        return self.joined and control is not None and control.generation > self.applied

    def apply(self, control: Control) -> None:
        """Apply a change, unless this or a later change was applied.

        Where applying fails, the instance stays behind: the next look tries it again.
        """
        if control.generation > self.applied:
            try:
                self._apply(control)
            except Exception as exc:
                log.error(
                    "a change of mode, cassette or take could not be applied: %s", describe(exc)
                )
                return
            self.applied = control.generation

    def heard(self, control: Control | None, asked_at: float) -> None:
        """Note the state in force at that time, unless this instance has yet to apply the state."""
        if not self.is_behind(control):
            self._last_heard = max(self._last_heard, asked_at)

    def left(self) -> None:
        """Note that the instance no longer knows the state in force."""
        self._last_heard = -inf


async def claim(name: str, key: bytes, fence: int, member: Member, session: Session) -> bool:
    """Claim a lease under a fresh fence; False while another instance holds it."""
    at = name, indexable(key)
    while not await session.run(_CLAIM, *at, fence, member.id):
        if not await session.rows(_LOCKED_LEASE, *at):
            continue
        if await session.row(_HELD, *at, member.lease_s) is not None:
            return False
        await session.run(_TAKE_OVER, *at, fence, member.id)
        return True
    return True


async def is_held(name: str, key: bytes, member: Member, session: Session) -> bool:
    """Whether a live instance holds the lease."""
    return (await session.row(_HELD, name, indexable(key), member.lease_s)) is not None


async def fences(name: str, member: Member, session: Session) -> frozenset[int]:
    """The fences of the leases that live instances hold for a cassette."""
    return frozenset([fence for (fence,) in (await session.rows(_FENCES, name, member.lease_s))])


async def give_back(lease: Lease, member: Member, session: Session) -> int:
    """End a lease of this instance; 0 if another instance took the lease over."""
    values = lease.name, indexable(lease.key), lease.fence, member.id
    return await session.run(_GIVE_BACK, *values)


async def give_back_owed(member: Member, session: Session) -> None:
    """Give back the leases in `unreleased`. Run this outside a transaction: a rollback would lose them."""
    while member.unreleased:
        await give_back(member.unreleased[0], member, session)
        member.unreleased.popleft()


async def beat(member: Member, session: Session) -> None:
    """Report an instance alive, with its applied state."""
    values = member.id, member.name, member.joined
    await session.run(_BEAT, *values)


async def leave(member: Member, session: Session) -> None:
    """Remove an instance and its leases."""
    await session.run("DELETE FROM @lease WHERE instance = $1", member.id)
    await session.run("DELETE FROM @instance WHERE id = $1", member.id)


async def forget_expired(after_s: float, session: Session) -> None:
    """Remove instances silent for `after_s`, with their leases.

    For stores that refuse a recording whose lease has no row.
    """
    for sql in _EXPIRED:
        await session.run(sql, after_s)


async def join(wanted: Control, member: Member, session: Session) -> tuple[str, bool]:
    """Join the instances; the state in force, or `wanted` if no other one is alive, as text.

    Also returns whether there are others.
    """
    generation, now = await _locked(session)
    others = await session.row(_OTHERS, member.id, member.silent_s) is not None
    if now is None or not others:
        number = 1 if now is None else now.takes + 1
        begun = replace(wanted, takes=number, since=number, cassette_takes={})
        now = replace(begun, generation=generation + 1)
        await _put(now, session)
    values = member.id, member.name, True
    await session.run(_BEAT, *values)
    return written(now), others


async def steer(change: Callable[[Control], Control], session: Session) -> str:
    """Change the state in force; what it is now, as text."""
    generation, now = await _locked(session)
    if now is None:
        raise StoreError("nothing is in force in this store yet: join it first", status=503)
    after = replace(change(now), generation=generation + 1)
    await _put(after, session)
    return written(after)


async def in_force(session: Session) -> Control | None:
    """The state in force, None as long as no instance joined."""
    columns = await session.row(_CONTROL)
    return None if columns is None else _read(*columns)


async def newer(generation: int, session: Session) -> Control | None:
    """The state in force, None where it is of this generation."""
    columns = await session.row(_NEWER, generation)
    return None if columns is None else _read(*columns)


async def live(member: Member, session: Session) -> list[str]:
    """The names of the live instances."""
    return [name for (name,) in await session.rows(_LIVE, member.silent_s)]


async def forget_ended(control: Control, session: Session) -> bool:
    """Remove a batch of the cursors of takes that had ended when this was in force; whether there may
    be more.
    """
    left = BATCH
    for (name,) in await session.rows(_NAMES.format("turn")):
        keys: dict[int, list[bytes]] = {}
        ended = await session.rows(_ENDED_TURNS, name, control.take_of(name), left)
        for take, key in ended:
            keys.setdefault(take, []).append(key)
        for take, of_take in keys.items():
            await session.run(_FORGET_TURNS, name, take, hexes(of_take))
        if not (left := left - len(ended)):
            return True
    for (name,) in await session.rows(_NAMES.format("touched")):
        before = control.take_of(name)
        ended = await session.rows(_ENDED_TOUCHED, name, before, left)
        gone = numbers([number for (number,) in ended])
        await session.run(_FORGET_TOUCHED, name, gone, before)
        if not (left := left - len(ended)):
            return True
    return False


def written(control: Control) -> str:
    """What is in force, as text."""
    return f"{control.generation} {encode_control(control).decode()}"


def read_back(text: str) -> Control:
    """The control of a text of `written`."""
    generation, _, document = text.partition(" ")
    return decode_control(document, int(generation))


async def _locked(session: Session) -> tuple[int, Control | None]:
    columns = await session.row(f"{_CONTROL} FOR UPDATE")
    if columns is None:
        raise CassetteCorrupt("the table 'control' is empty: restore its row")
    return int(columns[0]), _read(*columns)


def _read(generation: int, document: bytes | None) -> Control | None:
    if document is None:
        return None
    try:
        return decode_control(document, generation)
    except ValueError as exc:
        raise CassetteCorrupt(f"the table 'control' cannot be read: {exc}") from exc


async def _put(control: Control, session: Session) -> int:
    return await session.run(_PUT_CONTROL, control.generation, encode_control(control))


def encode_control(control: Control) -> bytes:
    """What is in force as a document; the generation has a column."""
    document: dict[str, Json] = {
        "mode": control.mode,
        "active": control.active,
        "takes": control.takes,
        "since": control.since,
        "modes": dict(control.modes),
        "cassette_takes": dict(control.cassette_takes),
        "slots": {
            name: {**asdict(slot), "faults": faults_document(slot.faults)}
            for name, slot in control.slots.items()
        },
        "slot_takes": {name: list(takes) for name, takes in control.slot_takes.items()},
        "faults": faults_document(control.faults),
        "faults_set": control.faults_set,
    }
    return dump(document)


def decode_control(text: bytes | str, generation: int) -> Control:
    """What is in force, of the document and the generation. Raises ValueError."""
    match parse(text):
        case {
            "mode": str(mode),
            "active": str(active),
            "takes": int(takes),
            "since": int(since),
            "modes": dict(modes),
            "cassette_takes": dict(cassette_takes),
            "slots": dict(slots),
            "slot_takes": dict(slot_takes),
            **more,
        }:
            faults_set = more.get("faults_set")
            return Control(
                _mode(mode),
                active,
                takes,
                since,
                {name: _mode(stored_mode) for name, stored_mode in modes.items()},
                {name: take for name, take in cassette_takes.items() if isinstance(take, int)},
                generation,
                {name: _slot(name, slot) for name, slot in slots.items()},
                {name: tuple(_numbers(takes)) for name, takes in slot_takes.items()},
                parse_faults(more.get("faults", [])),
                faults_set if isinstance(faults_set, int) else 0,
            )
        case _:
            raise ValueError("it is not what this tapeway writes")


def _slot(name: str, value: Json) -> Slot:
    match value:
        case {
            "cassette": str(cassette),
            "mode": mode,
            "take": int(take),
            "since": int(since),
            **more,
        }:
            command = more.get("record_command")
            return Slot(
                *(cassette, None if mode is None else _mode(mode), take, since),
                command if isinstance(command, str) else None,
                parse_faults(more.get("faults", [])),
            )
        case _:
            raise ValueError(f"slot {name!r} is not what this tapeway writes")


def _numbers(takes: Json) -> Iterator[int]:
    return (take for take in (takes if isinstance(takes, list) else ()) if isinstance(take, int))


def _mode(text: Json) -> Mode:
    for mode in MODE_POLICIES:
        if mode == text:
            return mode
    raise ValueError(f"there is no mode {text!r}: another tapeway set it")
