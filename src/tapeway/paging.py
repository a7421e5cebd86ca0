"""One reference to a cassette, and how to go through a cassette, by pages if its store has pages."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from tapeway.core.cassette.branches import MOST_LAYERS, Layer, base_of_meta, layer_of
from tapeway.core.json_text import dump
from tapeway.core.matching.rules import Rules, RulesFault, rules_of_meta
from tapeway.core.misses.near_names import question
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction, large_bodies
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.errors import CassetteCorrupt, ConfigError
from tapeway.ports import CassetteStore

PAGE_BYTES = 8 * 1024 * 1024
"""How many bytes of bodies a page should have at most."""

BATCH_BYTES = 1024 * 1024
"""How many bytes of bodies are written at once: memory holds them several times, as text and values."""

_FIRST, LARGEST = 8, 256
"""Recordings in the first page, and the most in any page."""


@dataclass(frozen=True, slots=True)
class CassetteWalk:
    """The head of a cassette, the number of interactions, and an iterator to use once."""

    head: CassetteHead
    count: int
    items: AsyncIterator[AnyInteraction]


@dataclass(frozen=True, slots=True)
class CassetteRef:
    """A cassette by its name in a store; a file is in the store of its folder.

    `shown` names both without a password. The methods need the store open.
    """

    store: CassetteStore
    name: str
    shown: str

    @classmethod
    def of(cls, store: CassetteStore, name: str) -> "CassetteRef":
        """The cassette, shown by the address of its store and its name."""
        return cls(store, name, f"{store.url}#{name}")

    async def load(self, *, writable: bool = False) -> StoredCassette:
        """All of it, in memory. Raises ConfigError if there is no such cassette, StoreError."""
        stored = await self.store.load(self.name, writable=writable)
        if stored is None:
            raise await self.missing()
        return stored

    async def walk(self) -> CassetteWalk:
        """Its interactions in order, a few at a time. Raises ConfigError, StoreError."""
        if (walk := await self.find()) is None:
            raise await self.missing()
        return walk

    async def find(self) -> CassetteWalk | None:
        """`walk`, or None if there is no such cassette. Raises StoreError.

        A store without pages loads the whole cassette at once.
        """
        if self.store.facts.paged:
            if (outline := await self.store.outline(self.name)) is None:
                return None
            items = pages_after(self.store, self.name, None)
            return CassetteWalk(outline.head, outline.count, items)
        stored = await self.store.load(self.name, writable=False)
        return None if stored is None else walk_over(stored)

    async def get(self, index: int) -> AnyInteraction | None:
        """One interaction. Raises ConfigError, StoreError."""
        found = await self.store.documents(self.name, [index])
        if not found:
            await self.check_exists()
        return found[0].item if found else None

    def rules(self, head: CassetteHead) -> Rules:
        """The matching rules in its head. Raises CassetteCorrupt."""
        try:
            return rules_of_meta(head.meta)
        except RulesFault as exc:
            raise CassetteCorrupt(f"cassette {self.shown}: meta.{exc}") from exc

    async def check_exists(self) -> None:
        """Raise ConfigError if there is no such cassette, StoreError."""
        if await self.store.stat(self.name) is None:
            raise await self.missing()

    async def missing(self) -> ConfigError:
        """The error for a cassette that does not exist, with cassettes of similar names."""
        place = "" if "#" in self.shown else f" in {self.store.url}"
        meant = question(self.name, await self.store.names())
        return ConfigError(f"there is no cassette {self.shown}{place}{meant}")


async def layers_of(
    name: str, head: CassetteHead, stored: Callable[[str], Awaitable[StoredCassette | None]]
) -> Sequence[Layer]:
    """The recordings of the bases of a cassette with this head, the nearest base first.

    `stored` gives what a cassette holds. Raises CassetteCorrupt where a base is missing, stands on
    itself, or has a `meta` that cannot be read.
    """
    names, layers = [name], list[Layer]()
    try:
        while (base := base_of_meta(head.meta)) is not None:
            above, name = name, base.cassette
            if name in names or len(names) > MOST_LAYERS:
                chain = " → ".join([f"'{each}'" for each in (*names, name)])
                raise CassetteCorrupt(
                    f"cassette '{names[0]}' stands on itself or on too many others: {chain}; correct "
                    f"meta.base of '{above}'"
                )
            if (below := await stored(name)) is None:
                raise CassetteCorrupt(
                    f"cassette '{above}' stands on '{name}', which does not exist: bring it back, or "
                    f"name another one in meta.base of '{above}'"
                )
            names.append(name)
            layers.append(layer_of(base, below))
            head = below.head
    except RulesFault as exc:
        raise CassetteCorrupt(f"cassette '{name}': meta.{exc}") from exc
    return layers


def walk_over(stored: StoredCassette) -> CassetteWalk:
    """A walk over a cassette that is already loaded."""
    return CassetteWalk(stored.head, len(stored.interactions), each_of(stored.interactions))


async def each_of(items: Iterable[AnyInteraction]) -> AsyncGenerator[AnyInteraction]:
    """The items of a loaded cassette, as a walk gives them."""
    for item in items:
        # A walk must not gather a large file in memory.
        yield item.load() if isinstance(item, LazyInteraction) else item


async def pages_after(
    store: CassetteStore, name: str, after: int | None
) -> AsyncGenerator[AnyInteraction]:
    """The interactions after that index, or all. Raises StoreError, CassetteEdited."""
    limit = _FIRST
    while page := await store.page(name, after=after, limit=limit):
        size = 0
        for recording in page:
            # Bodies in files count: a store may have to fetch them.
            size += bytes_of_bodies(recording.item)
            yield recording.item
        after = page[-1].item.index
        # Recordings of one cassette are alike, so this page tells how many the next may have.
        if size > PAGE_BYTES:
            limit = max(1, limit // 4)
        elif size < PAGE_BYTES // 4:
            limit = min(LARGEST, limit * 2)


def batch_from(items: Sequence[AnyInteraction], start: int, most: int) -> list[AnyInteraction]:
    """At most `most` next items, of BATCH_BYTES in memory at most, or a single larger item.

    The items may come from the disk: call this in a thread.
    """
    batch: list[AnyInteraction] = []
    size = 0
    for at in range(start, min(start + most, len(items))):
        batch.append(item := items[at])
        # Other items are small, and the store may be unable to write them.
        size += bytes_in_memory(item) if isinstance(item, Interaction) else 0
        if size >= BATCH_BYTES:
            break
    return batch


def bytes_of_bodies(item: AnyInteraction) -> int:
    """How many bytes the bodies of an interaction have, in memory or in files."""
    return bytes_in_memory(item) + sum([file.size for file in large_bodies(item)])


def bytes_in_memory(item: AnyInteraction) -> int:
    """How many bytes of bodies an interaction has in memory."""
    if not isinstance(item, Interaction):
        return len(dump(dict(item.document)))
    return len(item.request.body) + len(item.response.body)
