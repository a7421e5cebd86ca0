"""The values that travel between client, cassette and upstream.

Header names and values are bytes, so that order, case, repeats and odd octets are kept as they
came. Bodies are whole; a response remembers where its chunks ended and when they came.

What processes that use one store know of each other: turns, leases, and what is in force.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tapeway.core.json_text import Json
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction


@dataclass(frozen=True, slots=True)
class CassetteHead:
    """What a cassette says about itself, apart from its interactions."""

    created_at: str
    run_id: str
    meta: Mapping[str, Json] = field(default_factory=dict)


LeakCheck = Callable[[AnyInteraction, Json, bytes], None]
"""Raises `core.guard.Sighted` when an interaction, its document, or the text that is written shows
a credential."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to ask the upstream for all who ask the same; a later owner has a higher fence."""

    name: str
    key: bytes
    fence: int


@dataclass(frozen=True, slots=True)
class CursorStep:
    """How a recording moves on where its key stands: `moved` makes the new state of the old one."""

    take: int
    key: bytes
    advance: Callable[[bytes | None], bytes]


@dataclass(frozen=True, slots=True)
class Recording:
    """One durable step: an interaction, and the indexes of the earlier ones it takes the place of."""

    interaction: AnyInteraction
    supersedes: tuple[int, ...] = ()
    check: LeakCheck | None = field(default=None, compare=False, repr=False)
    """Asked before the interaction is written; a store that does not is no store."""
    lease: Lease | None = None
    """In a shared store: it is written only while this still holds."""
    step: CursorStep | None = field(default=None, compare=False, repr=False)
    """In a shared store: taken together with it."""

    @property
    def exchange(self) -> Interaction:
        """The interaction, where it can be no other than one that HTTP carries."""
        if isinstance(self.interaction, ForeignInteraction):
            raise TypeError("an interaction of another kind has no request of HTTP")
        return self.interaction


@dataclass(frozen=True, slots=True)
class StoredCassette:
    """A cassette as a store holds it."""

    head: CassetteHead
    interactions: tuple[AnyInteraction, ...] = ()


@dataclass(frozen=True, slots=True)
class CassetteStat:
    """What a list of cassettes shows; `modified_at` is ISO 8601 in UTC.

    `mark` is another one after every change, also of a cassette that was removed and came back; it
    says nothing else.
    """

    size_bytes: int
    modified_at: str
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Outline:
    """A cassette without its recordings: to read it costs the same however many there are.

    `sources` are the route and base of its recordings, each pair once.
    """

    head: CassetteHead
    count: int
    sources: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class TakenRecording:
    """A recording and the take it was made in, 0 for one that was brought in."""

    item: AnyInteraction
    take: int = 0


@dataclass(frozen=True, slots=True)
class Titled:
    """A recording as a report names it."""

    index: int
    method: str
    target: str
