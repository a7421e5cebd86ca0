"""What an editor needs of whoever uses the cassettes meanwhile."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from tapeway.core.cassette import Cassette
from tapeway.core.model import StoredCassette
from tapeway.core.shared import Control

T = TypeVar("T")

Work = Callable[[Cassette], Awaitable[T]]
Change = Callable[[Cassette | None], Awaitable[tuple[T, Cassette | None]]]


class Workshop(Protocol):
    """Cassettes of which each is held in memory whole while it is used."""

    control: Control
    """What is in force."""

    def get(self, name: str) -> Cassette | None:
        """A cassette that is in."""

    async def alongside(self, name: str, work: Work[T]) -> T:
        """Do something to a cassette that is claimed, and brought in if need be.

        It is served and recorded on meanwhile, but not let go.
        """

    async def change(self, name: str, work: Change[T]) -> T:
        """Do something to a cassette, in or not, that nobody uses meanwhile.

        It goes on as the one that comes back; None lets it go, and its next request loads it.
        """

    async def original(self, name: str) -> StoredCassette | None:
        """What the store holds of a cassette, in the order it keeps, without bringing it in."""

    async def eject(self, name: str, *, prune: bool) -> object:
        """Write the final form of one that is in, and forget it."""
