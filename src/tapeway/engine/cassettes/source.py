"""Sources give the engine views of cassettes, and take note of what the engine did.

A view is a cassette as a request needs it. `Loaded` gives views of the cassettes of this process.
`Followed` keeps an index of each cassette that other processes use too, and follows the store's log.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tapeway.core.cassette.branches import BASE_FIELD, Layer
from tapeway.core.cassette.cursors import Take
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Incoming, LiveCall, Replay
from tapeway.core.correlation.index import CorrelationIndex
from tapeway.core.matching.rules import RuleChange, Rules
from tapeway.core.misses.miss import Miss, SearchedCassette
from tapeway.core.misses.neighbours import SoughtRequest
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import Control, CursorState, Mode
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import Request
from tapeway.engine.cassettes.context import CassetteContext, CassetteCounts, KeyedLocks, T
from tapeway.engine.correlation import CorrelationMatches
from tapeway.engine.journal import EmptyNames
from tapeway.errors import DocumentAway, StoreAway, StoreError
from tapeway.ports import CassetteStore

if TYPE_CHECKING:
    from tapeway.engine.report.summary import ReportedRecordings

MOST_TRIES = 1000
"""The number of times a request is decided on anew because another instance was quicker."""


@dataclass(slots=True)
class Search:
    """What is looked for: the request, and the values by which a source finds recordings."""

    name: str
    incoming: Incoming
    mode: Mode
    take: int = 0
    """The take of the request; of a cassette in memory the take in force."""
    keys: Sequence[bytes] = ()
    """The match keys that the request may have; none where the whole cassette is in memory."""
    cassette: CassetteIndex | None = None
    """The cassette by whose rules the keys were made."""
    used: set[bytes] = field(default_factory=set)
    """The keys of recordings that were tried to be used."""
    refused: int = 0
    """How often the store has refused a step."""
    when_decided: list[Callable[[], None]] = field(default_factory=list)
    """Called after the decision: each lets go of a recording that the decision kept in memory."""

    def decided(self) -> None:
        """Let go of what only the decision needed."""
        for let_go in self.when_decided:
            let_go()
        self.when_decided.clear()


@dataclass(slots=True)
class View:
    """A cassette as a request needs it: the index in memory, live."""

    cassette: CassetteIndex
    search: Search
    identifiers: CorrelationIndex | None = None
    """The identifiers in what the request may mean, where a store has looked them up."""
    bindings: Mapping[bytes, CursorState] | None = None
    """How other instances have renamed identifiers, where the bindings were read."""
    generation: int = 0
    """The cassette's own generation when the view was made."""


@dataclass(slots=True)
class OutOfUse:
    """A cassette that nobody uses at the moment."""

    name: str
    cassette: CassetteIndex | None = None
    """The index that is in use again afterwards. None where the next request loads the cassette."""


class Source(ABC):
    """Where views come from: `Loaded` for stores of one process, `Followed` for shared stores.

    The default of a method suits a cassette that is whole in memory.
    """

    shared = False
    """Whether several processes use the store at once."""

    def __init__(self, store: CassetteStore, control: Control, context: CassetteContext) -> None:
        self.control = control
        """What is in force."""
        self.loaded: dict[str, CassetteIndex] = {}
        """Cassettes that are whole in memory, by name; none of a shared store."""
        self.store = store
        self._context = context
        self._begun: set[str] = set()
        """Cassettes that were empty when this process first asked."""
        self._empty = EmptyNames()
        self._replacing = KeyedLocks()
        """Held while a new answer is compared with those of earlier takes."""

    @abstractmethod
    async def open(self) -> None:
        """Open the store."""

    @abstractmethod
    async def close(self, within_s: float = math.inf) -> None:
        """Save everything that is not stored yet, within so many seconds, and close the store."""

    async def keep_fresh(self) -> None:
        """Unload cassettes that somebody else has changed, until cancelled."""
        return

    async def unload_edited(self, name: str) -> bool:
        """Unload a changed cassette; False if the cassette cannot be unloaded."""
        return False

    @abstractmethod
    async def prepare(self, name: str, mode: Mode | None = None) -> None:
        """Load a cassette for this mode, by default the mode in force. Raises StoreError."""

    # Deciding.

    @abstractmethod
    async def begin(self, name: str, incoming: Incoming, mode: Mode) -> Search:
        """A search for a request, with the digests of a large body. Raises StoreError."""

    def turn(self, search: Search) -> AbstractAsyncContextManager[object]:
        """Held while a request is decided on, where requests for the same would compete."""
        return nullcontext()

    @abstractmethod
    async def view(self, search: Search) -> View:
        """The recordings with the match keys of the request, as they are now. Raises StoreError."""

    async def has_news(self, view: View, plan: LiveCall | Miss) -> bool:
        """Whether other processes have changed what a plan without a replay rests on. Raises StoreError."""
        return False

    async def bring(self, view: View, away: DocumentAway) -> None:
        """Read a recording that a decision looks at. Raises StoreError."""
        raise away

    async def reading(self, cassette: CassetteIndex, work: Callable[[], T]) -> T:
        """The result of work that looks at recordings, repeated once a missing document was read."""
        return work()

    async def in_memory(
        self, cassette: CassetteIndex, item: Interaction | None
    ) -> Interaction | None:
        """A recording with its document in memory. Raises StoreError."""
        return item

    def whole(self, replay: Replay) -> Replay:
        """The replay with its recording in memory."""
        return replay

    def holds(self, view: View) -> bool:
        """Whether a view still shows the cassette in use."""
        return True

    async def use(self, view: View, replay: Replay) -> bool:
        """Count a recording as used; False where another instance was quicker: decide again.

        In memory the recording counted as used when it was chosen.
        """
        return True

    @abstractmethod
    async def count_fault(self, name: str, take: int | None, key: bytes, times: int) -> bool:
        """Count a fault in a take, False where it has happened so many `times`. Raises StoreError."""

    async def near(self, view: View, asked: Request) -> View:
        """The view with the newest recordings of the path of a request."""
        return view

    async def alike(self, view: View, asked: Request, *, asks: bool) -> View:
        """The view with the recordings that may differ from a request in identifiers alone.

        Where the request `asks` the upstream, also with the answers that may have issued
        identifiers of the request.
        """
        return view

    @abstractmethod
    async def neighbours(
        self, name: str, searched: SearchedCassette, asked: SoughtRequest
    ) -> Sequence[AnyInteraction]:
        """A few recordings that may be nearest to a missed request. Raises StoreError."""

    async def matched(self, view: View, seen: CorrelationMatches) -> View:
        """The view with the cursors and the bindings of the recordings that were seen."""
        return view

    def has_begun(self, name: str) -> bool:
        """Whether a cassette was empty when this process first asked."""
        return name in self._begun

    @abstractmethod
    async def begin_with(self, view: View, preset: Rules) -> None:
        """Give a new cassette the preset of the client."""

    # Calling.

    @abstractmethod
    def asking(
        self, live_call: LiveCall, again: "DecideAgain"
    ) -> AbstractAsyncContextManager[LiveCall | Replay] | None:
        """Hold the right to ask for this and to record the answer; None where it is held already.

        Yields the call to make, or the replay of another instance's new recording. Raises StoreError
        where the answer could not be recorded: the upstream is not asked for nothing.
        """

    @abstractmethod
    async def reserve(self, live_call: LiveCall) -> int:
        """An index that nobody else uses, for a further recording of a call. Raises StoreError."""

    def appended(self, live_call: LiveCall, cassette: CassetteIndex, index: int) -> None:
        """Note that a recording of a call is durable, before the index has it."""
        return

    async def let_go(self, live_call: LiveCall) -> None:
        """Let equal requests make further calls during this call."""
        return

    @abstractmethod
    async def note_write(self, live_call: LiveCall) -> None:
        """Count a write that succeeded, for all instances. Raises StoreError."""

    def replaces(self, live_call: LiveCall, interaction: Interaction) -> bool:
        """Whether a new answer may replace anything; True where only a look at the store tells."""
        return True

    @abstractmethod
    def replacing(
        self, live_call: LiveCall, interaction: Interaction
    ) -> AbstractAsyncContextManager["Latest | None"]:
        """Held from comparing a new answer with earlier answers until the new answer is durable.

        None where nothing is compared.
        """

    @abstractmethod
    def going_on(self, live_call: LiveCall, index: int) -> AbstractAsyncContextManager[None]:
        """Held while more of an answer takes the place of its recording, `index`.

        Raises RecordingEdited if a later take has replaced or kept the recording. A shared store
        checks the recording itself.
        """

    async def load_bindings(self, view: View, keys: Sequence[bytes]) -> Mapping[bytes, CursorState]:
        """Load into the take how other instances have renamed identifiers, from some cursors."""
        return {}

    @abstractmethod
    async def bind(self, view: View, take: Take, key: bytes, id_map: Mapping[str, str]) -> None:
        """Have identifiers of a new answer stand for earlier ones, on every instance."""

    @abstractmethod
    async def compared(self, view: View, key: bytes, *, more: bool = False) -> None:
        """Note that recordings were compared with new answers today.

        With `more`, the take has kept a recording of this key, and recordings of earlier takes are
        left.
        """

    # Steering and settling.

    async def confirm(self) -> None:
        """Apply what other instances have put in force. Raises StoreAway."""
        return

    @abstractmethod
    async def steer(self, change: Callable[[Control], Control]) -> None:
        """Change what is in force, for all instances."""

    @abstractmethod
    async def change_rules(self, name: str, change: RuleChange) -> Rules:
        """Change the rules of a cassette, for all instances; returns all that are in force."""

    @abstractmethod
    def out_of_use(self, name: str) -> AbstractAsyncContextManager[OutOfUse]:
        """Wait for the recordings in flight; inside the block nobody uses the cassette.

        Recordings are dropped that the take should have recorded anew. Raises AdminError (409)
        where the cassette is in use nowhere, StoreError.
        """

    @abstractmethod
    async def settle(self, out: OutOfUse, *, prune: bool) -> None:
        """Write a cassette's final form, with `prune` without unused recordings. Raises StoreError."""

    async def end_take(self, name: str) -> None:
        """Begin a new take of an ejected cassette."""
        return

    @abstractmethod
    async def recordings(self, name: str, cassette: CassetteIndex | None) -> "ReportedRecordings":
        """The recordings for a report; those in memory are in this cassette. Raises StoreError."""

    @abstractmethod
    async def counts(self) -> Sequence[CassetteCounts]:
        """How many recordings each cassette in use has, and how many of them are unused."""

    async def read(self, name: str, *, as_stored: bool = False) -> StoredCassette | None:
        """What a cassette holds, without loading it; `as_stored` in the store's own order."""
        return await self.store.load(name, writable=False)

    async def interaction(self, name: str, index: int) -> AnyInteraction | None:
        """One interaction, without loading its cassette."""
        found = await self.store.documents(name, [index])
        return found[0].item if found else None

    async def layers(self, name: str, head: CassetteHead) -> Sequence[Layer]:
        """The recordings of the bases of a cassette, as they are now.

        Raises CassetteCorrupt where a base is missing, stands on itself or cannot be read.
        """
        if BASE_FIELD not in head.meta:
            return ()
        # Imported here: most cassettes have no base.
        from tapeway.paging import layers_of

        return await layers_of(name, head, self._stored)

    async def _stored(self, name: str) -> StoredCassette | None:
        """What a cassette holds. Without its lock: who holds it may wait for the cassette above."""
        loaded = self.loaded.get(name)
        if loaded is not None:
            return loaded.stored()
        return await self.store.load(name, writable=False)

    # What this process notes of cassettes.

    def _apply(self, control: Control) -> None:
        """Have this be in force."""
        self.control = control
        self._context.calls.streams.end_takes(control)

    async def _note_empty(self, name: str) -> None:
        """Note a cassette without recordings, and forget those asked for long ago."""
        for empty in self._empty.add(name):
            await self._forget_empty(empty)

    @abstractmethod
    async def _forget_empty(self, name: str) -> None:
        """Forget what was asked for long ago, unless it holds something or is awaited."""

    def _is_awaited(self, name: str) -> bool:
        return name == self.control.active or name in self._context.calls

    def _forget(self, name: str) -> None:
        """Forget what was noted of a cassette that is not in use any more."""
        self._context.tallies.pop(name, None)
        self._context.calls.streams.forget(name)
        self._begun.discard(name)


DecideAgain = Callable[[LiveCall, Collection[int] | None], Awaitable[LiveCall | Replay]]
"""Decides a request anew; recordings beyond the `known` ones answer the request, final or not."""

Latest = Callable[[], Awaitable[View]]
"""Gives what is there now of a request."""


def too_many(name: str) -> StoreError:
    """The error of a request that was always too late."""
    return StoreAway(f"too many ask cassette '{name}' for the same at once: ask again")


def incoming_of(live_call: LiveCall) -> Incoming:
    """The request that a live call was decided for."""
    if live_call.incoming is None:
        raise ValueError("a live call of a request has the request")
    return live_call.incoming
