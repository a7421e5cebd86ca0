"""What the broker needs from outside, and the errors it may be answered with.

`stores/memory.py` is the smallest store there is, and the place to start when writing another.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from tapeway.core.model import (
    BodyFile,
    CassetteHead,
    CassetteStat,
    Recording,
    Request,
    ResponseChunk,
    ResponseHead,
    StoredCassette,
)


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

    async def open(self) -> None: ...

    async def close(self) -> None:
        """Bring every cassette into its final form and let go of all locks."""

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

    async def names(self) -> Sequence[str]:
        """All cassettes there are, sorted."""

    async def stat(self, name: str) -> CassetteStat | None:
        """Size and times without reading the interactions, or None where there is none."""


@runtime_checkable
class Poisonable(Protocol):
    """A store that can tell when it no longer acknowledges anything."""

    @property
    def poisoned(self) -> bool:
        """Whether a write or sync failed so that nothing can be recorded until it is reopened."""


@runtime_checkable
class BodyKeeper(Protocol):
    """A store that takes bodies too large for memory."""

    @property
    def scratch(self) -> str | None:
        """A folder with room for bodies on their way, or None for the system's own."""

    async def keep(self, name: str, pieces: Iterable[bytes]) -> BodyFile:
        """A body, durable on return, for a recording of this cassette that is appended next.

        The pieces are gone through in another thread; what that raises is raised, and nothing is
        kept. Raises StoreFull, CassetteLocked. What no recording refers to is removed in time.
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
