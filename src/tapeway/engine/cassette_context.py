"""The rules in force: those a cassette states itself, and those of the settings besides.

What is in force is written into the cassette's `meta`, so that it means the same everywhere: at
once where that changes the number of no recording, otherwise when the cassette is let go.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import TypeVar

from tapeway.core.cassette import cursors
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.http.routing import RouteTable
from tapeway.core.matching.rules import (
    NO_RULES,
    Rules,
    RulesFault,
    merged_rules,
    meta_with_rules,
    rules_of_meta,
)
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.engine.correlation import Correlation
from tapeway.engine.decision import Planner
from tapeway.engine.journal import Tally
from tapeway.engine.single_flight import LiveCalls, settled
from tapeway.errors import AdminError, CassetteCorrupt, TapewayError
from tapeway.ports import CassetteStore

T = TypeVar("T")

NewHead = Callable[[], CassetteHead]
"""Makes the head of a new cassette: its time and its run id."""


class CassetteRules:
    """Adds rules to cassettes, and sees to it that the store learns of them."""

    def __init__(self, store: CassetteStore, rules: Rules = NO_RULES) -> None:
        self._store = store
        self._rules = rules
        self._lacking: set[str] = set()
        self._unsaved: set[str] = set()

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        """The cassette as the store has it, with all rules in force in its meta.

        They are saved where it is writable. Raises StoreError, also for rules that cannot be read.
        """
        stored = await self._store.load(name, writable=writable)
        if stored is None or (ruled := applied(name, stored, self._rules)) is stored:
            return stored
        if not writable:
            self._lacking.add(name)
            return ruled
        await self._store.save(name, ruled)
        # Saving numbers what is there by its position.
        return await self._store.load(name, writable=True)

    async def add(self, cassette: CassetteIndex, more: Rules) -> None:
        """Keep further rules for a loaded cassette, and put them in force; nobody may record on it.

        Raises StoreError; then nothing has changed.
        """
        rules = merged_rules(cassette.rules, more)
        if rules == cassette.rules and cassette.name not in self._unsaved:
            return
        # One without recordings is written with its first.
        if len(cassette):
            head = replace(cassette.head, meta=meta_with_rules(cassette.head.meta, rules))
            await self._store.save(cassette.name, replace(cassette.stored(), head=head))
            self._unsaved.discard(cassette.name)
        cassette.apply_rules(more, saved=True)

    async def claimed(self, cassette: CassetteIndex) -> None:
        """A cassette that was loaded for replay is recorded on from now. Raises StoreError."""
        if cassette.name in self._lacking:
            self._lacking.discard(cassette.name)
            self._unsaved.add(cassette.name)
        if cassette.is_numbered_by_position:
            await self.close(cassette)

    async def close(self, cassette: CassetteIndex) -> None:
        """Save what the store does not know of yet. Raises StoreError."""
        if cassette.name in self._unsaved:
            # One without recordings is written with its first.
            if len(cassette):
                await self._store.save(cassette.name, cassette.stored())
            self._unsaved.discard(cassette.name)

    def forget(self, name: str) -> None:
        """A cassette is let go."""
        self._lacking.discard(name)
        self._unsaved.discard(name)


def applied(name: str, stored: StoredCassette, more: Rules) -> StoredCassette:
    """The same cassette with these rules in its meta besides its own. Raises CassetteCorrupt."""
    try:
        own = rules_of_meta(stored.head.meta)
        cursors.repeats_of_meta(stored.head.meta)
    except RulesFault as exc:
        raise CassetteCorrupt(f"cassette '{name}': meta.{exc}") from exc
    rules = merged_rules(own, more)
    if rules == own:
        return stored
    return replace(stored, head=replace(stored.head, meta=meta_with_rules(stored.head.meta, rules)))


@dataclass(frozen=True, slots=True)
class CassetteCounts:
    """A cassette that is in, as lists show it."""

    name: str
    interactions: int
    unused: int


@dataclass(frozen=True, slots=True)
class CassetteContext:
    """What cassettes in memory and those of a shared store work with alike."""

    routes: RouteTable
    planner: Planner
    correlation: Correlation
    calls: LiveCalls
    tasks: asyncio.TaskGroup
    tallies: dict[str, Tally]
    new_head: NewHead
    rules: Rules

    async def carry(self, work: Coroutine[None, None, T]) -> T:
        """Done to its end when the caller has left: half done, it would leave a cassette in between."""
        result = await asyncio.shield(self.tasks.create_task(settled(work)))
        if isinstance(result, TapewayError):
            raise result
        return result


def not_in(name: str) -> AdminError:
    """The error for steering a cassette that nobody uses."""
    return AdminError(
        f"cassette '{name}' is not in: it is loaded by its first request or by insert",
        status=409,
        code="not_inserted",
    )
