"""A store in memory that gives and takes cassettes bit by bit, as a database does."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from tapeway.core.model.cassette import (
    CassetteHead,
    CassetteStat,
    LogPage,
    Outline,
    Recording,
    StoredCassette,
    TakenRecording,
)
from tapeway.core.model.condition import ANY, Condition
from tapeway.core.model.interaction import AnyInteraction
from tapeway.errors import StoreAway
from tapeway.formats.native.document import interaction_digest
from tapeway.ports import SharedStore, StoreFacts
from tapeway.stores.memory import MemoryStore
from tests.support.fakes.derived_log import DerivedLog


class BitByBitStore(MemoryStore):
    """`pages` are the limits it was asked for; it is away `after` so many additions."""

    facts = StoreFacts(durability="process", paged=True)

    def __init__(self, url: str = "fake:") -> None:
        super().__init__()
        self.url = url
        self.pages: list[int] = []
        self.loads = 0
        self.away_after: int | None = None
        self.held: dict[str, list[AnyInteraction]] = {}
        self.heads: dict[str, CassetteHead] = {}
        self.logs: dict[str, DerivedLog] = {}

    @property
    def shared(self) -> SharedStore:
        # It has as much of one as its tests ask for.
        return cast("SharedStore", self)

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        self.loads += 1
        if name not in self.heads:
            return None
        return copy.deepcopy(StoredCassette(self.heads[name], tuple(self.held[name])))

    async def append(self, name: str, head: CassetteHead, recording: Recording) -> None:
        await self.extend(name, head, [recording.interaction])

    async def put(self, name: str, cassette: StoredCassette) -> None:
        self.heads[name] = cassette.head
        self.held[name] = [
            replace(interaction, index=index)
            for index, interaction in enumerate(cassette.interactions)
        ]

    async def release(self, name: str) -> None:
        """Indexes stay as they are."""

    async def delete(self, name: str) -> bool:
        self.held.pop(name, None)
        return self.heads.pop(name, None) is not None

    async def replace_cassette(self, name: str, by: str) -> None:
        if by in self.heads:
            self.heads[name], self.held[name] = self.heads.pop(by), self.held.pop(by)

    async def names(self) -> list[str]:
        return sorted(self.heads)

    async def stat(self, name: str) -> CassetteStat | None:
        return CassetteStat(0, "2026-11-21T20:35:14+00:00") if name in self.heads else None

    async def outline(self, name: str) -> Outline | None:
        return Outline(self.heads[name], len(self.held[name])) if name in self.heads else None

    async def page(self, name: str, *, after: int | None, limit: int) -> Sequence[TakenRecording]:
        self.pages.append(limit)
        start = 0
        if after is not None:
            start = [recording.index for recording in self.held[name]].index(after) + 1
        return [
            TakenRecording(copy.deepcopy(interaction))
            for interaction in self.held[name][start : start + limit]
        ]

    async def documents(self, name: str, indexes: Sequence[int]) -> Sequence[TakenRecording]:
        return [TakenRecording(item) for item in self.held[name] if item.index in indexes]

    async def since(self, name: str, seen: int) -> LogPage | None:
        if name not in self.heads:
            return None
        log = self.logs.setdefault(name, DerivedLog())
        log.follow(self, self.heads[name], [TakenRecording(item) for item in self.held[name]])
        return log.page(seen)

    async def replace_head(self, name: str, head: CassetteHead) -> None:
        self.heads[name] = head

    async def edit(
        self, name: str, index: int, changed: AnyInteraction | None, condition: Condition = ANY
    ) -> bool:
        items = self.held[name]
        at = next((at for at, item in enumerate(items) if item.index == index), None)
        if at is None:
            return False
        condition.check(interaction_digest(items[at]))
        items[at : at + 1] = [] if changed is None else [changed]
        return True

    async def extend(self, name: str, head: CassetteHead, items: Sequence[AnyInteraction]) -> None:
        if self.away_after == 0:
            raise StoreAway(f"{self.url} does not answer: see whether it runs")
        if self.away_after is not None:
            self.away_after -= 1
        self.heads.setdefault(name, head)
        held = self.held.setdefault(name, [])
        first = held[-1].index + 1 if held else 0
        held += [replace(copy.deepcopy(item), index=first + at) for at, item in enumerate(items)]
