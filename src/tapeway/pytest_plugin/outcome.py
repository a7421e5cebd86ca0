"""What a whole run left: unused recordings, orphans, late requests; the summary and the report files."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tapeway.deck.admin_client import DeckError
from tapeway.deck.deck import Deck

_MOST_NAMED = 20
_PAGE = 1000


class RunOutcome:
    """Gathers what the processes of a run found, and settles how the run ended."""

    def __init__(self, config: pytest.Config, deck: Deck) -> None:
        self._config = config
        self._deck = deck
        self.collected: list[str] = []
        self.partial = False
        self._reports: list[dict[str, Any]] = []
        self._trusted: set[str] = set()
        self._spoilt: set[str] = set()
        self._ended: list[tuple[str, str]] = []
        self._unused: list[str] = []
        self._orphans: list[str] = []
        self._late: list[str] = []
        self._refused: str | None = None

    def add(self, results: Mapping[str, Any]) -> None:
        """Add what the tests of one process left."""
        self._reports += results["reports"]
        self._trusted |= {*results["trusted"]}
        self._spoilt |= {*results["spoilt"]}
        self._ended += [tuple(each) for each in results["ended"]]

    def gathered(self) -> dict[str, Any]:
        """The same as plain values, for the process that started the run."""
        return {
            "collected": self.collected,
            "partial": self.partial,
            "reports": self._reports,
            "trusted": sorted(self._trusted),
            "spoilt": sorted(self._spoilt),
            "ended": [list(each) for each in self._ended],
        }

    def take_over(self, gathered: Mapping[str, Any]) -> None:
        """Add what a worker gathered."""
        self.add(gathered)
        self.collected = sorted({*self.collected, *gathered["collected"]})
        self.partial = self.partial or gathered["partial"]

    def settle(self, exitstatus: int) -> int:
        """Look at the whole run; returns its exit status, which only becomes worse."""
        option = self._config.option
        self._reports += self._deck_reports()
        self._late = [*self._late_requests()]
        self._unused = [*self._unused_recordings()]
        if option.tapeway_orphans or option.tapeway_strict:
            self._find_orphans(exitstatus)
        self._write_reports(option.tapeway_report)
        fails = bool(self._orphans)
        fails |= bool(self._unused) and (option.tapeway_unused == "fail" or option.tapeway_strict)
        fails |= bool(self._late) and option.tapeway_strict
        fails |= self._refused is not None and option.tapeway_orphans
        return int(pytest.ExitCode.TESTS_FAILED) if fails and exitstatus == 0 else exitstatus

    def print(self, terminal: pytest.TerminalReporter) -> None:
        """Print the summary, if there is anything to say."""
        unused = self._unused if self._config.option.tapeway_unused != "ignore" else []
        titled = (
            ("not used", unused),
            ("cassettes that no test names", self._orphans),
            ("requests after their test had ended", self._late),
        )
        counts = {
            kind: sum(each[kind] for each in self._reports)
            for kind in ("replayed", "recorded", "live")
        }
        missed = sum(miss["times"] for each in self._reports for miss in each["misses"])
        counts["missed"] = missed
        if not (any(counts.values()) or any(found for _, found in titled) or self._refused):
            return
        terminal.section("tapeway")
        said = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        terminal.line(said or "no requests")
        if self._refused is not None:
            terminal.line(self._refused)
        for title, found in titled:
            for line in found[:_MOST_NAMED]:
                terminal.line(f"{title}: {line}")
            if (more := len(found) - _MOST_NAMED) > 0:
                terminal.line(f"{title}: {more} more")

    def _deck_reports(self) -> list[dict[str, Any]]:
        """The reports of cassettes that several tests shared, or that belong to wider scopes."""
        names = [each["name"] for each in self._deck.report()["cassettes"]]
        found = []
        for name in names:
            try:
                report = self._deck.eject(name)
            except DeckError as exc:
                if exc.code != "not_inserted":
                    raise
                continue
            if report["replayed"] or report["recorded"] or report["live"] or report["misses"]:
                found.append(report)
        return found

    def _late_requests(self) -> Iterator[str]:
        """Requests through a slot while no test ran, each with the test that ended before it."""
        ended = sorted(self._ended)
        for entry in reversed(self._deck.journal(outcome="error", limit=_PAGE)):
            if not str(entry["message"]).startswith("no_slot"):
                continue
            before = [test for at, test in ended if at <= entry["at"]]
            yield f"{entry['method']} {entry['path']}" + (f" of {before[-1]}" if before else "")

    def _unused_recordings(self) -> Iterator[str]:
        if (
            self._config.option.tapeway_unused == "ignore"
            and not self._config.option.tapeway_strict
        ):
            return
        trusted = self._trusted - self._spoilt
        for report in self._reports:
            if report["name"] in trusted:
                for item in report["unused"]:
                    yield f"#{item['index']} {item['method']} {item['path']} of {report['name']}"
        used = {report["name"] for report in self._reports}
        for name in self._stored():
            if name in trusted - used:
                yield f"all recordings of {name}"

    def _find_orphans(self, exitstatus: int) -> None:
        if (why := self._why_partial(exitstatus)) is not None:
            self._refused = f"orphans were not looked for: {why}"
            return
        known = {*self.collected}
        self._orphans = [
            name
            for name in self._stored()
            if name not in known and not name.rpartition("/")[2].startswith("fixtures.")
        ]

    def _stored(self) -> Iterator[str]:
        """The names of all cassettes in the store."""
        after: str | None = None
        while True:
            page = self._deck.admin.call("GET", "cassettes", after=after, limit=_PAGE, counts=False)
            yield from (each["name"] for each in page["cassettes"])
            if (after := page["next"]) is None:
                return

    def _why_partial(self, exitstatus: int) -> str | None:
        option = self._config.option
        if exitstatus != 0:
            return "the run failed"
        if self.partial or option.keyword or option.markexpr or getattr(option, "lf", False):
            return "some tests were deselected"
        if self._config.args_source == pytest.Config.ArgsSource.ARGS:
            return "only some paths were collected"
        return None

    def _write_reports(self, files: list[str]) -> None:
        if not files:
            return
        # Only a run that writes one needs what it takes, which takes time to import.
        from tapeway.pytest_plugin.reports import write_report

        connections = self._deck.report()["upstream_connections"]
        for file in files:
            write_report(file, self._reports, connections)
