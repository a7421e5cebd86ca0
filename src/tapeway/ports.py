"""What the engine needs from outside: a store for cassettes, and the service behind a route.

Every store implements `CassetteStore`. What only some stores can do is a Protocol of its own, and
`CassetteStore.capabilities` says which of them a store has: callers read its fields, and nothing
asks a store by `isinstance`. `stores/memory.py` is the smallest store there is, and the place to
start when writing another.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from tapeway.core.model.cassette import (
    CassetteHead,
    CassetteStat,
    Lease,
    Outline,
    Recording,
    RecordingTitle,
    StoredCassette,
    TakenRecording,
)
from tapeway.core.model.control import Control, CursorState
from tapeway.core.model.interaction import AnyInteraction
from tapeway.core.model.messages import BodyFile, Request, ResponseChunk, ResponseHead


class CassetteStore(Protocol):
    """Where cassettes live. Used between `open` and `close`, by one process, on one event loop.

    Every method may raise `StoreError` or one of its children, naming the place and the cause.
    """

    @property
    def url(self) -> str:
        """The address as shown to people, without a password."""

    @property
    def durability(self) -> str:
        """What survives once `append` has returned: `process`, `disk`, …"""

    @property
    def capabilities(self) -> "Capabilities":
        """What it can do beyond these methods. Made once, by its constructor."""

    async def open(self) -> None: ...

    async def close(self) -> None:
        """Bring every cassette into its final form and let go of all locks; a second time nothing.

        Whatever is asked of it from then on raises `errors.closed`, until it is opened again.
        """

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        """The cassette with everything ever acknowledged, or None where there is none.

        Writable claims it against a second writer. Raises CassetteLocked, CassetteCorrupt.
        """

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        """Add one recording; durable on return, at a cost that does not grow with the cassette.

        `head` is written with the first recording of a cassette. Concurrent appends keep the order
        of their calls. Raises StoreFull (nothing was kept), StorePoisoned, CassetteLocked.
        """

    async def save(self, name: str, cassette: StoredCassette) -> None:
        """Replace the whole cassette by this, atomically. Raises CassetteEdited."""

    async def release(self, name: str) -> None:
        """Write the cassette's final form and forget it. Raises CassetteEdited."""

    async def remove(self, name: str) -> bool:
        """Delete a cassette and all that belongs to it; False where there was none.

        Raises CassetteLocked while another process records into it.
        """

    async def names(self) -> Sequence[str]:
        """All cassettes there are, sorted."""

    async def stat(self, name: str) -> CassetteStat | None:
        """Size and times without reading the interactions, or None where there is none.

        Its `mark` tells whether anybody has changed the cassette since.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The optional abilities of a store: for each one the object that has it, or None.

    That object is usually the store itself.
    """

    write_health: "WriteHealth | None" = None
    bodies: "BodyKeeper | None" = None
    body_finder: "BodyFinder | None" = None
    paged: "Paged | None" = None
    head_editor: "HeadEditor | None" = None
    cassette_editor: "CassetteEditor | None" = None
    batch_writer: "BatchWriter | None" = None
    replacer: "CassetteReplacer | None" = None
    checker: "IntegrityChecker | None" = None
    shared: "SharedStore | None" = None


class WriteHealth(Protocol):
    """Tells whether a failed write has left a store in an unknown state."""

    @property
    def poisoned(self) -> bool:
        """Whether a write or sync failed so that nothing can be recorded until it is reopened."""


class BodyKeeper(Protocol):
    """Takes bodies too large for memory."""

    @property
    def scratch(self) -> str | None:
        """A folder with room for bodies on their way, or None for the system's own."""

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        """A body, durable on return, for a recording of this cassette that is appended next.

        The pieces are gone through in another thread; what that raises is raised, and nothing is
        kept. Raises StoreFull, CassetteLocked. What no recording refers to is removed in time.
        """


class BodyFinder(Protocol):
    """Finds a large body at a cost that does not grow with its cassette."""

    async def body(self, name: str, digest: str) -> BodyFile | None:
        """The one that a recording of this cassette refers to, or None where none does."""


class Paged(Protocol):
    """Reads a cassette page by page: it need not fit into memory."""

    async def outline(self, name: str) -> Outline | None:
        """Head, count and origins, or None where there is none. Raises CassetteCorrupt."""

    async def page(self, name: str, *, after: int | None, limit: int) -> Sequence[TakenRecording]:
        """Some recordings in order: those behind the one of that index, or from the first on."""


class HeadEditor(Protocol):
    """Changes the head of a cassette and leaves its recordings as they are."""

    async def replace_head(self, name: str, head: CassetteHead) -> None:
        """Put another head in force, and find every recording under its new keys."""


class CassetteEditor(HeadEditor, Protocol):
    """Changes single recordings where they lie; all others keep their index."""

    async def edit(self, name: str, index: int, changed: AnyInteraction | None) -> bool:
        """Put another interaction in the place of one, or remove it; False where there is none."""


class BatchWriter(Protocol):
    """Adds many interactions at once, a batch at the cost of one recording."""

    async def extend(self, name: str, head: CassetteHead, items: Sequence[AnyInteraction]) -> None:
        """Add interactions at the end in this order, all or none; durable on return.

        `head` is written with the first ones of a cassette. Each is given an index above all there
        were, as if it had been brought in. Large bodies were kept before. Raises like `append`.
        """


class CassetteReplacer(Protocol):
    """Puts one cassette in the place of another in one step."""

    async def replace_cassette(self, name: str, by: str) -> None:
        """Rename the cassette `by` to `name`; whatever had that name before is gone.

        Nothing happens where there is no `by`; keys that stand somewhere in a take begin anew.
        """


class IntegrityChecker(Protocol):
    """Looks for damage below what is read of a store."""

    async def check(self) -> Sequence[str]:
        """What is wrong with the store, a sentence each. Reads all of it."""


class RecordingIndex(Protocol):
    """Finds recordings where they lie, at a cost that does not grow with their number.

    A recording is found under every key that `core.cassette.index.index_keys` names under the rules of
    the cassette's head; the store takes them when it is brought in, and anew when rules change.
    """

    async def find(self, name: str, keys: Sequence[bytes]) -> Sequence[TakenRecording]:
        """All recordings found under any of these keys, in order."""

    async def get(self, name: str, index: int) -> TakenRecording | None:
        """One recording."""

    async def near(self, name: str, method: str, path: str, limit: int) -> Sequence[TakenRecording]:
        """The newest exchanges of a method and path (no query), then the newest of others, in order.

        They are `limit` together where there are so many, hold no more than 8 MiB of bodies, and
        none that lie in files.
        """

    async def unused(self, name: str, take: int, limit: int) -> Sequence[RecordingTitle]:
        """The first recordings that a take has not touched."""

    async def unused_count(self, name: str, take: int) -> int:
        """How many those are."""

    async def duplicates(self, name: str, limit: int) -> Sequence[Sequence[RecordingTitle]]:
        """Recordings found under one key on one route, where there are several."""

    async def reserve(self, name: str) -> int:
        """An index that nobody else gets; an unused one leaves a gap."""


class SharedCursors(Protocol):
    """The cursors of a take, the same for all instances: how far the recordings of each key are used."""

    async def turns(
        self, name: str, take: int, keys: Sequence[bytes]
    ) -> Mapping[bytes, CursorState]:
        """The cursors of these keys that were advanced at all."""

    async def advance(
        self,
        name: str,
        take: int,
        key: bytes,
        before: CursorState | None,
        state: bytes,
        touched: int,
    ) -> bool:
        """Replace the state `before` by a new one, and count a recording as touched.

        False where another instance changed it first: read it again. Need not survive a power loss.
        """


class Leases(Protocol):
    """Leases that keep all but one instance from making the same call to the upstream.

    The store renews a lease until it is released; it expires by the store's own clock some time
    after its instance was last heard of.
    """

    async def claim(self, name: str, key: bytes) -> Lease | None:
        """The lease of a key, or None while another instance holds it."""

    async def wait_for_lease(self, name: str, key: bytes) -> None:
        """Wait until the lease of a key may have expired or been released: a second at most."""

    async def release_lease(self, lease: Lease) -> None: ...

    async def fences(self, name: str) -> frozenset[int]:
        """The fences of the leases that live instances hold for a cassette."""


class SharedControl(Protocol):
    """What is in force: mode, active cassette and takes, the same for all instances."""

    async def join(self, wanted: Control, apply: Callable[[Control], None]) -> Control:
        """Join the instances; gives what is in force: `wanted` where no other instance is alive.

        The number of takes always goes on from the last one. `apply` is called with whatever
        comes into force later, with no await between reading and applying it.
        """

    async def steer(self, change: Callable[[Control], Control]) -> tuple[Control, Sequence[str]]:
        """Change what is in force, and wait until every live instance has applied it.

        Also gives the names of those that have not within two seconds.
        """

    @property
    def in_touch(self) -> bool:
        """Whether this instance knows what is in force: it does not once the store is away too long."""


class SharedStore(
    CassetteStore,
    Paged,
    CassetteEditor,
    RecordingIndex,
    SharedCursors,
    Leases,
    SharedControl,
    Protocol,
):
    """A store that several processes use at once, each reading only what a request needs.

    `append` of a recording with a lease raises `Fenced` where another instance holds the lease by
    now; it advances the cursor of the recording's key in the same step.
    """

    async def look(
        self, name: str, take: int, keys: Sequence[bytes], digests: Sequence[bytes]
    ) -> tuple[Mapping[bytes, CursorState], Sequence[TakenRecording]]:
        """`turns` of the keys, and then `find` of the digests: what each hit needs, in one call.

        The cursors are read first: a recording that comes in between has advanced its cursor.
        """


class LiveAnswer(Protocol):
    """An upstream's answer as it comes."""

    @property
    def head(self) -> ResponseHead: ...

    def chunks(self, max_bytes: int) -> AsyncIterator[ResponseChunk]:
        """The body in the upstream's own chunks, ending only where the upstream ended it.

        Raises UpstreamError when it is cut, behind all that came until then, or when it grows
        beyond `max_bytes`.
        """

    def pieces(self) -> AsyncIterator[bytes]:
        """The body in whatever pieces arrive. Raises UpstreamError when it is cut."""

    def elapsed_ms(self) -> float:
        """Milliseconds since the request was sent."""


class LiveResponder(Protocol):
    """The live service behind a route."""

    @property
    def connections(self) -> int:
        """How many connections to upstreams were ever opened."""

    def ask(self, request: Request) -> AbstractAsyncContextManager[LiveAnswer]:
        """Send the request once, never again. Raises UpstreamError."""
