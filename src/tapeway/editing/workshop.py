"""What an editor needs of whoever uses the cassettes meanwhile."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.control import Control

T = TypeVar("T")

Work = Callable[[CassetteIndex], Awaitable[T]]
Change = Callable[[CassetteIndex | None], Awaitable[tuple[T, CassetteIndex | None]]]


class Workshop(Protocol):
    """Cassettes of which each is held in memory whole while it is used."""

    control: Control
    """What is in force."""

    def get(self, name: str) -> CassetteIndex | None:
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
