"""What stores take and return: cassettes, recordings, leases, and entries of lists."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tapeway.core.json_text import Json, ReadJson
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.values import value_class
from tapeway.errors import interaction_gone


@dataclass(frozen=True, slots=True)
class CassetteHead:
    """The metadata of a cassette: everything apart from its interactions."""

    created_at: str
    run_id: str
    meta: Mapping[str, Json] = field(default_factory=dict)


LeakCheck = Callable[[AnyInteraction, Json, bytes], None]
"""Raises `LeakFound` if an interaction, a document, or the written text shows a
credential."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to call the upstream on behalf of all who request the same.

    Each lease has a fence of its own. A store refuses writes under a lost lease by the fence.
    """

    name: str
    key: bytes
    fence: int


@dataclass(frozen=True, slots=True)
class CursorStep:
    """How a recording moves a key's cursor on: `advance` makes the new state of the old one."""

    take: int
    key: bytes
    advance: Callable[[bytes | None], bytes]


class ReadBodies(NamedTuple):
    """The parsed JSON bodies of an exchange, kept to avoid a second parse."""

    request: ReadJson | None = None
    """Read without loss; None where it has to be read."""
    response: Json = None
    """As orjson reads it; None where it has to be read."""


NOT_READ = ReadBodies()


@value_class
class Recording:
    """One durable step: an interaction, and the indexes of the interactions to replace."""

    interaction: AnyInteraction
    supersedes: tuple[int, ...] = ()
    check: LeakCheck | None = field(default=None, compare=False, repr=False)
    """Called by every store before the interaction is written."""
    lease: Lease | None = None
    """In a shared store: the interaction is written only while this lease is held."""
    step: CursorStep | None = field(default=None, compare=False, repr=False)
    """In a shared store: applied in the same transaction."""
    read: ReadBodies = field(default=NOT_READ, compare=False, repr=False)
    goes_on: AnyInteraction | None = field(default=None, compare=False, repr=False)
    """The superseded recording. A shared or remote store writes only while that is unchanged."""

    @property
    def is_repeat(self) -> bool:
        """Whether the service gave the answer of the superseded recording once more."""
        before, now = self.goes_on, self.interaction
        return (
            isinstance(before, Interaction)
            and isinstance(now, Interaction)
            and now.again > before.again
        )

    @property
    def exchange(self) -> Interaction:
        """The interaction, where only an HTTP exchange is possible. Raises TypeError."""
        if isinstance(self.interaction, ForeignInteraction):
            raise TypeError("an interaction of another kind has no HTTP request")
        return self.interaction


@dataclass(frozen=True, slots=True)
class StoredCassette:
    """A whole stored cassette. Interactions are in memory, or read on access."""

    head: CassetteHead
    interactions: Sequence[AnyInteraction] = ()
    keys: Mapping[int, bytes] = field(default_factory=dict, compare=False, repr=False)
    """By index, the match keys under the rules in `head` of those whose content is in a file."""


@dataclass(frozen=True, slots=True)
class CassetteStat:
    """What a list of cassettes shows; `modified_at` is ISO 8601 in UTC.

    `version` differs after every change, also after a cassette was removed and created again; it has
    no other meaning.
    """

    size_bytes: int
    modified_at: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class Outline:
    """A cassette without recordings: the number of recordings does not change the cost of reading.

    `sources` lists the distinct pairs of route and base.
    """

    head: CassetteHead
    count: int
    sources: frozenset[tuple[str, str]] = frozenset()


def sources_of(items: Sequence[AnyInteraction]) -> frozenset[tuple[str, str]]:
    """The route and base URL of each, every pair once."""
    return frozenset(
        [(item.request.route, item.request.base) for item in items if isinstance(item, Interaction)]
    )


@dataclass(frozen=True, slots=True)
class TakenRecording:
    """A recording, its take (0 for an imported recording), and its place.

    In a shared store, places give the order of recordings, and so of repeats. A recording that
    replaced several has the place of the first.
    """

    item: AnyInteraction
    take: int = 0
    place: int = 0


CREDENTIALS, CONDITIONS = 1, 2
"""Marks of a recording: the request may hold credentials; it answers only some equal requests."""


class LogRow(NamedTuple):
    """A change of one recording in a shared store."""

    revision: int
    number: int
    place: int
    take: int
    key: bytes | None
    """The match key with the route; None where only the recording itself tells."""
    marks: int
    live: bool
    """False where the recording was removed, now or by a later row."""


class LogPage(NamedTuple):
    """Rows after a revision, in order and without a gap."""

    token: str
    """Names the log. A log with another token is another one: an index begins again with its first row."""
    revision: int
    """The last revision of the cassette."""
    rows: Sequence[LogRow]

    @property
    def seen(self) -> int:
        """The revision that a reader of these rows has seen."""
        return self.rows[-1].revision if self.rows else self.revision


@dataclass(frozen=True, slots=True)
class RecordingTitle:
    """A recording as a report names it."""

    index: int
    method: str
    target: str


def items_after(
    name: str, items: Sequence[AnyInteraction], after: int | None
) -> Sequence[AnyInteraction]:
    """The interactions of a loaded cassette after an index, or all. Raises CassetteEdited."""
    if after is None:
        return items
    for position, item in enumerate(items):
        if item.index == after:
            return items[position + 1 :]
    raise interaction_gone(name, after)
