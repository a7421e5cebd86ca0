"""The state in force: modes of cassettes, the active cassette, takes; and the mode table.

A take is one run through a cassette and replays the recordings of each key in order. Instances with
a shared store share a `Control`; each change makes a new `Control`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from tapeway.core.model.faults import Fault

Mode = Literal["replay", "record", "auto", "passthrough"]

Repeats = Literal["last", "miss", "cycle", "first"]
"""What answers a key whose recordings are used up in a take."""

Delivery = Literal["buffer", "stream"]
"""Whether the client gets a live response once recorded, or while the response arrives."""

Outcome = Literal["replayed", "recorded", "live", "miss", "error"]
"""How a request ended; `live` was answered by the upstream and not recorded."""


@dataclass(frozen=True, slots=True)
class ModePolicy:
    """One row of the table.

    `replays`: a recording answers. `asks`: the upstream may be contacted. `records`: its response
    is stored. `replaces`: the first recording of a key in a take replaces those of earlier takes.
    """

    replays: bool
    asks: bool
    records: bool
    replaces: bool = False

    @property
    def uses_recordings(self) -> bool:
        """Whether a cassette is read or written at all."""
        return self.replays or self.records


MODE_POLICIES: dict[Mode, ModePolicy] = {
    "replay": ModePolicy(replays=True, asks=False, records=False),
    "record": ModePolicy(replays=False, asks=True, records=True, replaces=True),
    "auto": ModePolicy(replays=True, asks=True, records=True),
    "passthrough": ModePolicy(replays=False, asks=True, records=False),
}


@dataclass(frozen=True, slots=True)
class CursorState:
    """The cursor of a key in a take: which recording is next; `version` changes with every step."""

    state: bytes
    version: int


STAYED = CursorState(b"", 0)


class SeenCassette(NamedTuple):
    """How much of a cassette's log a decision knew, and the match keys that it depended on.

    Without keys it depended on all recordings.
    """

    token: str
    revision: int
    keys: tuple[bytes, ...] = ()


@dataclass(slots=True, eq=False)
class CursorMove:
    """A step of a cursor in a shared store, from the state `before` to `state`.

    `before` may be an earlier step, whose result is then the start; None for a cursor that has not
    moved yet. `touched` is the recording that the step uses, None if already used. With what was
    `seen`, the step is made only while no later row of the log has one of its keys. With the
    `generation` of a `Control`, the step is made only while that is in force. If `state` is None, the
    cursor stays, only what was seen is compared, and nothing is written.
    """

    name: str
    take: int
    key: bytes
    before: "CursorState | CursorMove | None"
    state: bytes | None
    touched: int | None = None
    seen: SeenCassette | None = None
    generation: int | None = None
    revision: int = 0
    """The last revision of the cassette when the step was tried; 0 where that is not known."""
    after: CursorState | None = None
    """Where the cursor is once the store made the step; None where it did not.

    For one that stays it is `STAYED`.
    """


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a slot points: a cassette, and a take that belongs to the slot.

    `mode` is the mode of the slot's requests, None for the cassette's mode. `since` is the take
    begun when the slot was pointed here; a rewind begins a later take. `record_command` records
    what is missed through the slot. `faults` are laid over what is replayed through it.
    """

    cassette: str
    mode: Mode | None
    take: int
    since: int
    record_command: str | None = None
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class Control:
    """The state in force for all instances of one store.

    The take of a cassette is in `cassette_takes`, or else `since`, the last take begun for all
    cassettes; `takes` counts every take. `slot_takes` lists the takes of slots in a cassette since
    the cassette's take began.
    """

    mode: Mode
    active: str
    takes: int = 0
    since: int = 0
    modes: Mapping[str, Mode] = field(default_factory=dict)
    cassette_takes: Mapping[str, int] = field(default_factory=dict)
    generation: int = 0
    slots: Mapping[str, Slot] = field(default_factory=dict)
    slot_takes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    faults_set: int = 0

    def take_of(self, name: str) -> int:
        """The current take of a cassette."""
        return self.cassette_takes.get(name, self.since)

    def takes_of(self, name: str) -> tuple[int, ...]:
        """The current take of a cassette, and the later takes of its slots."""
        return (self.take_of(name), *self.slot_takes.get(name, ()))

    @property
    def names(self) -> frozenset[str]:
        """The cassettes with separate takes, or with takes of slots."""
        return frozenset([*self.cassette_takes, *self.slot_takes])

    def mode_of(self, name: str) -> Mode:
        """The mode a request to a cassette is served in."""
        return self.modes.get(name, self.mode)

    @property
    def records(self) -> bool:
        """Whether any request would be recorded now."""
        slots = [slot.mode for slot in self.slots.values() if slot.mode is not None]
        modes = {self.mode, *self.modes.values(), *slots}
        return any(MODE_POLICIES[mode].records for mode in modes)


def with_mode(now: Control, mode: Mode, cassette: str | None = None) -> Control:
    """The state after a change of mode, for one cassette or for all without a mode set for them.

    A different mode starts a take. A cassette whose mode stays continues its take.
    """
    if cassette is not None:
        after = replace(now, modes={**now.modes, cassette: mode})
        if now.mode_of(cassette) == mode:
            return after
        after = _begin(after, now.takes + 1, cassette)
        return _restart_slots(after, {cassette})
    after = replace(now, mode=mode)
    if now.mode == mode:
        return after
    number = now.takes + 1
    own_takes = {name: now.take_of(name) for name in now.modes}
    kept = {name: takes for name, takes in now.slot_takes.items() if name in now.modes}
    after = replace(after, takes=number, since=number, cassette_takes=own_takes, slot_takes=kept)
    return _restart_slots(after, {slot.cassette for slot in now.slots.values()} - {*now.modes})


def without_modes(now: Control, cassettes: Collection[str]) -> Control:
    """The state in which some cassettes follow the mode for all again.

    For whom this is a different mode, a take starts.
    """
    modes = {name: own for name, own in now.modes.items() if name not in cassettes}
    after = replace(now, modes=modes)
    for name in cassettes:
        if now.mode_of(name) != now.mode:
            after = with_take(after, name)
    return after


def with_active(now: Control, name: str, mode: Mode | None = None) -> Control:
    """The state with another active cassette in a new take, and with `mode` for all cassettes if
    given.
    """
    after = replace(now, active=name)
    if mode is not None:
        modes = {cassette: own for cassette, own in now.modes.items() if cassette != name}
        after = with_mode(replace(after, modes=modes), mode)
    if after.since != now.since:
        # The other mode began a take already.
        return replace(after, cassette_takes={**after.cassette_takes, name: after.since})
    return with_take(after, name)


def with_take(now: Control, cassette: str | None = None) -> Control:
    """The state with a new take for one cassette or for all, and for slots that point there."""
    number = now.takes + 1
    if cassette is None:
        after = replace(now, takes=number, since=number, cassette_takes={}, slot_takes={})
        return _restart_slots(after, {slot.cassette for slot in now.slots.values()})
    after = _begin(now, number, cassette)
    return _restart_slots(after, {cassette})


def without_takes(now: Control, ended: Collection[str]) -> Control:
    """The state without the takes of some cassettes. Cassettes of a slot keep the take.

    Used if a take ends with the unloading of the cassette, or if the cassette is empty.
    """
    ended_names = {*ended} - {slot.cassette for slot in now.slots.values()}
    if not ended_names:
        return now
    return replace(
        now,
        cassette_takes={
            name: n for name, n in now.cassette_takes.items() if name not in ended_names
        },
        slot_takes={
            name: takes for name, takes in now.slot_takes.items() if name not in ended_names
        },
    )


def with_slot(
    now: Control,
    name: str,
    cassette: str,
    mode: Mode | None = None,
    since: int | None = None,
    record_command: str | None = None,
    faults: tuple[Fault, ...] = (),
) -> Control:
    """The state with a slot that points at a cassette, in a new take. The rest as in `Slot`."""
    number = now.takes + 1
    takes = (*now.slot_takes.get(cassette, ()), number)
    return replace(
        now,
        takes=number,
        slots={
            **now.slots,
            name: Slot(cassette, mode, number, since or number, record_command, faults),
        },
        slot_takes={**now.slot_takes, cassette: takes},
    )


def without_slot(now: Control, name: str) -> Control:
    """The state without a slot; what its takes used stays used."""
    return replace(now, slots={other: slot for other, slot in now.slots.items() if other != name})


def with_faults(now: Control, faults: tuple[Fault, ...]) -> Control:
    """The state with these faults in place of all before, counted from the beginning."""
    return replace(now, faults=faults, faults_set=now.faults_set + 1)


def _begin(now: Control, number: int, cassette: str) -> Control:
    slot_takes = {name: takes for name, takes in now.slot_takes.items() if name != cassette}
    return replace(
        now,
        takes=number,
        cassette_takes={**now.cassette_takes, cassette: number},
        slot_takes=slot_takes,
    )


def _restart_slots(now: Control, cassettes: Collection[str]) -> Control:
    """Begin the takes of slots anew after the take of the cassette, so that they are newer."""
    for name, slot in now.slots.items():
        if slot.cassette in cassettes:
            kept = slot.mode, slot.since, slot.record_command, slot.faults
            now = with_slot(now, name, slot.cassette, *kept)
    return now
