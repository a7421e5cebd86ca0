"""The outcome of a whole run: unused and stale recordings, orphans, late requests, report files."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import pytest

from ..embedded.admin_client import DeckError, segment
from ..embedded.last import LAST
from .connection import Connection
from .record_command import RecordCommand
from .recorder import RunResults
from .reports import leave_page, notes_of, write_report

_CORRUPT = "cassette_corrupt: "
_MOST_NAMED = 20
_PAGE = 1000
_ASKED = ("replayed", "recorded", "live", "misses", "failed")
_SAYS_SOMETHING = (*_ASKED, "unrecorded")
_NO_NOTES: Mapping[str, Any] = {
    **dict.fromkeys(
        ("causes", "gains", "notices", "failed", "unreached", "unrecorded", "annotations"), ()
    ),
    "renamed": {},
}


class RunOutcome:
    """Gathers what the processes of a run found, and settles how the run ended."""

    def __init__(
        self, config: pytest.Config, connection: Connection, command: RecordCommand
    ) -> None:
        self._config = config
        self._command = command
        self._deck = connection.deck
        # Another tapeway's page can still be opened when the run has ended.
        self._leaves_page = connection.starts_server
        self.places: dict[str, tuple[str, int]] = {}
        """For each collected cassette the file, from pytest's root, and the line of its test."""
        self.partial = False
        self._results = RunResults()
        self._stored: list[str] | None = None
        self._said: dict[str, list[str]] = {}
        self._refused: list[str] = []
        self._notes: Mapping[str, Any] = _NO_NOTES
        self._page: str | None = None
        """The summary's line about the run's page."""

    def add(self, results: RunResults) -> None:
        """Add the results of the tests of this process."""
        self._results.add(asdict(results))

    def gathered(self) -> dict[str, Any]:
        """The gathered results as plain values, for the process that started the run."""
        results = asdict(self._results)
        return {"places": self.places, "partial": self.partial, "results": results}

    def take_over(self, gathered: Mapping[str, Any]) -> None:
        """Add what a worker gathered."""
        self._results.add(gathered["results"])
        self.places |= gathered["places"]
        self.partial = self.partial or gathered["partial"]

    def settle(self, exitstatus: int) -> int:
        """Look at the whole run; returns the exit status, never a better one than before."""
        option = self._config.option
        self._results.reports += self._deck_reports()
        why_not = self.why_partial() if exitstatus == 0 else "the run failed"
        late = [*self._late_requests()]
        if option.tapeway_prune:
            late_ones = "requests came after their test had ended" if late else None
            takes = "a test began new takes itself" if self._results.rewound else None
            self._prune(why_not or late_ones or takes)
        unused = [*self._unused_recordings()]
        orphans = [*self._orphans(why_not)]
        stale = [f"{_title(item)}, of {item['day']}" for item in self._items("stale")]
        unwritten = [*self._write_reports(option.tapeway_report)]
        if self._leaves_page and any(
            any(report[kind] for kind in _ASKED) for report in self._results.reports
        ):
            self._leave_page()
        self._said |= {
            "not written": unwritten,
            "not kept": self._results.not_kept,
            "set aside": self._results.set_aside,
            "to record what was missed": [self._command.of(self._results.missed)]
            if self._results.missed
            else [],
            "cassettes that no test names": orphans,
            "to delete them": [shlex.join(["tapeway", "cassette", "rm", *orphans])]
            if orphans
            else [],
            "cannot be read": self._unreadable(),
            "requests after their test had ended": late,
            "not used": unused if option.tapeway_unused != "ignore" else [],
            "to drop what is not used": ["pytest --tapeway-prune"]
            if unused and option.tapeway_unused != "ignore"
            else [],
            "stale": stale,
        }
        self._ask_for_notes()
        fails = bool(orphans) or (bool(stale) and option.tapeway_stale == "fail")
        fails |= bool(unused) and (option.tapeway_unused == "fail" or option.tapeway_strict)
        fails |= bool(self._results.not_kept) or bool(unwritten)
        fails |= bool(late) and option.tapeway_strict
        fails |= bool(self._refused) and (option.tapeway_orphans or option.tapeway_prune)
        return int(pytest.ExitCode.TESTS_FAILED) if fails and exitstatus == 0 else exitstatus

    def print(self, terminal: pytest.TerminalReporter) -> None:
        """Print the summary, if there is anything to say."""
        counts = {
            kind: sum(report[kind] for report in self._results.reports)
            for kind in ("replayed", "recorded", "live")
        }
        counts["missed"] = sum(
            miss["times"] for report in self._results.reports for miss in report["misses"]
        )
        counts["failed"] = sum(sum(report["failed"].values()) for report in self._results.reports)
        unrecorded = any(report["unrecorded"] for report in self._results.reports)
        if not (any(counts.values()) or any(self._said.values()) or self._refused or unrecorded):
            return
        terminal.section("tapeway")
        counted = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        terminal.line(counted or "no requests")
        causes = self._notes["causes"]
        for line in causes[:_MOST_NAMED]:
            terminal.line(line, red=True)
        if (others := len(causes) - _MOST_NAMED) > 0:
            terminal.line(f"{others} more causes", red=True)
        for line in (*self._notes["gains"], *self._notes["notices"], *self._refused):
            terminal.line(line)
        said_of = {
            "failed": self._notes["failed"],
            **self._said,
            "not stored": self._notes["unrecorded"],
            "not reached to its end": self._notes["unreached"],
        }
        for title, lines in said_of.items():
            for line in lines[:_MOST_NAMED]:
                terminal.line(f"{title}: {line}")
            if (more := len(lines) - _MOST_NAMED) > 0:
                terminal.line(f"{title}: {more} more")
        if self._page is not None:
            terminal.line(self._page)
        if self._config.option.tapeway_annotations:
            for line in self._notes["annotations"]:
                terminal.line(line)

    def _items(self, kind: str) -> Iterator[dict[str, Any]]:
        """The recordings of a kind in all reports, each with its cassette."""
        for report in self._results.reports:
            yield from ({**item, "cassette": report["name"]} for item in report[kind])

    def _deck_reports(self) -> list[dict[str, Any]]:
        """The reports of cassettes of several tests, or of a wider scope than a test."""
        names = [reported["name"] for reported in self._deck.report()["cassettes"]]
        reports = []
        for name in names:
            try:
                report = self._deck.eject(name)
            except DeckError as exc:
                if exc.code != "not_inserted":
                    self._results.not_kept.append(f"{name}: {exc}")
                continue
            if self._results.rewound:
                report["unused"] = []
            if any(report[kind] for kind in _SAYS_SOMETHING):
                reports.append(report)
        return reports

    def _late_requests(self) -> Iterator[str]:
        """Requests through a slot while no test ran, with the test that ended last before."""
        ended = sorted(self._results.ended)
        for entry in reversed(self._deck.journal(outcome="error", limit=_PAGE)):
            if not str(entry["message"]).startswith("no_slot"):
                continue
            before = [test for at, test in ended if at <= entry["at"]]
            yield f"{entry['method']} {entry['path']}" + (f" of {before[-1]}" if before else "")

    def _unreadable(self) -> list[str]:
        """Why requests got no answer from a cassette that is there, each reason once.

        Not every client shows the body of an error.
        """
        failed = self._deck.journal(outcome="error", limit=_PAGE)
        messages = [str(entry["message"]) for entry in reversed(failed)]
        corrupt = [message for message in messages if message.startswith(_CORRUPT)]
        return [message.removeprefix(_CORRUPT) for message in dict.fromkeys(corrupt)]

    # What was recorded and not used.

    def _prune(self, why_not: str | None) -> None:
        """Drop unused recordings of cassettes from which passed tests replayed something."""
        if why_not is not None:
            self._refused.append(f"nothing was pruned: {why_not}")
            return
        trusted = self._results.all_replayed
        for report in self._results.reports:
            if report["name"] not in trusted or not report["replayed"] or not report["unused"]:
                continue
            path = f"cassettes/{segment(report['name'])}/interactions"
            # The last index first: a deletion moves the indices behind.
            for index in sorted(
                (recording["index"] for recording in report["unused"]), reverse=True
            ):
                self._deck.admin.call("DELETE", f"{path}/{index}")
            count = len(report["unused"])
            self._said.setdefault("pruned", []).append(f"{count} of {report['name']}")
            report["unused"] = []

    def _unused_recordings(self) -> Iterator[str]:
        if (
            self._config.option.tapeway_unused == "ignore"
            and not self._config.option.tapeway_strict
        ):
            return
        trusted = self._results.all_replayed
        yield from (_title(item) for item in self._items("unused") if item["cassette"] in trusted)
        used = {report["name"] for report in self._results.reports}
        for name in self.stored_names():
            if name in trusted - used:
                fault = self._fault(name)
                yield f"all recordings of {name}" if fault is None else f"{name}: {fault}"

    def _fault(self, name: str) -> str | None:
        """Why a cassette cannot be read; None for a readable cassette."""
        try:
            self._deck.admin.call("GET", f"cassettes/{segment(name)}/interactions", limit=1)
        except DeckError as exc:
            return f"it cannot be read: {exc}"
        return None

    # Cassettes and the tests that name them.

    def _orphans(self, why_not: str | None) -> Iterable[str]:
        option = self._config.option
        if not (option.tapeway_orphans or option.tapeway_strict):
            return ()
        if why_not is not None:
            self._refused.append(f"orphans were not looked for: {why_not}")
            return ()
        return self._unclaimed()

    def _unclaimed(self) -> list[str]:
        return [
            name
            for name in self.stored_names()
            if name not in self.places and not name.rpartition("/")[2].startswith("fixtures.")
        ]

    def _ask_for_notes(self) -> None:
        """Have tapeway put the reports into words, and look for the recordings of renamed tests."""
        missing = {
            name: keys for name, keys in self._results.missing if name not in self.stored_names()
        }
        if not missing and not any(
            any(report[kind] for kind in _SAYS_SOMETHING) for report in self._results.reports
        ):
            return
        # A test's own cassette is in the folder of its file; others are of `tapeway run` and the like.
        unclaimed = [name for name in self._unclaimed() if "/" in name] if missing else []
        if self.why_partial() == _SOME_PATHS:
            # The cassettes of other modules, and of a single test's siblings, are unknown.
            folders = {name.rpartition("/")[0] for name in self.places}
            whole = not any("::" in arg for arg in self._config.args)
            unclaimed = [name for name in unclaimed if whole and name.rpartition("/")[0] in folders]
        root = self._config.rootpath
        try:
            self._notes = notes_of(
                self._deck, self._results.reports, self.places, root, missing, unclaimed
            )
        except DeckError as exc:
            self._refused.append(f"warning: tapeway says no more of this run: {exc}")
        self._said["renamed"] = [
            f"{new}: its recordings are in {old}, which no test names: tapeway cassette mv {old} {new}"
            for new, old in self._notes["renamed"].items()
        ]

    def stored_names(self) -> list[str]:
        """The names of all cassettes in the store, as they were when first asked for."""
        if self._stored is None:
            self._stored = [*self._pages()]
        return self._stored

    def _pages(self) -> Iterator[str]:
        after: str | None = None
        while True:
            page = self._deck.admin.call("GET", "cassettes", after=after, limit=_PAGE, counts=False)
            yield from (row["name"] for row in page["cassettes"])
            if (after := page["next"]) is None:
                return

    def why_partial(self) -> str | None:
        """Why this was not a whole run; None where it was."""
        config, option = self._config, self._config.option
        if self.partial or option.keyword or option.markexpr or getattr(option, "lf", False):
            return "some tests were deselected"
        given = config.invocation_params
        elsewhere = (
            config.args_source == pytest.Config.ArgsSource.INVOCATION_DIR
            and given.dir != config.rootpath
        )
        ignored = any(str(arg).startswith("--ignore") for arg in given.args)
        if config.args_source == pytest.Config.ArgsSource.ARGS or elsewhere or ignored:
            return _SOME_PATHS
        return None

    def _write_reports(self, files: list[str]) -> Iterator[str]:
        """Write the report to files; yields each file that cannot be written, with the reason."""
        for file in files:
            try:
                write_report(file, self._results.reports, self._deck)
            except OSError as exc:
                yield f"{file}: {exc.strerror}"
            except DeckError as exc:
                yield f"{file}: {exc}"

    def _leave_page(self) -> None:
        """Leave the page of the run; a folder that takes no file is no failure."""
        try:
            self._page = leave_page(self._config.rootpath, self._results.reports, self._deck)
        except OSError as exc:
            self._page = f"warning: {LAST} cannot be written: {exc.strerror}"
        except DeckError as exc:
            self._page = f"warning: {LAST} could not be made: {exc}"


_SOME_PATHS = "only some paths were collected"


def _title(item: Mapping[str, Any]) -> str:
    return f"#{item['index']} {item['method']} {item['path']} of {item['cassette']}"
