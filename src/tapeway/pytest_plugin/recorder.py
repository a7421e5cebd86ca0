"""Points the slot of this process at the cassette of each test, and keeps what passed."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..deck.admin_client import DeckError, segment
from ..deck.deck import DeckMode
from ..deck.last import own_folder
from .connection import Connection
from .markers import RecordedTest

_MOST_MISSES = 1000


@dataclass(slots=True)
class TestTake:
    """One test while it runs, and which takes of its slot are its own.

    Wider fixtures that are set up or torn down for it have takes of theirs in between. A rewind, or
    a change of mode, begins takes that nobody here is told of. Takes are numbered as they begin.
    """

    __test__ = False

    node_id: str
    recorded: RecordedTest
    mode: DeckMode
    first: int = 0
    """The take that began with it."""
    own: list[range] = field(default_factory=list)
    """The takes while the slot pointed at its cassette; the last range has no end while it does."""
    told: set[str] = field(default_factory=set)
    """Ids of the misses that its report has already."""
    failed: bool = False
    passed: bool = False
    """Whether its own phase passed: a test that was skipped did not."""
    missing: list[str] = field(default_factory=list)
    """The match keys of what it missed in its own cassette."""
    before: dict[str, Any] | None = None
    """The cassette as it was, where the test may record over it."""

    def enter(self, take: int) -> None:
        """The slot points at its cassette from this take on."""
        self.first = self.first or take
        self.own.append(range(take, sys.maxsize))

    def leave(self, take: int) -> None:
        """The slot points elsewhere from this take on."""
        if self.own:
            self.own[-1] = range(self.own[-1].start, min(take, self.own[-1].stop))

    def owns(self, take: int) -> bool:
        """Whether requests in a take of the slot are the test's own."""
        return any(take in each for each in self.own)

    @property
    def good(self) -> bool:
        """Whether it ran to its end and nothing failed."""
        return self.passed and not self.failed

    @property
    def records(self) -> bool:
        return self.mode in ("record", "auto")


@dataclass(slots=True)
class RunResults:
    """What the tests of one process leave for the end of the run; plain values, to be sent on."""

    reports: list[dict[str, Any]] = field(default_factory=list)
    """Of the cassettes of single tests that are done with."""
    trusted: list[str] = field(default_factory=list)
    """Cassettes whose unused recordings count: all of their tests replayed and passed."""
    spoilt: list[str] = field(default_factory=list)
    """Cassettes with a test that did not pass, or that recorded."""
    missing: list[tuple[str, list[str]]] = field(default_factory=list)
    """Cassettes of tests that missed something there, with its match keys."""
    ended: list[tuple[str, str]] = field(default_factory=list)
    """When each test ended (ISO 8601), and its node id."""
    not_kept: list[str] = field(default_factory=list)
    """What could not be stored, and why."""
    rewound: bool = False
    """Whether a test began takes itself, so that what was used before them is not known any more."""


class TestRecorder:
    """Points the slot of one process of a test run."""

    __test__ = False

    def __init__(self, connection: Connection, root: Path) -> None:
        self._connection = connection
        self._deck = connection.deck
        self._slot = connection.slot
        self._root = root
        self.results = RunResults()
        self.current: TestTake | None = None
        self._scopes: list[str] = []
        """Of the fixtures that are being set up, the innermost last."""

    def point_at_scope(self, cassette: str) -> None:
        """Point the slot at the cassette of a scope wider than a test."""
        number = self._deck.point(self._slot, cassette, self._connection.mode)
        if self.current is not None:
            self.current.leave(number)

    def begin(self, node_id: str, recorded: RecordedTest) -> None:
        """Point the slot at a test's cassette. Raises DeckError for one that cannot be read."""
        mode = recorded.mode or self._connection.mode
        take = TestTake(node_id, recorded, mode)
        if take.records and not recorded.shared:
            take.before = self._export(recorded.cassette)
        self.current = take
        self.resume()

    def resume(self) -> None:
        """Point the slot at the cassette of the test that runs, if one does."""
        if (take := self.current) is not None:
            recorded = take.recorded
            take.enter(
                self._deck.point(self._slot, recorded.cassette, take.mode, rules=recorded.rules)
            )

    def misses(self, take: TestTake) -> list[dict[str, Any]]:
        """What a test, and wider fixtures for it, have missed since this was last asked, oldest first."""
        missed = self._deck.journal(
            slot=self._slot, outcome="miss", since=take.first, limit=_MOST_MISSES
        )
        found = [entry for entry in reversed(missed) if entry["id"] not in take.told]
        take.told.update(entry["id"] for entry in found)
        take.missing += [each["match_key"] for each in found if take.owns(each["take"])]
        return found

    def end(self) -> None:
        """Let go of the test that ran: keep or restore its cassette."""
        take, self.current = self.current, None
        if take is None:
            return
        try:
            self._settle(take)
        except (DeckError, OSError) as exc:
            self.results.not_kept.append(f"what {take.node_id} recorded: {exc}")

    def _settle(self, take: TestTake) -> None:
        rewound = self._rewound(take)
        self._deck.admin.call("DELETE", f"slots/{segment(self._slot)}")
        name = take.recorded.cassette
        self.results.ended.append((datetime.now(UTC).isoformat(), take.node_id))
        if take.missing:
            self.results.missing.append((name, take.missing))
        bad = not take.good or take.mode != "replay"
        (self.results.spoilt if bad else self.results.trusted).append(name)
        self.results.rewound |= rewound
        if take.recorded.shared:
            return
        keeps_all = take.mode != "record" or not take.good or rewound
        if (report := self._eject(name, prune=not keeps_all)) is not None:
            if rewound:
                report["unused"] = []
            self.results.reports.append(report)
        # The test may have ejected its cassette itself, so no report tells whether it recorded.
        if not take.good and take.records and (now := self._export(name)) != take.before:
            self._set_aside(name, now, take.before)

    def _rewound(self, take: TestTake) -> bool:
        """Whether a rewind, an eject or the like began a take since its slot was pointed last."""
        now = self._deck.admin.call("GET", f"slots/{segment(self._slot)}")
        return bool(now["take"] != take.own[-1].start)

    def _set_aside(
        self, name: str, now: dict[str, Any] | None, before: dict[str, Any] | None
    ) -> None:
        """Move what a failed test recorded out of the store, and put back what was there."""
        path = own_folder(self._root) / "failed" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(now, indent=2), encoding="utf-8")
        place = f"cassettes/{segment(name)}"
        if before is None:
            self._deck.admin.call("DELETE", place)
        else:
            self._deck.admin.call("PUT", place, before, secrets="keep")

    def _export(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._deck.admin.call("GET", f"cassettes/{segment(name)}")
        except DeckError as exc:
            if exc.status == 404:
                return None
            raise
        return found

    def _eject(self, name: str, *, prune: bool) -> dict[str, Any] | None:
        """The report of a cassette that was used, None for one that was not."""
        try:
            return self._deck.eject(name, prune=prune)
        except DeckError as exc:
            if exc.code == "not_inserted":
                return None
            raise

    @contextmanager
    def in_scope(self, cassette: str) -> Iterator[None]:
        """Send what comes in the block to the cassette of a wider scope.

        A fixture may ask for another one while it is set up, and goes on after that.
        """
        self._scopes.append(cassette)
        self.point_at_scope(cassette)
        try:
            yield
        finally:
            self._scopes.pop()
            if self._scopes:
                self.point_at_scope(self._scopes[-1])
            else:
                self.resume()
