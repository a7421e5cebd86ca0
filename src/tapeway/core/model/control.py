"""The state in force: the mode of each cassette, the active one, and the takes; and the mode table.

A take is one run through a cassette: in it, each key's recordings are replayed in order. Instances
that share a store share one `Control`; each change makes a new one from the old one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Mode = Literal["replay", "record", "auto", "passthrough"]

Repeats = Literal["last", "miss", "cycle", "first"]
"""What a key gets when its recordings are used up in a take."""

Delivery = Literal["buffer", "stream"]
"""Whether the client gets a live response after it is recorded, or while it arrives."""

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


@dataclass(frozen=True, slots=True)
class Control:
    """The state in force for all instances of one store.

    The take of a cassette is the one in `cassette_takes`, or else `since`, the last one that began
    for all; `takes` counts all that ever began.
    """

    mode: Mode
    active: str
    takes: int = 0
    since: int = 0
    modes: Mapping[str, Mode] = field(default_factory=dict)
    cassette_takes: Mapping[str, int] = field(default_factory=dict)
    generation: int = 0

    def take_of(self, name: str) -> int:
        """The current take of a cassette."""
        return self.cassette_takes.get(name, self.since)

    def mode_of(self, name: str) -> Mode:
        """The mode a request to a cassette is served in."""
        return self.modes.get(name, self.mode)


def with_mode(now: Control, mode: Mode, cassette: str | None = None) -> Control:
    """The state with another mode, for one cassette or for all without a mode of their own.

    A different mode starts a take.
    """
    if cassette is not None:
        after = replace(now, modes={**now.modes, cassette: mode})
        return after if now.mode_of(cassette) == mode else with_take(after, cassette)
    after = replace(now, mode=mode)
    if now.mode == mode:
        return after
    number = now.takes + 1
    # Those with a mode of their own continue in their take.
    own_takes = {name: now.take_of(name) for name in now.modes}
    return replace(after, takes=number, since=number, cassette_takes=own_takes)


def with_active(now: Control, name: str, mode: Mode | None = None) -> Control:
    """The state with another active cassette in a new take, and with `mode` for all cassettes if
    given.
    """
    after = replace(now, active=name)
    if mode is not None:
        modes = {each: own for each, own in now.modes.items() if each != name}
        after = with_mode(replace(after, modes=modes), mode)
    return with_take(after, name, begun=after.takes - now.takes)


def with_take(now: Control, cassette: str | None = None, *, begun: int = 0) -> Control:
    """The state with a new take for one cassette or for all; `begun` is how many this change began
    already.
    """
    number = now.takes + 1 - begun
    if cassette is None:
        return replace(now, takes=number, since=number, cassette_takes={})
    return replace(now, takes=number, cassette_takes={**now.cassette_takes, cassette: number})
