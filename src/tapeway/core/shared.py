"""What processes that use one store know of each other: turns, leases, and what is in force."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tapeway.core.model import CassetteHead, ForeignInteraction, Interaction
from tapeway.core.modes import Mode

Held = Interaction | ForeignInteraction


@dataclass(frozen=True, slots=True)
class Outline:
    """A cassette without its recordings: to read it costs the same however many there are.

    `sources` are the route and base of its recordings, each pair once.
    """

    head: CassetteHead
    count: int
    sources: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """A recording and the take it was made in, 0 for one that was brought in."""

    item: Held
    take: int = 0


@dataclass(frozen=True, slots=True)
class Titled:
    """A recording as a report names it."""

    index: int
    method: str
    target: str


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a key stands in a take; `version` changes with every advance."""

    state: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Control:
    """What is in force for all instances of one store.

    A cassette is in the take that `cassette_takes` names, or else in the one that `since` names,
    the last that began for all; `takes` counts all that ever began.
    """

    mode: Mode
    active: str
    takes: int = 0
    since: int = 0
    modes: Mapping[str, Mode] = field(default_factory=dict)
    cassette_takes: Mapping[str, int] = field(default_factory=dict)
    generation: int = 0

    def take_of(self, name: str) -> int:
        """The take a cassette is in."""
        return self.cassette_takes.get(name, self.since)

    def mode_of(self, name: str) -> Mode:
        """The mode a request to a cassette is served in."""
        return self.modes.get(name, self.mode)
