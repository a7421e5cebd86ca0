"""Sources give the engine views of cassettes, and take note of what the engine did.

A view is a cassette as a request needs it. `Loaded` gives views of cassettes that are whole in the
memory of this process. `LookedUp` asks a store of many processes for the recordings under the keys of
the request.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from tapeway.core.cassette.cursors import Take
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Ask, Incoming, Replay
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.miss import Miss
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.control import Control, CursorMove, CursorState, Mode
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import Request
from tapeway.engine.correlation import CorrelationMatches
from tapeway.errors import StoreAway, StoreError

MOST_TRIES = 1000
"""So often a request is decided on anew because another instance was quicker."""

NO_TURNS: Mapping[bytes, CursorState] = {}


@dataclass(frozen=True, slots=True)
class CassetteInfo:
    """Facts about a cassette without its recordings; valid until the next steering."""

    head: CassetteHead
    rules: Rules
    routes: set[str]
    has_unrouted: bool
    stored_already: bool
    origins: tuple[str, ...] = ()
    """Origins of the recordings that name no route."""
    unsure: set[str] = field(default_factory=set)
    """Base URLs of such recordings whose routes depend on their paths, and are not known yet."""


@dataclass(slots=True)
class Search:
    """What is looked for: the request, and what a source needs to find its recordings."""

    name: str
    incoming: Incoming
    mode: Mode
    take: int = 0
    """The take of the request; where the whole cassette is in memory it is the one in force."""
    keys: Sequence[bytes] = ()
    """The match keys that the request may have; none where the whole cassette is in memory."""
    info: CassetteInfo | None = None


@dataclass(slots=True)
class View:
    """A cassette as a request needs it.

    Of a cassette in memory the view is the whole cassette, live. Of a shared store the view is a small
    cassette of what was found under some keys, with the cursors of these.
    """

    cassette: CassetteIndex
    search: Search
    turns: Mapping[bytes, CursorState] = field(default_factory=dict)
    mark: str | None = None
    """The mark of the whole cassette, from before its recordings were read."""
    remembered: dict[bytes, CursorState | CursorMove | None] | None = None
    """The cursors that this instance remembers, where nothing was read."""
    bindings: Mapping[bytes, CursorState] | None = None
    """How other instances have renamed identifiers, where these were read."""
    generation: int = 0
    """The cassette's own generation when the view was made."""

    @property
    def is_empty(self) -> bool:
        """Whether the cassette holds nothing at all."""
        info = self.search.info
        return not len(self.cassette) if info is None else not info.stored_already

    @property
    def may_be_ended(self) -> bool:
        """Whether a write may have ended a recording since, which does not change the mark."""
        cassette, take = self.cassette, self.cassette.take
        return bool(take.writes) or any(
            cassette.take_of(each.index) == take.number for each in cassette
        )


class Source(Protocol):
    """Where views come from: `Loaded` for stores of one process, `LookedUp` for shared ones."""

    control: Control
    """What is in force."""
    shared: bool
    """Whether other processes use the store at the same time."""

    @property
    def loaded(self) -> Mapping[str, CassetteIndex]:
        """Cassettes that are whole in memory, by name."""

    # Deciding.

    async def begin(self, name: str, incoming: Incoming, mode: Mode) -> Search:
        """A search for a request, whose large body is read for it. Raises StoreError."""

    def turn(self, search: Search) -> AbstractAsyncContextManager[object]:
        """Held while a request is decided on, where requests for the same would compete."""

    def at_hand(self, search: Search) -> View | None:
        """What is remembered of an earlier look at the store, None where there is nothing."""

    async def view(self, search: Search) -> View:
        """The recordings with the match keys of the request, as they are now. Raises StoreError."""

    async def wider(self, view: View) -> View:
        """All that may answer the request; the same view where there is no more."""

    def holds(self, view: View) -> bool:
        """Whether a view still shows the cassette in use."""

    async def use(self, view: View, replay: Replay) -> bool:
        """Count a recording as used; False where another instance was quicker: decide again."""

    async def near(self, view: View, asked: Request) -> View:
        """The view with the newest recordings of the path of a request."""

    async def alike(self, view: View, asked: Request, *, asks: bool) -> View:
        """The view with the recordings that may differ from a request in identifiers alone.

        Where the request `asks` the upstream, also with the answers that may have issued its identifiers.
        """

    async def neighbours(self, miss: Miss) -> Sequence[AnyInteraction]:
        """A few recordings that may be nearest to a missed request. Raises StoreError."""

    async def under(self, view: View, keys: Sequence[bytes]) -> View:
        """The recordings with these match keys, as they are now."""

    async def matched(self, view: View, seen: CorrelationMatches) -> View:
        """The view with the cursors of the recordings that were seen, and what is bound to them."""

    def has_begun(self, name: str) -> bool:
        """Whether a cassette held nothing when this process first asked for it."""

    async def begin_with(self, view: View, preset: Rules) -> None:
        """Give a cassette that begins the preset of its client."""

    # Calling.

    def asking(
        self, ask: Ask, again: "DecideAgain"
    ) -> AbstractAsyncContextManager[Ask | Replay] | None:
        """Hold the right to ask for this and to record the answer; None where it is held already.

        Yields what to ask, or the replay of what another instance has recorded meanwhile. Where the
        answer could not be recorded, the upstream is not asked, and charges nothing. Raises
        StoreError.
        """

    async def reserve(self, ask: Ask) -> int:
        """An index for a further recording of a call. Raises StoreError."""

    async def let_go(self, ask: Ask) -> None:
        """Let equal requests make their own calls while this call goes on."""

    async def note_write(self, ask: Ask) -> None:
        """Count a write that succeeded, for all instances. Raises StoreError."""

    def replaces(self, ask: Ask, interaction: Interaction) -> bool:
        """Whether a new answer may replace anything."""

    def replacing(
        self, ask: Ask, interaction: Interaction
    ) -> AbstractAsyncContextManager["Latest | None"]:
        """Held from comparing a new answer with earlier ones until it is durable.

        None where nothing is compared.
        """

    async def reissued(self, view: View, asked: Request) -> None:
        """Load into the take which identifiers of earlier takes those of a request stand for."""

    async def load_bindings(self, view: View, seen: CorrelationMatches) -> None:
        """Load into the take how the matched identifiers were renamed."""

    async def bind(self, view: View, take: Take, key: bytes, id_map: Mapping[str, str]) -> None:
        """Have identifiers of a new answer stand for earlier ones, on every instance."""

    async def compared(self, view: View, key: bytes, *, more: bool = False) -> None:
        """Note that recordings were compared with new answers today.

        `more` says that the take has kept a recording of this key, while others of earlier takes are
        left.
        """


DecideAgain = Callable[[Ask, Collection[int] | None], Awaitable[Ask | Replay]]
"""Decides a request anew; recordings made beyond those known answer it, final or not."""

Latest = Callable[[], Awaitable[View]]
"""Gives what is there now of a request."""


def too_many(name: str) -> StoreError:
    """The error of a request that was always too late."""
    return StoreAway(f"too many ask cassette '{name}' for the same at once: ask again")


def incoming_of(ask: Ask) -> Incoming:
    """The request that an ask was decided for."""
    if ask.incoming is None:
        raise ValueError("an ask says what came")
    return ask.incoming
