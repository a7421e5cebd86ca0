"""What the engine needs from outside: a store for cassettes, and the service behind a route.

Every store implements `CassetteStore`; a store that several processes use at once also implements
`SharedStore`. A value, `facts`, tells callers about a store. `stores/whole.py` completes a store
for whole cassettes; `stores/memory.py` is the smallest store, and the place to start when writing
another.
"""

import math
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from tapeway.core.cassette.plan import Answer, LiveCall
from tapeway.core.json_text import Json
from tapeway.core.misses.neighbours import SoughtRequest
from tapeway.core.model.cassette import (
    CassetteHead,
    CassetteStat,
    Lease,
    LogPage,
    Outline,
    Recording,
    RecordingTitle,
    StoredCassette,
    TakenRecording,
)
from tapeway.core.model.condition import ANY, Condition, Unchanged
from tapeway.core.model.control import Control, CursorMove, CursorState
from tapeway.core.model.interaction import AnyInteraction
from tapeway.core.model.messages import BodyFile, Request, Response, ResponseHead
from tapeway.core.streams.end_marks import EndDetector
from tapeway.core.websocket.messages import Close, WebSocketMessage
from tapeway.errors import StoreError, TapewayError

PORT_VERSION = 1
"""The version of `CassetteStore` and `SharedStore`.

It counts up when a store of an earlier version would no longer do: a member was added, or removed, or
has to do something else. A package that adds a store states the version that it was written for as a
number of its own, and tapeway refuses another.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFacts:
    """The facts about a store from its making on."""

    durability: str
    """What survives once `append` has returned: `process`, `disk`, …

    Some stores learn the value when opened.
    """
    paged: bool = False
    """Whether outlines and pages are read by themselves. A cassette need not fit into memory."""
    may_go_away: bool = False
    """Whether to check before each recording, and not only after a failed recording."""
    folder: Path | None = None
    """The folder in which each cassette is a file."""
    file: Path | None = None
    """The file in which all cassettes are."""


class CassetteStore(Protocol):
    """Where cassettes live. Used between `open` and `close`, by one process, on one event loop.

    Every method may raise `StoreError` or one of its children, naming the place and the cause.
    """

    @property
    def url(self) -> str:
        """The address as shown to people, without a password."""

    @property
    def facts(self) -> StoreFacts: ...

    @property
    def shared(self) -> "SharedStore | None":
        """The store itself if several processes may use it at once, None otherwise."""

    async def open(self) -> None:
        """Make the store ready. Raises StoreError, ConfigError for a place that cannot be used."""

    async def close(self, within_s: float = math.inf) -> None:
        """Write every cassette's final form and release all locks. A second call does nothing.

        A cassette without time for a final form within so many seconds is durable all the same: the
        next `load` continues from the journal. Until the store is opened again, all other methods
        then raise `errors.closed`.
        """

    # The state of the store.

    @property
    def trouble(self) -> StoreError | None:
        """What makes requests fail now, None if nothing does.

        StorePoisoned: a write or sync failed, and nothing can be recorded until the store is opened
        anew. StoreAway: this instance of a shared store has not heard for too long what is in
        force.
        """

    async def check_reads(self) -> None:
        """Raise StoreError for what would keep any recording from being read now. Does not retry."""

    async def check_writes(self, name: str | None = None) -> None:
        """Raise StoreError for what would keep a recording from being stored now.

        `name` is its cassette, None for any. Leaves nothing behind.
        """

    async def check(self) -> Sequence[str]:
        """The damage found in the store's own data structures, one sentence each. Reads all of it."""

    async def erase(self) -> Sequence[str]:
        """Wipe what was removed or replaced out of the places where the store still keeps it.

        Returns what is still readable somewhere and how to end that, a sentence each; nothing where
        all is gone. `close` wipes what it can too.
        """

    # Reading.

    async def names(self) -> Sequence[str]:
        """All cassettes there are, sorted."""

    async def stat(self, name: str) -> CassetteStat | None:
        """Size and times without reading the interactions, or None where there is none.

        Its `version` tells whether anybody has changed the cassette since.
        """

    async def stats(self, names: Sequence[str]) -> Sequence[CassetteStat | None]:
        """`stat` of each, every second for all cassettes in use."""

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        """The cassette with everything ever acknowledged, None if there is no cassette.

        Head and recordings are of one moment, however the cassette changes meanwhile. Writable
        claims the cassette against a second writer. Raises CassetteLocked, CassetteCorrupt.
        """

    async def outline(self, name: str) -> Outline | None:
        """Head, count and origins, or None where there is none. Raises CassetteCorrupt."""

    async def page(self, name: str, *, after: int | None, limit: int) -> Sequence[TakenRecording]:
        """Up to `limit` recordings in order: those after index `after`, or the first ones.

        Raises CassetteEdited where there is no recording of that index.
        """

    async def documents(self, name: str, indexes: Sequence[int]) -> Sequence[TakenRecording]:
        """The recordings with these indexes, in the order of the cassette; the missing left out."""

    # Writing.

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        """Add one recording; durable on return, at a cost that does not grow with the cassette.

        `head` is written with the first recording of a cassette. Concurrent appends keep the order
        of their calls. Raises StoreFull (nothing was kept), StorePoisoned, CassetteLocked.
        """

    async def extend(self, name: str, head: CassetteHead, items: Sequence[AnyInteraction]) -> None:
        """Append interactions in this order; durable on return.

        `head` is written with the first ones of a cassette. A shared store adds all or none, gives
        each an index above all existing ones, and counts them as imported. Their large bodies are
        already stored. Raises like `append`.
        """

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        """Store a body, durable on return, for a recording of this cassette that is appended next.

        `pieces` is iterated in another thread; an exception from it is raised here, and nothing is
        stored. Raises StoreFull, CassetteLocked. A body that no recording refers to is removed
        later.
        """

    async def save(
        self, name: str, cassette: StoredCassette, only: Unchanged | None = None
    ) -> bool:
        """Replace the whole cassette by this, atomically. Raises CassetteEdited.

        With `only`, False where the stored cassette has another version. A shared store compares and
        replaces in one step; elsewhere `load` has claimed the cassette.
        """

    async def replace_head(self, name: str, head: CassetteHead) -> None:
        """Replace the head, and find every recording by its key under the new rules.

        Does nothing if there is no cassette, and if the head is the same already.
        """

    async def release(self, name: str) -> None:
        """Write the cassette's final form, end the claim and forget it. Raises CassetteEdited.

        In the final form, interactions are numbered by position, except in a shared store. A
        cassette that was only read stays as it is. The cassette may be loaded and appended to again.
        """

    async def remove(self, name: str, only: Unchanged | None = None) -> bool:
        """Delete a cassette with everything that belongs to it; False if there was none.

        The cursors of the name are reset in any case. With `only`, False and nothing is changed
        where the cassette has another version, as in `save`. Raises CassetteLocked while another
        process records into the cassette.
        """


MoveDone = Callable[[CursorMove, BaseException | None], None]
"""Gets a step of a cursor, and why the step could not be tried if it could not."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """The recording whose answer issued an identifier, and the take that made the recording."""

    index: int
    take: int


class SharedStore(CassetteStore, Protocol):
    """A store that several processes use at once, each reading only what a request needs.

    A recording keeps its index, and is changed by itself. In other stores a change writes the
    cassette anew, and each writing numbers the recordings by position. A shared store is read by
    pages. Each change is made once, also where the answer of the store was lost and the store tried
    again.

    The log of a cassette tells of every recording that was added, replaced or removed, with its match
    key under the rules of the cassette's head. The store computes the keys when a recording is added,
    and again when the rules change. An index in memory follows the log.

    `append` of a recording with a lease advances the cursor of the recording's key in the same step
    and ends the lease. The store raises `Fenced` unless this instance holds the lease. An instance
    holds a lease until another instance takes over, the lease is given back, or a recording is made
    under the lease.

    `append` of a recording that goes on from another recording raises `RecordingEdited` where
    somebody changed or removed the other recording.
    """

    # What an index in memory follows.

    async def since(self, name: str, seen: int) -> LogPage | None:
        """The first rows of a cassette's log after a revision, None where there is no cassette.

        Revisions begin with 1. No row before the last returned one is missing. Raises
        CassetteCorrupt.
        """

    async def cursors(
        self, name: str, take: int, keys: Sequence[bytes]
    ) -> Mapping[bytes, CursorState]:
        """The cursors of these keys that were advanced in a take."""

    # Finding recordings, at a cost that does not grow with their number.

    async def body(self, name: str, digest: str) -> BodyFile | None:
        """The large body that a recording of this cassette refers to, or None where none does."""

    async def near(self, name: str, method: str, path: str, limit: int) -> Sequence[TakenRecording]:
        """The newest HTTP recordings of a method and path (without query), then of others, in
        order.

        Those with the highest index are the newest, wherever they stand in the order. Recordings
        with large bodies are left out. Of the `limit` newest of the rest, each is returned whose
        bodies fit into what is left of 8 MiB.
        """

    async def neighbours(self, name: str, asked: SoughtRequest) -> Sequence[TakenRecording]:
        """A few recordings that may be nearest to a missed request, in order.

        `core.misses.neighbours.Neighbours` chooses the recordings; their bodies fit into its bound.
        A store keeps the keys of `order_keys` with each recording, and reads no further recordings.
        """

    async def alike(self, name: str, key: bytes) -> Sequence[TakenRecording]:
        """The newest recordings under a digest of `core.correlation.index.alike_key`, in order.

        Of the `MOST_ALIKE` newest, each without large bodies is returned whose bodies fit into what
        is left of `core.misses.neighbours.MOST_BYTES`.
        """

    async def issuers(self, name: str, keys: Sequence[bytes]) -> Mapping[bytes, Issuer]:
        """For each digest of `core.correlation.index.issued_key`, the first recording that has it.

        A store keeps the digests of `issued_keys` with each recording. A digest that no recording
        has is left out.
        """

    async def used(self, name: str, takes: Sequence[int]) -> Collection[int]:
        """The indexes of the recordings that any of some takes has used on any instance."""

    async def titles(self, name: str, numbers: Sequence[int]) -> Sequence[RecordingTitle]:
        """The names of those of some recordings that are there, in order."""

    async def edit(
        self, name: str, index: int, changed: AnyInteraction | None, condition: Condition = ANY
    ) -> bool:
        """Replace one interaction, or remove it; False if there is none of that index.

        All others keep their index. The condition is checked against the digest of the interaction
        in the same step. Raises AdminError (412).
        """

    async def replace_cassette(self, name: str, by: str) -> None:
        """Rename the cassette `by` to `name`, replacing the cassette of that name.

        Does nothing if there is no cassette `by`, and if both names are the same. The cursors of
        both names are reset.
        """

    async def reserve(self, name: str) -> int:
        """Reserve an index for a recording; an unused index leaves a gap."""

    # Cursors of a take, the same for all instances: how far the recordings of each key are used. The
    # cursors of a name are reset when its cassette is saved, replaced, renamed or removed. A cursor
    # after a reset never has an earlier version again.

    def advance(self, move: CursorMove, done: MoveDone) -> None:
        """Make a step of a cursor, after those that were given before.

        The step is made once, also where the answer of the store was lost and the store tried
        again. A recording counts as used only if the cassette holds it at that moment. A step need
        not survive a power loss.

        `done` is called later, on the event loop. The `after` of the step is set if the step was
        made, and its `revision` may be. Without an error the step was refused otherwise: another
        instance has changed the cursor, or what the step has `seen`. `done` gets the error if the step
        could not be tried, and StoreAway where the step may have been made: do not try that step again.
        """

    # Leases: at most one instance at a time makes the same call to the upstream. The store renews a
    # lease until it is released. If its instance ends, the lease expires some time later, by the
    # store's own clock.

    async def claim(self, name: str, key: bytes, *, wait: bool = False) -> Lease | None:
        """The lease of a key, or None where another instance holds it.

        With `wait`, None comes once that lease may have expired or been released, after a second at
        most: the caller looks what has changed, and claims again.
        """

    async def release_lease(self, lease: Lease) -> None: ...

    async def fences(self, name: str) -> frozenset[int]:
        """The fences of the leases that live instances hold for a cassette."""

    # What is in force: mode, active cassette and takes, the same for all instances.

    async def join(self, wanted: Control, apply: Callable[[Control], None]) -> Control:
        """Join the other instances; returns the state in force, which is `wanted` if there are
        none.

        The number of takes always continues from the last one. `apply` is called with every later
        change, with no await between reading and applying it. If `apply` raises, the store calls it
        again later, and `confirm` raises until then.
        """

    async def confirm(self) -> None:
        """Apply what is in force now, or later: a change that was answered before the call is applied.

        Raises StoreAway where nobody can know what is in force.
        """

    async def steer(self, change: Callable[[Control], Control]) -> Control:
        """Change the state in force, for all requests that arrive later, on every instance."""

    async def instances(self) -> Sequence[str]:
        """The names of the instances that live."""


class OnChunks(Protocol):
    """Takes chunks that arrived together, and when, in milliseconds since the request was sent.

    Called on the event loop. A true result asks for a pause.
    """

    def __call__(self, chunks: Sequence[bytes], at_ms: float, /) -> object: ...


class LiveAnswer(Protocol):
    """An upstream's answer while it arrives."""

    @property
    def head(self) -> ResponseHead: ...

    async def receive(self, max_bytes: int, on_chunks: OnChunks) -> bool:
        """Hand over the body in the upstream's own chunks, all that came by now at once.

        Returns False where the upstream ended the body, and True where `on_chunks` asked for a pause:
        call it again for the rest. Raises UpstreamError after the last received chunk if the body
        is cut, or if it grows beyond `max_bytes`, and UnprovenEnd where only the body itself can
        show that it is whole.
        """

    def pieces(self) -> AsyncIterator[bytes]:
        """The body in whatever pieces arrive. Raises like `receive` when it is cut."""

    def elapsed_ms(self) -> float:
        """Milliseconds since the request was sent."""


class OpenConnections(NamedTuple):
    """Connections to upstreams that are open now."""

    in_use: int
    idle: int
    """Kept for a later request."""


NONE_OPEN = OpenConnections(0, 0)


class LiveTurn(Protocol):
    """A request on a WebSocket connection to an upstream, which is asked there and nowhere else."""

    @property
    def ending(self) -> EndDetector:
        """What watches for the end of the answer."""

    @property
    def shared(self) -> bool:
        """Whether equal requests made meanwhile get this answer."""

    @property
    def is_session(self) -> bool:
        """Whether it is the whole connection, which is stored while it goes on."""

    @property
    def metadata(self) -> Mapping[str, Json]:
        """What the recording has in `metadata` about the connection."""

    def ask(self, request: Request) -> AbstractAsyncContextManager[LiveAnswer]:
        """Send the message once, never again. Raises UpstreamError."""

    def stored(self, call: "StoredCall") -> None:
        """Take the call that has stored the answer: more may come after its end."""

    def drop(self) -> None:
        """Keep nothing for the call any more, which has ended."""


class StoredCall(Protocol):
    """A call whose answer is stored, and which can store more of it."""

    @property
    def live_call(self) -> LiveCall:
        """What was asked, and for which cassette."""

    @property
    def size(self) -> int:
        """How many bytes have come."""

    async def add(self, pieces: Sequence[bytes], at_ms: float) -> bool:
        """Add pieces that came together after the end, in milliseconds since the request.

        False where the answer would be too large.
        """

    async def store_more(self) -> Answer | TapewayError:
        """Store what has come since the end, in place of what was stored before."""


class UpgradeRefused(Exception):
    """An upstream answered the request for a WebSocket connection with this response instead."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"the upstream answered {response.status}")
        self.response = response


class UpstreamSocket(Protocol):
    """A WebSocket connection to an upstream."""

    @property
    def head(self) -> ResponseHead:
        """What answered the handshake, without its framing."""

    @property
    def subprotocol(self) -> str | None:
        """The one that the upstream chose."""

    @property
    def idle_s(self) -> float:
        """Seconds of silence after which nobody waits for an answer whose client has left."""

    async def receive(self) -> WebSocketMessage | Close:
        """The next message, or how the upstream ended the connection."""

    async def send(self, message: WebSocketMessage) -> None:
        """Send a message as fast as the upstream takes it. Raises ConnectionError."""

    async def close(self, close: Close) -> None:
        """Send a close frame, or break the connection off."""

    async def end(self, close: Close) -> Close:
        """Send a close frame, and return the upstream's answer."""

    def abort(self) -> None:
        """Break the connection off."""

    def release(self) -> None:
        """Let go of a connection that both sides have closed."""


class Dial(Protocol):
    """Opens a WebSocket connection to the upstream of a request."""

    async def __call__(
        self, request: Request, subprotocols: Sequence[str], *, deflate: bool, max_message: int
    ) -> UpstreamSocket:
        """Raises UpgradeRefused, UpstreamError."""


class LiveResponder(Protocol):
    """The live service behind a route."""

    @property
    def connections(self) -> int:
        """How many connections to upstreams were ever opened."""

    @property
    def open_connections(self) -> OpenConnections:
        """How many of them are open now."""

    def ask(self, request: Request) -> AbstractAsyncContextManager[LiveAnswer]:
        """Send the request once, never again. Raises UpstreamError."""
