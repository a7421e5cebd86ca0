"""One of two cassettes that are compared: gone through once, and then looked up."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from tapeway.cli.places import Place
from tapeway.core.http.routing import RouteTable, adopted_item
from tapeway.core.model.cassette import CassetteHead, Held
from tapeway.errors import StoreError
from tapeway.ports import SharedStore


@dataclass(frozen=True, slots=True)
class Side:
    """Its recordings, each with a route; in memory only where its store finds no single one."""

    head: CassetteHead
    place: Place
    table: RouteTable
    loaded: dict[int, Held] | None

    @classmethod
    async def of(cls, place: Place, table: RouteTable) -> "Side":
        """The cassette at a place. Raises ConfigError where there is none, StoreError."""
        if isinstance(place.store, SharedStore):
            return cls((await place.walk()).head, place, table, None)
        stored = await place.load()
        return cls(stored.head, place, table, {each.index: each for each in stored.interactions})

    async def items(self) -> AsyncIterator[Held]:
        """All of them in order."""
        if self.loaded is not None:
            for each in self.loaded.values():
                yield adopted_item(each, self.table)
            return
        async for each in (await self.place.walk()).items:
            yield adopted_item(each, self.table)

    async def get(self, index: int) -> Held:
        """One of those that were gone through. Raises StoreError where it went since."""
        if self.loaded is not None:
            return adopted_item(self.loaded[index], self.table)
        item = await self.place.get(index)
        if item is None:
            raise StoreError(f"{self.place.shown} was changed while it was read: try again")
        return adopted_item(item, self.table)
