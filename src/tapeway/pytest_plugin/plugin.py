"""The hooks and fixtures of the pytest plugin; pytest loads this module by an entry point."""

import json
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from ..embedded.admin_client import DeckError
from ..embedded.deck import Deck
from ..embedded.last import last_url
from .cassette_fixture import TestCassette
from .connection import Connection, connect
from .markers import MARKER, MARKER_HELP, RecordedTest, check, recorded_as
from .names import distinct_names, scope_name
from .outcome import RunOutcome
from .record_command import RecordCommand
from .recorder import TestRecorder
from .reports import check_report, miss_section
from .vcr_tests import left_to_vcr, vcr_hint

_CONNECTION = pytest.StashKey[Connection | None]()
_PLUGIN = "tapeway-run"
_FIXTURES = ("tapeway", "cassette")
_NO_CASSETTES = (
    "there are no cassettes to replay yet: record some with --tapeway=record, or go without by "
    "--tapeway=off"
)
_OFF = "the fixture tapeway needs a proxy, and --tapeway=off runs without one: leave the option out"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tapeway", "record and replay HTTP and LLM calls")
    group.addoption(
        "--tapeway",
        choices=("replay", "record", "auto", "off"),
        help="What requests through tapeway do. By default TAPEWAY_MODE, or else replay where "
        "there is a tapeway.toml or a cassette. CI=true turns auto into replay.",
    )
    group.addoption(
        "--tapeway-strict",
        action="store_true",
        help="Fail the run for unused recordings, orphans, and requests after a test's end.",
    )
    group.addoption(
        "--tapeway-report",
        action="append",
        default=[],
        metavar="FILE",
        help="Write the report: .json, .xml (JUnit), .md, .txt or .html. May be repeated.",
    )
    group.addoption(
        "--tapeway-unused",
        choices=("ignore", "warn", "fail"),
        default="warn",
        help="What recordings are that no passed test replayed. [warn]",
    )
    group.addoption(
        "--tapeway-stale",
        choices=("warn", "fail"),
        default="warn",
        help="What recordings older than max_age are. [warn]",
    )
    group.addoption(
        "--tapeway-prune",
        action="store_true",
        help="Drop the recordings that a whole run without a failure did not use, in cassettes of "
        "which it replayed something.",
    )
    group.addoption(
        "--tapeway-annotations",
        action="store_true",
        help="Print misses and the like as annotations of a build too (::error file=…).",
    )
    group.addoption(
        "--tapeway-orphans",
        action="store_true",
        help="Fail the run for cassettes that no collected test names; needs a whole run.",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Connect before any conftest or test module is imported."""
    given = getattr(early_config.known_args_namespace, "tapeway", None)
    early_config.stash[_CONNECTION] = connect(early_config, given)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER_HELP)
    for file in config.getoption("tapeway_report"):
        check_report(file)
    connection = config.stash.get(_CONNECTION, None)
    if connection is not None:
        config.pluginmanager.register(RunPlugin(config, connection), _PLUGIN)


@pytest.fixture(scope="session")
def tapeway(pytestconfig: pytest.Config) -> Deck:
    """The tapeway of this run."""
    connection = pytestconfig.stash.get(_CONNECTION, None)
    if connection is None:
        pytest.skip(_OFF if pytestconfig.getoption("tapeway") == "off" else _NO_CASSETTES)
    return connection.deck


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> TestCassette:
    """The cassette and the requests of this test."""
    plugin: RunPlugin | None = request.config.pluginmanager.get_plugin(_PLUGIN)
    if plugin is None:
        if request.config.getoption("tapeway") == "off":
            return TestCassette(recorded_as(request.node).cassette, None, None)
        pytest.fail(_NO_CASSETTES, pytrace=False)
    return plugin.cassette()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    config = item.config
    if (
        item.get_closest_marker(MARKER) is not None
        and config.stash.get(_CONNECTION, None) is None
        and config.getoption("tapeway") != "off"
    ):
        pytest.fail(_NO_CASSETTES, pytrace=False)


class RunPlugin:
    """The hooks of a run that uses tapeway."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        command = RecordCommand(config, connection.record_command)
        self._recorder = TestRecorder(connection, config.rootpath, command)
        self._outcome = RunOutcome(config, connection, command)
        # A sidecar shows the page itself.
        self._page = last_url(config.rootpath) if connection.starts_server else None
        self._recorded: dict[str, RecordedTest] = {}
        self._known: set[tuple[str, str]] = set()
        """Names, rules and faults that tapeway takes."""
        self._faults: dict[str, str] = {}
        """Why tests cannot run, by their node ids."""
        self._left: set[str] = set()
        """Tests that VCR.py answers, by their node ids."""
        self._runs_tests = connection.is_worker or getattr(config.option, "dist", "no") == "no"

    def cassette(self) -> TestCassette:
        """The cassette of the running test."""
        take = self._recorder.current
        if take is None:
            raise RuntimeError("no test runs")
        return TestCassette(take.recorded.cassette, self._connection, take)

    # Collection.

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self) -> Generator[None, object, object]:
        if self._runs_tests:
            self._connection.wait()
            # A request sent during the import of a module belongs to no test.
            self._recorder.point_at_scope(scope_name("session", ""))
        # The workers of pytest-xdist start here, while the server does.
        answer = yield
        self._connection.wait()
        return answer

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            try:
                self._recorded[item.nodeid] = self._checked(item)
            except pytest.UsageError as exc:
                # After an error in a worker, pytest-xdist would only report a crash.
                if not self._connection.is_worker:
                    raise
                self._faults[item.nodeid] = str(exc)
        self._left |= {item.nodeid for item in items if left_to_vcr(item)}
        own = {
            key: recorded.cassette
            for key, recorded in self._recorded.items()
            if not recorded.shared
        }
        single = any("::" in arg for arg in self._config.args)
        stored = self._outcome.stored_names() if single and own else ()
        for key, name in distinct_names(own, stored).items():
            known = self._recorded[key]
            self._recorded[key] = replace(known, cassette=name, shared=False)
        places = {item.nodeid: (item.location[0], (item.location[1] or 0) + 1) for item in items}
        self._outcome.places = {
            recorded.cassette: places[node_id]
            for node_id, recorded in reversed(self._recorded.items())
        }

    def _checked(self, item: pytest.Item) -> RecordedTest:
        """How a test uses tapeway. Raises UsageError for what tapeway refuses."""
        recorded = recorded_as(item)
        asked = (recorded.cassette, json.dumps([recorded.rules, recorded.faults], default=repr))
        is_given = recorded.shared or recorded.rules is not None or bool(recorded.faults)
        if is_given and asked not in self._known:
            try:
                check(recorded, self._connection.deck.admin)
            except (DeckError, TypeError) as exc:
                raise pytest.UsageError(f"{item.nodeid}: {exc}") from None
            self._known.add(asked)
        return recorded

    def pytest_deselected(self) -> None:
        self._outcome.partial = True

    # Tests.

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if item.nodeid in self._left:
            with self._connection.outer.in_force(True):
                return (yield)
        if (recorded := self._recorded.get(item.nodeid)) is not None:
            try:
                self._recorder.begin(item.nodeid, recorded)
            except DeckError as exc:
                self._faults[item.nodeid] = str(exc)
        try:
            return (yield)
        finally:
            self._recorder.end()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if (fault := self._faults.get(item.nodeid)) is not None:
            pytest.fail(fault, pytrace=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if item.nodeid in self._left:
            if hint := vcr_hint(report, self._connection.deck.url(slot=self._connection.slot)):
                report.sections.append(("tapeway", hint))
            return report
        if (take := self._recorder.current) is None:
            return report
        if report.when == "setup":
            # Plugins may run a test again that failed.
            take.failed = take.passed = False
            if report.passed:
                return report
        if misses := self._recorder.misses(take):
            if not report.failed:
                report.outcome = "failed"
                report.longrepr = misses[0]["message"]
            if section := miss_section(misses, report.longreprtext, self._page):
                report.sections.append(("tapeway", section))
        take.failed = take.failed or report.failed
        take.passed = take.passed or (report.when == "call" and report.passed)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        if fixturedef.scope == "function" or fixturedef.argname in _FIXTURES:
            return (yield)
        cassette = scope_name(fixturedef.scope, request.node.nodeid)
        tests = [other for other in request.session.items if request.node in other.listchain()]
        # A client that other tests use too must not lead past tapeway.
        left = all(test.nodeid in self._left for test in tests)
        with self._connection.outer.in_force(left), self._recorder.in_scope(cassette):
            answer = yield
        # The finalizer that is added last is called first.
        fixturedef.addfinalizer(lambda: self._recorder.point_at_scope(cassette))
        return answer

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        if fixturedef.scope != "function" and fixturedef.argname not in _FIXTURES:
            self._recorder.resume()

    # The end.

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._runs_tests:
            self._outcome.add(self._recorder.results)
        if self._connection.is_worker:
            session.config.workeroutput["tapeway"] = self._outcome.gathered()  # type: ignore[attr-defined] # xdist's
        else:
            session.exitstatus = self._outcome.settle(int(session.exitstatus))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        if (gathered := getattr(node, "workeroutput", {}).get("tapeway")) is not None:
            self._outcome.take_over(gathered)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._connection.is_worker:
            self._outcome.print(terminalreporter)
