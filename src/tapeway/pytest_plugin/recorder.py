"""Points this process's slot at the cassette of each test; keeps recordings of passed tests."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..embedded.admin_client import DeckError, segment
from ..embedded.deck import DeckMode
from ..embedded.last import own_folder
from .connection import Connection
from .markers import RecordedTest
from .record_command import RecordCommand

_MOST_MISSES = 1000


@dataclass(slots=True)
class TestTake:
    """A running test, and the takes of its slot that belong to the test.

    In between, set-up and teardown of wider fixtures have separate takes.
    A rewind or a change of mode begins further takes, without a word to this process. Takes are
    numbered in the order of their beginnings.
    """

    __test__ = False

    node_id: str
    recorded: RecordedTest
    mode: DeckMode
    first: int = 0
    """The take that began with the test."""
    own: list[range] = field(default_factory=list)
    """The takes while the slot pointed at the test's cassette; the last range is open until the slot moves."""
    told: set[str] = field(default_factory=set)
    """Ids of the misses in the test's report."""
    failed: bool = False
    passed: bool = False
    """Whether the phase `call` passed; a skipped test has none."""
    missing: list[str] = field(default_factory=list)
    """The match keys of the misses in the test's own cassette."""
    before: dict[str, Any] | None = None
    """The cassette before the test, if the test may record over that state."""

    def enter(self, take: int) -> None:
        """From this take on the slot points at the test's cassette."""
        self.first = self.first or take
        self.own.append(range(take, sys.maxsize))

    def leave(self, take: int) -> None:
        """From this take on the slot points elsewhere."""
        if self.own:
            self.own[-1] = range(self.own[-1].start, min(take, self.own[-1].stop))

    def owns(self, take: int) -> bool:
        """Whether requests in a take of the slot are the test's own."""
        return any(take in span for span in self.own)

    @property
    def succeeded(self) -> bool:
        """Whether the test ran to the end without a failure."""
        return self.passed and not self.failed

    @property
    def records(self) -> bool:
        return self.mode in ("record", "auto")


@dataclass(slots=True)
class RunResults:
    """Results of the tests of one process, for the end of the run: plain values for the controller."""

    reports: list[dict[str, Any]] = field(default_factory=list)
    """Reports of the cassettes of finished single tests."""
    trusted: list[str] = field(default_factory=list)
    """Cassettes with all tests replayed and passed, so that unused recordings count."""
    spoilt: list[str] = field(default_factory=list)
    """Cassettes of tests that recorded or did not pass."""
    missing: list[tuple[str, list[str]]] = field(default_factory=list)
    """Cassettes of tests with a miss, and the match keys of the misses."""
    ended: list[tuple[str, str]] = field(default_factory=list)
    """When each test ended (ISO 8601), and its node id."""
    not_kept: list[str] = field(default_factory=list)
    """Reasons why something could not be stored."""
    set_aside: list[str] = field(default_factory=list)
    """What a failed test recorded, and the file that holds it."""
    missed: list[str] = field(default_factory=list)
    """The node ids of tests with a miss."""
    rewound: int = 0
    """How many tests began a take themselves: nobody knows what such a test used before."""

    def add(self, results: Mapping[str, Any]) -> None:
        """Add the results of a process, as plain values."""
        for result in fields(self):
            setattr(self, result.name, getattr(self, result.name) + results[result.name])

    @property
    def all_replayed(self) -> set[str]:
        """The cassettes of which all tests replayed and succeeded."""
        return {*self.trusted} - {*self.spoilt}


class TestRecorder:
    """Points the slot of one process of a test run."""

    __test__ = False

    def __init__(self, connection: Connection, root: Path, command: RecordCommand) -> None:
        self._connection = connection
        self._deck = connection.deck
        self._slot = connection.slot
        self._root = root
        self._command = command
        self.results = RunResults()
        self.current: TestTake | None = None
        self._scopes: list[str] = []
        """The cassettes of the fixtures under set-up, the innermost last."""

    def point_at_scope(self, cassette: str) -> None:
        """Point the slot at the cassette of a scope wider than a test."""
        tests = [] if self.current is None else [self.current.node_id]
        number = self._deck.point(
            self._slot,
            cassette,
            self._connection.mode,
            record_command=self._command.of(tests),
        )
        if self.current is not None:
            self.current.leave(number)

    def begin(self, node_id: str, recorded: RecordedTest) -> None:
        """Point the slot at a test's cassette. Raises DeckError for an unreadable cassette."""
        mode = recorded.mode or self._connection.mode
        take = TestTake(node_id, recorded, mode)
        if take.records and not recorded.shared:
            take.before = self._export(recorded.cassette)
        self.current = take
        self.resume()

    def resume(self) -> None:
        """Point the slot at the running test's cassette again, if a test runs."""
        if (take := self.current) is not None:
            recorded = take.recorded
            take.enter(
                self._deck.point(
                    self._slot,
                    recorded.cassette,
                    take.mode,
                    rules=recorded.rules,
                    record_command=self._command.of([take.node_id]),
                    faults=recorded.faults,
                )
            )

    def misses(self, take: TestTake) -> list[dict[str, Any]]:
        """The new misses of a test and of its wider fixtures since the last call, oldest first."""
        missed = self._deck.journal(
            slot=self._slot, outcome="miss", since=take.first, limit=_MOST_MISSES
        )
        entries = [entry for entry in reversed(missed) if entry["id"] not in take.told]
        take.told.update(entry["id"] for entry in entries)
        take.missing += [entry["match_key"] for entry in entries if take.owns(entry["take"])]
        return entries

    def end(self) -> None:
        """End the current test: keep or restore its cassette."""
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
        if take.told:
            self.results.missed.append(take.node_id)
        if take.missing:
            self.results.missing.append((name, take.missing))
        bad = not take.succeeded or take.mode != "replay"
        (self.results.spoilt if bad else self.results.trusted).append(name)
        self.results.rewound += rewound
        if take.recorded.shared:
            return
        keeps_all = take.mode != "record" or not take.succeeded or rewound
        if (report := self._eject(name, prune=not keeps_all)) is not None:
            if rewound:
                report["unused"] = []
            self.results.reports.append(report)
        # A test may eject its cassette itself, and no report tells then whether the test recorded.
        if not take.succeeded and take.records and (now := self._export(name)) != take.before:
            file = self._set_aside(name, now, take.before)
            self.results.set_aside.append(f"what {take.node_id} recorded is in {file}")

    def _rewound(self, take: TestTake) -> bool:
        """Whether a rewind, an eject or the like began a take after the slot was pointed last."""
        now = self._deck.admin.call("GET", f"slots/{segment(self._slot)}")
        return bool(now["take"] != take.own[-1].start)

    def _set_aside(
        self, name: str, now: dict[str, Any] | None, before: dict[str, Any] | None
    ) -> str:
        """Move a failed test's recordings out of the store, and restore the cassette of before.

        Returns the file of the recordings.
        """
        path = own_folder(self._root) / "failed" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(now, indent=2), encoding="utf-8")
        address = f"cassettes/{segment(name)}"
        if before is None:
            self._deck.admin.call("DELETE", address)
        else:
            self._deck.admin.call("PUT", address, before, secrets="keep")
        return os.path.relpath(path)

    def _export(self, name: str) -> dict[str, Any] | None:
        try:
            cassette: dict[str, Any] = self._deck.admin.call("GET", f"cassettes/{segment(name)}")
        except DeckError as exc:
            if exc.status == 404:
                return None
            raise
        return cassette

    def _eject(self, name: str, *, prune: bool) -> dict[str, Any] | None:
        """The report of a used cassette, None for an unused cassette."""
        try:
            return self._deck.eject(name, prune=prune)
        except DeckError as exc:
            if exc.code == "not_inserted":
                return None
            raise

    @contextmanager
    def in_scope(self, cassette: str) -> Iterator[None]:
        """Send requests of the block to the cassette of a wider scope.

        During its set-up a fixture may ask for another fixture, and goes on afterwards.
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
