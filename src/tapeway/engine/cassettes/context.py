"""What cassettes in memory and cassettes of a shared store both use: context, and matching rules.

The rules of the cassette and the rules of the settings are in force. The `meta` of the cassette
keeps both, so that the cassette matches the same way everywhere. Rules are saved at once if all
recordings keep their index, otherwise when the cassette is unloaded.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar
from weakref import WeakValueDictionary

from tapeway.core.cassette import cursors
from tapeway.core.cassette.plan import Incoming
from tapeway.core.http.routing import RouteTable
from tapeway.core.matching.presets import PRESETS, preset_of
from tapeway.core.matching.rules import (
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
from tapeway.engine.single_flight import SingleFlight, settled
from tapeway.errors import AdminError, CassetteCorrupt, TapewayError, copy_of

log = logging.getLogger(__name__)
T = TypeVar("T")

NewHead = Callable[[], CassetteHead]
"""Makes the head of a new cassette: its creation time and run id."""


def with_rules(name: str, stored: StoredCassette, more: Rules) -> StoredCassette:
    """The cassette with rules added to its `meta`. Raises CassetteCorrupt."""
    try:
        head = head_with_rules(stored.head, more)
        cursors.repeats_of_meta(head.meta)
    except RulesFault as exc:
        raise CassetteCorrupt(f"cassette '{name}': meta.{exc}") from exc
    # The keys were computed under the cassette's own rules.
    return stored if head is stored.head else replace(stored, head=head, keys={})


def head_with_rules(head: CassetteHead, more: Rules) -> CassetteHead:
    """The head with rules added to its `meta`; the same object where it has them all.

    Raises RulesFault for a `meta` whose rules cannot be read.
    """
    return head_under_rules(head, merged_rules(rules_of_meta(head.meta), more))


def head_under_rules(head: CassetteHead, rules: Rules) -> CassetteHead:
    """The head with these rules in its `meta` and no others; the same object where it has them.

    Raises RulesFault for a `meta` whose rules cannot be read.
    """
    same = rules == rules_of_meta(head.meta)
    return head if same else replace(head, meta=meta_with_rules(head.meta, rules))


class KeyedLocks:
    """A lock for each cassette and key, while anybody holds the lock or waits."""

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
    """The objects and settings that a source gets from the broker."""

    routes: RouteTable
    planner: Planner
    correlation: Correlation
    calls: SingleFlight
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
        """The preset of a client, where a cassette that begins does not have the preset yet."""
        if not self.presets or not MODE_POLICIES[mode].records:
            return None
        user_agent = incoming.request.fields.value(b"user-agent") or b""
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
