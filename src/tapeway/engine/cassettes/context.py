"""What cassettes in memory and cassettes of a shared store both use: context, and matching rules.

The rules in force are those of the cassette and those of the settings. They are saved in the
cassette's `meta`, so that it matches the same way everywhere: at once if no recording changes its
index by that, otherwise when the cassette is unloaded.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar
from weakref import WeakValueDictionary

from tapeway.core.cassette import cursors
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Incoming
from tapeway.core.cassette.rerecording import head_checked
from tapeway.core.http.headers import request_fields
from tapeway.core.http.routing import RouteTable
from tapeway.core.matching.presets import PRESETS, preset_of
from tapeway.core.matching.rules import (
    NO_RULES,
    Rules,
    RulesFault,
    merged_rules,
    meta_with_rules,
    rules_of_meta,
)
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import MODE_POLICIES, Mode
from tapeway.engine.correlation import Correlation
from tapeway.engine.decision import Planner
from tapeway.engine.journal import RequestJournal, Tally
from tapeway.engine.report.standards import Standards
from tapeway.engine.single_flight import LiveCalls, settled
from tapeway.errors import AdminError, CassetteCorrupt, StoreError, TapewayError, copy_of
from tapeway.ports import CassetteStore

log = logging.getLogger(__name__)
T = TypeVar("T")

NewHead = Callable[[], CassetteHead]
"""Makes the head of a new cassette: its creation time and run id."""


class CassetteRules:
    """Adds the rules of the settings to cassettes in memory, and saves them in these."""

    def __init__(self, store: CassetteStore, rules: Rules = NO_RULES) -> None:
        self._store = store
        self._rules = rules
        self._without_rules: set[str] = set()
        self._unsaved: set[str] = set()
        self._checked: set[str] = set()

    async def load(self, name: str, *, writable: bool) -> StoredCassette | None:
        """The stored cassette with all rules in force in its `meta`, saved there if it is writable.

        Raises StoreError, also for rules that cannot be read.
        """
        stored = await self._store.load(name, writable=writable)
        if stored is None or (merged := with_rules(name, stored, self._rules)) is stored:
            return stored
        if not writable:
            self._without_rules.add(name)
            return merged
        await self._store.save(name, merged)
        # Saving numbers the recordings by position.
        return await self._store.load(name, writable=True)

    async def add(self, cassette: CassetteIndex, more: Rules) -> None:
        """Add rules to a loaded cassette to which no call records, and save them.

        Raises StoreError; then nothing has changed.
        """
        rules = merged_rules(cassette.rules, more)
        if rules == cassette.rules and cassette.name not in self._unsaved:
            return
        # A cassette without recordings is written with its first one.
        if len(cassette):
            head = replace(cassette.head, meta=meta_with_rules(cassette.head.meta, rules))
            await self._store.save(cassette.name, replace(cassette.stored(), head=head))
            self._unsaved.discard(cassette.name)
        cassette.apply_rules(more, saved=True)

    def add_unsaved(self, cassette: CassetteIndex, more: Rules) -> None:
        """Add rules to a cassette to which calls record; they are saved when it is unloaded."""
        cassette.apply_rules(more)
        self._unsaved.add(cassette.name)

    async def claimed(self, cassette: CassetteIndex) -> None:
        """Note that a cassette loaded for replay is recorded to from now on. Raises StoreError."""
        if cassette.name in self._without_rules:
            self._without_rules.discard(cassette.name)
            self._unsaved.add(cassette.name)
        if cassette.is_numbered_by_position:
            await self.close(cassette)

    def checked(self, cassette: CassetteIndex, day: str) -> None:
        """Note the day on which recordings of a cassette were compared with new answers."""
        if (head := head_checked(cassette.head, day)) is not cassette.head:
            cassette.head = head
            self._checked.add(cassette.name)

    def end_takes(self, cassette: CassetteIndex, going_on: Collection[int] = ()) -> None:
        """Drop recordings left over from takes before a re-recording; saved at the close."""
        if cassette.drop_left_behind(going_on):
            self._unsaved.add(cassette.name)

    def is_unsaved(self, cassette: CassetteIndex) -> bool:
        """Whether the store does not have all of it yet."""
        return cassette.name in self._checked or cassette.name in self._unsaved

    async def close(self, cassette: CassetteIndex) -> None:
        """Save what the store does not have yet. Raises StoreError."""
        if cassette.name in self._checked and cassette.name not in self._unsaved:
            await self._renew_head(cassette)
        self._checked.discard(cassette.name)
        if cassette.name in self._unsaved:
            # A cassette without recordings is written with its first one.
            if len(cassette):
                await self._store.save(cassette.name, cassette.stored())
            self._unsaved.discard(cassette.name)

    async def _renew_head(self, cassette: CassetteIndex) -> None:
        try:
            if self._store.facts.paged:
                await self._store.replace_head(cassette.name, cassette.head)
            else:
                await self._store.save(cassette.name, cassette.stored())
        except StoreError as exc:
            # No recording depends on it.
            log.warning(
                "cassette '%s' does not show when it was last checked: %s",
                *(cassette.name, exc.message),
            )

    def forget(self, name: str) -> None:
        """Note that a cassette was unloaded."""
        self._checked.discard(name)
        self._without_rules.discard(name)
        self._unsaved.discard(name)


def with_rules(name: str, stored: StoredCassette, more: Rules) -> StoredCassette:
    """The cassette with rules added to its `meta`. Raises CassetteCorrupt."""
    try:
        own = rules_of_meta(stored.head.meta)
        cursors.repeats_of_meta(stored.head.meta)
    except RulesFault as exc:
        raise CassetteCorrupt(f"cassette '{name}': meta.{exc}") from exc
    rules = merged_rules(own, more)
    if rules == own:
        return stored
    head = replace(stored.head, meta=meta_with_rules(stored.head.meta, rules))
    # The keys were computed under the cassette's own rules.
    return replace(stored, head=head, keys={})


class KeyedLocks:
    """A lock for each cassette and key, as long as anybody holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[tuple[str, bytes], asyncio.Lock] = WeakValueDictionary()

    def of(self, name: str, key: bytes) -> asyncio.Lock:
        """The lock, to be held by `async with`."""
        lock = self._locks.get((name, key))
        if lock is None:
            lock = self._locks[name, key] = asyncio.Lock()
        return lock


@dataclass(frozen=True, slots=True)
class CassetteCounts:
    """A loaded cassette, as lists show it."""

    name: str
    interactions: int
    unused: int


@dataclass(frozen=True, slots=True)
class CassetteContext:
    """What cassettes in memory and those of a shared store get from the broker."""

    routes: RouteTable
    planner: Planner
    correlation: Correlation
    calls: LiveCalls
    tasks: asyncio.TaskGroup
    journal: RequestJournal
    new_head: NewHead
    rules: Rules
    presets: bool
    today: Callable[[], str]
    standards: Standards

    @property
    def tallies(self) -> dict[str, Tally]:
        """A tally for each loaded cassette."""
        return self.journal.tallies

    def preset_for(self, name: str, rules: Rules, incoming: Incoming, mode: Mode) -> Rules | None:
        """The preset of a client that a cassette which begins now does not have yet."""
        if not self.presets or not MODE_POLICIES[mode].records:
            return None
        user_agent = request_fields(incoming.request.headers).value(b"user-agent") or b""
        preset = preset_of(user_agent.decode("latin-1"))
        if preset is None or preset in rules.presets:
            return None
        log.info(
            "cassette '%s' begins with the preset %s: in requests from %s, %s do not count; "
            "--no-presets prevents this, and it can be removed from the cassette's meta.rules",
            name,
            preset,
            user_agent.decode("latin-1").partition(" ")[0],
            PRESETS[preset].explanation,
        )
        return Rules(presets=(preset,))

    async def run_to_end(self, work: Coroutine[None, None, T]) -> T:
        """Run a change to its end even if the caller is cancelled: half done, it would be inconsistent."""
        result = await asyncio.shield(self.tasks.create_task(settled(work)))
        if isinstance(result, TapewayError):
            raise copy_of(result)
        return result


def utc_day() -> str:
    """Today's date in UTC, ISO 8601."""
    return datetime.now(UTC).date().isoformat()


def not_loaded(name: str) -> AdminError:
    """The error for a change that needs a loaded cassette."""
    return AdminError(
        f"cassette '{name}' is not loaded: its first request loads it, or insert",
        status=409,
        code="not_inserted",
    )


def holds_nothing(name: str) -> AdminError:
    """The error for a change of rules that a cassette without recordings cannot keep."""
    return AdminError(
        f"cassette '{name}' holds nothing yet: record something, and accept again",
        status=409,
        code="not_inserted",
    )
